/* reducer: means over logical shards. The bits are those of integer sums computed here, whichever rank computes which shard, in
 * any order and any buckets, on 1 to 8 ranks; also if a gradient exceeds its range, if shards come late,
 * and in another group after one has died. A bit that flips in the sums is noticed, and in whose.   SPDX-License-Identifier: MIT
 * timeout: 120
 * devices: strict cuda nccl:long */
#include "distributed/bodies.h"
#include "harness/stream.h"
#include "reducer/reducer.h"
#include <tutti/reducer.h>

#include <signal.h>

#include <signal.h>

static const size_t counts[] = {1, 100, 17, 0, 1000, 16, 3};
static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
enum { N = TUTTI__COUNT_OF(counts), LARGEST = 1000, V = 8, STEPS = 6 };

/* ---- Expected results ---------------------------------------------------------------------------------- */

typedef struct expected {
    int shards, bits;
    float ranges[N];
    float means[N][LARGEST];
} expected;

/* Full mantissas, gradients of different sizes, growing a million times in step 3. */
static float value(int step, int shard, size_t i, size_t k)
{
    uint32_t out[4];

    tutti__philox(
        7, (tutti__philox_counter){{(uint32_t)shard, (uint32_t)step, (uint32_t)i, (uint32_t)k}},
        out);
    return ldexpf(2 * tutti__unit_float(out[0]) - 1, (step == 3 ? 20 : 0) - 3 * (int)i);
}

static int log2_up(int n)
{
    int bits = 0;

    while (1 << bits < n)
        bits++;
    return bits;
}

/* By docs/reducer.md: 2^e is the largest power of two with range * 2^e <= 2^39, or with wire 32 2^27 / shards. */
static int exponent_of(const expected *x, float range)
{
    const int top = x->bits == 64 ? 39 : 27 - log2_up(x->shards);
    int e = -300;

    while (ldexp((double)range, e + 1) <= ldexp(1, top))
        e++;
    return e;
}

static bool fits(const expected *x, float largest, int e)
{
    const int top = x->bits == 64 ? 51 : 31 - log2_up(x->shards);

    return ldexp((double)largest, e) < ldexp(1, top);
}

static void begin_expecting(expected *x, int shards, int bits)
{
    *x = (expected){.shards = shards, .bits = bits};
    for (size_t i = 0; i < N; i++)
        x->ranges[i] = 0x1p-6f;
}

/* Sets the ranges of gradients that do not fit; returns whether there was any. */
static bool outgrows(expected *x, int step)
{
    bool again = false;

    for (size_t i = 0; i < N; i++) {
        float largest = 0;

        for (int v = 0; v < x->shards; v++)
            for (size_t k = 0; k < counts[i]; k++)
                largest = fmaxf(largest, fabsf(value(step, v, i, k)));
        if (fits(x, largest, exponent_of(x, x->ranges[i])))
            continue;
        x->ranges[i] = largest;
        again = true;
    }
    return again;
}

static void expect_means(expected *x, int step)
{
    for (size_t i = 0; i < N; i++) {
        const int e = exponent_of(x, x->ranges[i]);
        float mean = 0;

        for (size_t k = 0; k < counts[i]; k++) {
            int64_t sum = 0;

            for (int v = 0; v < x->shards; v++)
                sum += llrint(ldexp((double)value(step, v, i, k), e));
            x->means[i][k] = (float)(ldexp((double)sum, -e) / x->shards);
            mean = fmaxf(mean, fabsf(x->means[i][k]));
        }
        if (mean > 0)
            x->ranges[i] = fmaxf(mean, x->ranges[i] / 16);
    }
}

/* ---- A step ------------------------------------------------------------------------------------------------- */

static void describe(tutti_reducer_parameter *p)
{
    for (size_t i = 0; i < N; i++)
        p[i] = (tutti_reducer_parameter){.name = names[i], .count = counts[i], .dtype = TUTTI_F32};
}

/* How shards are assigned; a seed. */
typedef struct assignment {
    uint32_t seed;
    bool late;      /* a rank takes one more after its last */
    bool says_last; /* all pass `last` for their last shard, also late ones */
} assignment;

