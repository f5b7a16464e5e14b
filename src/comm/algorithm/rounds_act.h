/* rounds_act.h -- the local actions of rounds, on memory.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ALGORITHM_ROUNDS_ACT_H
#define TUTTI_COMM_ALGORITHM_ROUNDS_ACT_H

#include "comm/algorithm/rounds.h"

/* A rank's memory: the first byte of each place; SRC is only read. divisor: of AVG, the ranks whose contributions are in the sum. */
typedef struct tutti__coll_memory {
    char *place[TUTTI__COLL_PLACES];
    size_t divisor;
} tutti__coll_memory;

static inline char *tutti__coll_address(const tutti__coll *call, const tutti__coll_memory *memory,
                                        tutti__coll_at at)
{
    return memory->place[at.place] + at.at * tutti__coll_element(call, at.place);
}
/* COPY, REDUCE, REDUCE_LEFT or FINISH. */
void tutti__coll_act(const tutti__coll *call, const tutti__coll_memory *memory,
                     const tutti__coll_action *action);
/* Reduces the sources of all of the call's ranks, in the common order (order.h), and finishes: for a rank that has them all. */
void tutti__coll_sum(const tutti__coll *call, size_t divisor, void *dst, const void *const *src,
                     size_t count);

#endif
