/* ddp: communication hooks, of the reducer and over a module.   SPDX-License-Identifier: MIT
 * timeout: 120   breadth: 240
 * devices: strict cuda nccl:long */
#include "distributed/ddp_trainer.h"
#include "harness/memory.h"
#include "harness/stream.h"
#include "tensor/tensor.h"

enum { BIAS = 33, ROWS = 24, COLUMNS = 40, MATRIX = ROWS * COLUMNS, N = 3, LARGEST = MATRIX };
static const tutti_reducer_parameter parameters[N] = {
    {.name = "bias", .count = BIAS, .dtype = TUTTI_F32},
    {.name = "weight", .count = MATRIX, .dtype = TUTTI_F32, .rows = ROWS},
    {.name = "double", .count = 10, .dtype = TUTTI_F64}};

static size_t bytes_of(size_t i)
{
    return parameters[i].count * tutti_dtype_size(parameters[i].dtype);
}

static float value(int rank, int step, uint32_t i, uint32_t k)
{
    uint32_t out[4];

    tutti__philox(5, (tutti__philox_counter){{(uint32_t)rank, (uint32_t)step, i, k}}, out);
    return 2 * tutti__unit_float(out[0]) - 1;
}

static double mean_of(int size, int step, uint32_t i, uint32_t k)
{
    double sum = 0;

    for (int r = 0; r < size; r++)
        sum += (double)value(r, step, i, k);
    return sum / size;
}

static tutti_status run_step(tutti_reducer *r, int rank, int step)
{
    TUTTI_TRY(tutti_reducer_begin(r));
    for (uint32_t i = 0; i < N; i++) {
        double grad[LARGEST];

        for (uint32_t k = 0; k < parameters[i].count; k++)
            if (parameters[i].dtype == TUTTI_F32)
                ((float *)grad)[k] = value(rank, step, i, k);
            else
                grad[k] = (double)value(rank, step, i, k);
        test_set(tutti_reducer_grad(r, i), grad, bytes_of(i));
        tutti_reducer_ready(r, i);
    }
    return tutti_reducer_finish(r);
}

/* The largest error of gradient i from the mean. */
static double error_of(tutti_reducer *r, int size, int step, uint32_t i)
{
    double largest = 0, grad[LARGEST];

    test_get(grad, tutti_reducer_grad(r, i), bytes_of(i));

    for (uint32_t k = 0; k < parameters[i].count; k++) {
        double x = parameters[i].dtype == TUTTI_F32 ? (double)((const float *)grad)[k] : grad[k];

        largest = fmax(largest, fabs(x - mean_of(size, step, i, k)));
    }
    return largest;
}

static bool same_mean(tutti_reducer *a, tutti_reducer *b, size_t i, int ranks)
{
    double x[LARGEST], y[LARGEST];

    test_get(x, tutti_reducer_grad(a, i), bytes_of(i));
    test_get(y, tutti_reducer_grad(b, i), bytes_of(i));
    for (uint32_t k = 0; k < parameters[i].count && parameters[i].dtype == TUTTI_F32; k++)
        if (!is_mean((double)((float *)x)[k], (double)((float *)y)[k], ranks))
            return false;
    return parameters[i].dtype == TUTTI_F32 || memcmp(x, y, bytes_of(i)) == 0;
}

static int new_reducer(tutti_reducer **r_p, tutti_group *group, const tutti_comm_hook *hook)
{
    CHECK_OK(tutti_reducer_new(r_p, group, parameters, N,
                               &(tutti_reducer_opts){.stream = test_stream()}));
    if (hook)
        CHECK_OK(tutti_reducer_set_hook(*r_p, hook));
    return 0;
}

/* ---- A program's own ---------------------------------------------------------------------------------------------------- */

typedef struct own {
    int calls, last, freed;
    size_t gradients;
    bool fails;
} own;