static uint32_t draw(const assignment *d, int step, int i)
{
    uint32_t out[4];

    tutti__philox(d->seed, (tutti__philox_counter){{(uint32_t)step, (uint32_t)i, 0, 0}}, out);
    return out[0];
}

/* This rank's shards of the step, in its order. Rank 0 has none in each fourth step, if there are others. */
static int take(const assignment *d, int step, int rank, int size, int shards, int *mine)
{
    int n = 0;

    for (int v = 0; v < shards; v++) {
        int owner = (int)(draw(d, step, v) % (uint32_t)size);

        if (owner == 0 && size > 1 && step % 4 == 1)
            owner = 1;
        if (owner == rank)
            mine[n++] = v;
    }
    for (int k = n - 1; k > 0; k--) {
        const int j = (int)(draw(d, step, 100 + k) % (uint32_t)(k + 1)), v = mine[k];

        mine[k] = mine[j];
        mine[j] = v;
    }
    return n;
}

static int compute(tutti_reducer *r, int step, int shard, int rank)
{
    float grad[LARGEST];

    for (size_t j = 0; j < N; j++) {
        const size_t i = (j * (size_t)(1 + (shard + step) % 6) + (size_t)rank) % N; /* N is prime */

        for (size_t k = 0; k < counts[i]; k++)
            grad[k] = value(step, shard, i, k);
        test_set(tutti_reducer_grad(r, i), grad, counts[i] * sizeof *grad);
        if (tutti_reducer_ready(r, i) != TUTTI_OK)
            return 1;
    }
    return 0;
}

static int attempt(tutti_reducer *r, tutti_group *group, int step, const assignment *d, int shards)
{
    int mine[64], n, last;

    n = take(d, step, tutti_group_rank(group), tutti_group_size(group), shards, mine);
    last = n - 1 - (d->late && n > 1);
    CHECK_OK(tutti_reducer_begin(r));
    for (int k = 0; k < n; k++) {
        CHECK_OK(tutti_reducer_begin_shard(r, d->says_last && k >= last));
        tutti_reducer_counters(r)[0] =
            (int64_t)((uint64_t)tutti_reducer_counters(r)[0] + INT64_MAX);
        tutti_reducer_counters(r)[1] += mine[k];
        CHECK_0(compute(r, step, mine[k], tutti_group_rank(group)));
    }
    CHECK_OK(tutti_reducer_finish(r));
    CHECK(tutti_reducer_counters(r)[0] == (int64_t)((uint64_t)INT64_MAX * (uint64_t)shards));
    CHECK(tutti_reducer_counters(r)[1] == shards * (shards - 1) / 2);
    return 0;
}

static int check_means(tutti_reducer *r, const expected *x)
{
    float grad[LARGEST];

    for (size_t i = 0; i < N; i++) {
        test_get(grad, tutti_reducer_grad(r, i), counts[i] * sizeof *grad);
        CHECK(counts[i] == 0 || memcmp(grad, x->means[i], counts[i] * sizeof *grad) == 0);
        CHECK(tutti_reducer_users(r, i) == x->shards);
    }
    CHECK(memcmp(tutti_reducer_ranges(r), x->ranges, sizeof x->ranges) == 0);
    return 0;
}

static int run_step(tutti_reducer *r, tutti_group *group, int step, const assignment *d,
                    expected *x)
{
    CHECK_0(attempt(r, group, step, d, x->shards));
    if (outgrows(x, step)) {
        CHECK(tutti_reducer_again(r));
        CHECK(memcmp(tutti_reducer_ranges(r), x->ranges, sizeof x->ranges) == 0);
        CHECK(!outgrows(x, step));
        CHECK_0(attempt(r, group, step, d, x->shards));
    }
    CHECK(!tutti_reducer_again(r));
    expect_means(x, step);
    return check_means(r, x);
}

/* ---- Tests ---------------------------------------------------------------------------------------------------- */

