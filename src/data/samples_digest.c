/* samples_digest.c -- an order-independent digest of which samples were used in which step.   SPDX-License-Identifier: MIT */
#include "data/sampler.h"

#include <inttypes.h>
#include <stdio.h>

static void add(uint64_t lanes[2], uint64_t step, uint64_t sample)
{
    /* The third word distinguishes the lanes. */
    for (uint64_t lane = 0; lane < 2; lane++)
        lanes[lane] += tutti__hash64((const uint64_t[]){step, sample, lane}, 3 * sizeof(uint64_t));
}

void tutti__samples_digest_add(uint64_t lanes[2], uint64_t step, const size_t *samples, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(lanes, step, samples[i]);
}

void tutti__samples_digest_expected(uint64_t lanes[2], const tutti_sampler_opts *sampler,
                                    const size_t *order, uint64_t step, size_t first,
                                    size_t batches, size_t batch)
{
    tutti_sampler_opts shard = *sampler;

    for (shard.rank = 0; shard.rank < shard.world_size; shard.rank++) {
        size_t length = tutti_sampler_length(&shard), end = (first + batches) * batch;

        if (shard.drop_last)
            length -= length % batch;
        for (size_t i = first * batch; i < end && i < length; i++)
            add(lanes, step, tutti__sampler_entry(&shard, order, i));
    }
}

void tutti__samples_digest_text(const uint64_t lanes[2], char digits[33])
{
    snprintf(digits, 33, "%016" PRIx64 "%016" PRIx64, lanes[0], lanes[1]);
}