/* Sums, then divides; reads everything in the bucket. */
static tutti_status own_run(void *self, tutti_group *group, const tutti_bucket *bucket)
{
    own *o = self;
    const size_t bytes = bucket->buf.count * tutti_dtype_size(bucket->buf.dtype);
    double sums[2 * LARGEST];
    tutti_work *work;

    if (o->fails)
        return tutti__fail(TUTTI_ERR_ARG, "no more bandwidth");
    o->calls++;
    o->last += bucket->is_last;
    o->gradients += bucket->n;
    for (size_t k = 0; k < bucket->n; k++) {
        const tutti_bucket_gradient *g = &bucket->gradients[k];

        if (strcmp(g->name, parameters[g->parameter].name) != 0 ||
            g->rows != parameters[g->parameter].rows ||
            g->count != parameters[g->parameter].count || g->offset + g->count > bucket->buf.count)
            return tutti__fail(TUTTI_ERR_INTERNAL,
                               "gradient %zu of bucket %zu is described wrongly", k, bucket->index);
    }
    TUTTI_TRY(tutti_all_reduce(group, bucket->buf, TUTTI_SUM, &work));
    TUTTI_TRY(tutti_work_wait(work));
    test_get_in(bucket->buf.stream, sums, bucket->buf.p, bytes);
    for (size_t i = 0; i < bucket->buf.count; i++)
        if (bucket->buf.dtype == TUTTI_F32)
            ((float *)sums)[i] /= (float)tutti_group_size(group);
        else
            sums[i] /= tutti_group_size(group);
    test_set_in(bucket->buf.stream, bucket->buf.p, sums, bytes);
    return TUTTI_OK;
}

static void own_free(void *self)
{
    ((own *)self)->freed++;
}

/* A hook that averages gives the same bits as no hook. */
static int a_hook_that_averages_changes_nothing(tutti_group *group, void *arg)
{
    own o = {0};
    const tutti_comm_hook hook = {.name = "own", .run = own_run, .free = own_free, .self = &o};
    int rank = tutti_group_rank(group);
    tutti_reducer *plain, *hooked;

    (void)arg;
    CHECK_0(new_reducer(&plain, group, NULL));
    CHECK_0(new_reducer(&hooked, group, &hook));
    for (int step = 0; step < 3; step++) {
        CHECK_OK(run_step(plain, rank, step));
        CHECK_OK(run_step(hooked, rank, step));
        for (size_t i = 0; i < N; i++)
            CHECK(same_mean(plain, hooked, i, tutti_group_size(group)));
    }
    CHECK(o.calls == 6 && o.last == 3 && o.gradients == 9); /* two dtypes, two buckets */
    CHECK(tutti_reducer_set_hook(hooked, &hook) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "a communication hook, \"own\", is set already");
    CHECK(o.freed == 1);
    tutti_reducer_free(plain);
    tutti_reducer_free(hooked);
    CHECK(o.freed == 2);
    return 0;
}

/* On the last rank: the others get its message. */
static int a_hook_that_fails_is_named_on_all_ranks(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), last = tutti_group_size(group) - 1;
    own o = {0};
    const tutti_comm_hook hook = {.name = "own", .run = own_run, .free = own_free, .self = &o};
    tutti_reducer *r;
    tutti_status status;
    char text[128];

    (void)arg;
    CHECK_0(new_reducer(&r, group, &hook));
    CHECK_OK(run_step(r, rank, 0));
    CHECK_OK(tutti_barrier(group, NULL));
    o.fails = rank == last;
    status = run_step(r, rank, 1);
    CHECK(status == (rank == last ? TUTTI_ERR_ARG : TUTTI_ERR_ABORTED));
    snprintf(text, sizeof text, "communication hook \"own\" on rank %d: no more bandwidth", last);
    CHECK_TEXT(tutti_last_error(), text);
    tutti_reducer_free(r);
    return 0;
}

/* ---- 16 bits --------------------------------------------------------------------------------------------------------- */

