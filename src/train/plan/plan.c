/* plan.c -- what a run does next.   SPDX-License-Identifier: MIT */
#include "train/plan/plan.h"

#include "data/sampler.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static size_t divide_up(size_t n, size_t by)
{
    return (n + by - 1) / by;
}

/* ---- How much there is to do ---------------------------------------------------------------------------------- */

size_t tutti__plan_batches(const tutti__train_plan *plan, size_t start)
{
    /* With padding all ranks have the same number. */
    const tutti_sampler_opts opts = {
        .count = plan->count, .world_size = plan->shares, .start = start};

    return divide_up(tutti_sampler_length(&opts), (size_t)plan->config->batch_size);
}

size_t tutti__plan_samples(const tutti__train_plan *plan, const tutti__run_cursor *at, int shares)
{
    const size_t done = at->start + at->batch * (size_t)plan->config->batch_size * (size_t)shares;

    return done < plan->count ? done : plan->count;
}

static uint64_t epoch_steps(const tutti__train_plan *plan, size_t start, size_t batch)
{
    const size_t batches = tutti__plan_batches(plan, start);

    return divide_up(batch < batches ? batches - batch : 0,
                     (size_t)plan->config->grad_accumulation);
}

uint64_t tutti__plan_of_epochs(const tutti__train_plan *plan)
{
    return (uint64_t)plan->config->epochs * epoch_steps(plan, 0, 0);
}

uint64_t tutti__plan_left(const tutti__train_plan *plan, const tutti__run_cursor *at)
{
    const tutti__train_config *c = plan->config;
    const uint64_t max = (uint64_t)c->max_steps;
    uint64_t left = 0;

    if (at->epoch <= c->epochs)
        left = epoch_steps(plan, at->start, at->batch) +
               (uint64_t)(c->epochs - at->epoch) * epoch_steps(plan, 0, 0);
    if (max > 0 && at->step + left > max)
        left = at->step < max ? max - at->step : 0;
    return left;
}

static tutti_schedule_kind kind_of(const char *schedule)
{
    static const struct {
        const char *name;
        tutti_schedule_kind kind;
    } all[] = {{"step", TUTTI_SCHEDULE_STEP},
               {"cosine", TUTTI_SCHEDULE_COSINE},
               {"linear", TUTTI_SCHEDULE_LINEAR},
               {"onecycle", TUTTI_SCHEDULE_ONECYCLE},
               {"restarts", TUTTI_SCHEDULE_RESTARTS}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++)
        if (strcmp(schedule, all[i].name) == 0)
            return all[i].kind;
    return TUTTI_SCHEDULE_CONSTANT;
}

/* Of a run of `whole` steps. */
static tutti_schedule schedule_of(const tutti__train_plan *plan, uint64_t whole)
{
    const tutti__train_config *c = plan->config;
    const double epoch = (double)epoch_steps(plan, 0, 0);
    const double warmup =
        c->warmup_steps ? (double)c->warmup_steps : round(c->warmup_epochs * epoch);
    const double first = round(c->restart_epochs * epoch);
    tutti_schedule s = {.kind = kind_of(c->schedule),
                        .lr = (float)c->lr,
                        .final_lr = (float)c->final_lr,
                        .gamma = 0.1f,
                        .total_steps = whole,
                        .warmup_steps = warmup < (double)whole ? (uint64_t)warmup : whole,
                        .period = (whole + 2) / 3,
                        .t_mult = (uint64_t)c->restart_mult,
                        .pct_start = (float)c->pct_start,
                        .div_factor = (float)c->div_factor};

    if (s.kind == TUTTI_SCHEDULE_RESTARTS)
        s.period = first < 1 ? 1 : (uint64_t)first;
    return s;
}

tutti__train_plan tutti__plan_of(const tutti__train_config *c, size_t count, int shares,
                                 bool evaluates, const tutti__run_cursor *from)
{
    tutti__train_plan plan = {
        .config = c, .count = count, .shares = shares, .evaluates = evaluates};
    const uint64_t whole = tutti__plan_left(&plan, &(tutti__run_cursor){.epoch = 1});

    plan.schedule_end = plan.total_steps = from->step + tutti__plan_left(&plan, from);
    if (c->stop_after > 0 && plan.total_steps > (uint64_t)c->stop_after)
        plan.total_steps =
            (uint64_t)c->stop_after > from->step ? (uint64_t)c->stop_after : from->step;
    if (c->lr_find && plan.total_steps > TUTTI__LR_FIND_STEPS)
        plan.total_steps = TUTTI__LR_FIND_STEPS;
    plan.schedule = schedule_of(&plan, whole);
    return plan;
}

