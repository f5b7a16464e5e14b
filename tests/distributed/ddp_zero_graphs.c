/* ddp: graphs of many shapes train with ZeRO-2 and 3 as without: PyTorch's cases for fully_shard.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda:long */
#include "ddp/zero.h"
#include "distributed/ddp_trainer.h"

enum { ROWS = 3, WIDTH = 67, OUT = 43, STEPS = 4 };

/* Widths are no multiples of the ranks; a weight fills some pages, which a rank gives back, and `scale` is smaller than the ranks. */
typedef struct net {
    tutti_module base;
    tutti_linear a, b, c, d;
    tutti_embedding e; /* of some graphs */
    tutti_tensor *scale;
    trainer t;
    int rank, step;
} net;

typedef struct graph {
    const char *name;
    tutti_tensor *(*forward)(net *m, tutti_tensor *x);
    const char *frozen;  /* patterns; NULL: none */
    const char *ignored; /* a parameter that each rank has for itself; NULL: none */
    bool tied, find_unused, recompute, embedding, sparse;
    tutti_dtype autocast;
} graph;

static tutti_tensor *middle(tutti_module *module, tutti_tensor *x)
{
    return tutti_relu(tutti_linear_forward((tutti_linear *)(void *)module, x));
}

static tutti_tensor *end(net *m, tutti_tensor *x)
{
    return tutti_linear_forward(&m->d, tutti_mul(x, m->scale));
}

static tutti_tensor *chain(net *m, tutti_tensor *x)
{
    x = tutti_linear_forward(&m->a, x);
    x = tutti_module_forward(&m->c.base, tutti_module_forward(&m->b.base, x));
    return end(m, x);
}

/* b takes part three times, with c between. */
static tutti_tensor *repeats(net *m, tutti_tensor *x)
{
    x = tutti_linear_forward(&m->a, x);
    for (int i = 0; i < 2; i++)
        x = tutti_module_forward(&m->c.base, tutti_module_forward(&m->b.base, x));
    return end(m, tutti_module_forward(&m->b.base, x));
}

/* Two forwards, the second in another order, before one backward: as losses of preferences have. */
static tutti_tensor *two_forwards(net *m, tutti_tensor *x)
{
    tutti_tensor *y = chain(m, x);
    tutti_tensor *z = tutti_linear_forward(&m->a, tutti_mul(x, x));

    z = tutti_module_forward(&m->b.base, tutti_module_forward(&m->c.base, z));
    return tutti_mul(y, end(m, z));
}

/* Views of parameters that are made before other layers run, and read after them. */
static tutti_tensor *early_views(net *m, tutti_tensor *x)
{
    tutti_tensor *w = tutti_transpose(m->d.weight, 0, 1);
    tutti_tensor *v = tutti_reshape(m->b.weight, TUTTI_SHAPE(1, WIDTH, WIDTH));

    x = tutti_module_forward(&m->b.base, tutti_linear_forward(&m->a, x));
    x = tutti_mul(tutti_module_forward(&m->c.base, x), m->scale);
    x = tutti_matmul(tutti_reshape(x, TUTTI_SHAPE(1, ROWS, WIDTH)), v);
    return tutti_add(tutti_matmul(tutti_reshape(x, TUTTI_SHAPE(ROWS, WIDTH)), w), m->d.bias);
}

/* The loss leaves out what c computed, and in every other step a rank does not run d. */
static tutti_tensor *unused_output(net *m, tutti_tensor *x)
{
    x = tutti_module_forward(&m->b.base, tutti_linear_forward(&m->a, x));
    (void)tutti_module_forward(&m->c.base, x);
    return (m->step + m->rank) % 2 == 1 ? tutti_narrow(x, 1, 0, OUT) : end(m, x);
}

static tutti_tensor *no_inputs(net *m, tutti_tensor *x)
{
    (void)x;
    return tutti_matmul(m->b.weight, m->c.weight);
}

/* Rows of a table with sparse gradients, other ones on each rank, besides those that all use. */
static tutti_tensor *rows(net *m, tutti_tensor *x)
{
    static _Thread_local int64_t tokens[ROWS];
    tutti_tensor *row;

    tokens[1] = m->rank + 1;
    tokens[2] = m->step + 5;
    row = tutti_embedding_forward(
        &m->e, tutti_input(m->t.cx, (tutti_array){tokens, TUTTI_SHAPE(ROWS), TUTTI_I64}));

    return end(m, tutti_module_forward(
                      &m->c.base, tutti_module_forward(
                                      &m->b.base, tutti_add(row, tutti_linear_forward(&m->a, x)))));
}

