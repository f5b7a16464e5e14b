/* reduce_scatter_recursive_halving.c -- log2 n exchanges of half of what is left; for small and middle sizes.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/halving.h"

static size_t n_rounds(const tutti__coll *call)
{
    return tutti__halving_rounds(call) + 1 + (tutti__pairs(call) > 0);
}

static size_t most_actions(const tutti__coll *call)
{
    return tutti__halving_actions(call);
}

/* The result of the other of a pair. */
static size_t held(const tutti__coll *call, int rank)
{
    return tutti__pairs_other(call, rank) >= 0 && tutti__pairs_takes_part(call, rank) ? call->count
                                                                                      : 0;
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t halving = tutti__halving_rounds(call), count = call->count;
    bool takes_part = tutti__pairs_takes_part(call, rank);
    int other = tutti__pairs_other(call, rank);
    size_t number = (size_t)tutti__pairs_number(call, rank),
           own = (tutti__pairs_go_by_blocks(call) ? number : (size_t)rank) * count;

    if (round < halving) {
        tutti__halving_round(call, rank, round, out);
    } else if (round == halving && takes_part) {
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(own),
                          count);
        if (other >= 0)
            tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_held(0),
                              tutti__coll_work((size_t)other * count), count);
    } else if (round > halving && other >= 0 && takes_part) {
        tutti__coll_send(out, other, tutti__coll_held(0), count);
    } else if (round > halving && other >= 0) {
        tutti__coll_recv(out, other, tutti__coll_dst(0), count);
    }
}

const tutti__coll_algorithm tutti__coll_reduce_scatter_recursive_halving = {
    .op = TUTTI__OP_REDUCE_SCATTER,
    .name = "recursive_halving",
    .in_common_order = true,
    .n_rounds = n_rounds,
    .most_actions = most_actions,
    .work = tutti__halving_work,
    .held = held,
    .round = round_of};
