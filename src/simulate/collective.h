/* collective.h -- one call of a collective in virtual time: every rank runs its algorithm's rounds over a simulated network.
 * SPDX-License-Identifier: MIT
 *
 * A rank has one core, which takes its messages' costs, copies and reductions one after the other; a message is under way beside that.
 * A rank's round ends when its messages have been sent and received, and its core is done. All is a function of what is given here, the seed
 * included: the same call gives the same result, event by event.
 *
 * Failures are heard of between neighbours (core/tree.h): they see a dead rank's connections end after a latency, and a host that is cut off when
 * it has been silent for the heartbeat's time. What each rank that hears of one tells is decided by the control channel's own code
 * (control/flood.h); its call has failed. */
#ifndef TUTTI_SIMULATE_COLLECTIVE_H
#define TUTTI_SIMULATE_COLLECTIVE_H

#include "comm/algorithm/rounds.h"
#include "simulate/data.h"
#include "simulate/network.h"

typedef struct tutti__sim_death {
    int rank;
    double at_us;
} tutti__sim_death;

typedef struct tutti__sim_slow {
    int rank;
    double factor; /* of its core's times */
} tutti__sim_slow;

typedef struct tutti__sim_call {
    const tutti__sim_links *links;
    tutti__machines machines;
    const tutti__coll_algorithm *algorithm;
    tutti__coll call;
    tutti__disturbance disturbance;
    const tutti__sim_death *deaths;
    const tutti__sim_slow *slow;
    int n_deaths, n_slow;
    tutti__sim_data_kind data;
    FILE *events; /* what happens, a line each; NULL: nothing */
} tutti__sim_call;

typedef struct tutti__sim_result {
    double us;      /* until all living ranks have returned */
    bool failed;    /* a rank died, or was cut off, before all had what they need */
    int culprit;    /* the first one that was noticed; -1: none */
    double seen_us; /* when the first rank noticed it; all know at `us` */
    uint64_t rounds, events;
    uint64_t messages, most_messages; /* sent, by all ranks and by the busiest */
    uint64_t most_memory;             /* bytes of scratch memory of a rank */
    uint64_t lost;                    /* messages sent in vain */
    tutti__level_use use[TUTTI__LEVELS];
    uint64_t checked, wrong; /* elements */
} tutti__sim_result;

/* Errors: MEMORY; ARG if the algorithm cannot run the call, or never ends it, which names the ranks that wait. */
tutti_status tutti__sim_run(const tutti__sim_call *call, tutti__sim_result *result);

#endif
