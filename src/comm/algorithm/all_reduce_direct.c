/* all_reduce_direct.c -- reduce-scatter and all-gather by owners: each rank sends every other its shard, which that adds in rank order and
 * sends to all; small data go to all at once.   SPDX-License-Identifier: MIT
 *
 * What runs over TCP is tcp_direct.h, the same messages with more overlap. Round r sends and receives the r-th chunks of the shards, reduces those of
 * round r-1, and sends and receives the results of round r-2. */
#include "comm/algorithm/rounds.h"

enum { SMALL_BYTES = 32 << 10 }; /* as tcp_all_reduce_small.c */

static bool is_small(const tutti__coll *call)
{
    return call->count * tutti__element(call->dtype) * (size_t)(call->size - 1) <= SMALL_BYTES;
}

static size_t n_rounds(const tutti__coll *call)
{
    return is_small(call) ? 2 : tutti__coll_n_chunks(call) + 2;
}

static size_t most_actions(const tutti__coll *call)
{
    return 5 * (size_t)call->size;
}

/* Elements of what one rank sends to another in a round. */
static size_t most(const tutti__coll *call)
{
    size_t shard = tutti__coll_shard(call, 0).count;

    return is_small(call) ? call->count : shard < call->chunk ? shard : call->chunk;
}

static size_t work(const tutti__coll *call, int rank)
{
    (void)rank;
    return most(call);
}

/* Received chunks: two sets, since one is received while the other is reduced. */
static size_t held(const tutti__coll *call, int rank)
{
    (void)rank;
    return 2 * (size_t)call->size * most(call);
}

static tutti__coll_at slot(const tutti__coll *call, size_t k, int from)
{
    return tutti__coll_held((k % 2 * (size_t)call->size + (size_t)from) * most(call));
}

static tutti__piece part_of(const tutti__coll *call, int owner, size_t k)
{
    return is_small(call) ? (tutti__piece){0, call->count}
                          : tutti__coll_chunk(call, tutti__coll_shard(call, owner), k);
}

static void give(const tutti__coll *call, int rank, size_t k, tutti__coll_round *out)
{
    size_t mine = part_of(call, rank, k).count;

    for (int i = 1; i < call->size; i++) {
        int to = (rank + i) % call->size, from = (rank + call->size - i) % call->size;
        tutti__piece theirs = part_of(call, to, k);

        tutti__coll_send(out, to, tutti__coll_src(theirs.at), theirs.count);
        tutti__coll_recv(out, from, slot(call, k, from), mine);
    }
}

static void reduce(const tutti__coll *call, int rank, size_t k, tutti__coll_round *out)
{
    tutti__piece mine = part_of(call, rank, k);

    for (int r = 0; r < call->size; r++)
        tutti__coll_local(out, r == 0 ? TUTTI__COLL_COPY : TUTTI__COLL_REDUCE, tutti__coll_work(0),
                          r == rank ? tutti__coll_src(mine.at) : slot(call, k, r), mine.count);
    tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(mine.at), tutti__coll_work(0),
                      mine.count);
}

static void share(const tutti__coll *call, int rank, size_t k, tutti__coll_round *out)
{
    tutti__piece mine = part_of(call, rank, k);

    for (int i = 1; i < call->size; i++) {
        int to = (rank + i) % call->size, from = (rank + call->size - i) % call->size;
        tutti__piece theirs = part_of(call, from, k);

        tutti__coll_send(out, to, tutti__coll_dst(mine.at), mine.count);
        tutti__coll_recv(out, from, tutti__coll_dst(theirs.at), theirs.count);
    }
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t chunks = is_small(call) ? 1 : tutti__coll_n_chunks(call);

    if (round < chunks)
        give(call, rank, round, out);
    if (round >= 1 && round <= chunks)
        reduce(call, rank, round - 1, out);
    if (round >= 2)
        share(call, rank, round - 2, out);
}

const tutti__coll_algorithm tutti__coll_all_reduce_direct = {.op = TUTTI__OP_ALL_REDUCE,
                                                             .name = "direct",
                                                             .n_rounds = n_rounds,
                                                             .most_actions = most_actions,
                                                             .work = work,
                                                             .held = held,
                                                             .round = round_of};
