/* ddp: the norm of all gradients has the same bits however parameters, gradients and work are divided: among ranks that hold other
 * parameters or slices of them, ranks that share a ZeRO bucket, both, and threads.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda */
#include "distributed/ddp_trainer.h"
#include "harness/memory.h"
#include "nn/nn.h"

enum { LAYERS = 5, ROWS = 12, ROW = 9, WIDE = 300 };

/* ---- A model of which each rank may hold a part ---- */

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_linear layers[LAYERS], sliced, everywhere;
} net;

static bool has(int layer, int part, int parts)
{
    return layer % parts == part;
}

static int in_of(int layer)
{
    return layer == 1 ? WIDE : 5 + layer;
}

/* Part `part` of `parts`: some of the layers, some rows of `sliced`, all of `everywhere`, which part 0 counts. */
static int net_new(net *m, int part, int parts, int threads)
{
    static const char *const names[LAYERS] = {"l0", "l1", "l2", "l3", "l4"};

    *m = (net){0};
    CHECK_OK(tutti_ctx_new(&m->cx, test_device(),
                           &(tutti_ctx_opts){.threads = threads, .kernels = test_kernels()}));
    tutti_module_init(&m->base, m->cx);
    for (int i = 0; i < LAYERS; i++)
        if (has(i, part, parts))
            tutti_linear_init(&m->layers[i], &m->base, names[i], in_of(i), in_of(i));
    tutti_linear_init(&m->sliced, &m->base, "sliced", ROW, ROWS / parts);
    tutti_linear_init(&m->everywhere, &m->base, "everywhere", 4, 3);
    CHECK_OK(tutti_module_status(&m->base));
    m->everywhere.weight->parameter->counted_by_peer = part != 0;
    m->everywhere.bias->parameter->counted_by_peer = part != 0;
    return 0;
}

static void net_free(net *m)
{
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

/* Of element i of the whole parameter with this number: of all sizes. */
static float gradient(int number, int64_t i)
{
    return ldexpf(sinf((float)(i * 7 + number)), (int)(i % 61) - 50 - number % 7);
}

static int give(tutti_tensor *t, int number, int64_t first)
{
    float *values = test_keep(tutti__tensor_bytes(t));
    tutti__parameter *p = t->parameter;

    if (!p->grad)
        CHECK_OK(p->prepare(p->owner));
    for (int64_t i = 0; i < tutti_shape_count(t->shape); i++)
        values[i] = gradient(number, first + i);
    test_grad_put(t, values);
    p->grad_round = *p->round;
    return 0;
}

static int give_all(net *m, int part, int parts)
{
    const int first = part * (ROWS / parts);

    for (int i = 0; i < LAYERS; i++)
        if (has(i, part, parts)) {
            CHECK_0(give(m->layers[i].weight, 2 * i, 0));
            CHECK_0(give(m->layers[i].bias, 2 * i + 1, 0));
        }
    CHECK_0(give(m->sliced.weight, 20, first * ROW));
    CHECK_0(give(m->sliced.bias, 21, first));
    CHECK_0(give(m->everywhere.weight, 22, 0));
    CHECK_0(give(m->everywhere.bias, 23, 0));
    return 0;
}

/* Clips the gradients of such a part; *everywhere: what clipping has made of the parameter that all have. */
static int clip(tutti_group *peers, int part, int parts, int threads, float max_norm, float *norm_p,
                float everywhere[3])
{
    net m;

    CHECK_0(net_new(&m, part, parts, threads));
    if (peers)
        m.base.root->norm_peers[0] = tutti_group_peers(peers);
    CHECK_0(give_all(&m, part, parts));
    CHECK_OK(tutti_clip_grad_norm(&m.base, max_norm, norm_p));
    memcpy(everywhere, test_grad(m.everywhere.bias), 3 * sizeof(float));
    net_free(&m);
    return 0;
}

static int a_divided_model_has_the_norm_of_the_whole(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    float norms[4], clipped[4][3];

    (void)arg;
    for (int k = 0; k < 3; k++)
        CHECK_0(clip(NULL, 0, 1, 1 + k, 0.01f, &norms[k], clipped[k]));
    CHECK_0(clip(group, rank, size, 1 + rank, 0.01f, &norms[3], clipped[3]));
    for (int k = 1; k < 4; k++) {
        CHECK(memcmp(&norms[k], &norms[0], sizeof *norms) == 0);
        CHECK(memcmp(clipped[k], clipped[0], sizeof *clipped) == 0);
    }
    CHECK(norms[0] > 0.01f && clipped[0][1] != gradient(23, 1));
    return 0;
}

static int a_nan_of_one_rank_reaches_all(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    float norm;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, rank, size, 1));
    m.base.root->norm_peers[0] = tutti_group_peers(group);
    CHECK_0(give_all(&m, rank, size));
    if (rank == size - 1)
        test_put(m.cx, m.sliced.bias->parameter->grad, &(float){NAN}, sizeof(float));
    CHECK_OK(tutti_clip_grad_norm(&m.base, 1, &norm));
    CHECK(isnan(norm));
    net_free(&m);
    return 0;
}

