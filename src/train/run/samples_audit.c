/* samples_audit.c -- an audit that all steps used exactly the sampler's samples.   SPDX-License-Identifier: MIT */
#include "data/sampler.h"
#include "train/run/regroup.h"

#include <stdlib.h>
#include <string.h>

/* Adds the epoch's steps from `at` to its end, or the run's end; moves `at` there, or to the next epoch. */
static tutti_status add_epoch(const tutti__train_run *run, tutti__run_cursor *at, uint64_t lanes[2])
{
    const tutti__train_config *c = run->session.config;
    const size_t each = (size_t)c->grad_accumulation,
                 batches = tutti__plan_batches(&run->plan, at->start);
    const tutti_sampler_opts sampler = {.count = run->plan.count,
                                        .world_size = run->session.shards,
                                        .shuffle = true,
                                        .seed = (uint64_t)c->seed,
                                        .start = at->start};
    size_t *order;

    TUTTI_TRY(tutti__sampler_order(&sampler, (uint64_t)at->epoch - 1, &order));
    while (at->step < run->position.at.step && at->batch < batches) {
        const size_t n = batches - at->batch < each ? batches - at->batch : each;

        at->step++;
        tutti__samples_digest_expected(lanes, &sampler, order, at->step, at->batch, n,
                                       (size_t)c->batch_size);
        at->batch += n;
    }
    free(order);
    if (at->batch == batches)
        *at = (tutti__run_cursor){.step = at->step, .epoch = at->epoch + 1};
    return TUTTI_OK;
}

tutti_status tutti__samples_audit(const tutti__train_run *run)
{
    tutti__run_cursor at = run->position.shared.from;
    uint64_t lanes[2] = {0, 0};
    char expected[33], is[33];

    while (at.step < run->position.at.step)
        TUTTI_TRY(add_epoch(run, &at, lanes));
    tutti__samples_digest_text(lanes, expected);
    tutti__samples_digest_text(run->position.shared.samples, is);
    if (strcmp(expected, is) == 0)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_STATE,
        "the samples of steps %llu to %llu have digest %s, and the sampler's own are "
        "%s: some were used twice, or not at all, or in another step; this result is "
        "not what the configuration says, please report it",
        (unsigned long long)run->position.shared.from.step + 1,
        (unsigned long long)run->position.at.step, is, expected);
}
