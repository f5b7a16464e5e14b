/* order.h -- the common order of sums of any number of ranks, and the exchanges in which ranks make them.   SPDX-License-Identifier: MIT
 *
 * Levels: the places of a block are its ranks, then the blocks of the next larger one, ... (call->block), at last those of all. Each level sums its places,
 * of which each is one value by then, near ones first. Of m places, q take part in all steps, the most that are a product of 2, 3, 5 and 7: the base ranks. With radices r1 <= r2 <= ...,
 * whose product is q, recursive multiplying:
 *
 *     step 1     place i < q/r1 has the sum of places i, i + q/r1, i + 2q/r1, ..., added from left to right
 *     step 2     of what step 1 has left the same with q/(r1 r2), ...
 *
 * That leaves pieces for ranks together. Where call->block says that the ranks stand in the order of a topology, near ones first instead, so that most data stay there:
 *
 *     step 1     place i < q/r1 has the sum of places i r1, i r1 + 1, ..., i r1 + r1 - 1
 *     step 2     of what step 1 has left the same with r2, ...
 *
 * The others, extra ranks (q + x), are added to place x modulo what is left, in their order, after the first steps that have divided q by at least 12, or before a step that would
 * divide it by more than 28. By then the ranks that have been summed, a group, have a part of the data each, so that none of them, the proxies, receives much besides, and an extra rank sends to
 * few.
 *
 *     11 places     (0 + 5), (1 + 6), (2 + 7), (3 + 8), (4 + 9)       then those five, and 10, from left to right
 *     near first    (0 + 1), (2 + 3), (4 + 5), (6 + 7), (8 + 9)       the same
 *
 * The order depends on the number of ranks and the blocks alone: not on a root, on who adds, nor on where an element is.
 *
 * Virtual ranks (vranks) 0, 1, ... are base ranks in another order: a vrank's digits, the most significant one first, are those of the rank's places in the steps. What is far
 * apart in vranks exchanges first. Two ranks a block, two blocks below a switch: ranks 0 1  2 3  4 5  6 7 have vranks 0 4  2 6  1 5  3 7. */
#ifndef TUTTI_COMM_ALGORITHM_ORDER_H
#define TUTTI_COMM_ALGORITHM_ORDER_H

#include "comm/algorithm/rounds.h"

enum { TUTTI__ORDER_LEVELS = TUTTI__COLL_LEVELS + 1, TUTTI__ORDER_STEPS = 32 };

typedef struct tutti__order {
    int ranks, base, n_levels, n_steps; /* base: base ranks */
    bool near_first;
    struct {
        int below, places;   /* ranks of a place; places */
        int base;            /* those of base ranks */
        int groups;          /* what is left of them when extra ranks are added */
        int between, within; /* distance of groups, and of the places of one */
        int first, last;     /* its first step; the one with which extra ranks are added */
    } level[TUTTI__ORDER_LEVELS];
    struct {
        int level, radix;
        int stride; /* of ranks whose digits differ by one */
        int width;  /* vranks whose parts a rank has after the step */
    } step[TUTTI__ORDER_STEPS];
} tutti__order;

/* Of operations that do not reduce, blocks do not count: their pieces have places of ranks. */
tutti__order tutti__order_of(const tutti__coll *call);

static inline int tutti__order_place(const tutti__order *o, int level, int rank)
{
    return rank / o->level[level].below % o->level[level].places;
}
/* The level at which it is an extra rank; n_levels: at none. */
static inline int tutti__order_extra_level(const tutti__order *o, int rank)
{
    int level = 0;

    while (level < o->n_levels && tutti__order_place(o, level, rank) < o->level[level].base)
        level++;
    return level;
}
/* Takes part in all steps. */
static inline bool tutti__order_is_base(const tutti__order *o, int rank)
{
    return tutti__order_extra_level(o, rank) == o->n_levels;
}
/* In a step; and whether it is an extra rank that sends its proxies its sum in it, and is done until there are results. */
static inline bool tutti__order_takes_part(const tutti__order *o, int rank, int step)
{
    return o->step[step].level < tutti__order_extra_level(o, rank);
}
static inline bool tutti__order_folds(const tutti__order *o, int rank, int step)
{
    const int level = o->step[step].level;

    return o->level[level].last == step && tutti__order_extra_level(o, rank) == level;
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
int tutti__order_vrank(const tutti__order *o, int rank);
int tutti__order_rank(const tutti__order *o, int vrank);
/* How many extra ranks send their sum to the rank, which takes part, in a step; and the i-th of them. */
int tutti__order_extras(const tutti__order *o, int rank, int step);
int tutti__order_extra(const tutti__order *o, int rank, int step, int i);
/* How many proxies an extra rank of a step has; the i-th of them; and which of its group a base rank is. */
int tutti__order_proxies(const tutti__order *o, int step);
int tutti__order_proxy(const tutti__order *o, int rank, int step, int i);
int tutti__order_member(const tutti__order *o, int rank, int step);
/* The base rank that represents a rank; how many ranks a base rank represents, itself the first; and the i-th of them. */
int tutti__order_representative(const tutti__order *o, int rank);
int tutti__order_represented(const tutti__order *o, int rank);
int tutti__order_represented_rank(const tutti__order *o, int rank, int i);
/* How many ranks lower vranks represent. */
int tutti__order_first(const tutti__order *o, int vrank);
/* Whether vranks are ranks, and all are. */
static inline bool tutti__order_is_of_ranks(const tutti__order *o)
{
    return !o->near_first && o->base == o->ranks;
}

/* ---- Sums of a step ----------------------------------------------------------------------------------------------------- */

/* What comes in: of the other digits, in their order, then of extra ranks. `to` may be `own`; else the first that comes in is there. The others are one
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
/* At most so many actions has a round of these, with what is sent in it, or sent back, or sent to represented ranks. */
size_t tutti__order_actions(const tutti__order *o);

/* ---- After the steps ------------------------------------------------------------------------------------------------------ */

/* Who represents others sends each its result of `count` elements: the first is at `others`, the next `apart` further, ... They receive it in DST. */
void tutti__order_share(const tutti__order *o, int rank, tutti__coll_at others, size_t apart,
                        size_t count, tutti__coll_round *out);
/* To root, if it is an extra rank, from its representative: what is at `result` on either. */
void tutti__order_to_root(const tutti__order *o, int rank, int root, tutti__coll_at result,
                          size_t count, tutti__coll_round *out);

#endif
