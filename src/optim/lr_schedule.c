/* lr_schedule.c -- the learning rate as a function of the step alone.   SPDX-License-Identifier: MIT
 *
 *   lr   ^      ____
 *        |    /      \__                 warm-up: (step + 1) / warmup_steps of lr
 *        |  /           \___ final_lr    then the kind's own, counted from its own start
 *        +-----|--------|---> step
 *           warmup    total */
#include "optim/optim.h"
#include "base/real.h"

#include <math.h>

/* From `from` at 0 to `to` at 1. */
static double cosine(double from, double to, double at)
{
    return to + (from - to) * (1 + tutti__cos_pi(at)) / 2;
}

/* torch.optim.lr_scheduler.OneCycleLR's phases, whose ends are steps and need not be whole. */
static double one_cycle(const tutti_schedule *s, double step, double total)
{
    const double lr = (double)s->lr, start = lr / tutti__optim_decimal(s->div_factor);
    const double top = tutti__optim_decimal(s->pct_start) * total - 1, end = total - 1;

    if (step >= end)
        return (double)s->final_lr;
    return step <= top ? cosine(start, lr, step / top)
                       : cosine(lr, (double)s->final_lr, (step - top) / (end - top));
}

/* The cosine that the step is in. */
static double with_restarts(const tutti_schedule *s, uint64_t step)
{
    uint64_t period = s->period;

    if (s->t_mult == 1)
        step %= period;
    while (step >= period) {
        step -= period;
        period = period <= UINT64_MAX / s->t_mult ? period * s->t_mult : UINT64_MAX;
    }
    return cosine((double)s->lr, (double)s->final_lr, (double)step / (double)period);
}

static double rate(const tutti_schedule *s, uint64_t step)
{
    const double lr = (double)s->lr, final = (double)s->final_lr;
    const uint64_t warmup = s->warmup_steps;
    const uint64_t total = s->total_steps > warmup ? s->total_steps - warmup : 0;

    if (step < warmup)
        return lr * ((double)step + 1) / (double)warmup;
    step -= warmup;
    switch (s->kind) {
    case TUTTI_SCHEDULE_STEP:
        if (s->period == 0) /* never */
            return lr;
        return lr * tutti__power((double)s->gamma, step / s->period);
    case TUTTI_SCHEDULE_RESTARTS:
        return s->period == 0 ? lr : with_restarts(s, step);
    case TUTTI_SCHEDULE_COSINE:
    case TUTTI_SCHEDULE_LINEAR:
    case TUTTI_SCHEDULE_ONECYCLE:
        if (s->total_steps == 0) /* no end given */
            return lr;
        if (step >= total)
            return final;
        if (s->kind == TUTTI_SCHEDULE_ONECYCLE)
            return one_cycle(s, (double)step, (double)total);
        return s->kind == TUTTI_SCHEDULE_LINEAR ? lr + (final - lr) * (double)step / (double)total
                                                : cosine(lr, final, (double)step / (double)total);
    case TUTTI_SCHEDULE_CONSTANT:
        break;
    }
    return lr;
}

static tutti_status check(const tutti_schedule *s)
{
    TUTTI_TRY(TUTTI__NOT_NULL(s));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_schedule, s));
    if (s->kind == TUTTI_SCHEDULE_RESTARTS && s->t_mult < 1)
        return tutti__fail(TUTTI_ERR_ARG, "schedule restarts: t_mult is 0, expected 1 or more");
    if (s->kind != TUTTI_SCHEDULE_ONECYCLE)
        return TUTTI_OK;
    if (!(s->div_factor > 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "schedule onecycle: div_factor is %g, expected a number above 0",
                           (double)s->div_factor);
    if (!(s->pct_start >= 0 && s->pct_start <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "schedule onecycle: pct_start is %g, expected 0 to 1",
                           (double)s->pct_start);
    return TUTTI_OK;
}

float tutti_schedule_lr(const tutti_schedule *schedule, uint64_t step)
{
    return check(schedule) == TUTTI_OK ? (float)rate(schedule, step) : NAN;
}
