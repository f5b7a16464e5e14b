/* ddp: the laws of data parallelism over a module, on 1 to 4 ranks as threads and as processes.
 * SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda:long nccl */
#include "distributed/ddp_trainer.h"
#include "harness/memory.h"
#include "tensor/tensor.h"

enum { SIDE = 6, PIXELS = SIDE * SIDE, CLASSES = 5, BATCH = 12, STEPS = 4 };

/* ---- A model, its data, and one step ------------------------------------------------------------------------------- */

/* group NULL: without DDP. Each rank has another seed, so that equal replicas prove the broadcast. */
static int trainer_new(trainer *t, tutti_group *group, const tutti_ddp_opts *opts, float lr)
{
    tutti_ctx_opts cx_opts = {.seed = group ? (uint64_t)tutti_group_rank(group) : 0,
                              .threads = 1,
                              .kernels = test_kernels()};
    tutti_model_opts shape = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(&t->model, t->cx, "mlp", &shape));
    t->module = tutti_model_module(t->model);
    if (group)
        CHECK_OK(tutti_ddp_new(&t->ddp, t->module, group, opts));
    CHECK_OK(tutti_sgd_new(&t->optim, t->module, &(tutti_sgd_opts){.lr = lr, .momentum = 0.9f}));
    return 0;
}

static float value(uint32_t k)
{
    uint32_t out[4];

    tutti__philox(13, (tutti__philox_counter){{k, 0, 0, 0}}, out);
    return 2 * tutti__unit_float(out[0]) - 1;
}

/* Sample i of step s: a function of the two, so that every division of the work has the same data. */
static void make_batch(int step, int first, int n, float *x, int64_t *y)
{
    for (int i = 0; i < n; i++) {
        uint32_t out[4];

        for (int k = 0; k < PIXELS; k++) {
            tutti__philox(
                11,
                (tutti__philox_counter){{(uint32_t)step, (uint32_t)(first + i), (uint32_t)k, 0}},
                out);
            x[i * PIXELS + k] = 2 * tutti__unit_float(out[0]) - 1;
        }
        y[i] = (int64_t)(out[1] % CLASSES);
    }
}

/* Forward and backward over n samples of the step's batch, from sample `first` on. */
static int backward(trainer *t, int step, int first, int n, float *loss_p)
{
    static _Thread_local float x[BATCH * PIXELS];
    static _Thread_local int64_t y[BATCH];
    tutti_array images = {x, TUTTI_SHAPE(n, 1, SIDE, SIDE), TUTTI_F32},
                labels = {y, TUTTI_SHAPE(n), TUTTI_I64};
    tutti_tensor *loss;

    make_batch(step, first, n, x, y);
    tutti_step_begin(t->cx, NULL);
    loss = tutti_cross_entropy(tutti_model_forward(t->model, tutti_input(t->cx, images)),
                               tutti_input(t->cx, labels));
    CHECK_OK(tutti_backward(loss));
    *loss_p = tutti_item(loss);
    tutti_step_end(t->cx);
    return 0;
}

static int step_on(trainer *t, int step, int first, int n, float *loss_p)
{
    tutti_optim_zero_grad(t->optim);
    CHECK_0(backward(t, step, first, n, loss_p));
    CHECK_OK(tutti_optim_step(t->optim));
    return 0;
}

static double largest_difference(const tutti_module *a, const tutti_module *b)
{
    double largest = 0;

    for (size_t i = 0; i < tutti_module_n_parameters(a); i++) {
        const tutti_tensor *p = tutti_module_parameter(a, i), *q = tutti_module_parameter(b, i);

        const float *a_values = test_values(p), *b_values = test_values(q);

        for (int64_t k = 0; k < tutti_shape_count(p->shape); k++)
            largest = fmax(largest, fabs((double)a_values[k] - (double)b_values[k]));
    }
    return largest;
}

/* ---- Laws ---------------------------------------------------------------------------------------------------------- */