static int steps_are_exact(tutti_group *group, const tutti_reducer_opts *opts, const assignment *d)
{
    expected *x = malloc(sizeof *x);
    tutti_reducer_parameter p[N];
    tutti_reducer *r;

    CHECK(x);
    describe(p);
    begin_expecting(x, opts->shards, opts->wire_bits == 32 ? 32 : 64);
    CHECK_OK(tutti_reducer_new(&r, group, p, N, opts));
    for (int step = 0; step < STEPS; step++)
        CHECK_0(run_step(r, group, step, d, x));
    tutti_reducer_free(r);
    free(x);
    return 0;
}

static int sums_know_no_order(tutti_group *group, void *arg)
{
    static const double sizes[][2] = {{0, 0}, {1e-4, 1e-3}, {TUTTI_ZERO, TUTTI_ZERO}};

    (void)arg;
    for (uint32_t k = 0; k < 6; k++) {
        const assignment d = {.seed = k, .late = k % 3 == 1, .says_last = k % 3 != 2};
        const tutti_reducer_opts opts = {.first_bucket_mb = sizes[k % 3][0],
                                         .bucket_mb = sizes[k % 3][1],
                                         .stream = test_stream(),
                                         .shards = k < 4 ? V : 5,
                                         .wire_bits = k % 2 ? 32 : 0,
                                         .n_counters = 2};

        CHECK_0(steps_are_exact(group, &opts, &d));
    }
    return 0;
}

static void run_on_all_sizes(void **state)
{
    const char *device = getenv("TUTTI_TEST_DEVICE");
    const int most = device && strncmp(device, "cuda", 4) == 0 ? 2 : 8;

    for (int n = most == 2 ? 2 : 1; n <= most; n += 1 + (n == 5))
        run((tutti_rank_body *)*state, NULL, n);
}

/* The mean is as close to that in double as a mean in floats would be. */
static int errors_are_below_those_of_floats(tutti_group *group, void *arg)
{
    const assignment d = {.seed = 3, .says_last = true};
    tutti_reducer_parameter p[N];
    tutti_reducer *r;
    double worst = 0, worst_float = 0;

    (void)arg;
    describe(p);
    CHECK_OK(tutti_reducer_new(
        &r, group, p, N,
        &(tutti_reducer_opts){.shards = V, .n_counters = 2, .stream = test_stream()}));
    CHECK_0(attempt(r, group, 1, &d, V));
    CHECK_0(attempt(r, group, 2, &d, V));
    for (size_t i = 0; i < N; i++) {
        float grad[LARGEST];

        test_get(grad, tutti_reducer_grad(r, i), counts[i] * sizeof *grad);
        for (size_t k = 0; k < counts[i]; k++) {
            double exact = 0, unit;
            float sum = 0;

            for (int v = 0; v < V; v++) {
                exact += (double)value(2, v, i, k) / V;
                sum += value(2, v, i, k);
            }
            unit = ldexp(fabs(exact), -24); /* half of a float's last place, at least */
            worst = fmax(worst, fabs((double)grad[k] - exact) / unit);
            worst_float = fmax(worst_float, fabs((double)(sum / V) - exact) / unit);
        }
    }
    if (tutti_group_rank(group) == 0)
        printf("largest error in units of 2^-24: %.3f, of sums in floats %.3f\n", worst,
               worst_float);
    CHECK(worst < 1.5 && worst < worst_float);
    tutti_reducer_free(r);
    return 0;
}

static int a_shard_too_few_is_said(tutti_group *group, void *arg)
{
    tutti_reducer_parameter p[N];
    tutti_reducer *r;
    int64_t one = 1;

    (void)arg;
    describe(p);
    CHECK_OK(tutti_reducer_new(&r, group, p, N,
                               &(tutti_reducer_opts){.shards = V, .stream = test_stream()}));
    CHECK(tutti_reducer_begin_shard(r, false) == TUTTI_ERR_STATE);
    CHECK_OK(tutti_reducer_begin(r));
    CHECK(tutti_reducer_ready(r, 0) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "tutti_reducer_begin_shard");
    if (tutti_group_rank(group) == 0)
        for (int v = 0; v < V - 1; v++) {
            CHECK_OK(tutti_reducer_begin_shard(r, v == V - 2));
            CHECK_0(compute(r, 0, v, 0));
        }
    CHECK(tutti_reducer_finish(r) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "7 shards, expected 8");
    CHECK_OK(tutti_all_reduce(group, TUTTI_BUF(&one, 1, TUTTI_I64), TUTTI_SUM, NULL));
    CHECK(one == tutti_group_size(group));
    tutti_reducer_free(r);
    return 0;
}