static const graph graphs[] = {
    {.name = "chain", .forward = chain},
    {.name = "repeats", .forward = repeats},
    {.name = "two forwards", .forward = two_forwards},
    {.name = "two forwards, recomputed", .forward = two_forwards, .recompute = true},
    {.name = "tied", .forward = repeats, .tied = true},
    {.name = "tied, recomputed", .forward = chain, .tied = true, .recompute = true},
    {.name = "early views", .forward = early_views},
    {.name = "unused output", .forward = unused_output, .find_unused = true},
    {.name = "no inputs", .forward = no_inputs, .find_unused = true},
    {.name = "rows", .forward = rows, .embedding = true},
    {.name = "sparse rows", .forward = rows, .embedding = true, .sparse = true},
    {.name = "biases only", .forward = repeats, .frozen = "*.weight"},
    {.name = "frozen between", .forward = two_forwards, .frozen = "b,d.weight"},
    {.name = "frozen, recomputed", .forward = repeats, .frozen = "c", .recompute = true},
    {.name = "ignored", .forward = repeats, .ignored = "c.weight"},
    {.name = "bf16", .forward = two_forwards, .autocast = TUTTI_BF16},
    {.name = "bf16, rows", .forward = rows, .embedding = true, .autocast = TUTTI_BF16},
    {.name = "bf16, recomputed", .forward = repeats, .recompute = true, .autocast = TUTTI_BF16},
    {.name = "bf16, frozen", .forward = two_forwards, .frozen = "b", .autocast = TUTTI_BF16},
    {.name = "f16", .forward = chain, .autocast = TUTTI_F16},
    {.name = "bf16, tied", .forward = repeats, .tied = true, .autocast = TUTTI_BF16},
};

/* A bucket for each weight. offloads: state and, with zero 3, parameters are in host memory. */
static int net_new_on(net *m, tutti_group *group, const graph *g, int zero, bool offloads)
{
    const tutti_ctx_opts cx_opts = {
        .threads = 1, .kernels = test_kernels(), .defers_parameters = zero == 3};
    const tutti_ddp_opts opts = {.first_bucket_mb = 1e-3,
                                 .bucket_mb = 1e-2,
                                 .zero = zero,
                                 .offload_parameters = offloads && zero == 3,
                                 .find_unused = g->find_unused,
                                 .check_replicas = g->ignored || g->find_unused ? 0 : 1,
                                 .nonfinite = TUTTI_NONFINITE_ERROR,
                                 .ignored = &g->ignored,
                                 .n_ignored = g->ignored != NULL};

    *m = (net){.rank = tutti_group_rank(group)};
    CHECK_OK(tutti_ctx_new(&m->t.cx, test_device(), &cx_opts));
    m->t.module = &m->base;
    tutti_module_init(&m->base, m->t.cx);
    tutti_linear_init(&m->a, &m->base, "a", WIDTH - 1, WIDTH);
    tutti_linear_init(&m->b, &m->base, "b", WIDTH, WIDTH);
    tutti_linear_init(&m->c, &m->base, "c", WIDTH, WIDTH);
    m->scale = tutti_parameter_new(&m->base, "scale", TUTTI_SHAPE(1), TUTTI_INIT_ONES, 0);
    tutti_linear_init(&m->d, &m->base, "d", WIDTH, OUT);
    if (g->embedding)
        tutti_embedding_init(&m->e, &m->base, "e", 4 * WIDTH + 1, WIDTH, g->sparse);
    for (int i = 0; i < 2; i++) {
        tutti_module *layer = i ? &m->c.base : &m->b.base;

        tutti_module_set_forward(layer, middle);
        tutti_module_set_recompute(layer, g->recompute);
    }
    if (g->tied)
        tutti_parameter_tie(&m->c.weight, m->b.weight);
    if (g->frozen)
        CHECK_OK(tutti_module_freeze(&m->base, g->frozen));
    CHECK_OK(tutti_ddp_new(&m->t.ddp, &m->base, group, &opts));
    CHECK_OK(tutti_adamw_new(&m->t.optim, &m->base,
                             &(tutti_adam_opts){.lr = 0.01f, .weight_decay = 0.1f}));
    if (offloads && zero < 3)
        CHECK_OK(tutti_optim_offload(m->t.optim));
    return 0;
}

