/* all_reduce_rabenseifner.c -- a reduce-scatter by recursive halving, then an all-gather by recursive doubling: for middle sizes, 2 log2 n
 * messages and 2 (n-1)/n of the data a rank.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/halving.h"

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return tutti__halving_rounds(call) + 1 + n_steps(call) + (tutti__pairs(call) > 0);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 2;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t halving = tutti__halving_rounds(call);
    bool takes_part = tutti__pairs_takes_part(call, rank);
    int other = tutti__pairs_other(call, rank);
    tutti__piece mine = tutti__halving_parts(call, tutti__pairs_number(call, rank), 1);

    if (round < halving)
        tutti__halving_round(call, rank, round, out);
    else if (round == halving && takes_part)
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(mine.at),
                          tutti__coll_work(mine.at), mine.count);
    else if (round > halving && round <= halving + n_steps(call) && takes_part)
        tutti__pairs_exchange(call, rank, round - halving - 1, tutti__halving_parts, out);
    else if (round > halving + n_steps(call) && other >= 0 && takes_part)
        tutti__coll_send(out, other, tutti__coll_dst(0), call->count);
    else if (round > halving + n_steps(call) && other >= 0)
        tutti__coll_recv(out, other, tutti__coll_dst(0), call->count);
}

const tutti__coll_algorithm tutti__coll_all_reduce_rabenseifner = {.op = TUTTI__OP_ALL_REDUCE,
                                                                   .name = "rabenseifner",
                                                                   .in_common_order = true,
                                                                   .n_rounds = n_rounds,
                                                                   .most_actions = most_actions,
                                                                   .work = tutti__halving_work,
                                                                   .round = round_of};
