/* ddp: diverging replicas, the origin of NaN and infinities, and DDP's statistics.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict */
#include "distributed/ddp_bodies.h"
#include "harness/device.h"
#include "harness/memory.h"
#include "tensor/tensor.h"
#include <tutti/tutti.h>

#include <math.h>

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
    tutti_linear fc;
    tutti_ddp *ddp;
    tutti_optim *optim;
} net;

static int net_new(net *m, tutti_group *group, const tutti_ddp_opts *opts)
{
    *m = (net){0};
    CHECK_OK(tutti_ctx_new(&m->cx, test_device(),
                           &(tutti_ctx_opts){.threads = 1, .kernels = test_kernels()}));
    tutti_module_init(&m->base, m->cx);
    tutti_conv2d_init(&m->conv, &m->base, "conv",
                      &(tutti_conv2d_layer_opts){.in = 1, .out = 2, .kernel = 1});
    tutti_batch_norm2d_init(&m->norm, &m->base, "norm", 2);
    tutti_linear_init(&m->fc, &m->base, "fc", 8, 3);
    CHECK_OK(tutti_ddp_new(&m->ddp, &m->base, group, opts));
    CHECK_OK(tutti_sgd_new(&m->optim, &m->base, &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f}));
    return 0;
}

static void net_free(net *m)
{
    tutti_optim_free(m->optim);
    tutti_ddp_free(m->ddp);
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

static tutti_status backward(net *m, int salt)
{
    static const int64_t y[2] = {0, 2};
    float x[8];
    tutti_tensor *h;
    tutti_status status;

    for (int i = 0; i < 8; i++)
        x[i] = sinf((float)(i * 13 + salt * 101));
    tutti_step_begin(m->cx, NULL);
    h = tutti_conv2d_forward(
        &m->conv, tutti_input(m->cx, (tutti_array){x, TUTTI_SHAPE(2, 1, 2, 2), TUTTI_F32}));
    h = tutti_batch_norm2d_relu_forward(&m->norm, h, NULL);
    status = tutti_backward(
        tutti_cross_entropy(tutti_linear_forward(&m->fc, tutti_flatten(h)),
                            tutti_input(m->cx, (tutti_array){y, TUTTI_SHAPE(2), TUTTI_I64})));
    tutti_step_end(m->cx);
    return status;
}

static tutti_status step(net *m, int salt)
{
    tutti_optim_zero_grad(m->optim);
    TUTTI_TRY(backward(m, salt));
    return tutti_optim_step(m->optim);
}

/* ---- Replicas ----------------------------------------------------------------------------------------------------------- */

static int check_told_alike(tutti_group *group)
{
    char mine[512] = "", first[512];

    snprintf(mine, sizeof mine, "%s", tutti_last_error());
    memcpy(first, mine, sizeof first);
    CHECK_OK(tutti_broadcast(group, TUTTI_BUF(first, sizeof first, TUTTI_U8), 0, NULL));
    CHECK_TEXT(mine, first);
    return 0;
}

static void flip(const tutti_tensor *t, int i)
{
    uint32_t bits;

    memcpy(&bits, test_values(t) + i, sizeof bits);
    bits ^= 1;
    test_put(t->cx, (float *)t->data + i, &bits, sizeof bits);
}

/* One bit of one parameter on one rank: reported by all at the next step that compares. */
static int who_differs_is_named_with_the_parameter(tutti_group *group, void *arg)
{
    const int other = *(const int *)arg, size = tutti_group_size(group);
    char expected[64];
    net m;

    CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.check_replicas = 2}));
    for (int i = 0; i < 4; i++) /* compares at steps 1 and 3 */
        CHECK_OK(step(&m, i + tutti_group_rank(group)));
    if (tutti_group_rank(group) == other)
        flip(m.norm.weight, 1);
    CHECK(step(&m, 5) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "\"norm.weight\" is the first that differs");
    snprintf(expected, sizeof expected, size == 2 ? "on rank %d" : "rank %d (host ", other);
    CHECK_TEXT(tutti_last_error(), expected);
    CHECK_TEXT(tutti_last_error(), "at step 5:");
    CHECK_0(check_told_alike(group)); /* and the group stays usable */
    if (tutti_group_rank(group) == other)
        flip(m.norm.weight, 1);
    CHECK_OK(tutti_ddp_check_replicas(m.ddp));
    CHECK_OK(step(&m, 6));
    net_free(&m);
    return 0;
}

