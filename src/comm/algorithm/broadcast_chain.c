/* broadcast_chain.c -- chunk by chunk from each rank to the next: each link carries the data once, all at the same time; for large sizes and
 * few ranks.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/relative.h"

static tutti__piece chunk_of(const tutti__coll *call, size_t k)
{
    return tutti__coll_chunk(call, (tutti__piece){0, call->count}, k);
}

static size_t n_rounds(const tutti__coll *call)
{
    return (size_t)call->size - 2 + (call->count + call->chunk - 1) / call->chunk;
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 3;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t me = (size_t)tutti__relative(call, rank);
    tutti__piece sent = chunk_of(call, round - me), received = chunk_of(call, round + 1 - me);

    if (round == 0 && me == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(0), tutti__coll_src(0),
                          call->count);
    if (round >= me && me + 1 < (size_t)call->size)
        tutti__coll_send(out, (rank + 1) % call->size,
                         me == 0 ? tutti__coll_src(sent.at) : tutti__coll_dst(sent.at), sent.count);
    if (round + 1 >= me && me > 0)
        tutti__coll_recv(out, (rank + call->size - 1) % call->size, tutti__coll_dst(received.at),
                         received.count);
}

const tutti__coll_algorithm tutti__coll_broadcast_chain = {.op = TUTTI__OP_BROADCAST,
                                                           .name = "chain",
                                                           .n_rounds = n_rounds,
                                                           .most_actions = most_actions,
                                                           .round = round_of};