/* Ranges are state: a rank without them is detected. */
static int other_ranges_are_said(tutti_group *group, void *arg)
{
    tutti_reducer_parameter p[N];
    tutti_reducer *r;

    (void)arg;
    describe(p);
    CHECK_OK(tutti_reducer_new(&r, group, p, N,
                               &(tutti_reducer_opts){.shards = 1, .stream = test_stream()}));
    CHECK_OK(tutti_reducer_begin(r));
    if (tutti_group_rank(group) == 1)
        tutti_reducer_ranges(r)[2] = 1;
    if (tutti_group_rank(group) == 0) {
        CHECK_OK(tutti_reducer_begin_shard(r, true));
        CHECK_0(compute(r, 0, 0, 0));
    }
    CHECK(tutti_reducer_finish(r) == TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "tutti_reducer_ranges");
    tutti_reducer_free(r);
    return 0;
}

static int put(tutti_reducer *r, size_t i, float x)
{
    const float values[LARGEST] = {x};

    test_set(tutti_reducer_grad(r, i), values, counts[i] * sizeof *values);
    CHECK_OK(tutti_reducer_ready(r, i));
    return 0;
}

/* One shard has an infinity: that gradient's mean is NaN on every rank, and no other, wherever that shard was. */
static int infinities_are_everywhere(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group);
    tutti_reducer_parameter p[N];
    tutti_reducer *r;

    (void)arg;
    describe(p);
    CHECK_OK(tutti_reducer_new(&r, group, p, N,
                               &(tutti_reducer_opts){.shards = V,
                                                     .nonfinite = TUTTI_NONFINITE_IGNORE,
                                                     .stream = test_stream()}));
    CHECK_OK(tutti_reducer_begin(r));
    for (int v = tutti_group_rank(group); v < V; v += size) {
        CHECK_OK(tutti_reducer_begin_shard(r, v + size >= V));
        for (size_t i = 0; i < N; i++)
            CHECK_0(put(r, i, v == 3 && i == 1 ? INFINITY : 0.5f));
    }
    CHECK_OK(tutti_reducer_finish(r));
    CHECK(!tutti_reducer_again(r));
    for (size_t i = 0; i < N; i++) {
        float grad[LARGEST];

        test_get(grad, tutti_reducer_grad(r, i), counts[i] * sizeof *grad);
        for (size_t k = 0; k < counts[i]; k++)
            CHECK(i == 1 ? isnan(grad[k]) : grad[k] == (k == 0 ? 0.5f : 0));
    }
    CHECK(tutti_reducer_ranges(r)[1] == 0x1p-6f && tutti_reducer_ranges(r)[2] == 0.5f);
    tutti_reducer_free(r);
    return 0;
}

static int infinities_can_be_errors(tutti_group *group, void *arg)
{
    tutti_reducer_parameter p[N];
    tutti_reducer *r;
    tutti_status status;

    (void)arg;
    describe(p);
    CHECK_OK(tutti_reducer_new(&r, group, p, N,
                               &(tutti_reducer_opts){.shards = 1,
                                                     .nonfinite = TUTTI_NONFINITE_ERROR,
                                                     .stream = test_stream()}));
    CHECK_OK(tutti_reducer_begin(r));
    if (tutti_group_rank(group) == 0) {
        CHECK_OK(tutti_reducer_begin_shard(r, true));
        for (size_t i = 0; i < N; i++) {
            const float x[LARGEST] = {i == 2 ? NAN : 0};

            test_set(tutti_reducer_grad(r, i), x, counts[i] * sizeof *x);
            tutti_reducer_ready(r, i);
        }
    }
    status = tutti_reducer_finish(r);
    CHECK(status == (tutti_group_rank(group) == 0 ? TUTTI_ERR_STATE : TUTTI_ERR_ABORTED));
    CHECK_TEXT(tutti_last_error(), "\"c\" has NaN or infinities on rank 0");
    tutti_reducer_free(r);
    return 0;
}