static int compressed_gradients_are_near(tutti_group *group, void *arg)
{
    static const double tolerance[] = {1.0 / 128, 1.0 / 1024}; /* bf16, fp16: of values below 1 */
    int rank = tutti_group_rank(group), size = tutti_group_size(group);

    (void)arg;
    for (int fp16 = 0; fp16 < 2; fp16++)
        for (int wraps = 0; wraps < 2; wraps++) {
            tutti_comm_hook hook, inner;
            tutti_traffic traffic;
            tutti_reducer *r;

            if (wraps) /* the inner hook gets 16 bits and leaves them */
                CHECK_OK((fp16 ? tutti_comm_hook_bf16 : tutti_comm_hook_fp16)(&inner, NULL));
            CHECK_OK(
                (fp16 ? tutti_comm_hook_fp16 : tutti_comm_hook_bf16)(&hook, wraps ? &inner : NULL));
            CHECK_0(new_reducer(&r, group, &hook));
            for (int step = 0; step < 3; step++) {
                CHECK_OK(run_step(r, rank, step));
                CHECK(error_of(r, size, step, 0) < tolerance[fp16]);
                CHECK(error_of(r, size, step, 1) < tolerance[fp16]);
                CHECK(error_of(r, size, step, 2) < 1e-15); /* F64 is sent unchanged */
            }
            traffic = tutti_reducer_traffic(r);
            CHECK(traffic.gradient_bytes - traffic.wire_bytes == 3 * 2 * (48 + MATRIX));
            tutti_reducer_free(r);
        }
    return 0;
}

/* ---- PowerSGD -------------------------------------------------------------------------------------------------------- */

static int powersgd_refuses_what_makes_no_sense(tutti_group *group, void *arg)
{
    tutti_comm_hook hook;

    (void)group;
    (void)arg;
    CHECK(tutti_comm_hook_powersgd(&hook, &(tutti_powersgd_opts){.start_step = 1}) ==
          TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "start_step 1 with error feedback or warm start");
    CHECK(tutti_comm_hook_powersgd(
              &hook, &(tutti_powersgd_opts){.start_step = 1, .no_warm_start = true}) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_comm_hook_powersgd(&hook, &(tutti_powersgd_opts){.rank = -1}) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "rank -1");
    CHECK(tutti_comm_hook_powersgd(&hook, &(tutti_powersgd_opts){.min_compression_rate = -2}) ==
          TUTTI_ERR_ARG);
    CHECK(hook.run == NULL);
    CHECK_OK(tutti_comm_hook_powersgd(
        &hook,
        &(tutti_powersgd_opts){.start_step = 1, .no_warm_start = true, .no_error_feedback = true}));
    hook.free(hook.self);
    return 0;
}

/* Without plain steps, and with a rate of zero: the first step is compressed, although that is larger than the matrix. */
static int powersgd_can_begin_at_once_with_everything(tutti_group *group, void *arg)
{
    const tutti_powersgd_opts opts = {.rank = 1000,
                                      .start_step = -1,
                                      .no_error_feedback = true,
                                      .no_warm_start = true,
                                      .min_compression_rate = TUTTI_ZERO};
    tutti_comm_hook hook;
    tutti_traffic traffic;
    tutti_reducer *r;

    (void)arg;
    CHECK(tutti_comm_hook_powersgd(&hook, &(tutti_powersgd_opts){.start_step = -1}) ==
          TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "start_step -1 with error feedback or warm start");
    CHECK_OK(tutti_comm_hook_powersgd(&hook, &opts));
    CHECK_0(new_reducer(&r, group, &hook));
    CHECK_OK(run_step(r, tutti_group_rank(group), 0));
    traffic = tutti_reducer_traffic(r);
    CHECK(traffic.wire_bytes > traffic.gradient_bytes);
    CHECK(error_of(r, tutti_group_size(group), 0, 1) < 1e-4);
    tutti_reducer_free(r);
    return 0;
}

/* With as many columns as the matrix has, there is no error. */
static int powersgd_of_full_rank_is_exact(tutti_group *group, void *arg)
{
    const tutti_powersgd_opts opts = {.rank = 1000, .start_step = 2, .min_compression_rate = 0.01};
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_comm_hook hook;
    tutti_reducer *r;

    (void)arg;
    CHECK_OK(tutti_comm_hook_powersgd(&hook, &opts));
    CHECK_0(new_reducer(&r, group, &hook));
    for (int step = 0; step < 5; step++) {
        CHECK_OK(run_step(r, rank, step));
        for (uint32_t i = 0; i < N; i++)
            CHECK(error_of(r, size, step, i) < (i == 1 && step >= 2 ? 1e-4 : 1e-6));
    }
    tutti_reducer_free(r);
    return 0;
}

