/* all_gather_ring.c -- each rank passes on what it has just received: n-1 steps, to and from one neighbour; for large sizes.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/rounds.h"

static size_t n_rounds(const tutti__coll *call)
{
    return (size_t)call->size - 1;
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 3;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t n = (size_t)call->size, sent = ((size_t)rank + n - round) % n,
           received = ((size_t)rank + n - round - 1) % n, count = call->count;

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(sent * count), tutti__coll_src(0),
                          count);
    tutti__coll_send(out, (rank + 1) % call->size,
                     round == 0 ? tutti__coll_src(0) : tutti__coll_dst(sent * count), count);
    tutti__coll_recv(out, (rank + call->size - 1) % call->size, tutti__coll_dst(received * count),
                     count);
}

const tutti__coll_algorithm tutti__coll_all_gather_ring = {.op = TUTTI__OP_ALL_GATHER,
                                                           .name = "ring",
                                                           .n_rounds = n_rounds,
                                                           .most_actions = most_actions,
                                                           .round = round_of};
