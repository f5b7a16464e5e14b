/* all_to_all_bruck.c -- in step k each rank passes on to the rank 2^k further all pieces that have bit k in the distance they go: log2 n steps, in each
 * half of the data; for small sizes.   SPDX-License-Identifier: MIT
 *
 * Piece j of a rank is the one that began at rank r and goes to rank r + j. With each bit of j it moves to another rank, which receives it at the same j,
 * in one of two places in turn: it may be sent on from one while the next arrives at the other. */
#include "comm/algorithm/rounds.h"

static size_t n_rounds(const tutti__coll *call)
{
    return tutti__coll_log_up((size_t)call->size);
}

static size_t most_actions(const tutti__coll *call)
{
    return 2 * (size_t)call->size + 1;
}

static size_t held(const tutti__coll *call, int rank)
{
    (void)rank;
    return 2 * call->count * (size_t)call->size;
}

/* Where a piece is after it has moved by the bits of j that are in `moved`. */
static tutti__coll_at place_of(const tutti__coll *call, int rank, size_t j, size_t moved)
{
    size_t n = (size_t)call->size, moves = 0;

    if ((j & moved) == 0) /* not yet: the piece for the rank j further */
        return tutti__coll_src(((size_t)rank + j) % n * call->count);
    if ((j & moved) == j) /* there */
        return tutti__coll_dst(((size_t)rank + n - j) % n * call->count);
    for (size_t left = j & moved; left > 0; left &= left - 1)
        moves++;
    return tutti__coll_held((moves % 2 * n + j) * call->count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t n = (size_t)call->size, bit = (size_t)1 << round;
    int to = (int)(((size_t)rank + bit) % n), from = (int)(((size_t)rank + n - bit) % n);

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst((size_t)rank * call->count),
                          tutti__coll_src((size_t)rank * call->count), call->count);
    for (size_t j = 1; j < n; j++)
        if (j & bit) {
            tutti__coll_send(out, to, place_of(call, rank, j, bit - 1), call->count);
            tutti__coll_recv(out, from, place_of(call, rank, j, 2 * bit - 1), call->count);
        }
}

const tutti__coll_algorithm tutti__coll_all_to_all_bruck = {.op = TUTTI__OP_ALL_TO_ALL,
                                                            .name = "bruck",
                                                            .n_rounds = n_rounds,
                                                            .most_actions = most_actions,
                                                            .held = held,
                                                            .round = round_of};