static int net_new(net *m, tutti_group *group, const graph *g, int zero)
{
    return net_new_on(m, group, g, zero, false);
}

static void net_free(net *m)
{
    tutti_optim_free(m->t.optim);
    tutti_ddp_free(m->t.ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->t.cx);
}

static tutti_tensor *input_of(net *m, int salt)
{
    static _Thread_local float x[ROWS * (WIDTH - 1)];

    for (int i = 0; i < ROWS * (WIDTH - 1); i++)
        x[i] = (float)((i * 7 + salt * 3) % 11) / 11 - 0.4f;
    return tutti_input(m->t.cx, (tutti_array){x, TUTTI_SHAPE(ROWS, WIDTH - 1), TUTTI_F32});
}

static tutti_status backward(net *m, const graph *g, int salt)
{
    tutti_tensor *y;
    tutti_status status;

    tutti_step_begin(m->t.cx, &(tutti_step_opts){.autocast = g->autocast});
    y = g->forward(m, input_of(m, salt));
    status = tutti_backward(tutti_sum(tutti_mul(y, y)));
    tutti_step_end(m->t.cx);
    return status;
}

/* A step's forward without backward: a validation, or no gradients wanted. */
static int look(net *m, const graph *g, const tutti_step_opts *opts, float *sum_p)
{
    tutti_step_begin(m->t.cx, opts);
    CHECK_OK(tutti_tensor_read(tutti_sum(g->forward(m, input_of(m, 5))), sum_p));
    tutti_step_end(m->t.cx);
    return 0;
}

static int salt_of(tutti_group *group, int step)
{
    return step * 8 + tutti_group_rank(group);
}

/* On all ranks the same values, after forwards that have gathered the old ones. */
static int overwrite(net *m)
{
    float x[WIDTH * WIDTH];

    for (int i = 0; i < WIDTH * WIDTH; i++)
        x[i] = (float)(i % 5) / 10 - 0.2f;
    CHECK_OK(tutti_tensor_write(m->b.weight, x));
    CHECK_OK(tutti_tensor_write(m->d.bias, x));
    return 0;
}

/* Each step: a paused backward, the averaged one, and forwards of other graphs between, with and without a tape. */
static int train(net *m, tutti_group *group, const graph *g, float *norms, float *sums)
{
    for (int step = 0; step < STEPS; step++) {
        m->step = step;
        tutti_optim_zero_grad(m->t.optim);
        CHECK_0(look(m, &graphs[step % 4], &(tutti_step_opts){.no_grad = true}, sums++));
        tutti_ddp_pause(m->t.ddp);
        CHECK_OK(backward(m, g, salt_of(group, 50 + step)));
        tutti_ddp_resume(m->t.ddp);
        CHECK_OK(backward(m, g, salt_of(group, step)));
        CHECK_0(look(m, g, NULL, sums++)); /* whose tape is dropped */
        if (!g->ignored)                   /* ddp.h says what then counts */
            CHECK_OK(tutti_clip_grad_norm(&m->base, 0.5f, norms++));
        CHECK_OK(tutti_optim_step(m->t.optim));
        CHECK_0(look(m, g, &(tutti_step_opts){.eval = true}, sums++));
        if (step == 1)
            CHECK_0(overwrite(m));
    }
    return 0;
}

