/* reduce_halving_gather.c -- a reduce-scatter by recursive halving, then a gather to root along a binomial tree; for large sizes.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/halving.h"

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return tutti__halving_rounds(call) + 1 + n_steps(call);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 2;
}

/* Where parts of the result are on their way to root. */
static size_t held(const tutti__coll *call, int rank)
{
    return rank == call->root || !tutti__pairs_takes_part(call, rank) ? 0 : call->count;
}

static tutti__coll_at result(const tutti__coll *call, int rank, size_t at)
{
    return rank == call->root ? tutti__coll_dst(at) : tutti__coll_held(at);
}

/* A number has the parts of the aligned block of `distance` numbers around it, if it is root's but for higher bits. */
static void gather(const tutti__coll *call, int rank, size_t step, tutti__coll_round *out)
{
    int number = tutti__pairs_number(call, rank), distance = 1 << step, other = number ^ distance,
        relative = number ^ tutti__pairs_number(call, call->root),
        peer = tutti__pairs_rank(call, other);
    tutti__piece mine = tutti__halving_parts(call, number / distance * distance, distance),
                 theirs = tutti__halving_parts(call, other / distance * distance, distance);

    if (relative % (2 * distance) == distance)
        tutti__coll_send(out, peer, result(call, rank, mine.at), mine.count);
    else if (relative % (2 * distance) == 0)
        tutti__coll_recv(out, peer, result(call, rank, theirs.at), theirs.count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t halving = tutti__halving_rounds(call);
    tutti__piece mine = tutti__halving_parts(call, tutti__pairs_number(call, rank), 1);

    if (round < halving)
        tutti__halving_round(call, rank, round, out);
    else if (!tutti__pairs_takes_part(call, rank))
        return;
    else if (round == halving)
        tutti__coll_local(out, TUTTI__COLL_FINISH, result(call, rank, mine.at),
                          tutti__coll_work(mine.at), mine.count);
    else
        gather(call, rank, round - halving - 1, out);
}

const tutti__coll_algorithm tutti__coll_reduce_halving_gather = {.op = TUTTI__OP_REDUCE,
                                                                 .name = "halving_gather",
                                                                 .in_common_order = true,
                                                                 .n_rounds = n_rounds,
                                                                 .most_actions = most_actions,
                                                                 .work = tutti__halving_work,
                                                                 .held = held,
                                                                 .round = round_of};
