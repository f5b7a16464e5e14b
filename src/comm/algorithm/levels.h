/* levels.h -- which ranks of a call are near each other: the blocks of tutti__coll.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ALGORITHM_LEVELS_H
#define TUTTI_COMM_ALGORITHM_LEVELS_H

#include "comm/algorithm/rounds.h"
#include "comm/bootstrap/topology.h"

/* Where the ranks of a group are, by rank. */
typedef struct tutti__places {
    const uint64_t *hosts;
    const tutti__switches *switches; /* NULL: not known */
} tutti__places;

/* Calls among so many ranks. Levels: 0: a host, 1: its switch, 2: the switch above, ... */
typedef struct tutti__shape {
    int size;
    /* All 0 if ranks do not follow each other block by block; `size`, and above it 0, at the first level with unequal ones. */
    int block[TUTTI__COLL_LEVELS];
    int farthest; /* the level of those that are farthest from each other */
    int share;    /* ranks of a host that use its link at the same time */
} tutti__shape;

/* Whether ranks are divided into equal blocks of a level. */
static inline bool tutti__shape_has(const tutti__shape *shape, int level)
{
    return level < TUTTI__COLL_LEVELS && shape->block[level] > 0 &&
           shape->block[level] < shape->size;
}

/* How many levels have them. */
static inline int tutti__shape_levels(const tutti__shape *shape)
{
    int n = 0;

    while (tutti__shape_has(shape, n))
        n++;
    return n;
}

/* Whether they are hosts of several ranks each. */
static inline bool tutti__shape_has_hosts(const tutti__shape *shape)
{
    return tutti__shape_has(shape, 0) && shape->block[0] > 1;
}

/* Of n ranks, in this order. False if their places have blocks, but they do not follow them: why. */
bool tutti__shape_of(const tutti__places *places, const int *ranks, int n, tutti__shape *shape,
                     char *why, size_t capacity);
/* Numbers of hosts, which stand for their first ranks, in an order that goes switch by switch, and otherwise is the one that they have:
 * order[i] is the host that comes at place i. Errors: MEMORY. */
tutti_status tutti__order_hosts(const tutti__places *places, const int *first_rank, int n,
                                int *order);

#endif