static int graphs_train_with_the_bits_of_the_whole(tutti_group *group, void *arg)
{
    /* On devices that are slow here some graphs, whole and by zero 3, a half of them offloaded. */
    const size_t every = test_on("cuda") ? 4 : test_on("strict") ? 2 : 1;
    const bool slow = every > 1;

    (void)arg;
    for (size_t k = 0; k < sizeof graphs / sizeof graphs[0]; k += every) {
        float norms[4][STEPS], sums[4][3 * STEPS];
        char digests[4][33];

        for (int zero = 0; zero <= 3; zero += slow ? 3 : 1) {
            net m;

            CHECK_0(net_new_on(&m, group, &graphs[k], zero, slow && k / every % 2 == 0));
            CHECK_0(train(&m, group, &graphs[k], norms[zero], sums[zero]));
            CHECK_0(digest_of(&m.t, group, digests[zero]));
            CHECK(graphs[k].frozen || tutti_reducer_n_buckets(tutti_ddp_reducer(m.t.ddp)) >= 3);
            CHECK((tutti_zero_get_stats(tutti_ddp_zero(m.t.ddp)).gathered_bytes > 0) ==
                  (zero == 3 && tutti_group_size(group) > 1));
            net_free(&m);
            if (strcmp(digests[zero], digests[0]) != 0)
                fprintf(stderr, "%s: zero %d has other weights\n", graphs[k].name, zero);
            CHECK_TEXT(digests[zero], digests[0]);
            if (graphs[k].ignored && zero == 1) /* with shares rank 0's count for all */
                CHECK_OK(tutti_broadcast(group, TUTTI_BUF(norms[0], STEPS, TUTTI_F32), 0, NULL));
            CHECK(memcmp(norms[zero], norms[0], sizeof norms[0]) == 0);
            CHECK(memcmp(sums[zero], sums[0], sizeof sums[0]) == 0);
        }
    }
    return 0;
}

/* Through a part of the model, which is not its root, between steps of the whole. */
static tutti_tensor *part(net *m, tutti_tensor *x)
{
    return tutti_module_forward(&m->b.base, tutti_linear_forward(&m->a, x));
}

static int a_part_trains_alone(tutti_group *group, void *arg)
{
    const graph whole = {.forward = chain, .find_unused = true}, some = {.forward = part};
    char digests[4][33];

    (void)arg;
    for (int zero = 0; zero <= 3; zero++) {
        net m;

        CHECK_0(net_new(&m, group, &whole, zero));
        for (int step = 0; step < STEPS; step++) {
            tutti_optim_zero_grad(m.t.optim);
            CHECK_OK(backward(&m, step % 2 == 1 ? &some : &whole, salt_of(group, step)));
            CHECK_OK(tutti_optim_step(m.t.optim));
        }
        CHECK_0(digest_of(&m.t, group, digests[zero]));
        CHECK_TEXT(digests[zero], digests[0]);
        net_free(&m);
    }
    return 0;
}

/* On all ranks, in the middle, while the next bucket is on its way. */
static tutti_tensor *fails(net *m, tutti_tensor *x)
{
    x = tutti_linear_forward(&m->a, x);
    return end(m, tutti_module_forward(&m->b.base, tutti_reshape(x, TUTTI_SHAPE(WIDTH + 1))));
}

static int training_goes_on_after_a_forward_that_failed(tutti_group *group, void *arg)
{
    const graph good = {.forward = chain}, bad = {.forward = fails};
    char digests[4][33];

    (void)arg;
    for (int zero = 0; zero <= 3; zero++) {
        net m;

        CHECK_0(net_new(&m, group, &good, zero));
        for (int step = 0; step < STEPS; step++) {
            float sum;

            if (step % 2 == 1) {
                tutti_step_begin(m.t.cx, NULL);
                CHECK(tutti_tensor_read(tutti_sum(bad.forward(&m, input_of(&m, 1))), &sum) ==
                      TUTTI_ERR_ARG);
                tutti_step_end(m.t.cx);
            }
            tutti_optim_zero_grad(m.t.optim);
            CHECK_OK(backward(&m, &good, salt_of(group, step)));
            CHECK_OK(tutti_optim_step(m.t.optim));
        }
        CHECK_0(digest_of(&m.t, group, digests[zero]));
        CHECK_TEXT(digests[zero], digests[0]);
        net_free(&m);
    }
    return 0;
}

static int a_model_is_sharded_once(tutti_group *group, void *arg)
{
    const graph g = {.forward = chain};

    (void)arg;
    for (int zero = 1; zero <= 3; zero++) {
        tutti_ddp *again;
        net m;

        CHECK_0(net_new(&m, group, &g, zero));
        CHECK(tutti_ddp_new(&again, &m.base, group, &(tutti_ddp_opts){.zero = zero}) ==
              TUTTI_ERR_STATE);
        CHECK_TEXT(tutti_last_error(), "one tutti_ddp a context");
        CHECK_OK(backward(&m, &g, salt_of(group, 0)));
        CHECK_OK(tutti_optim_step(m.t.optim));
        net_free(&m);
    }
    return 0;
}

