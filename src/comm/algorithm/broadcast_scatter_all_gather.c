/* broadcast_scatter_all_gather.c -- root's shards down a binomial tree, then round a ring: no rank sends more than twice the data; for large
 * sizes.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/relative.h"

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_up((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return n_steps(call) + (size_t)call->size - 1;
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 3;
}

/* The shards of numbers [first, first + n). */
static tutti__piece shards(const tutti__coll *call, int first, int n)
{
    tutti__piece begin = tutti__coll_shard(call, first),
                 end = tutti__coll_shard(call, first + n - 1);

    return (tutti__piece){begin.at, end.at + end.count - begin.at};
}

static tutti__coll_at data(int me, size_t at)
{
    return me == 0 ? tutti__coll_src(at) : tutti__coll_dst(at);
}

static void scatter(const tutti__coll *call, int rank, size_t step, tutti__coll_round *out)
{
    int n = call->size, me = tutti__relative(call, rank),
        distance = 1 << (n_steps(call) - 1 - step);

    if (me % (2 * distance) == 0 && me + distance < n) {
        tutti__piece sent =
            shards(call, me + distance, tutti__relative_subtree(call, me + distance));

        tutti__coll_send(out, (rank + distance) % n, data(me, sent.at), sent.count);
    } else if (me % (2 * distance) == distance) {
        tutti__piece received = shards(call, me, tutti__relative_subtree(call, me));

        tutti__coll_recv(out, (rank + n - distance) % n, tutti__coll_dst(received.at),
                         received.count);
    }
}

/* Root has all: it only sends. */
static void gather(const tutti__coll *call, int rank, int step, tutti__coll_round *out)
{
    int n = call->size, me = tutti__relative(call, rank);
    tutti__piece sent = tutti__coll_shard(call, me - step),
                 received = tutti__coll_shard(call, me - step - 1);

    if (me < n - 1)
        tutti__coll_send(out, (rank + 1) % n, data(me, sent.at), sent.count);
    if (me > 0)
        tutti__coll_recv(out, (rank + n - 1) % n, tutti__coll_dst(received.at), received.count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    if (round == 0 && rank == call->root)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(0), tutti__coll_src(0),
                          call->count);
    if (round < n_steps(call))
        scatter(call, rank, round, out);
    else
        gather(call, rank, (int)(round - n_steps(call)), out);
}

const tutti__coll_algorithm tutti__coll_broadcast_scatter_all_gather = {
    .op = TUTTI__OP_BROADCAST,
    .name = "scatter_all_gather",
    .n_rounds = n_rounds,
    .most_actions = most_actions,
    .round = round_of};
