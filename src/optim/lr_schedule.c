/* lr_schedule.c -- the learning rate as a function of the step alone.   SPDX-License-Identifier: MIT
 *
 *   lr   ^      ____
 *        |    /      \__                 warm-up: (step + 1) / warmup_steps of lr
 *        |  /           \___ final_lr    then constant, step or cosine, counted from its own start
 *        +-----|--------|---> step
 *           warmup    total */
#include "optim/optim.h"
#include "base/real.h"

#include <math.h>

float tutti_schedule_lr(const tutti_schedule *schedule, uint64_t step)
{
    double lr, final;
    uint64_t warmup, total;

    if (TUTTI__NOT_NULL(schedule) != TUTTI_OK ||
        TUTTI__CHECK_RESERVED(tutti_schedule, schedule) != TUTTI_OK)
        return NAN;
    lr = (double)schedule->lr;
    final = (double)schedule->final_lr;
    warmup = schedule->warmup_steps;
    total = schedule->total_steps;
    if (step < warmup)
        return (float)(lr * ((double)step + 1) / (double)warmup);
    step -= warmup;
    switch (schedule->kind) {
    case TUTTI_SCHEDULE_STEP:
        if (schedule->period == 0) /* never */
            return schedule->lr;
        return (float)(lr * tutti__power((double)schedule->gamma, step / schedule->period));
    case TUTTI_SCHEDULE_COSINE:
        if (total == 0) /* no end given */
            return schedule->lr;
        if (total <= warmup || step >= total - warmup)
            return schedule->final_lr;
        return (float)(final + (lr - final) *
                                   (1 + tutti__cos_pi((double)step / (double)(total - warmup))) /
                                   2);
    case TUTTI_SCHEDULE_CONSTANT:
        break;
    }
    return schedule->lr;
}
