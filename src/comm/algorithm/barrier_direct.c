/* barrier_direct.c -- each rank tells every other.   SPDX-License-Identifier: MIT
 *
 * The transport's own, whose signatures are the messages, is tutti__tcp_barrier. */
#include "comm/algorithm/rounds.h"

static size_t n_rounds(const tutti__coll *call)
{
    (void)call;
    return 1;
}

static size_t most_actions(const tutti__coll *call)
{
    return 2 * (size_t)call->size;
}

static size_t held(const tutti__coll *call, int rank)
{
    (void)rank;
    return (size_t)call->size;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    (void)round;
    for (int i = 1; i < call->size; i++) {
        int to = (rank + i) % call->size, from = (rank + call->size - i) % call->size;

        tutti__coll_send(out, to, tutti__coll_src(0), 1);
        tutti__coll_recv(out, from, tutti__coll_held((size_t)from), 1);
    }
}

const tutti__coll_algorithm tutti__coll_barrier_direct = {.op = TUTTI__OP_BARRIER,
                                                          .name = "direct",
                                                          .n_rounds = n_rounds,
                                                          .most_actions = most_actions,
                                                          .held = held,
                                                          .round = round_of};