/* n ranks x b = 1 rank x nb within rounding; replicas have the same bits after every step. */
static int ranks_share_the_work_of_one(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group);
    trainer all, one;

    (void)arg;
    CHECK_0(trainer_new(&all, group, NULL, 0.1f));
    CHECK_0(trainer_new(&one, NULL, NULL, 0.1f));
    CHECK(largest_difference(all.module, one.module) == 0); /* all have rank 0's weights */
    for (int step = 0; step < STEPS; step++) {
        float loss, whole;

        CHECK_0(step_on(&all, step, share * tutti_group_rank(group), share, &loss));
        CHECK_0(step_on(&one, step, 0, share * tutti_group_size(group), &whole));

        CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&loss, 1, TUTTI_F32), TUTTI_AVG, NULL));
        CHECK(fabsf(loss - whole) <= 1e-5f * fabsf(whole));
        CHECK_0(check_equal_on_all_ranks(group, all.module));
    }
    CHECK(largest_difference(all.module, one.module) <= 1e-6);
    trainer_free(&all);
    trainer_free(&one);
    return 0;
}

/* Nor does it matter which rank is slow. */
static int bucket_size_changes_no_bit(tutti_group *group, void *arg)
{
    static const double sizes[][2] = {{0, 0}, {1e-6, 1e-6}, {1e-3, 1e-2}, {1e-2, 1e-3}};
    int share = BATCH / tutti_group_size(group);
    char digests[TUTTI__COUNT_OF(sizes)][33];
    float loss;

    (void)arg;
    for (size_t s = 0; s < TUTTI__COUNT_OF(sizes); s++) {
        trainer t;

        CHECK_0(trainer_new(
            &t, group, &(tutti_ddp_opts){.first_bucket_mb = sizes[s][0], .bucket_mb = sizes[s][1]},
            0.1f));
        CHECK(tutti_ddp_reducer(t.ddp) == NULL);
        for (int step = 0; step < STEPS; step++) {
            if ((int)s % tutti_group_size(group) == tutti_group_rank(group))
                be_slow(2);
            CHECK_0(step_on(&t, step, share * tutti_group_rank(group), share, &loss));
        }
        CHECK(tutti_reducer_n_buckets(tutti_ddp_reducer(t.ddp)) >= (s == 0 ? 1u : 2u));
        tutti_module_digest(t.module, digests[s]);
        CHECK_TEXT(digests[s], digests[0]);
        trainer_free(&t);
    }
    return 0;
}

/* Two backwards of half the samples, the first paused, with half the rate = one backward of all of them. The very first
 * backward is a paused one: what it accumulates moves into the buckets that the second lays out. */
static int accumulation_is_a_larger_batch(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group), half = share / 2,
        first = share * tutti_group_rank(group);
    trainer halves, whole;
    float loss;

    (void)arg;
    share = 2 * half;
    CHECK_0(trainer_new(&halves, group, NULL, 0.05f));
    CHECK_0(trainer_new(&whole, group, NULL, 0.1f));
    for (int step = 0; step < STEPS; step++) {
        tutti_optim_zero_grad(halves.optim);
        tutti_ddp_pause(halves.ddp);
        CHECK_0(backward(&halves, step, first, half, &loss));
        tutti_ddp_resume(halves.ddp);
        CHECK_0(backward(&halves, step, first + half, half, &loss));
        CHECK_OK(tutti_optim_step(halves.optim));
        CHECK_0(step_on(&whole, step, first, share, &loss));
        CHECK_0(check_equal_on_all_ranks(group, halves.module));
    }
    CHECK(largest_difference(halves.module, whole.module) <= 1e-6);
    trainer_free(&halves);
    trainer_free(&whole);
    return 0;
}