/* From the first to the last, each the same factor larger than the one before. */
static float lr_find_rate(uint64_t step, uint64_t steps)
{
    const double first = log(1e-7), last = log(10);

    return (float)exp(first + (last - first) * (double)step / (double)(steps > 1 ? steps - 1 : 1));
}

/* The step of the schedule, which goes on beyond stop_after. */
static uint64_t schedule_step(const tutti__train_plan *plan, const tutti__run_cursor *at)
{
    const uint64_t left = plan->schedule_end - at->step, whole = plan->schedule.total_steps;

    return left < whole ? whole - left : 0;
}

float tutti__plan_lr(const tutti__train_plan *plan, const tutti__run_cursor *at)
{
    if (plan->config->lr_find)
        return lr_find_rate(at->step, plan->total_steps);
    return tutti_schedule_lr(&plan->schedule, schedule_step(plan, at));
}

float tutti__plan_lr_within(const tutti__train_plan *plan, const tutti__run_cursor *at,
                            double epochs)
{
    const uint64_t step = schedule_step(plan, at);
    const double steps = round(epochs * (double)epoch_steps(plan, 0, 0));
    tutti_schedule schedule;

    if (plan->config->lr_find)
        return tutti__plan_lr(plan, at);
    if (!((double)step < steps))
        return 0;
    schedule = schedule_of(plan, (uint64_t)steps);
    return tutti_schedule_lr(&schedule, step);
}

bool tutti__plan_epoch_is_over(const tutti__train_plan *plan, const tutti__run_cursor *at)
{
    return at->batch >= tutti__plan_batches(plan, at->start);
}

bool tutti__plan_is_over(const tutti__train_plan *plan, const tutti__position *p)
{
    return p->at.step >= plan->total_steps || p->stopped ||
           tutti__best_is_exhausted(plan->config, &p->best);
}

void tutti__plan_why(const tutti__train_config *c, const tutti__best *best, bool stopped,
                     const char *stop_why, char text[TUTTI__PLAN_WHY])
{
    char delta[48] = "";

    text[0] = '\0';
    if (c->min_delta > 0)
        snprintf(delta, sizeof delta, " by more than %g (min_delta)", c->min_delta);
    if (stopped)
        snprintf(text, TUTTI__PLAN_WHY, "ended by the program%s%s", *stop_why ? ": " : "",
                 stop_why);
    else if (tutti__best_is_exhausted(c, best))
        snprintf(text, TUTTI__PLAN_WHY,
                 "early_stopping: %lld evaluation%s in a row did not improve %s%s, whose best "
                 "was %.6g after step %llu",
                 (long long)best->since, tutti__s((uint64_t)best->since), tutti__monitor_of(c).name,
                 delta, best->value, (unsigned long long)best->step);
}

/* ---- What is next --------------------------------------------------------------------------------------------- */

/* By the key eval_steps. */
static bool steps_evaluation_is_due(const tutti__train_plan *plan, const tutti__position *p)
{
    const uint64_t every = (uint64_t)plan->config->eval_steps;

    return plan->evaluates && every > 0 && p->evaluated < p->at.step && p->at.step % every == 0;
}

/* At the end of an epoch or of the run. */
static tutti__train_action next_at_end(const tutti__train_plan *plan, const tutti__position *p)
{
    const tutti__train_config *c = plan->config;
    const uint64_t every = (uint64_t)c->checkpoint_every;
    const bool end = tutti__plan_is_over(plan, p),
               best = tutti__best_is_kept(c) && p->best.step == p->at.step;

    if (plan->evaluates && p->evaluated < p->at.step &&
        (end || (c->eval_steps == 0 && p->at.epoch % c->eval_every == 0)))
        return TUTTI__DO_EVALUATE;
    if (!c->lr_find && p->saved_epoch != p->at.epoch &&
        (end || best || every == 0 || p->at.step % every == 0))
        return TUTTI__DO_SAVE;
    return end ? TUTTI__DO_FINISH : TUTTI__DO_STEP;
}

