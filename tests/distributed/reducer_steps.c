/* reducer: its steps, by themselves, over 1 to 4 ranks as threads and as processes.   SPDX-License-Identifier: MIT
 * breadth: 120
 * devices: strict cuda nccl */
#include "distributed/bodies.h"
#include "harness/stream.h"
#include <tutti/reducer.h>

static const size_t counts[] = {1, 100, 17, 0, 1000, 16, 3};
enum { N = TUTTI__COUNT_OF(counts), STEPS = 3, TOTAL = 1137, LARGEST = 1000 };
static const char *const names[N] = {"a", "b", "c", "d", "e", "f", "g"};

static void describe(tutti_reducer_parameter *p)
{
    for (size_t i = 0; i < N; i++)
        p[i] = (tutti_reducer_parameter){.name = names[i], .count = counts[i], .dtype = TUTTI_F32};
}

/* A value in [-1, 1) with full mantissa, so that another order of addition gives other bits. */
static float value(int rank, int step, size_t i, size_t k)
{
    uint32_t out[4];

    tutti__philox(
        7, (tutti__philox_counter){{(uint32_t)rank, (uint32_t)step, (uint32_t)i, (uint32_t)k}},
        out);
    return 2 * tutti__unit_float(out[0]) - 1;
}

static float mean(int size, int step, size_t i, size_t k)
{
    float sum = value(0, step, i, k);

    for (int r = 1; r < size; r++)
        sum += value(r, step, i, k);
    return sum / (float)size;
}

/* Index of the j-th gradient that becomes ready in this step: another order on each rank. */
static size_t place(int rank, int step, size_t j)
{
    static const size_t strides[] = {1, 2, 3, 4, 5, 6};

    return (j * strides[(rank + step) % 6] + (size_t)rank) % N; /* N is prime */
}

static int run_step(tutti_reducer *reducer, tutti_group *group, int step)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);

    CHECK_OK(tutti_reducer_begin(reducer));
    for (size_t j = 0; j < N; j++) {
        size_t i = place(rank, step, j);
        float grad[LARGEST];

        for (size_t k = 0; k < counts[i]; k++)
            grad[k] = value(rank, step, i, k);
        test_set(tutti_reducer_grad(reducer, i), grad, counts[i] * sizeof *grad);
        CHECK_OK(tutti_reducer_ready(reducer, i));
    }
    CHECK_OK(tutti_reducer_finish(reducer));
    for (size_t i = 0; i < N; i++) {
        float grad[LARGEST];

        test_get(grad, tutti_reducer_grad(reducer, i), counts[i] * sizeof *grad);
        for (size_t k = 0; k < counts[i]; k++)
            CHECK(is_mean((double)grad[k], (double)mean(size, step, i, k), size));
    }
    return 0;
}

/* The mean in rank order, bit for bit, for any buckets and any order in which each rank's gradients become ready. */
static int mean_is_exact_for_all_bucket_sizes(tutti_group *group, void *arg)
{
    static const double sizes[][2] = {
        {0, 0}, {1e-6, 1e-6}, {1e-4, 1e-3}, {3e-3, 1e-4}, {TUTTI_ZERO, TUTTI_ZERO}};
    tutti_reducer_parameter p[N];

    (void)arg;
    describe(p);
    for (size_t s = 0; s < TUTTI__COUNT_OF(sizes); s++) {
        tutti_reducer_opts opts = {
            .first_bucket_mb = sizes[s][0], .bucket_mb = sizes[s][1], .stream = test_stream()};
        tutti_reducer *reducer;

        CHECK_OK(tutti_reducer_new(&reducer, group, p, N, &opts));
        for (int step = 0; step < STEPS; step++)
            CHECK_0(run_step(reducer, group, step));
        if (sizes[s][1] == (double)TUTTI_ZERO) /* each gradient by itself */
            CHECK(tutti_reducer_n_buckets(reducer) == N);
        tutti_reducer_free(reducer);
    }
    return 0;
}

