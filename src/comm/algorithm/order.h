/* order.h -- the common order of sums of any number of ranks, and the exchanges in which ranks make them.   SPDX-License-Identifier: MIT
 *
 * Levels: the places of a block are its ranks, then the blocks of the next larger one, ... (call->block), at last those of all. Each level sums its places,
 * of which each is one value by then, near ones first. Of m places, q take part, the most that are a product of 2, 3, 5 and 7. With radices r1 <= r2 <= ...,
 * whose product is q, recursive multiplying:
 *
 *     step 1     place i < q/r1 has the sum of places i, i + q/r1, i + 2q/r1, ..., added from left to right
 *     step 2     of what step 1 has left the same with q/(r1 r2), ...
 *
 * The others (q + x) are added to place x modulo what is left, in their order, after the first steps that have divided q by at least 12, or before a step that would
 * divide it by more than 28. By then the ranks that have been summed have a part of the data each, so that none of them receives much besides, and who gives does so to
 * few.
 *
 *     11 places     (0 + 5), (1 + 6), (2 + 7), (3 + 8), (4 + 9)       then those five, and 10, from left to right
 *
 * The order depends on the number of ranks and the blocks alone: not on a root, on who adds, nor on where an element is.
 *
 * Numbers 0, 1, ... are those that take part in all steps, so that a number's digits, the most significant one first, are its places in the steps: what is far
 * apart in numbers exchanges first, and is near. Two ranks a block, two blocks below a switch: ranks 0 1  2 3  4 5  6 7 have numbers 0 4  2 6  1 5  3 7. */
#ifndef TUTTI_COMM_ALGORITHM_ORDER_H
#define TUTTI_COMM_ALGORITHM_ORDER_H

#include "comm/algorithm/rounds.h"

enum { TUTTI__ORDER_LEVELS = TUTTI__COLL_LEVELS + 1, TUTTI__ORDER_STEPS = 32 };

typedef struct tutti__order {
    int ranks, numbers, n_levels, n_steps;
    struct {
        int below, places; /* ranks of a place; places */
        int kept;          /* those that take part */
        int groups;        /* what is left of them when the others give */
        int first, last;   /* its first step; the one in which the others give */
    } level[TUTTI__ORDER_LEVELS];
    struct {
        int level, radix;
        int stride; /* of ranks whose digits differ by one */
        int width;  /* numbers whose parts a rank has after the step */
    } step[TUTTI__ORDER_STEPS];
} tutti__order;

/* Of operations that do not reduce, blocks do not count: their pieces have places of ranks. */
tutti__order tutti__order_of(const tutti__coll *call);

static inline int tutti__order_place(const tutti__order *o, int level, int rank)
{
    return rank / o->level[level].below % o->level[level].places;
}
/* The level at which the rank only gives; n_levels: at none. */
static inline int tutti__order_given_at(const tutti__order *o, int rank)
{
    int level = 0;

    while (level < o->n_levels && tutti__order_place(o, level, rank) < o->level[level].kept)
        level++;
    return level;
}
/* In all steps. */
static inline bool tutti__order_is_number(const tutti__order *o, int rank)
{
    return tutti__order_given_at(o, rank) == o->n_levels;
}
/* In a step; and whether the rank gives its sum in it, and is done until there are results. */
static inline bool tutti__order_takes_part(const tutti__order *o, int rank, int step)
{
    return o->step[step].level < tutti__order_given_at(o, rank);
}
static inline bool tutti__order_gives(const tutti__order *o, int rank, int step)
{
    const int level = o->step[step].level;

    return o->level[level].last == step && tutti__order_given_at(o, rank) == level;
}
static inline int tutti__order_digit(const tutti__order *o, int rank, int step)
{
    const int level = o->step[step].level;

    return tutti__order_place(o, level, rank) * o->level[level].below / o->step[step].stride %
           o->step[step].radix;
}
/* Its partner of a step; for its own digit itself. */
static inline int tutti__order_peer(const tutti__order *o, int rank, int step, int digit)
{
    return rank + (digit - tutti__order_digit(o, rank, step)) * o->step[step].stride;
}
/* Its i-th partner from 1 on, beginning with the digit after its own: ranks that send in this order do not send all to the same one first. */
static inline int tutti__order_next(const tutti__order *o, int rank, int step, int i)
{
    return tutti__order_peer(o, rank, step,
                             (tutti__order_digit(o, rank, step) + i) % o->step[step].radix);
}
/* Digits of levels in which it does not take part are 0. */
int tutti__order_number(const tutti__order *o, int rank);
int tutti__order_rank(const tutti__order *o, int number);
/* How many give their sum to the rank, which takes part, in a step; and the i-th of them. */
int tutti__order_givers(const tutti__order *o, int rank, int step);
int tutti__order_giver(const tutti__order *o, int rank, int step, int i);
/* To how many a rank gives in a step; and the i-th of them. */
int tutti__order_takers(const tutti__order *o, int step);
int tutti__order_taker(const tutti__order *o, int rank, int step, int i);
/* The number's rank that represents a rank that may be none; how many ranks a number's rank represents, itself the first; and the i-th of them. */
int tutti__order_representative(const tutti__order *o, int rank);
int tutti__order_represented(const tutti__order *o, int rank);
int tutti__order_represented_rank(const tutti__order *o, int rank, int i);
/* How many ranks lower numbers represent. */
int tutti__order_first(const tutti__order *o, int number);
/* Whether numbers are ranks, and all are. */
static inline bool tutti__order_is_of_ranks(const tutti__order *o)
{
    return o->n_levels == 1 && o->numbers == o->ranks;
}

/* ---- Sums of a step ----------------------------------------------------------------------------------------------------- */

/* What comes in: of the other digits, in their order, then of those that give. `to` may be `own`; else the first that comes in is there. The others are one
 * after another from `received` on. */
typedef struct tutti__order_sum {
    tutti__coll_at own, to, received;
    size_t count;
} tutti__order_sum;

/* How many come in at a rank in a step, and at most in any. */
int tutti__order_incoming(const tutti__order *o, int rank, int step);
int tutti__order_most_incoming(const tutti__order *o);
/* Where the i-th that comes in is. */
tutti__coll_at tutti__order_slot(const tutti__order_sum *sum, int i);
/* Receives all that comes in. */
void tutti__order_receive(const tutti__order *o, int rank, int step, const tutti__order_sum *sum,
                          tutti__coll_round *out);
void tutti__order_add(const tutti__order *o, int rank, int step, const tutti__order_sum *sum,
                      tutti__coll_round *out);
/* At most so many actions has a round of these, with what is sent in it, or sent back. */
size_t tutti__order_actions(const tutti__order *o);

/* ---- After the steps ------------------------------------------------------------------------------------------------------ */

/* Who represents others sends each its result of `count` elements: the first is at `others`, the next `apart` further, ... They receive it in DST. */
void tutti__order_share(const tutti__order *o, int rank, tutti__coll_at others, size_t apart,
                        size_t count, tutti__coll_round *out);
/* To root, if it is no number, from its representative: what is at `result` on either. */
void tutti__order_to_root(const tutti__order *o, int rank, int root, tutti__coll_at result,
                          size_t count, tutti__coll_round *out);

#endif