static int without_a_majority_all_digests_are_shown(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group);
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, NULL));
    test_put(m.cx, m.fc.bias->data, &(float){(float)rank}, sizeof(float));
    CHECK(tutti_ddp_check_replicas(m.ddp) == TUTTI_ERR_MISMATCH);
    for (int r = 0; r < tutti_group_size(group); r++) {
        char expected[32];

        snprintf(expected, sizeof expected, " on rank %d", r);
        CHECK_TEXT(tutti_last_error(), expected);
    }
    CHECK_TEXT(tutti_last_error(), "\"fc.bias\" is the first that differs on ranks 0 and 1");
    CHECK_0(check_told_alike(group));
    net_free(&m);
    return 0;
}

/* Parameters that are still equal will not stay so. */
static int optimizers_that_differ_are_named(tutti_group *group, void *arg)
{
    const int other = *(const int *)arg;
    float momentum[8] = {0};
    net m;

    CHECK_0(net_new(&m, group, NULL));
    CHECK_OK(step(&m, 1));
    CHECK_OK(tutti_ddp_check_replicas(m.ddp));
    CHECK_OK(tutti_optim_state_read(m.optim, 0, m.norm.bias, momentum));
    if (tutti_group_rank(group) == other)
        momentum[1] += 1;
    CHECK_OK(tutti_optim_state_write(m.optim, 0, m.norm.bias, momentum));
    CHECK(tutti_ddp_check_replicas(m.ddp) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "\"momentum_buffer of norm.bias\" is the first that differs");
    CHECK_0(check_told_alike(group));
    net_free(&m);
    return 0;
}

/* Buffers are compared unless each rank keeps its own. */
static int buffers_count_where_they_are_shared(tutti_group *group, void *arg)
{
    (void)arg;
    for (int keep = 0; keep < 2; keep++) {
        net m;

        CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.keep_buffers = keep}));
        test_put(m.cx, (float *)m.norm.running_mean->data + 1,
                 &(float){(float)tutti_group_rank(group)}, sizeof(float));
        CHECK(tutti_ddp_check_replicas(m.ddp) ==
              (keep || tutti_group_size(group) == 1 ? TUTTI_OK : TUTTI_ERR_MISMATCH));
        net_free(&m);
    }
    return 0;
}

/* Between broadcasts each rank has its own running statistics. */
static int buffers_may_differ_between_broadcasts(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), last = tutti_group_size(group) - 1;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, NULL));
    CHECK_OK(tutti_ddp_check_replicas(m.ddp));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(step(&m, 10 * i + rank));
        CHECK_OK(tutti_ddp_check_replicas(m.ddp));
    }
    CHECK_OK(tutti_ddp_broadcast_buffers(m.ddp));
    if (rank == last)
        flip(m.norm.running_var, 0);
    CHECK(tutti_ddp_check_replicas(m.ddp) == (last > 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK));
    if (last > 0)
        CHECK_TEXT(tutti_last_error(), "\"norm.running_var\" is the first that differs");
    net_free(&m);
    return 0;
}

/* Reports the cause, not its effects. */
static int hyper_parameters_that_differ_are_named(tutti_group *group, void *arg)
{
    const int other = *(const int *)arg;
    char expected[128];
    net m;

    CHECK_0(net_new(&m, group, NULL));
    CHECK_OK(step(&m, 1));
    if (tutti_group_rank(group) == other)
        tutti_optim_set_lr(m.optim, 0.2f);
    CHECK_OK(step(&m, 2));
    CHECK(tutti_ddp_check_replicas(m.ddp) == TUTTI_ERR_MISMATCH);
    snprintf(expected, sizeof expected,
             "optimizers differ between ranks: hyper-parameter 0 is lr 0.1 of sgd on rank 0 but lr "
             "0.2 of sgd on rank %d",
             other);
    CHECK_TEXT(tutti_last_error(), expected);
    CHECK_0(check_told_alike(group));
    net_free(&m);
    return 0;
}

static int replicas_that_train_stay_equal(tutti_group *group, void *arg)
{
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.check_replicas = 1}));
    for (int i = 0; i < 5; i++) {
        tutti_ddp_pause(m.ddp);
        tutti_optim_zero_grad(m.optim);
        CHECK_OK(backward(&m, i));
        tutti_ddp_resume(m.ddp);
        CHECK_OK(backward(&m, 10 * tutti_group_rank(group) + i));
        CHECK_OK(tutti_optim_step(m.optim));
    }
    net_free(&m);
    return 0;
}