static int buckets_are_one_block_in_order_with_zero_gaps(tutti_group *group, void *arg)
{
    const size_t order[N] = {4, 0, 6, 2, 1, 5, 3};
    tutti_reducer_opts opts = {.first_bucket_mb = 2e-3,
                               .bucket_mb = 5e-4,
                               .order = order,
                               .stream = test_stream()}; /* 2097, 524 bytes */
    tutti_reducer_parameter p[N];
    tutti_reducer *reducer;
    size_t places = 0, bytes = 0;
    const unsigned char *at, *block;

    (void)arg;
    describe(p);
    CHECK_OK(tutti_reducer_new(&reducer, group, p, N, &opts));
    CHECK(tutti_reducer_n_buckets(reducer) == 3); /* 4000 | 4 + 12 + 68 + 400 + 64 | 0 */
    block = at = tutti_reducer_grad(reducer, order[0]);
    for (size_t j = 0; j < N; j++) {
        CHECK((const unsigned char *)tutti_reducer_grad(reducer, order[j]) == at);
        CHECK((uintptr_t)at % 64 == 0);
        at += (4 * counts[order[j]] + 63) / 64 * 64;
    }
    for (size_t b = 0; b < tutti_reducer_n_buckets(reducer); b++) {
        tutti_bucket_info info = tutti_reducer_bucket(reducer, b);

        CHECK(info.first == places);
        places += info.n;
        bytes += info.bytes;
    }
    CHECK(places == N && bytes == 4 * TOTAL);
    for (int step = 0; step < STEPS; step++)
        CHECK_0(run_step(reducer, group, step));
    for (size_t j = 0; j < N; j++) {
        size_t i = order[j], end = (4 * counts[i] + 63) / 64 * 64;
        unsigned char grad[4 * LARGEST + 64];

        test_get(grad, tutti_reducer_grad(reducer, i), end);
        for (size_t k = 4 * counts[i]; k < end; k++)
            CHECK(grad[k] == 0);
    }
    CHECK(tutti_reducer_grad(reducer, N) == NULL);
    CHECK(block != NULL);
    tutti_reducer_free(reducer);
    return 0;
}

static int each_dtype_has_its_buckets(tutti_group *group, void *arg)
{
    const tutti_reducer_parameter p[] = {{.name = "f32", .count = 33, .dtype = TUTTI_F32},
                                         {.name = "f64", .count = 5, .dtype = TUTTI_F64},
                                         {.name = "bf16", .count = 7, .dtype = TUTTI_BF16},
                                         {.name = "f32.b", .count = 2, .dtype = TUTTI_F32}};
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_reducer *reducer;

    (void)arg;
    CHECK_OK(
        tutti_reducer_new(&reducer, group, p, 4, &(tutti_reducer_opts){.stream = test_stream()}));
    CHECK(tutti_reducer_n_buckets(reducer) == 3);
    CHECK(tutti_reducer_bucket(reducer, 0).n == 2 && tutti_reducer_bucket(reducer, 0).bytes == 140);
    for (int step = 0; step < STEPS; step++) {
        float f32[33];
        double f64[5];
        uint16_t bf16[7];

        CHECK_OK(tutti_reducer_begin(reducer));
        for (size_t k = 0; k < 33; k++)
            f32[k] = (float)rank;
        for (size_t k = 0; k < 5; k++)
            f64[k] = (double)k;
        for (size_t k = 0; k < 7; k++)
            bf16[k] = 0x3f80; /* 1 */
        test_set(tutti_reducer_grad(reducer, 0), f32, sizeof f32);
        test_set(tutti_reducer_grad(reducer, 1), f64, sizeof f64);
        test_set(tutti_reducer_grad(reducer, 2), bf16, sizeof bf16);
        for (size_t i = 0; i < 4; i++)
            CHECK_OK(tutti_reducer_ready(reducer, i));
        CHECK_OK(tutti_reducer_finish(reducer));
        test_get(f32, tutti_reducer_grad(reducer, 0), sizeof f32);
        test_get(f64, tutti_reducer_grad(reducer, 1), sizeof f64);
        test_get(bf16, tutti_reducer_grad(reducer, 2), sizeof bf16);
        CHECK(f32[32] == (float)(size - 1) / 2);
        CHECK(f64[4] == 4);
        CHECK(bf16[6] == 0x3f80);
    }
    tutti_reducer_free(reducer);
    return 0;
}

