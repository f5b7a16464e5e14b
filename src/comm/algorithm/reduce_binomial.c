/* reduce_binomial.c -- up a binomial tree: log2 n steps, each of everything; for small sizes.   SPDX-License-Identifier: MIT
 *
 * Ranks count from root. A sum is that of consecutive ranks, the first on the left. */
#include "comm/algorithm/rounds.h"

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_up((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return 2 + 2 * n_steps(call);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 1;
}

static size_t work(const tutti__coll *call, int rank)
{
    (void)rank;
    return 2 * call->count;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int n = call->size, me = (rank + n - call->root) % n;
    size_t step = (round - 1) / 2, count = call->count;
    int distance = 1 << step;

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(0), count);
    else if (step == n_steps(call) && me == 0)
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(0), count);
    else if (step == n_steps(call))
        return;
    else if (me % (2 * distance) == distance && round % 2 == 1)
        tutti__coll_send(out, (rank + n - distance) % n, tutti__coll_work(0), count);
    else if (me % (2 * distance) == 0 && me + distance < n && round % 2 == 1)
        tutti__coll_recv(out, (rank + distance) % n, tutti__coll_work(count), count);
    else if (me % (2 * distance) == 0 && me + distance < n)
        tutti__coll_local(out, TUTTI__COLL_REDUCE, tutti__coll_work(0), tutti__coll_work(count),
                          count);
}

const tutti__coll_algorithm tutti__coll_reduce_binomial = {.op = TUTTI__OP_REDUCE,
                                                           .name = "binomial",
                                                           .n_rounds = n_rounds,
                                                           .most_actions = most_actions,
                                                           .work = work,
                                                           .round = round_of};