static int paused_backward_is_local(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group), first = share * tutti_group_rank(group);
    trainer all, one;
    float loss;

    (void)arg;
    CHECK_0(trainer_new(&all, group, NULL, 0.1f));
    CHECK_0(trainer_new(&one, NULL, NULL, 0.1f));
    tutti_ddp_pause(all.ddp);
    CHECK_0(backward(&all, 0, first, share, &loss));
    CHECK_0(backward(&one, 0, first, share, &loss));
    for (size_t i = 0; i < tutti_module_n_parameters(all.module); i++) {
        tutti_tensor *p = tutti_module_parameter(all.module, i),
                     *q = tutti_module_parameter(one.module, i);

        CHECK(memcmp(test_grad(p), test_grad(q), tutti__tensor_bytes(p)) == 0);
    }
    CHECK(tutti_ddp_reducer(all.ddp) == NULL);
    trainer_free(&all);
    trainer_free(&one);
    return 0;
}

/* Parameters and gradients have one order, so that the optimizer makes one pass; after DDP is freed, the module still works. */
static int module_lives_in_the_buckets_and_survives_them(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group), first = share * tutti_group_rank(group);
    trainer t;
    tutti_flat flat;
    size_t n;
    float loss;

    (void)arg;
    CHECK_0(trainer_new(&t, group, NULL, 0.1f));
    CHECK_0(step_on(&t, 0, first, share, &loss));
    CHECK_OK(tutti_module_flat(t.module, &flat));
    n = flat.n_parameters;
    for (size_t i = 0; i < n; i++) {
        tutti_tensor *p = tutti_module_parameter(t.module, i);

        CHECK(tutti_tensor_grad(p) == tutti_reducer_grad(tutti_ddp_reducer(t.ddp), i));
        CHECK((const float *)tutti_tensor_grad(p) == flat.gradients + flat.offsets[i]);
        CHECK((float *)p->data == flat.parameters + flat.offsets[i]);
    }
    /* last layer first */
    CHECK(flat.offsets[0] > flat.offsets[n - 1] && flat.offsets[1] > flat.offsets[n - 2]);
    tutti_ddp_free(t.ddp);
    t.ddp = NULL;
    for (int step = 1; step < STEPS; step++)
        CHECK_0(step_on(&t, step, 0, share, &loss)); /* alone, the same samples on all ranks */
    CHECK_0(check_equal_on_all_ranks(group, t.module));
    trainer_free(&t);
    return 0;
}

/* DDP freed and made again in between: momentum and everything else continue unchanged. */
static int leaving_and_coming_back_changes_no_bit(tutti_group *group, void *arg)
{
    int share = BATCH / tutti_group_size(group), first = share * tutti_group_rank(group);
    trainer straight, broken;
    char digests[2][33];
    float loss;

    (void)arg;
    CHECK_0(trainer_new(&straight, group, NULL, 0.1f));
    CHECK_0(trainer_new(&broken, group, NULL, 0.1f));
    for (int step = 0; step < STEPS; step++) {
        CHECK_0(step_on(&straight, step, first, share, &loss));
        if (step == STEPS / 2) {
            tutti_ddp_free(broken.ddp);
            CHECK_OK(tutti_ddp_new(&broken.ddp, broken.module, group, NULL));
        }
        CHECK_0(step_on(&broken, step, first, share, &loss));
    }
    tutti_module_digest(straight.module, digests[0]);
    tutti_module_digest(broken.module, digests[1]);
    CHECK_TEXT(digests[1], digests[0]);
    trainer_free(&straight);
    trainer_free(&broken);
    return 0;
}

/* One rank with DDP = one without, with the fast kernels, which keep copies of weights: the first backward moves the
 * parameters between forward and backward. */