static int options_that_make_no_sense_are_refused(tutti_group *group, void *arg)
{
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, NULL));
    tutti_ddp_free(m.ddp);
    CHECK(tutti_ddp_new(&m.ddp, &m.base, group, &(tutti_ddp_opts){.check_replicas = -2}) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_ddp_new(&m.ddp, &m.base, group,
                        &(tutti_ddp_opts){.check_replicas = 1 + tutti_group_rank(group)}) ==
          TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "check_replicas 1 on rank 0 but check_replicas 2 on rank 1");
    net_free(&m);
    return 0;
}

/* ---- NaN and infinities ------------------------------------------------------------------------------------------------------ */

/* A paused backward with a bad gradient on one rank, then an averaged one. */
static tutti_status spoilt(net *m, bool spoil, float value)
{
    tutti_optim_zero_grad(m->optim);
    tutti_ddp_pause(m->ddp);
    TUTTI_TRY(backward(m, 1));
    if (spoil)
        test_put(m->cx, m->norm.bias->parameter->grad + 1, &value, sizeof value);
    tutti_ddp_resume(m->ddp);
    return backward(m, 2);
}

static int origin_is_known_before_the_mean_hides_it(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), last = tutti_group_size(group) - 1;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, NULL)); /* warns */
    for (int i = 0; i < 3; i++) {
        tutti_ddp_stats s;

        CHECK_OK(spoilt(&m, rank == last, bad[i]));
        CHECK(!isfinite(test_grad(m.norm.bias)[1])); /* on all ranks now */
        s = tutti_ddp_get_stats(m.ddp);
        CHECK(s.nonfinite_steps == (rank == last ? (uint64_t)i + 1 : 0));
        CHECK(rank == last ? strcmp(s.nonfinite_parameter, "norm.bias") == 0
                           : s.nonfinite_parameter == NULL);
    }
    CHECK_OK(spoilt(&m, rank == last, 3e38f)); /* large is not infinite */
    CHECK(tutti_ddp_get_stats(m.ddp).nonfinite_steps == (rank == last ? 3 : 0));
    net_free(&m);
    CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.nonfinite = TUTTI_NONFINITE_IGNORE}));
    CHECK_OK(spoilt(&m, rank == last, NAN));
    CHECK(tutti_ddp_get_stats(m.ddp).nonfinite_steps == 0);
    net_free(&m);
    return 0;
}

static int as_an_error_it_ends_the_step_on_all_ranks(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), last = tutti_group_size(group) - 1;
    char expected[128];
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group,
                    &(tutti_ddp_opts){.nonfinite = TUTTI_NONFINITE_ERROR,
                                      .bucket_mb = 5e-5,
                                      .first_bucket_mb = 5e-5}));
    CHECK_OK(spoilt(&m, false, 0));
    CHECK_OK(tutti_meet(group, "one step is done"));
    CHECK(spoilt(&m, rank == last, NAN) == (rank == last ? TUTTI_ERR_STATE : TUTTI_ERR_ABORTED));
    snprintf(expected, sizeof expected,
             "the gradient of \"norm.bias\" has NaN or infinities on rank %d in step 2", last);
    CHECK_TEXT(tutti_last_error(), expected);
    net_free(&m);
    return 0;
}

/* ---- Figures (case 46) --------------------------------------------------------------------------------------------------------- */