/* The same gradients in every step: errors are fed back into later steps, so that the sum of means is right. Vectors are exact,
 * and few bytes are sent for the matrix. */
static int powersgd_loses_nothing_in_the_end(tutti_group *group, void *arg)
{
    enum { STEPS = 150 };
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    static _Thread_local double sums[2][MATRIX];

    (void)arg;
    for (int forgets = 0; forgets < 2; forgets++) {
        const tutti_powersgd_opts opts = {.start_step = 2, .no_error_feedback = forgets};
        double error = 0, norm = 0;
        tutti_comm_hook hook;
        tutti_reducer *r;
        float weight[MATRIX];

        memset(sums[forgets], 0, sizeof sums[forgets]);
        CHECK_OK(tutti_comm_hook_powersgd(&hook, &opts));
        CHECK_0(new_reducer(&r, group, &hook));
        for (int step = 0; step < STEPS; step++) {
            CHECK_OK(run_step(r, rank, 0));
            test_get(weight, tutti_reducer_grad(r, 1), sizeof weight);
            CHECK(error_of(r, size, 0, 0) < 1e-6 && error_of(r, size, 0, 2) < 1e-6);
            for (int k = 0; k < MATRIX && step >= 2; k++)
                sums[forgets][k] += (double)weight[k] / (STEPS - 2);
        }
        for (uint32_t k = 0; k < MATRIX; k++) {
            double m = mean_of(size, 0, 1, k);

            error += (sums[forgets][k] - m) * (sums[forgets][k] - m);
            norm += m * m;
        }
        CHECK(forgets ? sqrt(error / norm) > 0.5 : sqrt(error / norm) < 0.2);
        CHECK(tutti_reducer_bucket(r, 1).wire_bytes == /* vector, P, Q */
              (size_t)(BIAS + ROWS + COLUMNS) * sizeof(float));
        tutti_reducer_free(r);
    }
    return 0;
}

/* Bits are equal on all ranks, also with an inner 16-bit hook, without warm start, and after an infinity. */
static int powersgd_keeps_ranks_equal(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);

    (void)arg;
    for (int kind = 0; kind < 3; kind++) {
        const tutti_powersgd_opts opts = {
            .rank = 3, .start_step = 2, .no_warm_start = kind == 1, .seed = 7};
        float all[4][MATRIX];
        tutti_comm_hook hook;
        tutti_reducer *r;
        float weight[MATRIX];

        CHECK_OK(tutti_comm_hook_powersgd(&hook, &opts));
        if (kind == 2) {
            tutti_comm_hook inner = hook;

            CHECK_OK(tutti_comm_hook_bf16(&hook, &inner));
        }
        CHECK_0(new_reducer(&r, group, &hook));
        for (int step = 0; step < 8; step++) {
            CHECK_OK(tutti_reducer_begin(r));
            for (uint32_t k = 0; k < MATRIX; k++)
                weight[k] = value(rank, step, 1, k);
            if (step == 5 && rank == size - 1)
                weight[17] = INFINITY;
            test_set(tutti_reducer_grad(r, 1), weight, sizeof weight);
            for (size_t i = 0; i < N; i++)
                tutti_reducer_ready(r, i);
            CHECK_OK(tutti_reducer_finish(r));
            test_get(weight, tutti_reducer_grad(r, 1), sizeof weight);
            CHECK_OK(tutti_all_gather(group, TUTTI_CONST_BUF(weight, MATRIX, TUTTI_F32),
                                      TUTTI_BUF(all, (size_t)size * MATRIX, TUTTI_F32), NULL));
            for (int other = 1; other < size; other++)
                CHECK(memcmp(all[other], all[0], sizeof all[0]) == 0);
            CHECK(isfinite(weight[17]) == (step != 5) && isfinite(weight[18]) == (step != 5));
        }
        tutti_reducer_free(r);
    }
    return 0;
}

/* ---- Over a module --------------------------------------------------------------------------------------------------- */