/* On one rank: the others wait for its parameters, and have its message, not the end of their patience. */
static int all_hear_of_a_forward_that_failed(tutti_group *group, void *arg)
{
    const graph good = {.forward = chain}, bad = {.forward = fails};
    const int culprit = *(const int *)arg;
    const bool here = tutti_group_rank(group) == culprit;
    double begin_ms;
    tutti_status status;
    net m;

    CHECK_0(net_new(&m, group, &good, 3));
    CHECK_OK(backward(&m, &good, salt_of(group, 0)));
    CHECK_OK(tutti_optim_step(m.t.optim));
    tutti_optim_zero_grad(m.t.optim);
    begin_ms = tutti__now_ms();
    status = backward(&m, here ? &bad : &good, salt_of(group, 1));
    CHECK(status == (here ? TUTTI_ERR_ARG : TUTTI_ERR_ABORTED));
    CHECK_TEXT(tutti_last_error(), "reshape");
    CHECK(tutti__now_ms() - begin_ms < 10000); /* the group's limit is 30 s */
    net_free(&m);
    return 0;
}

/* What a layer's forward leaves: of other layers' parameters few are whole, and the next ones are on their way. */
static void note_state(tutti_module *layer, tutti_tensor *x, tutti_tensor *y, void *most)
{
    const tutti_zero *zero = layer->root->sharding->self;
    size_t *p = most;

    (void)x;
    (void)y;
    p[0] = zero->coming > p[0] ? zero->coming : p[0];
    p[1] = zero->present > p[1] ? zero->present : p[1];
}

static int parameters_are_gathered_once_a_pass_and_one_ahead(tutti_group *group, void *arg)
{
    const graph g = {.forward = chain};
    size_t most[2] = {0};
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, &g, 3));
    for (int step = 0; step < STEPS; step++) {
        const tutti_zero *zero = tutti_ddp_zero(m.t.ddp);
        const uint64_t before = zero->gathers;

        if (step == 1) { /* from here on the order is known */
            tutti_module_set_forward_hook(&m.b.base, note_state, most);
            tutti_module_set_forward_hook(&m.d.base, note_state, most);
        }
        tutti_optim_zero_grad(m.t.optim);
        CHECK_OK(backward(&m, &g, salt_of(group, step)));
        CHECK_OK(tutti_optim_step(m.t.optim));
        CHECK(step == 0 || zero->gathers - before < 2 * zero->n_noted);
    }
    CHECK(most[0] == 1 && most[1] >= 1 && most[1] <= 3);
    net_free(&m);
    return 0;
}

/* Of products in 16 bits, weights come in as many; biases, and what is read as it is, in F32. */
static int rounded_weights_are_half_the_bytes(tutti_group *group, void *arg)
{
    const graph graphs_of[] = {{.forward = chain}, {.forward = chain, .autocast = TUTTI_BF16}};
    uint64_t bytes[2];

    (void)arg;
    for (int k = 0; k < 2; k++) {
        net m;

        CHECK_0(net_new(&m, group, &graphs_of[k], 3));
        for (int step = 0; step < STEPS; step++) {
            tutti_optim_zero_grad(m.t.optim);
            CHECK_OK(backward(&m, &graphs_of[k], salt_of(group, step)));
            CHECK_OK(tutti_optim_step(m.t.optim));
        }
        bytes[k] = tutti_zero_get_stats(tutti_ddp_zero(m.t.ddp)).gathered_bytes;
        net_free(&m);
    }
    CHECK(tutti_group_size(group) == 1 ||
          (2 * bytes[1] >= bytes[0] && 2 * bytes[1] <= bytes[0] + bytes[0] / 10));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, graphs_train_with_the_bits_of_the_whole),
        TEST(run_all, a_part_trains_alone),
        TEST(run_all, training_goes_on_after_a_forward_that_failed),
        TEST(run_all, parameters_are_gathered_once_a_pass_and_one_ahead),
        TEST(run_all, rounded_weights_are_half_the_bytes),
        TEST(run_all, a_model_is_sharded_once),
        TEST(run_with_a_rank_that_differs, all_hear_of_a_forward_that_failed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
