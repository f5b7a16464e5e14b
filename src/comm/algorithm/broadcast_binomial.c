/* broadcast_binomial.c -- down a binomial tree: log2 n steps, each of everything; for small sizes.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/relative.h"

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_up((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return n_steps(call);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 2;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int me = tutti__relative(call, rank), distance = 1 << (n_steps(call) - 1 - round);
    size_t count = call->count;

    if (round == 0 && me == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(0), tutti__coll_src(0), count);
    if (me % (2 * distance) == 0 && me + distance < call->size)
        tutti__coll_send(out, (rank + distance) % call->size,
                         me == 0 ? tutti__coll_src(0) : tutti__coll_dst(0), count);
    else if (me % (2 * distance) == distance)
        tutti__coll_recv(out, (rank + call->size - distance) % call->size, tutti__coll_dst(0),
                         count);
}

const tutti__coll_algorithm tutti__coll_broadcast_binomial = {.op = TUTTI__OP_BROADCAST,
                                                              .name = "binomial",
                                                              .n_rounds = n_rounds,
                                                              .most_actions = most_actions,
                                                              .round = round_of};
