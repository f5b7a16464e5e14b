/* data: the sampler divides PyTorch's permutation by PyTorch's formula.   SPDX-License-Identifier: MIT
 *
 * The expected numbers are from torch.randperm and DistributedSampler: tools/make_golden_data.py prints them. */
#include "base/base.h"

#include <tutti/data.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void expect(tutti_sampler_opts opts, uint64_t epoch, const size_t *expected, size_t n)
{
    size_t indices[64];

    assert_int_equal(tutti_sampler_length(&opts), n);
    assert_int_equal(tutti_sampler_indices(&opts, epoch, indices), TUTTI_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(indices[i], expected[i]);
}

#define EXPECT(opts, epoch, ...)                                                                   \
    expect(opts, epoch, (const size_t[]){__VA_ARGS__},                                             \
           sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

static void permutations_are_torchs(void **state)
{
    tutti_sampler_opts all = {.count = 10, .world_size = 1, .shuffle = true};
    tutti_sampler_opts hundred = {.count = 100, .world_size = 1, .shuffle = true};
    static const size_t FIRST[] = {44, 19, 93, 90, 71, 69, 37, 95};
    size_t indices[100];

    (void)state;
    EXPECT(all, 0, 4, 1, 7, 5, 3, 9, 0, 8, 6, 2);
    EXPECT(all, 1, 5, 6, 1, 2, 0, 8, 9, 3, 7, 4);
    all.seed = 42;
    EXPECT(all, 0, 2, 6, 1, 8, 4, 5, 0, 9, 3, 7);
    all.seed = 40; /* seed and epoch are added */
    EXPECT(all, 2, 2, 6, 1, 8, 4, 5, 0, 9, 3, 7);
    assert_int_equal(tutti_sampler_indices(&hundred, 0, indices), TUTTI_OK);
    assert_memory_equal(indices, FIRST, sizeof FIRST);
}

/* Whole shares of 50,000 samples over 4 ranks, as one number. */
static void long_shares_are_torchs(void **state)
{
    static const uint64_t SUMS[4] = {0x12c24ed635168cdb, 0, 0, 0xd98b2ae130097f71};
    size_t *indices = malloc(12500 * sizeof *indices);

    (void)state;
    assert_non_null(indices);
    for (int rank = 0; rank < 4; rank += 3) {
        tutti_sampler_opts opts = {
            .count = 50000, .rank = rank, .world_size = 4, .shuffle = true, .seed = 1234};
        uint64_t sum = 0;

        assert_int_equal(tutti_sampler_length(&opts), 12500);
        assert_int_equal(tutti_sampler_indices(&opts, 7, indices), TUTTI_OK);
        for (int i = 0; i < 12500; i++)
            sum = sum * 1000003 + indices[i];
        assert_true(sum == SUMS[rank]);
    }
    free(indices);
}

static void shares_are_padded_from_the_front(void **state)
{
    static const size_t PLAIN[4][3] = {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}};
    static const size_t EPOCH0[4][3] = {{4, 3, 6}, {1, 9, 2}, {7, 0, 4}, {5, 8, 1}};
    static const size_t EPOCH1[4][3] = {{5, 0, 7}, {6, 8, 4}, {1, 9, 5}, {2, 3, 6}};

    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        tutti_sampler_opts opts = {.count = 10, .rank = rank, .world_size = 4};

        expect(opts, 0, PLAIN[rank], 3);
        opts.shuffle = true;
        expect(opts, 0, EPOCH0[rank], 3);
        expect(opts, 1, EPOCH1[rank], 3);
    }
}

static void padding_repeats_a_short_list(void **state)
{
    (void)state;
    for (int rank = 0; rank < 8; rank++) {
        EXPECT(((tutti_sampler_opts){.count = 3, .rank = rank, .world_size = 8}), 0,
               (size_t)rank % 3);
        EXPECT(((tutti_sampler_opts){.count = 1, .rank = rank, .world_size = 8}), 0, 0);
    }
}