/* "b" is used by shards 2 and 5, "d" by none. */
static int unused_ones_are_zeros(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group);
    tutti_reducer_parameter p[N];
    tutti_reducer *r;

    (void)arg;
    describe(p);
    p[3].count = 4;
    CHECK_OK(tutti_reducer_new(
        &r, group, p, N,
        &(tutti_reducer_opts){.shards = V, .find_unused = true, .stream = test_stream()}));
    for (int step = 0; step < 2; step++) {
        float grad[LARGEST];

        CHECK_OK(tutti_reducer_begin(r));
        for (int v = tutti_group_rank(group); v < V; v += size) {
            CHECK_OK(tutti_reducer_begin_shard(r, v + size >= V));
            for (size_t i = 0; i < N; i++)
                if (i == 1 && v != 2 && v != 5)
                    CHECK_OK(tutti_reducer_skip(r, i));
                else if (i != 3) /* which is left out without a skip */
                    CHECK_0(put(r, i, 0.5f));
        }
        CHECK_OK(tutti_reducer_finish(r));
        CHECK(tutti_reducer_users(r, 0) == V && tutti_reducer_users(r, 1) == 2 &&
              tutti_reducer_users(r, 3) == 0);
        test_get(grad, tutti_reducer_grad(r, 1), counts[1] * sizeof *grad);
        CHECK(grad[0] == 0.125f && grad[1] == 0);
    }
    tutti_reducer_free(r);
    return 0;
}

/* Rank 0 dies in the middle of a step, or (without arg) leaves it: the others repeat the step in another group. */
static int goes_on_after_a_death(tutti_group *group, void *arg)
{
    const bool is_killed = arg != NULL;
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    const assignment d = {.seed = 11, .says_last = true, .late = true};
    expected *x = malloc(sizeof *x);
    tutti_reducer_parameter p[N];
    tutti_group *first, *second;
    tutti_reducer *r;
    int ranks[8];

    CHECK(x);
    describe(p);
    begin_expecting(x, V, 64);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    CHECK_OK(tutti_group_split(group, ranks, size, "first", &first));
    CHECK_OK(tutti_group_split(group, ranks + 1, size - 1, "second", &second));
    CHECK_OK(tutti_reducer_new(
        &r, NULL, p, N,
        &(tutti_reducer_opts){.shards = V, .n_counters = 2, .stream = test_stream()}));
    CHECK(tutti_reducer_begin(r) == TUTTI_ERR_STATE);
    CHECK_TEXT(tutti_last_error(), "tutti_reducer_regroup");
    CHECK_OK(tutti_reducer_regroup(r, first));
    CHECK_0(run_step(r, first, 0, &d, x));
    CHECK_OK(tutti_meet(group, "one step is done"));
    CHECK_OK(tutti_reducer_begin(r));
    CHECK_OK(tutti_reducer_begin_shard(r, true));
    if (rank == 0) {
        CHECK_OK(tutti_reducer_ready(r, 0));
        if (is_killed)
            raise(SIGKILL);
        tutti_group_abort(first, "the end of rank 0");
        CHECK_OK(tutti_reducer_regroup(r, NULL));
    } else {
        (void)!compute(r, 1, rank, rank); /* the group may have died */
        CHECK(tutti_reducer_finish(r) == (is_killed ? TUTTI_ERR_PEER : TUTTI_ERR_ABORTED));
        CHECK_OK(tutti_reducer_regroup(r, second));
        for (int step = 1; step < 4; step++)
            CHECK_0(run_step(r, second, step, &d, x));
        CHECK_OK(tutti_reducer_regroup(r, NULL));
    }
    tutti_group_free(first);
    tutti_group_free(second);
    tutti_reducer_free(r);
    free(x);
    return 0;
}

static void a_killed_rank_is_missed_by_nobody(void **state)
{
    int results[3];
    const tutti_ranks_opts opts = {.processes = true, .results = results};

    (void)state;
    assert_int_equal(tutti_run_ranks(3, goes_on_after_a_death, results, &opts), 1);
    assert_int_equal(results[0], -SIGKILL);
    assert_true(results[1] == 0 && results[2] == 0);
}

