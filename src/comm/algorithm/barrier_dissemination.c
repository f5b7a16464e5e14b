/* barrier_dissemination.c -- in round k each rank tells the rank 2^k after it: in the end each has heard, through others, of all.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/rounds.h"

static size_t n_rounds(const tutti__coll *call)
{
    return tutti__coll_log_up((size_t)call->size);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 2;
}

static size_t held(const tutti__coll *call, int rank)
{
    (void)rank;
    return n_rounds(call);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int distance = 1 << round;

    tutti__coll_send(out, (rank + distance) % call->size, tutti__coll_src(0), 1);
    tutti__coll_recv(out, (rank + call->size - distance) % call->size, tutti__coll_held(round), 1);
}

const tutti__coll_algorithm tutti__coll_barrier_dissemination = {.op = TUTTI__OP_BARRIER,
                                                                 .name = "dissemination",
                                                                 .n_rounds = n_rounds,
                                                                 .most_actions = most_actions,
                                                                 .held = held,
                                                                 .round = round_of};