static int figures_say_what_ddp_is_and_how_long_it_took(tutti_group *group, void *arg)
{
    tutti__recorder *recorder = tutti__recorder_new(256);
    tutti__time_span events[256];
    size_t n_events, exposed = 0, places = 0;
    tutti_ddp_stats s;
    tutti_reducer *r;
    net m;

    (void)arg;
    CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.bucket_mb = 5e-5, .first_bucket_mb = 5e-5}));
    s = tutti_ddp_get_stats(m.ddp);
    CHECK(s.steps == 0 && s.n_buckets == 0 && s.mean.backward_ms == 0);
    m.cx->recorder = recorder;
    for (int i = 0; i < 3; i++)
        CHECK_OK(step(&m, i));
    tutti_ddp_pause(m.ddp);
    CHECK_OK(step(&m, 3)); /* not counted as a step */
    tutti_ddp_resume(m.ddp);
    s = tutti_ddp_get_stats(m.ddp);
    CHECK(s.rank == tutti_group_rank(group) && s.world_size == tutti_group_size(group));
    CHECK(strcmp(s.transport, tutti_group_transport_name(group)) == 0);
    CHECK(strcmp(s.hook, "all_reduce") == 0);
    CHECK(s.bucket_mb == 5e-5 && s.first_bucket_mb == 5e-5);
    CHECK(!s.find_unused && !s.static_graph && s.broadcast_buffers);
    CHECK(s.n_parameters == 6 && s.parameter_bytes == 4 * (2 + 2 + 2 + 2 + 24 + 3));
    CHECK(s.n_buffers == 3 && s.steps == 3 && s.n_buckets >= 2);
    CHECK(s.traffic.gradient_bytes > 0);
    for (int mean = 0; mean < 2; mean++) {
        const tutti_ddp_times *t = mean ? &s.mean : &s.last;

        CHECK(t->forward_ms > 0 && t->backward_ms > 0 && t->comm_ms > 0 && t->exposed_ms > 0);
        CHECK(t->overlap_ms >= 0 && t->overlap_ms <= t->comm_ms);
    }
    r = tutti_ddp_reducer(m.ddp); /* the table of buckets */
    for (size_t b = 0; b < s.n_buckets; b++) {
        tutti_bucket_info info = tutti_reducer_bucket(r, b);

        CHECK(info.first == places && info.n > 0);
        CHECK(info.begin_ms >= info.ready_ms && info.done_ms >= info.begin_ms);
        places += info.n;
    }
    CHECK(places == 6 && tutti_reducer_at(r, 6) == SIZE_MAX);
    /* last layer first */
    CHECK(strncmp(tutti_reducer_name(r, tutti_reducer_at(r, 0)), "fc.", 3) == 0);
    CHECK(tutti_reducer_name(r, 6) == NULL);
    n_events = tutti__recorder_read(recorder, events, 256);
    for (size_t i = 0; i < n_events; i++)
        exposed += strcmp(events[i].name, "exposed communication") == 0;
    CHECK(exposed == 3);
    net_free(&m);
    tutti__recorder_free(recorder);
    return 0;
}

/* TUTTI_CHECK_REPLICAS is 1 here; -1 is never. */
static int never_is_stronger_than_the_environment(tutti_group *group, void *arg)
{
    (void)arg;
    for (int every = 0; every >= -1; every--) {
        tutti_status expected = every == 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK;
        net m;

        CHECK_0(net_new(&m, group, &(tutti_ddp_opts){.check_replicas = every}));
        test_put(m.cx, m.fc.bias->data, &(float){(float)tutti_group_rank(group)}, sizeof(float));
        CHECK(step(&m, 1) == expected);
        net_free(&m);
    }
    return 0;
}

static void run_two_that_check_each_step(void **state)
{
    setenv("TUTTI_CHECK_REPLICAS", "1", 1);
    run((tutti_rank_body *)*state, NULL, 2);
    unsetenv("TUTTI_CHECK_REPLICAS");
}

static void run_three_and_four(void **state)
{
    for (int n = 3; n <= 4; n++)
        run((tutti_rank_body *)*state, NULL, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_with_a_rank_that_differs, who_differs_is_named_with_the_parameter),
        TEST(run_two, without_a_majority_all_digests_are_shown),
        TEST(run_three_and_four, without_a_majority_all_digests_are_shown),
        TEST(run_all, buffers_count_where_they_are_shared),
        TEST(run_all, buffers_may_differ_between_broadcasts),
        TEST(run_with_a_rank_that_differs, hyper_parameters_that_differ_are_named),
        TEST(run_with_a_rank_that_differs, optimizers_that_differ_are_named),
        TEST(run_all, replicas_that_train_stay_equal),
        TEST(run_two_that_check_each_step, never_is_stronger_than_the_environment),
        TEST(run_two, options_that_make_no_sense_are_refused),
        TEST(run_all, origin_is_known_before_the_mean_hides_it),
        TEST(run_all, as_an_error_it_ends_the_step_on_all_ranks),
        TEST(run_all, figures_say_what_ddp_is_and_how_long_it_took),
    };

    setenv("TUTTI_LOG", "error", 1); /* the expected warnings are not shown */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