static int ddp_of_one_changes_no_bit(tutti_group *group, void *arg)
{
    enum { IMAGES = 4 };
    static const int64_t y[IMAGES] = {0, 1, 2, 3};
    float *x = tutti__alloc(IMAGES * 3 * 8 * 8 * sizeof *x);
    char digests[2][33];

    (void)arg;
    for (uint32_t k = 0; k < IMAGES * 3 * 8 * 8; k++)
        x[k] = value(k);
    for (int with = 0; with < 2; with++) {
        tutti_model_opts shape = {.channels = 3, .height = 8, .width = 8, .classes = 10};
        tutti_ctx *cx;
        tutti_model *model;
        tutti_ddp *ddp = NULL;
        tutti_optim *optim;

        CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
        CHECK_OK(tutti_model_new(&model, cx, "mini_resnet", &shape));
        if (with)
            CHECK_OK(tutti_ddp_new(&ddp, tutti_model_module(model), group, NULL));
        CHECK_OK(tutti_sgd_new(&optim, tutti_model_module(model), &(tutti_sgd_opts){.lr = 0.1f}));
        for (int step = 0; step < 2; step++) {
            tutti_array images = {x, TUTTI_SHAPE(IMAGES, 3, 8, 8), TUTTI_F32};
            tutti_tensor *logits;

            tutti_optim_zero_grad(optim);
            tutti_step_begin(cx, NULL);
            logits = tutti_model_forward(model, tutti_input(cx, images));
            CHECK_OK(tutti_backward(tutti_cross_entropy(
                logits, tutti_input(cx, (tutti_array){y, TUTTI_SHAPE(IMAGES), TUTTI_I64}))));
            CHECK_OK(tutti_optim_step(optim));
            tutti_step_end(cx);
        }
        tutti_module_digest(tutti_model_module(model), digests[with]);
        tutti_optim_free(optim);
        tutti_ddp_free(ddp);
        tutti_model_free(model);
        tutti_ctx_free(cx);
    }
    CHECK_TEXT(digests[1], digests[0]);
    free(x);
    return 0;
}

/* ---- Buffers ------------------------------------------------------------------------------------------------------- */

typedef struct normed {
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
} normed;

/* Each rank writes its own running mean, then begins a step; checks whose mean is in effect. */
static int check_mean_in_step(tutti_group *group, normed *m, tutti_ctx *cx,
                              const tutti_step_opts *opts, float expected)
{
    float mine[2] = {(float)tutti_group_rank(group) + 1, 0}, seen[2];
    int64_t steps = tutti_group_rank(group) + 10, steps_seen;

    CHECK_OK(tutti_tensor_write(m->norm.running_mean, mine));
    CHECK_OK(tutti_tensor_write(m->norm.num_batches_tracked, &steps));
    tutti_step_begin(cx, opts);
    CHECK_OK(tutti_tensor_read(m->norm.running_mean, seen));
    CHECK_OK(tutti_tensor_read(m->norm.num_batches_tracked, &steps_seen));
    tutti_step_end(cx);
    CHECK(steps_seen == (int64_t)seen[0] + 9);
    CHECK(seen[0] == expected);
    return 0;
}

static int training_steps_begin_with_rank_0s_buffers(tutti_group *group, void *arg)
{
    float mine = (float)tutti_group_rank(group) + 1;
    tutti_ctx *cx;
    tutti_ddp *ddp;
    normed m;

    (void)arg;
    CHECK_OK(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1}));
    tutti_module_init(&m.base, cx);
    tutti_conv2d_init(&m.conv, &m.base, "conv",
                      &(tutti_conv2d_layer_opts){.in = 1, .out = 2, .kernel = 1, .no_bias = true});
    tutti_batch_norm2d_init(&m.norm, &m.base, "norm", 2);
    for (int keep = 0; keep < 2; keep++) {
        CHECK_OK(tutti_ddp_new(&ddp, &m.base, group, &(tutti_ddp_opts){.keep_buffers = keep}));
        CHECK_0(check_mean_in_step(group, &m, cx, NULL, (keep ? mine : 1)));
        CHECK_0(check_mean_in_step(group, &m, cx, &(tutti_step_opts){.eval = true}, mine));
        if (tutti_group_rank(group) == 0) /* alone: evaluation sends nothing */
            CHECK_0(check_mean_in_step(group, &m, cx, &(tutti_step_opts){.no_grad = true}, mine));
        tutti_ddp_pause(ddp);
        CHECK_0(check_mean_in_step(group, &m, cx, NULL, mine));
        tutti_ddp_resume(ddp);
        CHECK_OK(tutti_ddp_broadcast_buffers(ddp));
        CHECK_0(check_equal_on_all_ranks(group, &m.base));
        tutti_ddp_free(ddp);
    }
    tutti_module_destroy(&m.base);
    tutti_ctx_free(cx);
    return 0;
}

