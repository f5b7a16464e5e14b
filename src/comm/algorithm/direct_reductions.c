/* direct_reductions.c -- reduce and reduce_scatter: each rank sends every other its part, of which that adds all in rank order; in a reduce it sends the
 * sum to root.   SPDX-License-Identifier: MIT
 *
 * What runs over TCP is tcp_reduce.c and tcp_reduce_scatter.c, the same messages in chunks. */
#include "comm/algorithm/rounds.h"

static bool is_reduce(const tutti__coll *call)
{
    return call->op == TUTTI__OP_REDUCE;
}

static size_t n_rounds(const tutti__coll *call)
{
    return is_reduce(call) ? 3 : 2;
}

static size_t most_actions(const tutti__coll *call)
{
    return 2 * (size_t)call->size;
}

/* Of SRC, what rank `owner` adds. */
static tutti__piece part_of(const tutti__coll *call, int owner)
{
    return is_reduce(call) ? tutti__coll_shard(call, owner)
                           : (tutti__piece){(size_t)owner * call->count, call->count};
}

static size_t most(const tutti__coll *call)
{
    return part_of(call, 0).count;
}

static size_t work(const tutti__coll *call, int rank)
{
    (void)rank;
    return most(call);
}

/* A part of each rank; in this rank's place the sum that goes to root. */
static size_t held(const tutti__coll *call, int rank)
{
    (void)rank;
    return (size_t)call->size * most(call);
}

static tutti__coll_at slot(const tutti__coll *call, int rank)
{
    return tutti__coll_held((size_t)rank * most(call));
}

static void give(const tutti__coll *call, int rank, tutti__coll_round *out)
{
    for (int i = 1; i < call->size; i++) {
        int to = (rank + i) % call->size, from = (rank + call->size - i) % call->size;
        tutti__piece theirs = part_of(call, to);

        tutti__coll_send(out, to, tutti__coll_src(theirs.at), theirs.count);
        tutti__coll_recv(out, from, slot(call, from), part_of(call, rank).count);
    }
}

static void add(const tutti__coll *call, int rank, tutti__coll_round *out)
{
    tutti__piece mine = part_of(call, rank);

    for (int r = 0; r < call->size; r++)
        tutti__coll_local(out, r == 0 ? TUTTI__COLL_COPY : TUTTI__COLL_REDUCE, tutti__coll_work(0),
                          r == rank ? tutti__coll_src(mine.at) : slot(call, r), mine.count);
    tutti__coll_local(out, TUTTI__COLL_FINISH,
                      !is_reduce(call)     ? tutti__coll_dst(0)
                      : rank == call->root ? tutti__coll_dst(mine.at)
                                           : slot(call, rank),
                      tutti__coll_work(0), mine.count);
}

static void give_to_root(const tutti__coll *call, int rank, tutti__coll_round *out)
{
    if (rank != call->root)
        tutti__coll_send(out, call->root, slot(call, rank), part_of(call, rank).count);
    for (int r = 0; rank == call->root && r < call->size; r++)
        if (r != rank)
            tutti__coll_recv(out, r, tutti__coll_dst(part_of(call, r).at), part_of(call, r).count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    (round == 0 ? give : round == 1 ? add : give_to_root)(call, rank, out);
}

#define DIRECT(kind, symbol)                                                                       \
    const tutti__coll_algorithm tutti__coll_##symbol##_direct = {.op = kind,                       \
                                                                 .name = "direct",                 \
                                                                 .n_rounds = n_rounds,             \
                                                                 .most_actions = most_actions,     \
                                                                 .work = work,                     \
                                                                 .held = held,                     \
                                                                 .round = round_of};

DIRECT(TUTTI__OP_REDUCE, reduce)
DIRECT(TUTTI__OP_REDUCE_SCATTER, reduce_scatter)