static int no_gradients_are_fine(tutti_group *group, void *arg)
{
    tutti_reducer *reducer;

    (void)arg;
    CHECK_OK(tutti_reducer_new(&reducer, group, NULL, 0,
                               &(tutti_reducer_opts){.stream = test_stream()}));
    CHECK(tutti_reducer_n_buckets(reducer) == 0);
    CHECK_OK(tutti_reducer_begin(reducer));
    CHECK_OK(tutti_reducer_finish(reducer));
    CHECK(tutti_reducer_grad(reducer, 0) == NULL);
    tutti_reducer_free(reducer);
    tutti_reducer_free(NULL);
    return 0;
}

/* All ranks' gradients of bucket 0 are ready, bucket 1's are not: a barrier after it proves that it was reduced. */
static int a_full_bucket_does_not_wait_for_the_next(tutti_group *group, void *arg)
{
    const tutti_reducer_parameter p[] = {{.name = "first", .count = 1000, .dtype = TUTTI_F32},
                                         {.name = "last", .count = 1000, .dtype = TUTTI_F32}};
    tutti_reducer_opts opts = {.first_bucket_mb = 1e-4, .bucket_mb = 1e-4, .stream = test_stream()};
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    tutti_reducer *reducer;
    float *first, *last, mine = (float)rank, one = 1, seen;

    (void)arg;
    CHECK_OK(tutti_reducer_new(&reducer, group, p, 2, &opts));
    CHECK(tutti_reducer_n_buckets(reducer) == 2);
    first = tutti_reducer_grad(reducer, 0);
    last = (float *)tutti_reducer_grad(reducer, 1) + 999;
    for (int step = 0; step < STEPS; step++) {
        tutti_bucket_info info[2];

        CHECK_OK(tutti_reducer_begin(reducer));
        test_set(last, &mine, sizeof mine);
        CHECK_OK(tutti_reducer_ready(reducer, 1));
        CHECK_OK(tutti_barrier(group, NULL));
        test_get(&seen, last, sizeof seen);
        CHECK(seen == (float)(size - 1) / 2); /* the mean is complete while backward still runs */
        test_set(first, &one, sizeof one);
        CHECK_OK(tutti_reducer_ready(reducer, 0));
        CHECK_OK(tutti_reducer_finish(reducer));
        info[0] = tutti_reducer_bucket(reducer, 0);
        info[1] = tutti_reducer_bucket(reducer, 1);
        CHECK(info[0].ready_ms <= info[0].done_ms && info[0].done_ms <= info[1].ready_ms);
        CHECK(info[1].ready_ms <= info[1].done_ms);
    }
    tutti_reducer_free(reducer);
    return 0;
}

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

static int expect_mismatch(tutti_group *group, const tutti_reducer_parameter *p, size_t n,
                           const tutti_reducer_opts *opts, const char *message)
{
    tutti_reducer *reducer;

    CHECK(tutti_reducer_new(&reducer, group, p, n, opts) == TUTTI_ERR_MISMATCH);
    CHECK(reducer == NULL);
    CHECK_TEXT(tutti_last_error(), message);
    return 0;
}