static void drop_last_cuts_the_remainder(void **state)
{
    static const size_t SHARES[4][2] = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};

    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        tutti_sampler_opts opts = {.count = 10, .rank = rank, .world_size = 4, .drop_last = true};

        expect(opts, 0, SHARES[rank], 2);
        opts.count = 1; /* fewer samples than ranks: nothing remains */
        expect(opts, 0, NULL, 0);
        opts.count = 8;
        assert_int_equal(tutti_sampler_length(&opts), 2);
    }
}

static void without_padding_each_sample_comes_once(void **state)
{
    (void)state;
    for (int world = 1; world <= 7; world++)
        for (size_t count = 0; count <= 15; count++) {
            int seen[16] = {0};
            size_t least = SIZE_MAX, most = 0;

            for (int rank = 0; rank < world; rank++) {
                tutti_sampler_opts opts = {.count = count,
                                           .rank = rank,
                                           .world_size = world,
                                           .shuffle = count % 2,
                                           .no_padding = true};
                size_t indices[16], n = tutti_sampler_length(&opts);

                assert_int_equal(tutti_sampler_indices(&opts, 3, indices), TUTTI_OK);
                for (size_t i = 0; i < n; i++)
                    seen[indices[i]]++;
                least = n < least ? n : least;
                most = n > most ? n : most;
            }
            for (size_t i = 0; i < count; i++)
                assert_int_equal(seen[i], 1);
            assert_true(most - least <= 1);
        }
}

static void ranks_outside_the_world_are_refused(void **state)
{
    static const int BAD[][2] = {{-1, 2}, {2, 2}, {0, 0}, {0, -1}};
    size_t indices[10];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(BAD); i++) {
        tutti_sampler_opts opts = {.count = 10, .rank = BAD[i][0], .world_size = BAD[i][1]};

        assert_int_equal(tutti_sampler_length(&opts), 0);
        assert_int_equal(tutti_sampler_indices(&opts, 0, indices), TUTTI_ERR_ARG);
        assert_non_null(strstr(tutti_last_error(), "rank"));
    }
}

/* An epoch of 2, then 3, then 1 ranks: each sample once, and padding at the end from the front. */
static void an_epoch_goes_on_with_other_ranks(void **state)
{
    static const struct {
        int world_size;
        size_t each; /* entries that every rank takes before the next take over */
    } parts[] = {{2, 7}, {3, 5}, {4, 0}, {1, 9}, {3, SIZE_MAX}};
    size_t seen[61] = {0}, start = 0, indices[61], order[61], total = 0;
    tutti_sampler_opts all = {.count = 61, .world_size = 1, .shuffle = true, .seed = 3};

    (void)state;
    assert_int_equal(tutti_sampler_indices(&all, 5, order), TUTTI_OK);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t each = 0;

        for (int rank = 0; rank < parts[i].world_size; rank++) {
            tutti_sampler_opts opts = all;

            opts.rank = rank;
            opts.world_size = parts[i].world_size;
            opts.start = start;
            assert_int_equal(tutti_sampler_indices(&opts, 5, indices), TUTTI_OK);
            each = tutti_sampler_length(&opts);
            each = each < parts[i].each ? each : parts[i].each;
            for (size_t k = 0; k < each; k++, total++)
                seen[indices[k]]++;
        }
        start += (size_t)parts[i].world_size * each;
    }
    assert_int_equal(total, 62); /* 23 are left for the last 3 ranks, which take 8 each */
    for (size_t k = 0; k < 61; k++)
        assert_int_equal(seen[k], k == order[0] ? 2 : 1);
    all.start = 61;
    assert_int_equal(tutti_sampler_length(&all), 0);
    all.start = 62;
    assert_int_equal(tutti_sampler_indices(&all, 0, indices), TUTTI_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_goes_on_with_other_ranks),
        cmocka_unit_test(permutations_are_torchs),
        cmocka_unit_test(long_shares_are_torchs),
        cmocka_unit_test(shares_are_padded_from_the_front),
        cmocka_unit_test(padding_repeats_a_short_list),
        cmocka_unit_test(drop_last_cuts_the_remainder),
        cmocka_unit_test(without_padding_each_sample_comes_once),
        cmocka_unit_test(ranks_outside_the_world_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
