/* reduce_scatter_pairwise.c -- in step s each rank sends the piece of the rank s further, and receives its own of the rank s before: n-1 steps, one
 * message at a time; for large sizes.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/rounds.h"

static size_t n_rounds(const tutti__coll *call)
{
    return (size_t)call->size + 1;
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 4;
}

static size_t work(const tutti__coll *call, int rank)
{
    (void)rank;
    return call->count;
}

/* One piece is received while the one before is reduced. */
static size_t held(const tutti__coll *call, int rank)
{
    (void)rank;
    return 2 * call->count;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t n = (size_t)call->size, count = call->count, me = (size_t)rank,
           to = (me + round + 1) % n, from = (me + 2 * n - round - 1) % n;

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(me * count),
                          count);
    else if (round < n)
        tutti__coll_local(out, TUTTI__COLL_REDUCE, tutti__coll_work(0),
                          tutti__coll_held((round - 1) % 2 * count), count);
    else
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(0), count);
    if (round + 1 >= n)
        return;
    tutti__coll_send(out, (int)to, tutti__coll_src(to * count), count);
    tutti__coll_recv(out, (int)from, tutti__coll_held(round % 2 * count), count);
}

const tutti__coll_algorithm tutti__coll_reduce_scatter_pairwise = {.op = TUTTI__OP_REDUCE_SCATTER,
                                                                   .name = "pairwise",
                                                                   .n_rounds = n_rounds,
                                                                   .most_actions = most_actions,
                                                                   .work = work,
                                                                   .held = held,
                                                                   .round = round_of};
