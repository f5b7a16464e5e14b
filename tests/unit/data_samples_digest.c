/* data: the samples digest of a step equals the sampler's, whichever rank had which batch, and no other does.
 * SPDX-License-Identifier: MIT */
#include "data/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { COUNT = 101, STEP = 7 };

static void expected_of(uint64_t lanes[2], const tutti_sampler_opts *sampler, uint64_t epoch,
                        uint64_t step, size_t first, size_t batches, size_t batch)
{
    size_t *order;

    assert_int_equal(tutti__sampler_order(sampler, epoch, &order), TUTTI_OK);
    memset(lanes, 0, 2 * sizeof *lanes);
    tutti__samples_digest_expected(lanes, sampler, order, step, first, batches, batch);
    free(order);
}

/* The samples of each shard's loader in these batches, the last shard and the last batch first. */
static size_t have(size_t samples[COUNT * 2], const tutti_sampler_opts *sampler, uint64_t epoch,
                   size_t first, size_t batches, size_t batch)
{
    size_t n = 0;

    for (int v = sampler->world_size - 1; v >= 0; v--) {
        tutti_dataset *dataset;
        tutti_loader *loader;
        tutti_batch b;
        float row[COUNT] = {0};

        assert_int_equal(tutti_dataset_from_memory(&dataset, row, 1, row, 1, COUNT), TUTTI_OK);
        assert_int_equal(tutti_loader_new(&loader, dataset, NULL,
                                          &(tutti_loader_opts){.batch = (int)batch,
                                                               .shards = sampler->world_size,
                                                               .shuffle = sampler->shuffle,
                                                               .seed = sampler->seed,
                                                               .drop_last = sampler->drop_last,
                                                               .no_padding = sampler->no_padding}),
                         TUTTI_OK);
        tutti_loader_set_epoch(loader, epoch);
        for (size_t index = first + batches; index-- > first;)
            if (tutti_loader_take(loader, index, v, &b)) {
                memcpy(samples + n, b.samples, b.n * sizeof *samples);
                n += b.n;
            }
        assert_int_equal(tutti_loader_status(loader), TUTTI_OK);
        tutti_loader_free(loader);
        tutti_dataset_free(dataset);
    }
    return n;
}

static void it_is_that_of_what_the_shards_loaders_have(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++)
        for (int shards = 1; shards <= 9; shards += 4)
            for (size_t batch = 1; batch <= 10; batch += 3) {
                const tutti_sampler_opts sampler = {.count = COUNT,
                                                    .world_size = shards,
                                                    .shuffle = kind & 1,
                                                    .drop_last = kind & 2,
                                                    .no_padding = kind & 4,
                                                    .seed = 3};

                for (size_t first = 0; first * batch * (size_t)shards < COUNT; first += 3) {
                    size_t samples[COUNT * 2];
                    uint64_t expected[2], got[2] = {0, 0};
                    size_t n = have(samples, &sampler, 2, first, 3, batch);

                    expected_of(expected, &sampler, 2, STEP, first, 3, batch);
                    while (n > 0) /* one by one: parts add up */
                        tutti__samples_digest_add(got, STEP, &samples[--n], 1);
                    assert_memory_equal(got, expected, sizeof got);
                }
            }
}

static void a_step_begins_behind_what_was_given_out_before(void **state)
{
    const tutti_sampler_opts sampler = {.count = COUNT, .world_size = 4, .start = 40};
    uint64_t expected[2], got[2] = {0, 0};

    (void)state;
    expected_of(expected, &sampler, 0, 1, 0, 2, 5); /* 4 shards, 2 batches of 5 */
    for (size_t sample = 80; sample-- > 40;)
        tutti__samples_digest_add(got, 1, &sample, 1);
    assert_memory_equal(got, expected, sizeof got);
}

static void it_finds_what_is_wrong(void **state)
{
    const tutti_sampler_opts sampler = {.count = COUNT, .world_size = 4, .shuffle = true};
    size_t samples[COUNT * 2], n = have(samples, &sampler, 0, 1, 2, 3);
    uint64_t expected[2];
    char digits[33], others[33];

    (void)state;
    assert_int_equal(n, 24);
    expected_of(expected, &sampler, 0, STEP, 1, 2, 3);
    tutti__samples_digest_text(expected, digits);
    assert_int_equal(strlen(digits), 32);
    for (size_t i = 0; i < n; i++) {
        uint64_t missing[2] = {0, 0}, doubled[2] = {0, 0}, exchanged[2] = {0, 0},
                 elsewhere[2] = {0, 0};
        size_t other = samples[(i + 1) % n];

        for (size_t k = 0; k < n; k++) {
            const bool is_it = k == i;

            tutti__samples_digest_add(missing, STEP, &samples[k], is_it ? 0 : 1);
            tutti__samples_digest_add(doubled, STEP, &samples[k], 1);
            if (is_it)
                tutti__samples_digest_add(doubled, STEP, &samples[k], 1);
            tutti__samples_digest_add(exchanged, STEP, is_it ? &other : &samples[k], 1);
            tutti__samples_digest_add(elsewhere, is_it ? STEP + 1 : STEP, &samples[k], 1);
        }
        for (int lane = 0; lane < 2; lane++) {
            assert_true(missing[lane] != expected[lane]);
            assert_true(doubled[lane] != expected[lane]);
            assert_true(exchanged[lane] != expected[lane]);
            assert_true(elsewhere[lane] != expected[lane]);
        }
        tutti__samples_digest_text(missing, others);
        assert_string_not_equal(others, digits);
    }
}

/* It is stored in files: sums of XXH3-64 over (step, sample, lane) as 64-bit words. */
static void it_is_a_fixed_function(void **state)
{
    uint64_t lanes[2] = {0, 0};
    char digits[33];

    (void)state;
    tutti__samples_digest_add(lanes, 3, (const size_t[]){5, 0, 49999}, 3);
    tutti__samples_digest_text(lanes, digits);
    assert_string_equal(digits, "0ac1ed6687bc1fcfdd52d271874e016e");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_that_of_what_the_shards_loaders_have),
        cmocka_unit_test(a_step_begins_behind_what_was_given_out_before),
        cmocka_unit_test(it_finds_what_is_wrong),
        cmocka_unit_test(it_is_a_fixed_function),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