/* arg: the rank that differs. All ranks have the same message. */
static int ranks_that_differ_are_told_how(tutti_group *group, void *arg)
{
    int other = *(const int *)arg, differs = tutti_group_rank(group) == other;
    const size_t swapped[N] = {1, 0, 2, 3, 4, 5, 6}, straight[N] = {0, 1, 2, 3, 4, 5, 6};
    tutti_reducer_parameter p[N];
    char message[512];

    describe(p);
    p[3].name = "fc1.bias";
    p[3].count = differs ? 128 : 256;
    snprintf(message, sizeof message,
             "models differ between ranks: parameter 3 is \"fc1.bias\" [256] F32 on rank 0 but "
             "\"fc1.bias\" [128] F32 on rank %d",
             other);
    CHECK_0(expect_mismatch(group, p, N, NULL, message));

    describe(p);
    p[6].dtype = differs ? TUTTI_F64 : TUTTI_F32;
    snprintf(message, sizeof message,
             "models differ between ranks: parameter 6 is \"g\" [3] F32 on rank 0 but \"g\" [3] "
             "F64 on rank %d",
             other);
    CHECK_0(expect_mismatch(group, p, N, NULL, message));

    describe(p);
    p[0].name = differs ? "A" : "a";
    snprintf(message, sizeof message,
             "models differ between ranks: parameter 0 is \"a\" [1] F32 on rank 0 but \"A\" [1] "
             "F32 on rank %d",
             other);
    CHECK_0(expect_mismatch(group, p, N, NULL, message));

    describe(p);
    snprintf(message, sizeof message,
             "models differ between ranks: rank 0 has 7 parameters but rank %d has 5; parameter 5, "
             "\"f\" [16] "
             "F32, is only on rank 0",
             other);
    CHECK_0(expect_mismatch(group, p, differs ? 5 : N, NULL, message));
    snprintf(message, sizeof message,
             "models differ between ranks: rank 0 has 5 parameters but rank %d has 7; parameter 5, "
             "\"f\" [16] "
             "F32, is only on rank %d",
             other, other);
    CHECK_0(expect_mismatch(group, p, differs ? N : 5, NULL, message));

    snprintf(
        message, sizeof message,
        "orders of gradients differ between ranks: place 0 is \"a\" on rank 0 but \"b\" on rank %d",
        other);
    CHECK_0(expect_mismatch(group, p, N,
                            &(tutti_reducer_opts){.order = differs ? swapped : straight}, message));
    snprintf(message, sizeof message,
             "bucket sizes differ between ranks: size 1 is 25 MiB on rank 0 but 3 MiB on rank %d",
             other);
    CHECK_0(expect_mismatch(group, p, N, &(tutti_reducer_opts){.bucket_mb = differs ? 3 : 25},
                            message));
    return 0;
}

