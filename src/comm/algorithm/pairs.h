/* pairs.h -- any number of ranks made a power of two: the extra ones give their data to a neighbour first.   SPDX-License-Identifier: MIT
 *
 * The first ranks form pairs, of which one takes part and the other gives and gets: the odd one takes part, but of root's pair root.
 * Those that take part are numbered in the order of their ranks.
 *
 *     ranks    0 1   2 3   4 5   6       numbers   0 (of 0 and 1)   1 (of 2 and 3)   2 (of 4 and 5)   3 (of 6)
 *
 * The common order of a sum of n ranks: pairs first; then, with p numbers, d = p/2, p/4, ... 1, that of number i < d and that of i + d. The lower one
 * is on the left. It does not depend on root, on who adds, nor on where an element is.
 *
 * Of blocks of ranks that are near each other (call->block), if all are powers of two, as is n, numbers go from block to block: what is far apart
 * in numbers, and is added first, is near. So the exchanges of most data pass the shortest links. Two ranks a block:
 *
 *     ranks    0 1   2 3   4 5   6 7     numbers   0 4   1 5   2 6   3 7 */
#ifndef TUTTI_COMM_ALGORITHM_PAIRS_H
#define TUTTI_COMM_ALGORITHM_PAIRS_H

#include "comm/algorithm/rounds.h"

static inline int tutti__pairs(const tutti__coll *call)
{
    return call->size - (1 << tutti__coll_log_down((size_t)call->size));
}
/* How many take part. */
static inline int tutti__pairs_numbers(const tutti__coll *call)
{
    return call->size - tutti__pairs(call);
}
/* Whether numbers go from block to block: only of reductions, which have no places of ranks. */
static inline bool tutti__pairs_go_by_blocks(const tutti__coll *call)
{
    int i = 0;

    if (!tutti__op_table[call->op].reduces || (call->size & (call->size - 1)) != 0)
        return false;
    while (i < TUTTI__COLL_LEVELS && call->block[i] > 0 && call->block[i] < call->size &&
           (call->block[i] & (call->block[i] - 1)) == 0)
        i++;
    return i > 0 && call->block[i - 1] > 1 && (i == TUTTI__COLL_LEVELS || call->block[i] == 0);
}
/* The bits of each level's places, which in numbers stand in the opposite order of levels. */
static inline int tutti__pairs_turn(const tutti__coll *call, int from, bool to_number)
{
    int to = 0, below = 1, above = call->size;

    for (int i = 0; below < call->size; i++) {
        int block = i < TUTTI__COLL_LEVELS && call->block[i] > 0 ? call->block[i] : call->size,
            places = block / below;

        above /= places;
        to += to_number ? from / below % places * above : from / above % places * below;
        below = block;
    }
    return to;
}
static inline int tutti__pairs_number(const tutti__coll *call, int rank)
{
    int pairs = tutti__pairs(call);

    if (tutti__pairs_go_by_blocks(call))
        return tutti__pairs_turn(call, rank, true);
    return rank < 2 * pairs ? rank / 2 : rank - pairs;
}
static inline int tutti__pairs_rank(const tutti__coll *call, int number)
{
    int pairs = tutti__pairs(call);

    if (tutti__pairs_go_by_blocks(call))
        return tutti__pairs_turn(call, number, false);
    return number >= pairs ? number + pairs : 2 * number + (2 * number != call->root);
}
/* The other of the pair; -1: the rank is in none. */
static inline int tutti__pairs_other(const tutti__coll *call, int rank)
{
    return rank < 2 * tutti__pairs(call) ? rank ^ 1 : -1;
}
static inline bool tutti__pairs_takes_part(const tutti__coll *call, int rank)
{
    return tutti__pairs_rank(call, tutti__pairs_number(call, rank)) == rank;
}
/* How many ranks' data lower numbers represent. So, unless numbers go by blocks, the first rank whose data it represents. */
static inline int tutti__pairs_first(const tutti__coll *call, int number)
{
    int pairs = tutti__pairs(call);

    return number < pairs ? 2 * number : number + pairs;
}
/* A step of an all_gather by recursive doubling in DST: of what `pieces` says consecutive numbers have, both exchange all that they have. */
static inline void tutti__pairs_exchange(const tutti__coll *call, int rank, size_t step,
                                         tutti__piece (*pieces)(const tutti__coll *call, int number,
                                                                int n),
                                         tutti__coll_round *out)
{
    int number = tutti__pairs_number(call, rank), distance = 1 << step, other = number ^ distance,
        peer = tutti__pairs_rank(call, other);
    tutti__piece sent = pieces(call, number / distance * distance, distance),
                 received = pieces(call, other / distance * distance, distance);

    tutti__coll_send(out, peer, tutti__coll_dst(sent.at), sent.count);
    tutti__coll_recv(out, peer, tutti__coll_dst(received.at), received.count);
}

#endif
