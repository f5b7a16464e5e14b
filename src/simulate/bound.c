/* bound.c -- what a call takes at least by the alpha-beta model.   SPDX-License-Identifier: MIT */
#include "simulate/bound.h"

#include <math.h>

/* Ranks, and how they lie. */
typedef struct layout {
    double n, per_host, hosts, per_switch, switches; /* per_switch: ranks below one */
} layout;

/* What a core receives, and what a host's or switch's link carries in one direction, in pieces. */
typedef struct load {
    double core, host, below;
} load;

static load load_of(const tutti__coll *c, const layout *l)
{
    const double n = l->n, g = l->per_host, s = l->per_switch;
    const double core = (g - 1) / g, host = (l->hosts - 1) / l->hosts,
                 below = (l->switches - 1) / l->switches;

    switch (c->op) {
    case TUTTI__OP_ALL_REDUCE:
        return (load){2 * core, 2 * host, 2 * below};
    case TUTTI__OP_REDUCE_SCATTER:
    case TUTTI__OP_ALL_GATHER:
    case TUTTI__OP_ALL_GATHER_V:
        return (load){core * n, host * n, below * n};
    case TUTTI__OP_REDUCE:
    case TUTTI__OP_BROADCAST:
        return (load){core > 0, host > 0, below > 0};
    case TUTTI__OP_SCATTER:
        return (load){core > 0, n - g, n - s};
    case TUTTI__OP_GATHER:
        return (load){g - 1, n - g, n - s};
    case TUTTI__OP_ALL_TO_ALL:
    case TUTTI__OP_ALL_TO_ALL_V:
        return (load){g - 1, g * (n - g), s * (n - s)};
    default:
        return (load){0, 0, 0};
    }
}

static double steps(double n)
{
    return n > 1 ? ceil(log2(n)) : 0;
}

tutti__sim_bound tutti__sim_bound_of(const tutti__sim_links *links, const tutti__machines *m,
                                     const tutti__coll *c)
{
    const tutti__level_costs *core = &links->level[TUTTI__LEVEL_CORE],
                             *host = &links->level[TUTTI__LEVEL_HOST],
                             *up = &links->level[TUTTI__LEVEL_SWITCH];
    const layout l = {.n = m->ranks,
                      .per_host = m->per_host,
                      .hosts = m->hosts,
                      .per_switch = fmin(m->ranks, (double)m->per_host * m->per_switch),
                      .switches = m->switches};
    const load carried = load_of(c, &l);
    const double piece = (double)c->count * (double)tutti__element(c->dtype) * 1e-3;
    tutti__sim_bound b = {0};

    b.latency_us =
        steps(l.per_host) * (core->latency_us + 2 * core->message_us) +
        steps(fmin(m->hosts, m->per_switch)) * (host->latency_us + 2 * host->message_us) +
        steps(l.switches) * (host->latency_us + up->latency_us + 2 * up->message_us);
    b.bandwidth_us =
        fmax(fmax(carried.core * piece / core->gbps,
                  carried.core * l.per_host * piece / links->memory_gbps),
             fmax(carried.host * piece / host->gbps, carried.below * piece / up->gbps));
    b.us = b.latency_us + b.bandwidth_us;
    return b;
}