/* Repeatedly, also from the middle of a step that no other rank has abandoned yet. */
static int regroups_leak_nothing(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    const assignment d = {.seed = 5, .says_last = true};
    expected *x = malloc(sizeof *x);
    tutti_reducer_parameter p[N];
    tutti_reducer *r;
    int ranks[8];

    (void)arg;
    CHECK(x);
    describe(p);
    begin_expecting(x, V, 64);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    CHECK_OK(tutti_reducer_new(
        &r, NULL, p, N,
        &(tutti_reducer_opts){.shards = V, .n_counters = 2, .stream = test_stream()}));
    for (int i = 0; i < 60; i++) {
        tutti_group *sub;
        char key[32];

        CHECK_OK(tutti_group_split(group, ranks, size, "again", &sub));
        CHECK_OK(tutti_reducer_regroup(r, sub));
        if (i % 10 == 0)
            CHECK_0(run_step(r, sub, i / 10, &d, x));
        snprintf(key, sizeof key, "before %d", i);
        CHECK_OK(tutti_meet(group, key));
        CHECK_OK(tutti_reducer_begin(r));
        CHECK_OK(tutti_reducer_begin_shard(r, rank != 0));
        if (i % 3)
            (void)!compute(r, 0, rank, rank); /* a rank may have left already */
        CHECK_OK(tutti_reducer_regroup(r, NULL));
        tutti_group_free(sub);
    }
    tutti_reducer_free(r);
    free(x);
    return 0;
}

static int what_cannot_be_is_refused(tutti_group *group, void *arg)
{
    tutti_reducer_parameter p[N];
    tutti_comm_hook hook;
    tutti_reducer *r;

    (void)arg;
    describe(p);
    CHECK(tutti_reducer_new(&r, NULL, p, N, NULL) == TUTTI_ERR_ARG);
    CHECK(tutti_reducer_new(&r, group, p, N, &(tutti_reducer_opts){.shards = 5000}) ==
          TUTTI_ERR_ARG);
    CHECK(tutti_reducer_new(&r, group, p, N, &(tutti_reducer_opts){.shards = 2, .wire_bits = 16}) ==
          TUTTI_ERR_ARG);
    CHECK_TEXT(tutti_last_error(), "wire_bits is 16");
    p[2].dtype = TUTTI_BF16;
    CHECK(tutti_reducer_new(&r, group, p, N, &(tutti_reducer_opts){.shards = 2}) ==
          TUTTI_ERR_UNSUPPORTED);
    CHECK_TEXT(tutti_last_error(), "\"c\" is BF16");
    describe(p);
    CHECK(tutti_reducer_new(&r, group, p, N,
                            &(tutti_reducer_opts){.shards = 2 + tutti_group_rank(group)}) ==
          TUTTI_ERR_MISMATCH);
    CHECK_TEXT(tutti_last_error(), "shards 3 on rank 1");
    CHECK_OK(tutti_reducer_new(&r, group, p, N, NULL));
    CHECK(tutti_reducer_regroup(r, group) == TUTTI_ERR_STATE);
    CHECK(tutti_reducer_begin_shard(r, true) == TUTTI_ERR_STATE);
    CHECK(!tutti_reducer_ranges(r) && !tutti_reducer_counters(r) && !tutti_reducer_again(r));
    tutti_reducer_free(r);
    CHECK_OK(tutti_reducer_new(&r, group, p, N,
                               &(tutti_reducer_opts){.shards = 2, .stream = test_stream()}));
    CHECK_OK(tutti_comm_hook_bf16(&hook, NULL));
    CHECK(tutti_reducer_set_hook(r, &hook) == TUTTI_ERR_UNSUPPORTED);
    CHECK_TEXT(tutti_last_error(), "\"bf16\"");
    tutti_reducer_free(r);
    return 0;
}

