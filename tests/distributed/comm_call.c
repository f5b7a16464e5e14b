/* comm: calls described by a structure: each does what the function of that name does; factors; time limits of one call.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"
#include "harness/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { MOST = 70001 };

static bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

static tutti_buf ints(int32_t *p, size_t n)
{
    return TUTTI_BUF(p, n, TUTTI_I32);
}

static tutti_const_buf const_ints(const int32_t *p, size_t n)
{
    return TUTTI_CONST_BUF(p, n, TUTTI_I32);
}

/* ---- Each kind --------------------------------------------------------------------------------------------------- */

/* Of three ranks, one makes each call by the function of its name. */
static int reductions_and_broadcast(tutti_group *group, bool by_function)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    int32_t x[3], y[3] = {0};
    tutti_call call = {.kind = TUTTI_CALL_ALL_REDUCE, .op = TUTTI_MAX, .dst = ints(x, 1)};

    x[0] = rank;
    CHECK((by_function ? tutti_all_reduce(group, ints(x, 1), TUTTI_MAX, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    CHECK(x[0] == size - 1);
    x[0] = rank;
    call = (tutti_call){.kind = TUTTI_CALL_REDUCE, .rank = 1, .src = const_ints(x, 1)};
    call.dst = rank == 1 ? ints(y, 1) : (tutti_buf){0};
    CHECK((by_function ? tutti_reduce_from(group, call.src, call.dst, TUTTI_SUM, 1, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    CHECK(x[0] == rank && y[0] == (rank == 1 ? size * (size - 1) / 2 : 0));
    for (int r = 0; r < size; r++)
        x[r] = rank + 10 * r;
    call = (tutti_call){
        .kind = TUTTI_CALL_REDUCE_SCATTER, .src = const_ints(x, (size_t)size), .dst = ints(y, 1)};
    CHECK((by_function ? tutti_reduce_scatter(group, call.src, call.dst, TUTTI_SUM, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    CHECK(y[0] == size * (size - 1) / 2 + 10 * rank * size);
    x[0] = rank == 2 ? 7 : 0;
    call = (tutti_call){.kind = TUTTI_CALL_BROADCAST, .rank = 2, .dst = ints(x, 1)};
    CHECK((by_function ? tutti_broadcast(group, ints(x, 1), 2, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    CHECK(x[0] == 7);
    return 0;
}

static int gathers(tutti_group *group, bool by_function)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    int32_t own = rank + 1, x[6], y[6] = {0}, sum = 0;
    size_t counts[3], all = 0, mine = (size_t)rank + 1;
    tutti_call call = {
        .kind = TUTTI_CALL_ALL_GATHER, .src = const_ints(&own, 1), .dst = ints(y, (size_t)size)};

    CHECK((by_function ? tutti_all_gather(group, call.src, call.dst, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    for (int r = 0; r < size; r++) {
        CHECK(y[r] == r + 1);
        counts[r] = (size_t)r + 1;
        all += counts[r];
    }
    for (size_t i = 0; i < mine; i++)
        x[i] = own;
    call = (tutti_call){.kind = TUTTI_CALL_ALL_GATHER_V,
                        .src = const_ints(x, mine),
                        .dst = ints(y, all),
                        .dst_counts = counts};
    CHECK((by_function ? tutti_all_gather_v(group, call.src, call.dst, counts, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    for (size_t i = 0; i < all; i++)
        sum += y[i];
    CHECK(sum == 1 + 4 + 9);
    call = (tutti_call){.kind = TUTTI_CALL_GATHER, .rank = 1, .src = const_ints(&own, 1)};
    call.dst = rank == 1 ? ints(y, (size_t)size) : (tutti_buf){0};
    CHECK((by_function ? tutti_gather(group, call.src, call.dst, 1, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    CHECK(rank != 1 || (y[0] == 1 && y[2] == 3));
    call = (tutti_call){.kind = TUTTI_CALL_SCATTER, .rank = 1, .dst = ints(&own, 1)};
    call.src = rank == 1 ? const_ints(y, (size_t)size) : (tutti_const_buf){0};
    own = 0;
    CHECK((by_function ? tutti_scatter(group, call.src, call.dst, 1, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    CHECK(own == rank + 1);
    return 0;
}

static int exchanges(tutti_group *group, bool by_function)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    int32_t x[3], y[3];
    size_t counts[3] = {1, 1, 1};
    tutti_call call = {.kind = TUTTI_CALL_ALL_TO_ALL,
                       .src = const_ints(x, (size_t)size),
                       .dst = ints(y, (size_t)size)};

    for (int r = 0; r < size; r++)
        x[r] = 10 * rank + r;
    CHECK((by_function ? tutti_all_to_all(group, call.src, call.dst, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    for (int r = 0; r < size; r++) {
        CHECK(y[r] == 10 * r + rank);
        y[r] = -1;
    }
    call.kind = TUTTI_CALL_ALL_TO_ALL_V;
    call.src_counts = call.dst_counts = counts;
    CHECK((by_function ? tutti_all_to_all_v(group, call.src, counts, call.dst, counts, NULL)
                       : tutti_group_call(group, &call, NULL)) == TUTTI_OK);
    for (int r = 0; r < size; r++)
        CHECK(y[r] == 10 * r + rank);
    call = (tutti_call){.kind = TUTTI_CALL_BARRIER};
    CHECK((by_function ? tutti_barrier(group, NULL) : tutti_group_call(group, &call, NULL)) ==
          TUTTI_OK);
    return 0;
}

static int messages(tutti_group *group)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    int32_t sent = rank, got = -1;
    tutti_call send = {.kind = TUTTI_CALL_SEND,
                       .src = const_ints(&sent, 1),
                       .rank = (rank + 1) % size,
                       .tag = 5},
               receive = {
                   .kind = TUTTI_CALL_RECV, .dst = ints(&got, 1), .rank = TUTTI_ANY_RANK, .tag = 5};
    tutti_work *work, *other;

    CHECK(tutti_group_call(group, &receive, &work) == TUTTI_OK);
    CHECK(tutti_group_call(group, &send, &other) == TUTTI_OK);
    CHECK(tutti_work_source(work) == (rank + size - 1) % size);
    CHECK(tutti_work_wait(work) == TUTTI_OK && tutti_work_wait(other) == TUTTI_OK);
    CHECK(got == (rank + size - 1) % size);
    return 0;
}

static int both_forms_mix(tutti_group *group, void *arg)
{
    const bool by_function = tutti_group_rank(group) == 1;

    (void)arg;
    return reductions_and_broadcast(group, by_function) || gathers(group, by_function) ||
           exchanges(group, by_function) || messages(group);
}

static void a_structure_makes_the_call_of_that_name(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, both_forms_mix, NULL), 0);
}

/* ---- Factors ------------------------------------------------------------------------------------------------------ */

static double get(tutti_dtype dtype, const void *p, size_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return (double)((const float *)p)[i];
    case TUTTI_F64:
        return ((const double *)p)[i];
    case TUTTI_F16:
        return (double)tutti__f32_of_f16(((const uint16_t *)p)[i]);
    default:
        return (double)tutti__f32_of_bf16(((const uint16_t *)p)[i]);
    }
}

/* Each rank has its own; rank 1 of several gives zeros. */
static double factor_of(int rank)
{
    return rank == 1 ? (double)TUTTI_ZERO : 0.5 * (rank + 1);
}

static double expected(tutti_dtype dtype, int size, size_t i)
{
    double sum = 0;

    for (int r = 0; r < size; r++)
        sum += r == 1 ? 0 : factor_of(r) * test_value(dtype, r, i);
    return sum;
}

typedef struct scaling {
    tutti_group *group;
    tutti_dtype dtype;
    int rank, size;
    size_t n;
    char *src, *dst, *kept;
} scaling;

static void fill(const scaling *s, char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        test_put(s->dtype, p, i, test_value(s->dtype, s->rank, i));
}

static int check_sums(const scaling *s, const char *p, size_t first)
{
    for (size_t i = 0; i < s->n; i++)
        CHECK(get(s->dtype, p, i) == expected(s->dtype, s->size, first + i));
    return 0;
}

static bool src_is_unchanged(const scaling *s, size_t n)
{
    return memcmp(s->src, s->kept, n * tutti_dtype_size(s->dtype)) == 0;
}

static int scale_whole(const scaling *s, bool in_place, int root)
{
    tutti_call call = {.kind = root < 0 ? TUTTI_CALL_ALL_REDUCE : TUTTI_CALL_REDUCE,
                       .scale = factor_of(s->rank),
                       .rank = root};
    const bool takes = root < 0 || s->rank == root;

    fill(s, s->src, s->n);
    memset(s->dst, 0x55, s->n * tutti_dtype_size(s->dtype));
    if (in_place) {
        call.dst = TUTTI_BUF(s->src, s->n, s->dtype);
    } else {
        call.src = TUTTI_CONST_BUF(s->src, s->n, s->dtype);
        call.dst = takes ? TUTTI_BUF(s->dst, s->n, s->dtype) : (tutti_buf){0};
    }
    CHECK(tutti_group_call(s->group, &call, NULL) == TUTTI_OK);
    CHECK((in_place && takes) || src_is_unchanged(s, s->n));
    return takes ? check_sums(s, in_place ? s->src : s->dst, 0) : 0;
}

/* The piece apart, or at its place in src. */
static int scale_pieces(const scaling *s)
{
    const size_t element = tutti_dtype_size(s->dtype), all = s->n * (size_t)s->size,
                 first = s->n * (size_t)s->rank;
    tutti_call call = {.kind = TUTTI_CALL_REDUCE_SCATTER,
                       .scale = factor_of(s->rank),
                       .src = TUTTI_CONST_BUF(s->src, all, s->dtype),
                       .dst = TUTTI_BUF(s->dst, s->n, s->dtype)};
    tutti_work *work;

    fill(s, s->src, all);
    CHECK(tutti_group_call(s->group, &call, &work) == TUTTI_OK);
    CHECK(tutti_work_wait(work) == TUTTI_OK && src_is_unchanged(s, all));
    if (check_sums(s, s->dst, first) != 0)
        return 1;
    call.dst = TUTTI_BUF(s->src + first * element, s->n, s->dtype);
    CHECK(tutti_group_call(s->group, &call, NULL) == TUTTI_OK);
    return check_sums(s, s->src + first * element, first);
}

static int scale_all(scaling *s)
{
    static const size_t counts[] = {0, 1, 250, 3001, MOST};

    for (size_t i = 0; i < TUTTI__COUNT_OF(counts); i++) {
        s->n = counts[i];
        for (int in_place = 0; in_place < 2; in_place++)
            for (int root = -1; root < s->size; root++)
                if (scale_whole(s, in_place, root) != 0)
                    return 1;
        if (scale_pieces(s) != 0)
            return 1;
    }
    return 0;
}

/* Sources and results in memory of the program, and in the group's. */
static int factors(tutti_group *group, void *arg)
{
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16};
    const size_t bytes = MOST * 8, all = bytes * (size_t)tutti_group_size(group);
    void *src, *dst;
    char *own = malloc(2 * all), *kept = malloc(all);

    (void)arg;
    CHECK(own && kept);
    CHECK(tutti_group_alloc(group, all, &src) == TUTTI_OK);
    CHECK(tutti_group_alloc(group, bytes, &dst) == TUTTI_OK);
    for (size_t d = 0; d < TUTTI__COUNT_OF(dtypes); d++) {
        scaling s = {.group = group,
                     .dtype = dtypes[d],
                     .rank = tutti_group_rank(group),
                     .size = tutti_group_size(group),
                     .src = src,
                     .dst = dst,
                     .kept = kept};

        fill(&s, kept, MOST * (size_t)s.size);
        if (scale_all(&s) != 0)
            return 1;
        s.src = own;
        s.dst = own + all;
        if (scale_all(&s) != 0)
            return 1;
    }
    free(own);
    free(kept);
    return 0;
}

static void each_rank_multiplies_what_it_gives(void **state)
{
    const tutti_ranks_opts staged = {.tuning = {.stage_all = true, .chunk_bytes = 4096}};

    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, factors, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, factors, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(3, factors, NULL), 0);
    assert_int_equal(tutti_run_ranks(3, factors, NULL, &staged), 0);
}

/* A product is rounded to its type once: the sums are those of multiplying first. */
static int products(tutti_group *group, void *arg)
{
    enum { N = 777 };
    float x[N];
    uint16_t y[N], first[N];
    const float factor = 1.0F / 3;

    (void)arg;
    for (int i = 0; i < N; i++) {
        y[i] = tutti__bf16_of_f32((float)(i * (tutti_group_rank(group) + 1)) * 0.01F);
        x[i] = tutti__f32_of_bf16(y[i]) * factor;
        first[i] = tutti__bf16_of_f32(x[i]);
    }
    CHECK(tutti_all_reduce(group, TUTTI_BUF(first, N, TUTTI_BF16), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_group_call(group,
                           &(tutti_call){.kind = TUTTI_CALL_ALL_REDUCE,
                                         .dst = TUTTI_BUF(y, N, TUTTI_BF16),
                                         .scale = 1.0 / 3},
                           NULL) == TUTTI_OK);
    CHECK(memcmp(y, first, sizeof y) == 0);
    return 0;
}

static void a_product_is_rounded_once(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, products, NULL), 0);
}

/* Recorded calls: some have factors, which differ by rank. */
static int coalesced(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    double x[4];
    tutti_call call = {.kind = TUTTI_CALL_ALL_REDUCE};

    (void)arg;
    CHECK(tutti_coalesce_begin(group) == TUTTI_OK);
    for (int i = 0; i < 4; i++) {
        x[i] = i + 1;
        call.dst = TUTTI_BUF(&x[i], 1, TUTTI_F64);
        call.scale = i % 2 ? 0.5 * (rank + 1) : 0;
        call.timeout_ms = 20000 + rank + i;
        CHECK(tutti_group_call(group, &call, NULL) == TUTTI_OK);
    }
    CHECK(tutti_coalesce_end(group, NULL) == TUTTI_OK);
    for (int i = 0; i < 4; i++)
        CHECK(x[i] == (i + 1) * (i % 2 ? 0.25 * size * (size + 1) : size));
    return 0;
}

static void coalesced_calls_have_options_too(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, coalesced, NULL), 0);
}

static int without_a_factor(tutti_group *group, void *arg)
{
    float x = 1;
    const tutti_call call = {.kind = TUTTI_CALL_ALL_REDUCE,
                             .dst = TUTTI_BUF(&x, 1, TUTTI_F32),
                             .scale = tutti_group_rank(group) == 0 ? 0.5 : 0};

    (void)arg;
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_ERR_MISMATCH);
    CHECK(says("(F32 x 1, sum, scaled)") && says("(F32 x 1, sum)"));
    return 0;
}

static void all_ranks_have_factors_or_none(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, without_a_factor, NULL), 0);
}

/* ---- Limits --------------------------------------------------------------------------------------------------------- */

static int late(tutti_group *group, tutti_call *call)
{
    const double begin = tutti__now_ms();
    tutti_status status;

    if (tutti_group_rank(group) == 1) { /* makes no call until the other's has timed out */
        while (tutti_group_status(group) == TUTTI_OK)
            usleep(1000);
        return tutti_group_status(group) == TUTTI_ERR_TIMEOUT ? 0 : 1;
    }
    status = tutti_group_call(group, call, NULL);
    CHECK(status == TUTTI_ERR_TIMEOUT && says("timed out after 0.15 s"));
    CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
    return 0;
}

static int late_barrier(tutti_group *group, void *arg)
{
    tutti_call call = {.kind = TUTTI_CALL_BARRIER, .timeout_ms = 150};

    (void)arg;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    return late(group, &call);
}

static int late_message(tutti_group *group, void *arg)
{
    int32_t never;
    tutti_call call = {
        .kind = TUTTI_CALL_RECV, .timeout_ms = 150, .rank = 1, .dst = ints(&never, 1)};

    (void)arg;
    return late(group, &call);
}

typedef struct errand {
    tutti_group *group;
    int drops;
} errand;

static void count_drop(void *arg)
{
    ((errand *)arg)->drops++;
}

static tutti_status two_barriers(void *arg)
{
    tutti_group *group = ((errand *)arg)->group;

    if (tutti_group_rank(group) == 0)
        TUTTI_TRY(tutti_group_call(
            group, &(tutti_call){.kind = TUTTI_CALL_BARRIER, .timeout_ms = 20000}, NULL));
    else
        TUTTI_TRY(tutti_barrier(group, NULL));
    return tutti_group_rank(group) == 0 ? tutti_barrier(group, NULL) : TUTTI_OK;
}

/* Within a function its limit is that of calls that have none; after it the group's holds again. */
static int late_function(tutti_group *group, void *arg)
{
    errand e = {.group = group};
    tutti_call call = {.kind = TUTTI_CALL_FUNCTION,
                       .function = two_barriers,
                       .drop = count_drop,
                       .arg = &e,
                       .timeout_ms = 150};
    tutti_status status;

    (void)arg;
    if (tutti_group_rank(group) == 1) {
        CHECK(tutti_group_submit(group, two_barriers, NULL, &e, NULL) == TUTTI_OK);
        return late(group, NULL);
    }
    status = tutti_group_call(group, &call, NULL);
    CHECK(status == TUTTI_ERR_TIMEOUT && says("timed out after 0.15 s") && e.drops == 1);
    return 0;
}

static tutti_status one_barrier(void *arg)
{
    return tutti_barrier(arg, NULL);
}

/* A short limit of one call is not that of the next. */
static int limit_of_one_call(tutti_group *group, void *arg)
{
    tutti_call call = {
        .kind = TUTTI_CALL_FUNCTION, .function = one_barrier, .arg = group, .timeout_ms = 150};

    (void)arg;
    CHECK(tutti_meet(group, "begin") == TUTTI_OK);
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_OK);
    if (tutti_group_rank(group) == 1)
        usleep(400000); /* longer than the limit of the call before */
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    return 0;
}

static void a_call_has_a_limit_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, late_barrier, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, late_message, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, late_function, NULL), 0);
    assert_int_equal(tutti_run_ranks_as_threads(2, limit_of_one_call, NULL), 0);
}

/* ---- Refusals ------------------------------------------------------------------------------------------------------- */

static int refusals(tutti_group *group, void *arg)
{
    int32_t i = 1;
    float x = 1;
    errand e = {.group = group};
    tutti_call call = {.kind = TUTTI_CALL_ALL_REDUCE, .dst = ints(&i, 1), .scale = 0.5};
    tutti_work *work = (tutti_work *)(void *)&e;

    (void)arg;
    CHECK(tutti_group_call(group, NULL, &work) == TUTTI_ERR_ARG && !work);
    CHECK(tutti_group_call(group, &(tutti_call){.kind = (tutti_call_kind)0}, NULL) ==
              TUTTI_ERR_ARG &&
          says("kind 0"));
    CHECK(tutti_group_call(group, &(tutti_call){.kind = TUTTI_CALL_BARRIER, .timeout_ms = -1},
                           NULL) == TUTTI_ERR_ARG &&
          says("-1 ms"));
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_ERR_ARG && says("I32"));
    call.dst = TUTTI_BUF(&x, 1, TUTTI_F32);
    call.op = TUTTI_MAX;
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_ERR_ARG && says("TUTTI_SUM"));
    call.op = TUTTI_SUM;
    call.kind = TUTTI_CALL_BROADCAST;
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_ERR_ARG && says("broadcast: a scale"));
    call.kind = TUTTI_CALL_RECV;
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_ERR_ARG && says("only reductions"));
    call = (tutti_call){
        .kind = TUTTI_CALL_FUNCTION, .drop = count_drop, .arg = &e, .reserved = {0, 1}};
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_ERR_ARG && e.drops == 1);
    call.reserved[1] = 0;
    CHECK(tutti_group_call(group, &call, NULL) == TUTTI_ERR_ARG && e.drops == 2);
    CHECK(tutti_group_call(NULL, &call, NULL) == TUTTI_ERR_ARG && e.drops == 3);
    CHECK(x == 1 && i == 1 && tutti_barrier(group, NULL) == TUTTI_OK);
    return 0;
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(2, refusals, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_structure_makes_the_call_of_that_name),
        cmocka_unit_test(each_rank_multiplies_what_it_gives),
        cmocka_unit_test(a_product_is_rounded_once),
        cmocka_unit_test(coalesced_calls_have_options_too),
        cmocka_unit_test(all_ranks_have_factors_or_none),
        cmocka_unit_test(a_call_has_a_limit_of_its_own),
        cmocka_unit_test(what_has_no_meaning_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
