/* step.c -- a training step in virtual time.   SPDX-License-Identifier: MIT */
#include "simulate/step.h"

#include <math.h>
#include <string.h>

/* The rank that is followed. */
typedef struct walk {
    const tutti__sim_step_ask *ask;
    tutti__sim_costs *costs;
    tutti__sim_step *step;
    double stalled;                  /* it has waited so long for calls */
    double free_at[TUTTI__CALLS_OF]; /* when a group's wire is */
    double gathered; /* when the last unit of parameters is there; 0: there is none */
} walk;

/* ---- Groups ------------------------------------------------------------------------------------------------------------ */

/* As tensor is the innermost dimension of the mesh, and pipeline the outermost. */
static tutti__sim_group group_of(const tutti__layout_of_ranks *l, tutti__calls_of of)
{
    const tutti__layout_of_ranks pair = tutti__layout_of_neighbours(l),
                                 some = of == TUTTI__CALLS_OF_DATA     ? tutti__layout_of_data(l)
                                        : of == TUTTI__CALLS_OF_SHARES ? tutti__layout_of_shares(l)
                                        : of == TUTTI__CALLS_OF_TENSOR ? tutti__layout_of_tensor(l)
                                                                       : *l;

    if (of == TUTTI__CALLS_OF_PIPELINE) {
        const int local = pair.local_ranks > 1 && l->local_ranks == l->ranks ? l->pipeline : 1;

        return (tutti__sim_group){l->pipeline, local, l->local_ranks / local};
    }
    return (tutti__sim_group){some.ranks, some.local_ranks,
                              some.local_ranks < l->local_ranks ? l->local_ranks / some.local_ranks
                                                                : 1};
}

tutti_status tutti__sim_step_cost(const tutti__layout_of_ranks *layout,
                                  const tutti__planned_entry *call, tutti__sim_costs *costs,
                                  const tutti__sim_cost **cost_p)
{
    const tutti__sim_cost wanted = {.op = call->name,
                                    .dtype = call->dtype,
                                    .bytes = call->bytes,
                                    .group = group_of(layout, (tutti__calls_of)call->group)};

    return tutti__sim_cost_of(costs, &wanted, cost_p);
}

/* ---- Time -------------------------------------------------------------------------------------------------------------- */

/* Of the gradients of a step, by its FLOPs: with shards they depend on how many a rank has. */
static double gradients_s(const tutti__sim_step_ask *a)
{
    const tutti__sim_compute *c = a->compute;

    return a->shards > 0 && c->flops > 0 ? c->gradients_s * a->calls->flops / c->flops
                                         : c->gradients_s;
}

/* When the rank would have come so far if it never waited. */
static double reached(const tutti__sim_step_ask *a, double flops)
{
    const tutti__sim_compute *c = a->compute;
    const double whole = a->shards > 0 ? c->flops : a->calls->flops;
    const double left = whole > 0 ? (a->calls->flops - flops) / whole : 0;
    const double at = gradients_s(a) - c->gradients_s * tutti__timeline_left(c->timeline, left);

    return a->bubble_s + (at > 0 ? at : 0);
}

static void wait(walk *w, double now, double until)
{
    if (until > now + w->stalled)
        w->stalled = until - now;
}

static tutti_status make(walk *w, const tutti__planned_entry *call, double now, bool is_update)
{
    const bool gathers = call->asynchronous && !is_update && strcmp(call->name, "all_gather") == 0;
    const tutti__sim_cost *cost;
    double begin;

    TUTTI_TRY(tutti__sim_step_cost(&w->ask->layout, call, w->costs, &cost));
    if (gathers)
        wait(w, now, w->gathered);
    begin = fmax(now + w->stalled, w->free_at[call->group]);
    w->free_at[call->group] = begin + cost->us * 1e-6;
    if (gathers)
        w->gathered = w->free_at[call->group];
    if (!call->asynchronous || is_update)
        wait(w, now, w->free_at[call->group]);
    w->step->wire_s += cost->us * 1e-6;
    w->step->sent += cost->sent;
    w->step->scaled |= cost->scaled;
    if (!w->step->largest || cost->us > w->step->largest->us)
        w->step->largest = cost;
    return TUTTI_OK;
}

tutti_status tutti__sim_step_find(tutti__sim_step *step, const tutti__sim_step_ask *a,
                                  tutti__sim_costs *costs)
{
    const tutti__layout_of_ranks data = tutti__layout_of_data(&a->layout);
    const tutti__timeline *calls = a->calls;
    const double gradients = gradients_s(a),
                 update = a->compute->update_s / (a->layout.zero > 0 ? data.ranks : 1);
    walk w = {.ask = a, .costs = costs, .step = step};
    double alone;

    *step = (tutti__sim_step){.compute_s = gradients + update};
    for (size_t i = 0; i < calls->n_gradients; i++)
        TUTTI_TRY(make(&w, &calls->log.p[i], reached(a, calls->log.p[i].at), false));
    for (int i = 0; i < TUTTI__CALLS_OF; i++)
        wait(&w, a->bubble_s + gradients, w.free_at[i]);
    for (size_t i = calls->n_gradients; i < calls->log.n; i++)
        TUTTI_TRY(make(&w, &calls->log.p[i], a->bubble_s + gradients + update, true));
    step->behind_s = a->spread * step->compute_s * tutti__largest_of_normal(a->layout.ranks);
    step->exposed_s = w.stalled;
    step->step_s = a->bubble_s + step->compute_s + step->behind_s + step->exposed_s;
    alone = a->shards > 0 ? gradients + a->compute->update_s / a->layout.ranks
                          : gradients + a->compute->update_s;
    step->efficiency = step->step_s > 0 ? alone / step->step_s : 1;
    return TUTTI_OK;
}

/* ---- Stragglers ----------------------------------------------------------------------------------------------------------- */

/* The mean of the largest is the integral of 1 - F^n above 0, less that of F^n below. */
double tutti__largest_of_normal(int n)
{
    const double far = 9, grain = 1.0 / 512;
    double mean = 0;

    for (double x = -far + grain / 2; x < far && n > 1; x += grain) {
        const double f = pow(0.5 * erfc(-x / sqrt(2)), n);

        mean += grain * (x > 0 ? 1 - f : -f);
    }
    return mean;
}