static tutti__train_action next(const tutti__train_plan *plan, const tutti__position *p)
{
    const uint64_t every = (uint64_t)plan->config->checkpoint_every;
    const bool saved = p->saved_step == p->at.step, best = tutti__best_is_kept(plan->config) &&
                                                           p->at.step > 0 &&
                                                           p->best.step == p->at.step;
    const bool elsewhere = p->saved_elsewhere && !plan->config->lr_find;

    if (p->ended || p->complete)
        return TUTTI__DO_END;
    if (p->agree_due)
        return TUTTI__DO_AGREE;
    if (p->line_due > (uint64_t)p->line.step)
        return TUTTI__DO_LINE;
    if (p->stop) /* so that no step is lost; what could not be saved would not be now */
        return (saved && !elsewhere) || p->stop == TUTTI__UNSAVED || plan->config->lr_find
                   ? TUTTI__DO_FINISH
                   : TUTTI__DO_SAVE;
    if (p->finished)
        return elsewhere ? TUTTI__DO_SAVE : TUTTI__DO_FINISH;
    if (steps_evaluation_is_due(plan, p))
        return TUTTI__DO_EVALUATE;
    if (tutti__plan_is_over(plan, p) || tutti__plan_epoch_is_over(plan, &p->at))
        return next_at_end(plan, p);
    return !saved && !plan->config->lr_find && ((every > 0 && p->at.step % every == 0) || best)
               ? TUTTI__DO_SAVE
               : TUTTI__DO_STEP;
}

tutti__train_action tutti__plan_next(const tutti__train_plan *plan, const tutti__position *p)
{
    const tutti__train_action action = next(plan, p);
    const bool due = p->guard_at > 0 && p->at.step >= p->guard_at;

    if (plan->config->guard == 0 || action == TUTTI__DO_END || p->guarded == p->at.step)
        return action;
    return due || action == TUTTI__DO_SAVE ? TUTTI__DO_GUARD : action;
}

/* ---- What was done -------------------------------------------------------------------------------------------- */

void tutti__plan_begin_step(const tutti__train_plan *plan, tutti__position *p)
{
    if (tutti__plan_epoch_is_over(plan, &p->at))
        p->at = (tutti__run_cursor){.step = p->at.step, .epoch = p->at.epoch + 1};
    if (p->guard_at == 0) /* by then it is known how long a step takes */
        p->guard_at = p->at.step + (plan->config->guard > 0 ? (uint64_t)plan->config->guard : 2);
    if (p->at.start == 0 && p->at.batch == 0)
        p->epoch_loss = (tutti__mean){0, 0};
}

size_t tutti__plan_step_batches(const tutti__train_plan *plan, const tutti__run_cursor *at)
{
    const size_t left = tutti__plan_batches(plan, at->start) - at->batch,
                 each = (size_t)plan->config->grad_accumulation;

    return left < each ? left : each;
}

bool tutti__plan_has_line(const tutti__train_plan *plan, const tutti__position *p)
{
    const uint64_t step = p->at.step + 1;

    return step % (uint64_t)plan->config->log_every == 0 || step == plan->total_steps || p->stop;
}

void tutti__plan_end_step(const tutti__train_plan *plan, tutti__position *p, size_t batches)
{
    if (tutti__plan_has_line(plan, p))
        p->line_due = p->at.step + 1;
    p->at.step++;
    p->at.batch += batches;
    if (tutti__plan_epoch_is_over(plan, &p->at))
        p->epochs_done = p->at.epoch;
}

bool tutti__plan_saves_epoch(const tutti__train_plan *plan, const tutti__position *p)
{
    return !p->stop && (tutti__plan_is_over(plan, p) || tutti__plan_epoch_is_over(plan, &p->at));
}

tutti__run_cursor tutti__plan_saves_at(const tutti__train_plan *plan, const tutti__position *p)
{
    if (tutti__plan_saves_epoch(plan, p) && tutti__plan_epoch_is_over(plan, &p->at))
        return (tutti__run_cursor){.step = p->at.step, .epoch = p->at.epoch + 1};
    return p->at;
}

bool tutti__plan_finishes(const tutti__train_plan *plan, const tutti__position *p)
{
    return !p->stop && tutti__plan_is_over(plan, p);
}

void tutti__plan_saved(const tutti__train_plan *plan, tutti__position *p)
{
    p->saved_step = p->at.step;
    p->saved_elsewhere = false;
    if (tutti__plan_saves_epoch(plan, p))
        p->saved_epoch = p->at.epoch;
}
