/* bound.h -- what a call takes at least by the alpha-beta model.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_SIMULATE_BOUND_H
#define TUTTI_SIMULATE_BOUND_H

#include "comm/algorithm/rounds.h"
#include "simulate/links.h"

typedef struct tutti__sim_bound {
    /* Alpha: what one rank knows has reached all, or what all know one, if each sends one message after another: at each level, the
     * logarithm of how many there are to the base 2, times a message's latency and costs at both ends. */
    double latency_us;
    double bandwidth_us; /* Beta: what the busiest link must carry at least, of all levels' links */
    double us;           /* the sum. Reductions and copies are not in it */
} tutti__sim_bound;

tutti__sim_bound tutti__sim_bound_of(const tutti__sim_links *links, const tutti__machines *machines,
                                     const tutti__coll *call);

#endif
