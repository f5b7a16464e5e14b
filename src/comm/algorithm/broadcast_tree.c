/* broadcast_tree.c -- chunk by chunk down a binary tree: log2 n steps until the last rank begins, and each rank sends the data twice at most; for
 * large sizes and many ranks.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/relative.h"

static tutti__piece chunk_of(const tutti__coll *call, size_t k)
{
    return tutti__coll_chunk(call, (tutti__piece){0, call->count}, k);
}

/* Of a number in the tree whose node v has the children 2v+1 and 2v+2. */
static size_t depth_of(int number)
{
    return tutti__coll_log_down((size_t)number + 1);
}

static size_t n_rounds(const tutti__coll *call)
{
    return depth_of(call->size - 1) - 1 + (call->count + call->chunk - 1) / call->chunk;
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 4;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int me = tutti__relative(call, rank);
    size_t depth = depth_of(me);
    tutti__piece sent = chunk_of(call, round - depth), received = chunk_of(call, round + 1 - depth);

    if (round == 0 && me == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(0), tutti__coll_src(0),
                          call->count);
    for (int child = 2 * me + 1; child <= 2 * me + 2 && round >= depth; child++)
        if (child < call->size)
            tutti__coll_send(out, tutti__relative_rank(call, child),
                             me == 0 ? tutti__coll_src(sent.at) : tutti__coll_dst(sent.at),
                             sent.count);
    if (me > 0 && round + 1 >= depth)
        tutti__coll_recv(out, tutti__relative_rank(call, (me - 1) / 2),
                         tutti__coll_dst(received.at), received.count);
}

const tutti__coll_algorithm tutti__coll_broadcast_tree = {.op = TUTTI__OP_BROADCAST,
                                                          .name = "tree",
                                                          .n_rounds = n_rounds,
                                                          .most_actions = most_actions,
                                                          .round = round_of};