static int bad_arguments_are_named(tutti_group *group, void *arg)
{
    const size_t twice[N] = {0, 1, 2, 3, 4, 4, 6}, outside[N] = {0, 1, 2, 3, 4, 5, 7};
    tutti_reducer_parameter p[N];
    tutti_reducer *reducer;

    (void)arg;
    describe(p);
    p[2].dtype = TUTTI_I64;
    CHECK(tutti_reducer_new(&reducer, group, p, N, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "\"c\", is I64");
    p[2] = (tutti_reducer_parameter){.count = 1, .dtype = TUTTI_F32};
    CHECK(tutti_reducer_new(&reducer, group, p, N, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "parameter 2 has no name");
    p[2] = (tutti_reducer_parameter){.name = "huge", .count = SIZE_MAX / 2, .dtype = TUTTI_F32};
    CHECK(tutti_reducer_new(&reducer, group, p, N, NULL) == TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "huge");
    describe(p);
    CHECK(tutti_reducer_new(&reducer, group, p, N, &(tutti_reducer_opts){.order = twice}) ==
          TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "parameter 4, \"e\", is in the order twice");
    CHECK(tutti_reducer_new(&reducer, group, p, N, &(tutti_reducer_opts){.order = outside}) ==
          TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "place 6 of the order is parameter 7, but there are only 7");
    CHECK(tutti_reducer_new(&reducer, group, p, N, &(tutti_reducer_opts){.bucket_mb = -1}) ==
          TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "bucket_mb -1");
    return 0;
}

static int calls_out_of_order_are_refused(tutti_group *group, void *arg)
{
    tutti_reducer_parameter p[N];
    tutti_reducer *reducer;

    (void)arg;
    describe(p);
    CHECK_OK(
        tutti_reducer_new(&reducer, group, p, N, &(tutti_reducer_opts){.stream = test_stream()}));
    CHECK(tutti_reducer_ready(reducer, 0) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "call tutti_reducer_begin first");
    CHECK(tutti_reducer_finish(reducer) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "call tutti_reducer_begin first");
    CHECK_OK(tutti_reducer_begin(reducer));
    CHECK(tutti_reducer_begin(reducer) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "call tutti_reducer_finish first");
    for (size_t i = 0; i < N; i++)
        CHECK_OK(tutti_reducer_ready(reducer, i));
    CHECK_OK(tutti_reducer_finish(reducer));
    CHECK_0(run_step(reducer, group, 1));
    tutti_reducer_free(reducer);
    return 0;
}

/* ---- A rank that fails tells the others ---------------------------------------------------------------------------
 * They may get the error in any call from tutti_reducer_new on: a rank that is done does not wait for one that is late. */

static tutti_status begin_step(tutti_group *group, tutti_reducer **reducer_p, double bucket_mb)
{
    tutti_reducer_parameter p[N];

    describe(p);
    TUTTI_TRY(tutti_reducer_new(
        reducer_p, group, p, N,
        &(tutti_reducer_opts){.first_bucket_mb = bucket_mb, .stream = test_stream()}));
    return tutti_reducer_begin(*reducer_p);
}

static tutti_status forget_two(tutti_group *group, tutti_reducer **reducer_p, bool is_culprit)
{
    TUTTI_TRY(begin_step(group, reducer_p, 1e-5));
    for (size_t i = 0; i < N; i++)
        if (!is_culprit || (i != 1 && i != 4))
            tutti_reducer_ready(*reducer_p, i);
    return tutti_reducer_finish(*reducer_p);
}

static tutti_status ready_twice(tutti_group *group, tutti_reducer **reducer_p, bool is_culprit)
{
    TUTTI_TRY(begin_step(group, reducer_p, 0));
    for (size_t i = 0; i < N; i++)
        tutti_reducer_ready(*reducer_p, is_culprit ? 5 : i);
    return tutti_reducer_finish(*reducer_p);
}

static tutti_status no_such_gradient(tutti_group *group, tutti_reducer **reducer_p, bool is_culprit)
{
    TUTTI_TRY(begin_step(group, reducer_p, 0));
    for (size_t i = 0; i < N; i++)
        tutti_reducer_ready(*reducer_p, is_culprit ? 99 : i);
    return tutti_reducer_finish(*reducer_p);
}

static tutti_status free_in_step(tutti_group *group, tutti_reducer **reducer_p, bool is_culprit)
{
    TUTTI_TRY(begin_step(group, reducer_p, 0));
    if (is_culprit) {
        tutti_reducer_free(*reducer_p);
        *reducer_p = NULL;
        return tutti__fail(TUTTI_ERR_STATE, "rank %d freed its reducer in the middle of step 1",
                           tutti_group_rank(group));
    }
    for (size_t i = 0; i < N; i++)
        tutti_reducer_ready(*reducer_p, i);
    return tutti_reducer_finish(*reducer_p);
}

/* The last rank is the one that fails. */
static int all_ranks_hear_of_a_failure(tutti_group *group, void *arg)
{
    static const struct {
        tutti_status (*run)(tutti_group *group, tutti_reducer **reducer_p, bool is_culprit);
        tutti_status status;
        const char *text;
    } rows[] = {
        {forget_two, TUTTI_ERR_STATE, "were never ready in step 1 on rank %d: \"e\", \"b\""},
        {ready_twice, TUTTI_ERR_STATE, "gradient 5, \"f\", was ready twice in step 1 on rank %d"},
        {no_such_gradient, TUTTI_ERR_ARG, "there is no gradient 99, only 7 in all"},
        {free_in_step, TUTTI_ERR_STATE, "rank %d freed its reducer in the middle of step 1"},
    };
    int row = *(const int *)arg, last = tutti_group_size(group) - 1;
    bool is_culprit = tutti_group_rank(group) == last;
    tutti_reducer *reducer = NULL;
    tutti_status status = rows[row].run(group, &reducer, is_culprit);
    char text[128];

    CHECK(status == (is_culprit ? rows[row].status : TUTTI_ERR_ABORTED));
    snprintf(text, sizeof text, rows[row].text, last);
    CHECK_TEXT(tutti_last_error(), text);
    tutti_reducer_free(reducer);
    return 0;
}

/* ---- Every body on 1 to 4 ranks, as threads and as processes ------------------------------------------------------ */

static void run_failures(void **state)
{
    for (int n = 1; n <= 4; n++)
        for (int row = 0; row < 4; row++)
            run((tutti_rank_body *)*state, &row, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(run_all, mean_is_exact_for_all_bucket_sizes),
        TEST(run_all, buckets_are_one_block_in_order_with_zero_gaps),
        TEST(run_all, each_dtype_has_its_buckets),
        TEST(run_all, no_gradients_are_fine),
        TEST(run_all, a_full_bucket_does_not_wait_for_the_next),
        TEST(run_with_a_rank_that_differs, ranks_that_differ_are_told_how),
        TEST(run_all, bad_arguments_are_named),
        TEST(run_all, calls_out_of_order_are_refused),
        TEST(run_failures, all_ranks_hear_of_a_failure),
        TEST(run_over_tcp, mean_is_exact_for_all_bucket_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
