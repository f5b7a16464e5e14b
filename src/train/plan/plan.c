/* plan.c -- how many steps a run has left, and its position in the schedule.   SPDX-License-Identifier: MIT */
#include "train/plan/plan.h"

#include "train/run/run.h"

#include <math.h>
#include <string.h>

static size_t divide_up(size_t n, size_t by)
{
    return (n + by - 1) / by;
}

size_t tutti__plan_batches(const tutti__run *run, size_t start)
{
    /* With padding all ranks have the same number. */
    const tutti_sampler_opts opts = {.count = tutti_dataset_describe(run->train_data).count,
                                     .world_size = tutti__run_shares(run),
                                     .start = start};

    return divide_up(tutti_sampler_length(&opts), (size_t)run->config->batch_size);
}

size_t tutti__plan_samples(const tutti__run *run, const tutti__position *at, int shares)
{
    const size_t count = tutti_dataset_describe(run->train_data).count;
    const size_t done = at->start + at->batch * (size_t)run->config->batch_size * (size_t)shares;

    return done < count ? done : count;
}

static uint64_t epoch_steps(const tutti__run *run, size_t start, size_t batch)
{
    const size_t batches = tutti__plan_batches(run, start);

    return divide_up(batch < batches ? batches - batch : 0, (size_t)run->config->grad_accumulation);
}

uint64_t tutti__plan_left(const tutti__run *run, const tutti__position *at)
{
    const uint64_t max = (uint64_t)run->config->max_steps;
    uint64_t left = 0;

    if (at->epoch <= run->config->epochs)
        left = epoch_steps(run, at->start, at->batch) +
               (uint64_t)(run->config->epochs - at->epoch) * epoch_steps(run, 0, 0);
    if (max > 0 && at->step + left > max)
        left = at->step < max ? max - at->step : 0;
    return left;
}

void tutti__plan(tutti__run *run, const tutti__position *at)
{
    const tutti__train_config *c = run->config;
    const double warmup = round(c->warmup_epochs * (double)epoch_steps(run, 0, 0));
    const uint64_t whole = tutti__plan_left(run, &(tutti__position){.epoch = 1});

    run->total_steps = at->step + tutti__plan_left(run, at);
    run->schedule =
        (tutti_schedule){.kind = strcmp(c->schedule, "cosine") == 0 ? TUTTI_SCHEDULE_COSINE
                                 : strcmp(c->schedule, "step") == 0 ? TUTTI_SCHEDULE_STEP
                                                                    : TUTTI_SCHEDULE_CONSTANT,
                         .lr = (float)c->lr,
                         .gamma = 0.1f,
                         .total_steps = whole,
                         .warmup_steps = warmup < (double)whole ? (uint64_t)warmup : whole,
                         .period = (whole + 2) / 3};
}

uint64_t tutti__plan_schedule_step(const tutti__run *run)
{
    const uint64_t left = run->total_steps - run->at.step;

    return left < run->schedule.total_steps ? run->schedule.total_steps - left : 0;
}