/* In the sums of rank `rank`, in each of its shards; then in none. */
static int flip(tutti_group *group, const tutti_reducer_opts *opts, int rank, uint32_t bit)
{
    const assignment d = {.seed = bit, .late = bit % 2, .says_last = true};
    const bool me = tutti_group_rank(group) == rank;
    expected *x = malloc(sizeof *x);
    tutti_reducer_parameter p[N];
    tutti_reducer *r;
    float ranges[N];
    bool own, found = false;

    CHECK(x);
    describe(p);
    begin_expecting(x, opts->shards, opts->wire_bits == 32 ? 32 : 64);
    CHECK_OK(tutti_reducer_new(&r, group, p, N, opts));
    tutti__reducer_tolerate_damage(r);
    for (int step = 0; step < 2; step++)
        CHECK_0(run_step(r, group, step, &d, x));
    memcpy(ranges, x->ranges, sizeof ranges);
    /* A rank that had no time to look the first time does the second time. */
    for (int k = 0; k < 2 && !found; k++) {
        if (me)
            CHECK(tutti__reducer_flip_sum(r, 4, 77, bit) ==
                  (int)bit % (opts->wire_bits == 32 ? 32 : 64));
        CHECK_0(attempt(r, group, 2, &d, opts->shards));
        CHECK(!tutti_reducer_again(r));
        CHECK(tutti__reducer_damage(r, &own) && strcmp(tutti__reducer_damage(r, &own), "e") == 0);
        CHECK(me || !own);
        found = own;
        CHECK_OK(tutti_broadcast(group, TUTTI_BUF(&found, 1, TUTTI_U8), rank, NULL));
        memcpy(tutti_reducer_ranges(r), ranges, sizeof ranges); /* the step is repeated from them */
    }
    CHECK(found);
    CHECK_0(run_step(r, group, 2, &d, x));
    CHECK(tutti__reducer_damage(r, &own) == NULL && !own);
    tutti_reducer_free(r);
    free(x);
    return 0;
}

static int flipped_bits_are_noticed(tutti_group *group, void *arg)
{
    static const uint32_t bits[] = {0, 13, 31, 32, 50, 63};
    tutti_reducer_parameter p[N];
    tutti_reducer *r;

    (void)arg;
    if (test_stream()) /* the injection is in host memory */
        return 0;
    for (size_t k = 0; k < TUTTI__COUNT_OF(bits); k++) {
        const tutti_reducer_opts opts = {
            .shards = V, .wire_bits = k % 3 == 1 ? 32 : 64, .n_counters = 2};

        CHECK_0(flip(group, &opts, 1 + (int)(k % 2), bits[k]));
    }
    describe(p);
    CHECK_OK(tutti_reducer_new(&r, group, p, N, &(tutti_reducer_opts){.shards = 3}));
    CHECK_OK(tutti_reducer_begin(r));
    CHECK_OK(tutti_reducer_begin_shard(r, true));
    (void)tutti__reducer_flip_sum(r, 2, 5, (uint32_t)tutti_group_rank(group));
    CHECK_0(compute(r, 0, tutti_group_rank(group), tutti_group_rank(group)));
    CHECK(tutti_reducer_finish(r) == TUTTI_ERR_DEVICE);
    CHECK_TEXT(tutti_last_error(),
               "the sums over all shards of \"c\" are not what ranks have added "
               "to them: a bit has changed in ");
    tutti_reducer_free(r);
    return 0;
}

static void run_three(void **state)
{
    run((tutti_rank_body *)*state, NULL, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(run_on_all_sizes, sums_know_no_order),
                                       TEST(run_over_tcp, sums_know_no_order),
                                       TEST(run_two, errors_are_below_those_of_floats),
                                       TEST(run_two, a_shard_too_few_is_said),
                                       TEST(run_two, other_ranges_are_said),
                                       TEST(run_three, infinities_are_everywhere),
                                       TEST(run_two, infinities_can_be_errors),
                                       TEST(run_three, unused_ones_are_zeros),
                                       TEST(run_three, goes_on_after_a_death),
                                       cmocka_unit_test(a_killed_rank_is_missed_by_nobody),
                                       TEST(run_two, regroups_leak_nothing),
                                       TEST(run_three, flipped_bits_are_noticed),
                                       TEST(run_two, what_cannot_be_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
