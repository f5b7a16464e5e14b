/* direct_moves.c -- operations that only move data: every piece straight to its destination, all at once.   SPDX-License-Identifier: MIT
 *
 * What runs over TCP is tcp_move.c, the same messages. */
#include "comm/algorithm/rounds.h"

static size_t one_round(const tutti__coll *call)
{
    (void)call;
    return 1;
}

static size_t all_ranks(const tutti__coll *call)
{
    return 2 * (size_t)call->size;
}

static void move_all(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const tutti__op_traits *t = &tutti__op_table[call->op];
    size_t count = call->count, me = (size_t)rank;
    bool gives = !t->from_root || rank == call->root, takes = !t->to_root || rank == call->root;

    (void)round;
    if (gives && takes)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(t->gathers ? me * count : 0),
                          tutti__coll_src(t->scatters ? me * count : 0), count);
    for (int i = 1; i < call->size; i++) {
        int to = (rank + i) % call->size, from = (rank + call->size - i) % call->size;

        if (gives && (!t->to_root || to == call->root))
            tutti__coll_send(out, to, tutti__coll_src(t->scatters ? (size_t)to * count : 0), count);
        if (takes && (!t->from_root || from == call->root))
            tutti__coll_recv(out, from, tutti__coll_dst(t->gathers ? (size_t)from * count : 0),
                             count);
    }
}

#define DIRECT(kind, symbol)                                                                       \
    const tutti__coll_algorithm tutti__coll_##symbol##_direct = {.op = kind,                       \
                                                                 .name = "direct",                 \
                                                                 .n_rounds = one_round,            \
                                                                 .most_actions = all_ranks,        \
                                                                 .round = move_all};

DIRECT(TUTTI__OP_BROADCAST, broadcast)
DIRECT(TUTTI__OP_SCATTER, scatter)
DIRECT(TUTTI__OP_GATHER, gather)
DIRECT(TUTTI__OP_ALL_GATHER, all_gather)
DIRECT(TUTTI__OP_ALL_TO_ALL, all_to_all)