static int trainer_new(trainer *t, tutti_group *group, const tutti_comm_hook *hook, float scale)
{
    tutti_ctx_opts cx_opts = {.threads = 1, .kernels = test_kernels()};

    *t = (trainer){0};
    CHECK_OK(tutti_ctx_new(&t->cx, test_device(), &cx_opts));
    CHECK_OK(
        tutti_model_new(&t->model, t->cx, "mlp",
                        &(tutti_model_opts){.channels = 1, .height = 6, .width = 6, .classes = 5}));
    CHECK_OK(tutti_ddp_new(&t->ddp, tutti_model_module(t->model), group, NULL));
    if (hook)
        CHECK_OK(tutti_ddp_set_hook(t->ddp, hook));
    CHECK_OK(tutti_sgd_new(&t->optim, tutti_model_module(t->model), &(tutti_sgd_opts){.lr = 0.1f}));
    CHECK_OK(tutti_scaler_new(
        &t->scaler, &(tutti_scaler_opts){.init_scale = scale, .peers = tutti_group_peers(group)}));
    return 0;
}

static int backward(trainer *t, int rank, int step)
{
    float x[36];
    const int64_t y[1] = {(rank + step) % 5};
    tutti_tensor *logits;

    for (uint32_t k = 0; k < 36; k++)
        x[k] = value(rank, step, 9, k);
    tutti_step_begin(t->cx, NULL);
    logits = tutti_model_forward(
        t->model, tutti_input(t->cx, (tutti_array){x, TUTTI_SHAPE(1, 1, 6, 6), TUTTI_F32}));
    CHECK_OK(tutti_backward(tutti_scaler_scale(
        t->scaler, tutti_cross_entropy(
                       logits, tutti_input(t->cx, (tutti_array){y, TUTTI_SHAPE(1), TUTTI_I64})))));
    tutti_step_end(t->cx);
    return 0;
}

/* Two backwards of which the first is paused: the scaled sum is sent, compressed once; the optimizer gets
 * the sum. */
static int accumulation_scaling_and_a_hook_go_together(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);

    (void)arg;
    for (int fp16 = 0; fp16 < 2; fp16++) {
        tutti_comm_hook hook;
        trainer plain, hooked;
        tutti_traffic traffic;

        CHECK_OK((fp16 ? tutti_comm_hook_fp16 : tutti_comm_hook_bf16)(&hook, NULL));
        CHECK_0(trainer_new(&plain, group, NULL, 1));
        CHECK_0(trainer_new(&hooked, group, &hook, 1024));
        for (int both = 0; both < 2; both++) {
            trainer *t = both ? &hooked : &plain;

            tutti_optim_zero_grad(t->optim);
            tutti_ddp_pause(t->ddp);
            CHECK_0(backward(t, rank, 0));
            tutti_ddp_resume(t->ddp);
            CHECK_0(backward(t, rank, 1));
            CHECK_OK(tutti_scaler_unscale(t->scaler, t->optim));
        }
        for (size_t i = 0; i < 4; i++) {
            tutti_tensor *p = tutti_module_parameter(tutti_model_module(plain.model), i),
                         *q = tutti_module_parameter(tutti_model_module(hooked.model), i);
            const float *a = test_grad(p), *b = test_grad(q);

            float largest = 0;

            for (int64_t k = 0; k < tutti_shape_count(tutti_tensor_shape(p)); k++)
                largest = fmaxf(largest, fabsf(a[k]));
            for (int64_t k = 0; k < tutti_shape_count(tutti_tensor_shape(p)); k++)
                CHECK(fabsf(a[k] - b[k]) <= largest / (fp16 ? 256 : 32));
        }
        traffic = tutti_reducer_traffic(tutti_ddp_reducer(hooked.ddp));
        CHECK(traffic.wire_bytes * 2 == traffic.gradient_bytes);
        trainer_free(&plain);
        trainer_free(&hooked);
    }
    return 0;
}

