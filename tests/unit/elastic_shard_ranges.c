/* elastic: ranges of shards in proportion to speed: all shards, at least one per rank, and the last rank ends as early as possible.
 * SPDX-License-Identifier: MIT */
#include "elastic/shard_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t draws = 88172645463325252u;

static uint64_t draw(void)
{
    draws ^= draws << 13;
    draws ^= draws >> 7;
    draws ^= draws << 17;
    return draws;
}

static int64_t duration(int size, const int64_t *ns, const int *first)
{
    int64_t most = 0;

    for (int r = 0; r < size; r++)
        if ((first[r + 1] - first[r]) * ns[r] > most)
            most = (first[r + 1] - first[r]) * ns[r];
    return most;
}

/* Assigns each shard to the rank that would finish it first: optimal. */
static int64_t least_duration(int shards, int size, const int64_t *ns)
{
    int first[65] = {0}, n[64];

    for (int r = 0; r < size; r++)
        n[r] = 1;
    for (int left = shards - size; left > 0; left--) {
        int best = 0;

        for (int r = 1; r < size; r++)
            if ((n[r] + 1) * ns[r] < (n[best] + 1) * ns[best])
                best = r;
        n[best]++;
    }
    for (int r = 0; r < size; r++)
        first[r + 1] = first[r] + n[r];
    return duration(size, ns, first);
}

static void check_ranges(int shards, int size, const int *first)
{
    assert_int_equal(first[0], 0);
    assert_int_equal(first[size], shards);
    for (int r = 0; r < size; r++)
        assert_true(first[r + 1] > first[r]);
}

static void the_last_rank_ends_as_early_as_can_be(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        int size = 1 + (int)(draw() % 12), shards = size + (int)(draw() % 60), first[65] = {0};
        int64_t ns[64];

        for (int r = 0; r < size; r++)
            ns[r] = 1 + (int64_t)(draw() % (round % 3 ? 1000000 : 3));
        tutti__shard_ranges(shards, size, ns, first);
        check_ranges(shards, size, first);
        assert_int_equal(duration(size, ns, first), least_duration(shards, size, ns));
    }
}

static void equal_ranks_get_equal_ranges(void **state)
{
    int first[5] = {0};

    (void)state;
    tutti__shard_ranges(8, 4, (int64_t[]){0, 0, 0, 0}, first);
    assert_memory_equal(first, ((int[]){0, 2, 4, 6, 8}), sizeof first);
    memset(first, 0, sizeof first);
    tutti__shard_ranges(9, 4, (int64_t[]){5, 5, 5, 5}, first);
    assert_memory_equal(first, ((int[]){0, 3, 5, 7, 9}), sizeof first);
}

static void a_rank_that_is_not_known_counts_as_the_mean(void **state)
{
    int first[4] = {0};

    (void)state;
    tutti__shard_ranges(12, 3, (int64_t[]){100, 0, 100}, first);
    assert_memory_equal(first, ((int[]){0, 4, 8, 12}), sizeof first);
}

static void ranges_stay_while_they_are_nearly_as_good(void **state)
{
    int first[3] = {0, 8, 16};

    (void)state;
    tutti__shard_ranges(16, 2, (int64_t[]){100, 110}, first);
    assert_int_equal(first[1], 8);
    tutti__shard_ranges(16, 2, (int64_t[]){100, 300}, first);
    assert_int_equal(first[1], 12);
    tutti__shard_ranges(20, 2, (int64_t[]){100, 100}, first); /* of another number of shards */
    assert_int_equal(first[1], 10);
}

static void extremes_fit(void **state)
{
    static int64_t ns[TUTTI__MAX_SHARDS];
    static int first[TUTTI__MAX_SHARDS + 1];
    int one[2] = {0};

    (void)state;
    tutti__shard_ranges(TUTTI__MAX_SHARDS, 1, (int64_t[]){INT64_MAX}, one);
    check_ranges(TUTTI__MAX_SHARDS, 1, one);
    for (int r = 0; r < TUTTI__MAX_SHARDS; r++)
        ns[r] = r % 2 ? INT64_MAX : 1;
    tutti__shard_ranges(TUTTI__MAX_SHARDS, TUTTI__MAX_SHARDS, ns, first);
    check_ranges(TUTTI__MAX_SHARDS, TUTTI__MAX_SHARDS, first);
    memset(first, 0, sizeof first);
    tutti__shard_ranges(TUTTI__MAX_SHARDS, 64, ns, first);
    check_ranges(TUTTI__MAX_SHARDS, 64, first);
    assert_int_equal(first[2] - first[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_rank_ends_as_early_as_can_be),
        cmocka_unit_test(equal_ranks_get_equal_ranges),
        cmocka_unit_test(a_rank_that_is_not_known_counts_as_the_mean),
        cmocka_unit_test(ranges_stay_while_they_are_nearly_as_good),
        cmocka_unit_test(extremes_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