/* With a scaler that knows of no peers. */
static int an_infinity_of_one_rank_skips_the_step_on_all(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    tutti_scaler *scaler;
    tutti_optim *optim;
    bool stepped;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, rank, size, 1));
    m.base.root->norm_peers[0] = tutti_group_peers(group);
    CHECK_OK(tutti_sgd_new(&optim, &m.base, NULL));
    CHECK_OK(tutti_scaler_new(&scaler, NULL));
    for (int step = 0; step < 2; step++) {
        CHECK_0(give_all(&m, rank, size));
        if (step == 0 && rank == size - 1)
            test_put(m.cx, m.sliced.bias->parameter->grad, &(float){INFINITY}, sizeof(float));
        CHECK_OK(tutti_scaler_step(scaler, optim, &stepped));
        CHECK_OK(tutti_scaler_update(scaler));
        CHECK(stepped == (step == 1) && tutti_scaler_get_scale(scaler) == 32768);
    }
    tutti_scaler_free(scaler);
    tutti_optim_free(optim);
    net_free(&m);
    return 0;
}

/* ---- With ZeRO: ranks in rows, which hold other layers, and in columns, which share the gradients of theirs ---- */

/* The loss of each layer by itself, so that it does not matter which others there are. */
static tutti_status backward(net *m, int part, int parts, int salt)
{
    tutti_tensor *total = NULL;
    tutti_status status;

    tutti_step_begin(m->cx, NULL);
    for (int i = 0; i < LAYERS; i++) {
        float *values = test_keep((size_t)in_of(i) * sizeof *values);
        tutti_array array = {values, TUTTI_SHAPE(1, in_of(i)), TUTTI_F32};
        tutti_tensor *x, *loss;

        if (!has(i, part, parts))
            continue;
        for (int k = 0; k < in_of(i); k++)
            values[k] = sinf((float)(k * 3 + i + salt));
        x = tutti_input(m->cx, array);
        loss = tutti_mse_loss(tutti_linear_forward(&m->layers[i], x), x);
        total = total ? tutti_add(total, loss) : loss;
    }
    status = tutti_backward(total);
    tutti_step_end(m->cx);
    return status;
}

/* The same values whichever layers there are: a parameter's own are drawn by its number in the model. */
static int set_weights(net *m)
{
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_parameter(&m->base, i)); i++) {
        float *values = test_keep(tutti__tensor_bytes(t));

        for (int64_t k = 0; k < tutti_shape_count(t->shape); k++)
            values[k] = cosf((float)(k * 5 + (t->parameter->name[1] - '0')));
        CHECK_OK(tutti_tensor_write(t, values));
    }
    return 0;
}

/* The norm where part `part` of `parts` is trained by the ranks of `data`. */
static int norm_of(tutti_group *data, tutti_group *peers, int part, int parts, bool zero,
                   float *norm_p)
{
    const tutti_ddp_opts opts = {
        .bucket_mb = 1e-3, .first_bucket_mb = 1e-3, .find_unused = true, .zero = zero};
    tutti_ddp *ddp;
    net m;

    CHECK_0(net_new(&m, part, parts, 1));
    CHECK_0(set_weights(&m));
    if (peers)
        m.base.root->norm_peers[0] = tutti_group_peers(peers);
    CHECK_OK(tutti_ddp_new(&ddp, &m.base, data, &opts));
    CHECK_OK(backward(&m, part, parts, tutti_group_rank(data)));
    CHECK_OK(tutti_clip_grad_norm(&m.base, 0, norm_p));
    tutti_ddp_free(ddp);
    net_free(&m);
    return 0;
}

static int columns_of_shares_have_the_norm_of_the_whole(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), part = rank / 2;
    tutti_group *data, *peers;
    float norms[3];

    (void)arg;
    CHECK_OK(tutti_group_split_by(group, part, 0, "data", &data));
    CHECK_OK(tutti_group_split_by(group, rank % 2, 0, "peers", &peers));
    CHECK_0(norm_of(data, NULL, 0, 1, false, &norms[0]));
    for (int zero = 0; zero < 2; zero++)
        CHECK_0(norm_of(data, peers, part, 2, zero, &norms[1 + zero]));
    for (int k = 1; k < 3; k++)
        CHECK(memcmp(&norms[k], &norms[0], sizeof *norms) == 0);
    CHECK(norms[0] > 0);
    tutti_group_free(peers);
    tutti_group_free(data);
    return 0;
}

static void run_four(void **state)
{
    run((tutti_rank_body *)*state, NULL, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, a_divided_model_has_the_norm_of_the_whole),
        TEST(run_all, a_nan_of_one_rank_reaches_all),
        TEST(run_all, an_infinity_of_one_rank_skips_the_step_on_all),
        TEST(run_four, columns_of_shares_have_the_norm_of_the_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