/* With a scale too large for fp16 a sum overflows: every rank skips the step and halves its scale. */
static int an_overflow_on_the_way_is_found_by_all(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    tutti_comm_hook hook;
    trainer t;
    bool stepped;

    (void)arg;
    CHECK_OK(tutti_comm_hook_fp16(&hook, NULL));
    CHECK_0(trainer_new(&t, group, &hook, 0x1p22f));
    CHECK_0(backward(&t, rank, 0));
    CHECK_OK(tutti_scaler_step(t.scaler, t.optim, &stepped));
    CHECK(!stepped);
    CHECK_OK(tutti_scaler_update(t.scaler));
    CHECK(tutti_scaler_get_scale(t.scaler) == 0x1p21f);
    CHECK_OK(tutti_comm_hook_bf16(&hook, NULL));
    CHECK(tutti_ddp_set_hook(t.ddp, &hook) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "\"fp16\", is set already; \"bf16\" cannot be another");
    trainer_free(&t);
    return 0;
}

static tutti_status says_nothing(void *self, tutti_group *group, const tutti_bucket *bucket)
{
    if (tutti_group_rank(group) == 0)
        return TUTTI_ERR_FORMAT;
    return tutti_all_reduce(group, bucket->buf, TUTTI_AVG, self);
}

/* A hook may return a failure without setting a message. */
static int a_failing_hook_need_not_speak(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    tutti_reducer *r;
    char before[1];
    size_t bytes = sizeof before;

    (void)arg;
    /* an older message, which is not its cause */
    CHECK(tutti_store_get(NULL, "key", before, &bytes, 0) == TUTTI_ERR_ARG);
    CHECK_0(new_reducer(&r, group, &(tutti_comm_hook){.name = "mute", .run = says_nothing}));
    CHECK(run_step(r, rank, 0) == (rank == 0 ? TUTTI_ERR_FORMAT : TUTTI_ERR_ABORTED));
    CHECK_TEXT(tutti_last_error(), "hook \"mute\" on rank 0: malformed data");
    tutti_reducer_free(r);
    return 0;
}

static void count(void *self)
{
    ++*(int *)self;
}

/* Invalid combinations are rejected by the program's call, and the hook's self is freed. */
static int hooks_that_cannot_be_are_refused(tutti_group *group, void *arg)
{
    trainer t;
    int freed = 0;

    (void)arg;
    CHECK_0(trainer_new(&t, group, NULL, 1));
    CHECK(tutti_ddp_set_hook(t.ddp, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_ddp_set_hook(t.ddp,
                             &(tutti_comm_hook){.name = "none", .free = count, .self = &freed}) ==
          TUTTI_ERR_ARG);
    CHECK(freed == 1);
    CHECK_OK(tutti_ddp_set_hook(t.ddp, &(tutti_comm_hook){.name = "mute", .run = says_nothing}));
    trainer_free(&t);
    CHECK_0(trainer_new(&t, group, NULL, 1));
    tutti_ddp_free(t.ddp);
    CHECK_OK(
        tutti_ddp_new(&t.ddp, tutti_model_module(t.model), group, &(tutti_ddp_opts){.zero = 1}));
    CHECK(tutti_ddp_set_hook(t.ddp, &(tutti_comm_hook){.name = "mute", .run = says_nothing}) ==
          TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "\"mute\"): with ZeRO gradients are reduced in its own way");
    trainer_free(&t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, a_hook_that_averages_changes_nothing),
        TEST(run_all, a_hook_that_fails_is_named_on_all_ranks),
        TEST(run_all, compressed_gradients_are_near),
        TEST(run_one, powersgd_refuses_what_makes_no_sense),
        TEST(run_all, powersgd_of_full_rank_is_exact),
        TEST(run_all, powersgd_can_begin_at_once_with_everything),
        TEST(run_all, powersgd_loses_nothing_in_the_end),
        TEST(run_all, powersgd_keeps_ranks_equal),
        TEST(run_all, accumulation_scaling_and_a_hook_go_together),
        TEST(run_all, an_overflow_on_the_way_is_found_by_all),
        TEST(run_all, a_failing_hook_need_not_speak),
        TEST(run_all, hooks_that_cannot_be_are_refused),
        TEST(run_over_tcp, powersgd_of_full_rank_is_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
