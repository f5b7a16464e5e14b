/* relative.h -- ranks counted from root, as trees number them, and their pieces.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ALGORITHM_RELATIVE_H
#define TUTTI_COMM_ALGORITHM_RELATIVE_H

#include "comm/algorithm/rounds.h"

/* 0: root. */
static inline int tutti__relative(const tutti__coll *call, int rank)
{
    return (rank + call->size - call->root) % call->size;
}
static inline int tutti__relative_rank(const tutti__coll *call, int number)
{
    return (number + call->root) % call->size;
}
/* In a binomial tree a number's subtree: it and those after it, as many as its lowest bit says, of root all. */
static inline int tutti__relative_subtree(const tutti__coll *call, int number)
{
    int low = number > 0 ? number & -number : call->size;

    return low < call->size - number ? low : call->size - number;
}
/* The pieces of numbers [first, first + n) in a buffer that holds all by rank: at most two runs of consecutive ranks; *second may be empty. */
static inline tutti__piece tutti__relative_pieces(const tutti__coll *call, int first, int n,
                                                  tutti__piece *second)
{
    int rank = tutti__relative_rank(call, first),
        until_end = n < call->size - rank ? n : call->size - rank;

    *second = (tutti__piece){0, (size_t)(n - until_end) * call->count};
    return (tutti__piece){(size_t)rank * call->count, (size_t)until_end * call->count};
}
/* What gather_binomial.c and scatter_binomial.c have alike: rounds, a level of the tree each and one for this rank's own piece; and room for a
 * subtree's pieces on their way. */
static inline size_t tutti__relative_rounds(const tutti__coll *call)
{
    return 1 + tutti__coll_log_up((size_t)call->size);
}
static inline size_t tutti__relative_held(const tutti__coll *call, int rank)
{
    int n = tutti__relative_subtree(call, tutti__relative(call, rank));

    return rank == call->root || n == 1 ? 0 : (size_t)n * call->count;
}

#endif
