/* all_to_all_pairwise.c -- in step s each rank sends to the rank s further, and receives from the rank s before: n-1 steps, one message at a time,
 * so that no rank is sent to by many; for large sizes.   SPDX-License-Identifier: MIT */
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
    size_t n = (size_t)call->size, count = call->count, me = (size_t)rank,
           to = (me + round + 1) % n, from = (me + n - round - 1) % n;

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(me * count),
                          tutti__coll_src(me * count), count);
    tutti__coll_send(out, (int)to, tutti__coll_src(to * count), count);
    tutti__coll_recv(out, (int)from, tutti__coll_dst(from * count), count);
}

const tutti__coll_algorithm tutti__coll_all_to_all_pairwise = {.op = TUTTI__OP_ALL_TO_ALL,
                                                               .name = "pairwise",
                                                               .n_rounds = n_rounds,
                                                               .most_actions = most_actions,
                                                               .round = round_of};