/* ---- Overlap ------------------------------------------------------------------------------------------------------- */

/* In the first step, as the trace shows it: the first bucket's all_reduce begins before backward ends. */
static int communication_starts_before_backward_ends(tutti_group *group, void *arg)
{
    enum { N_EVENTS = 64, IMAGES = 2, N_X = IMAGES * 3 * 8 * 8 };
    tutti_ctx_opts cx_opts = {.threads = 1, .kernels = test_kernels()};
    tutti_model_opts shape = {.channels = 3, .height = 8, .width = 8, .classes = 10};
    const int64_t y[IMAGES] = {0, 1};
    float *x = calloc(N_X, sizeof *x);
    tutti__recorder *recorder = tutti__recorder_new(N_EVENTS);
    tutti__time_span events[N_EVENTS];
    tutti_ctx *cx;
    tutti_model *model;
    tutti_ddp *ddp;
    uint64_t first_begin = 0, backward_end = 0;
    size_t n_events, n_spans = 0, n_buckets;

    (void)arg;
    CHECK_OK(tutti_ctx_new(&cx, test_device(), &cx_opts));
    CHECK_OK(tutti_model_new(&model, cx, "mini_resnet", &shape));
    CHECK_OK(
        tutti_ddp_new(&ddp, tutti_model_module(model), group, &(tutti_ddp_opts){.bucket_mb = 2}));
    cx->recorder = recorder;
    tutti_step_begin(cx, NULL);
    CHECK_OK(tutti_backward(tutti_cross_entropy(
        tutti_model_forward(
            model, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(IMAGES, 3, 8, 8), TUTTI_F32})),
        tutti_input(cx, (tutti_array){y, TUTTI_SHAPE(IMAGES), TUTTI_I64}))));
    tutti_step_end(cx);
    n_buckets = tutti_reducer_n_buckets(tutti_ddp_reducer(ddp));
    CHECK(n_buckets >= 4);
    for (size_t b = 0; b < n_buckets; b++) {
        tutti_bucket_info info = tutti_reducer_bucket(tutti_ddp_reducer(ddp), b);

        CHECK(info.bytes > 0 && info.ready_ms > 0 && info.ready_ms <= info.done_ms);
    }
    n_events = tutti__recorder_read(recorder, events, N_EVENTS);
    for (size_t i = 0; i < n_events; i++) {
        if (strcmp(events[i].name, "backward") == 0)
            backward_end = events[i].end_ns;
        if (strcmp(events[i].category, "comm") != 0)
            continue;
        CHECK_TEXT(events[i].name, "all_reduce");
        CHECK(events[i].thread == 1 && events[i].arg == (int64_t)n_spans);
        first_begin = n_spans++ == 0 ? events[i].begin_ns : first_begin;
    }
    CHECK(n_spans == n_buckets);
    /* CUDA's backward only submits work to the stream; its end is not visible. */
    CHECK(first_begin > 0 &&
          (first_begin < backward_end || tutti_ctx_device(cx).kind == TUTTI_CUDA));
    tutti_ddp_free(ddp);
    tutti_model_free(model);
    tutti_ctx_free(cx);
    tutti__recorder_free(recorder);
    free(x);
    return 0;
}

/* ---- Every law on 1 to 4 ranks, as threads and as processes -------------------------------------------------------- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, ranks_share_the_work_of_one),
        TEST(run_all, bucket_size_changes_no_bit),
        TEST(run_all, accumulation_is_a_larger_batch),
        TEST(run_all, paused_backward_is_local),
        TEST(run_all, module_lives_in_the_buckets_and_survives_them),
        TEST(run_all, leaving_and_coming_back_changes_no_bit),
        TEST(run_one, ddp_of_one_changes_no_bit),
        TEST(run_all, training_steps_begin_with_rank_0s_buffers),
        TEST(run_two, communication_starts_before_backward_ends),
        TEST(run_over_tcp, ranks_share_the_work_of_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
