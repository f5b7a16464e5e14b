/* cost.h -- what the collectives of groups take in virtual time, as the groups' engines run them.   SPDX-License-Identifier: MIT
 *
 * Ranks of one host are one stage, through memory; ranks of several hosts, one on each, another, by the algorithm that the tuner chooses;
 * both together are what comm/algorithm/hierarchical_*.c does: a host's ranks sum, each for one shard, those with the same shard
 * go on between the hosts, and each copies what came for all of its host. Each stage is simulated (collective.h) among its own ranks,
 * with their share of the links that others use at the same time. A stage of too many rounds and messages is simulated among fewer
 * ranks, half as many, and enlarged (cost.c: enlarge). */
#ifndef TUTTI_SIMULATE_COST_H
#define TUTTI_SIMULATE_COST_H

#include "simulate/links.h"
#include <tutti/group.h>

/* The ranks of a group. */
typedef struct tutti__sim_group {
    int ranks, local; /* in all, and on one host; equally many on each */
    int beside; /* groups like this one on each host, which call at the same time; at least 1 */
} tutti__sim_group;

typedef struct tutti__sim_cost {
    const char *op; /* its name */
    tutti_dtype dtype;
    uint64_t bytes; /* of the larger buffer, as `tutti bench` counts them */
    tutti__sim_group group;
    double us;
    double
        sent; /* bytes that a rank sends to other hosts; within one host, that it gives to others */
    const char *algorithm; /* between hosts; "shared memory" within one; "none" of one rank */
    bool scaled;           /* of fewer ranks, by the estimate */
} tutti__sim_cost;

/* Those that were asked for, each once. */
typedef struct tutti__sim_costs {
    const tutti__sim_links *links;
    uint64_t most_steps; /* rounds or messages of a stage that is simulated whole */
    tutti__sim_cost **p;
    size_t n, room;
} tutti__sim_costs;

void tutti__sim_costs_free(tutti__sim_costs *costs);
/* The cost of a call, valid until they are freed. Operations of which no algorithm is made of rounds cost as an all_gather of their bytes. Errors: MEMORY;
 * ARG for a text in the environment. */
tutti_status tutti__sim_cost_of(tutti__sim_costs *costs, const tutti__sim_cost *call,
                                const tutti__sim_cost **cost_p);

#endif
