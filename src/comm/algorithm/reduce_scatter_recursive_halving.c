/* reduce_scatter_recursive_halving.c -- log2 n exchanges of half of what is left; for small and middle sizes.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/halving.h"

static size_t n_rounds(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return tutti__halving_rounds(call, &o) + 1 + (o.base < o.ranks);
}

static size_t most_actions(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return tutti__halving_actions(call, &o);
}

/* The results of the ranks that a base rank represents besides its own. */
static size_t held(const tutti__coll *call, int rank)
{
    const tutti__order o = tutti__order_of(call);

    return tutti__order_is_base(&o, rank)
               ? (size_t)(tutti__order_represented(&o, rank) - 1) * call->count
               : 0;
}

static void finish(const tutti__coll *call, const tutti__order *o, int rank, tutti__coll_round *out)
{
    const int n = tutti__order_represented(o, rank);
    const size_t count = call->count,
                 own = (size_t)tutti__order_first(o, tutti__order_vrank(o, rank)) * count;

    for (int i = 0; i < n; i++)
        tutti__coll_local(out, TUTTI__COLL_FINISH,
                          i == 0 ? tutti__coll_dst(0) : tutti__coll_held((size_t)(i - 1) * count),
                          tutti__coll_work(own + (size_t)i * count), count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const tutti__order o = tutti__order_of(call);
    const size_t halving = tutti__halving_rounds(call, &o);

    if (round < halving)
        tutti__halving_round(call, &o, rank, round, out);
    else if (round > halving)
        tutti__order_share(&o, rank, tutti__coll_held(0), call->count, call->count, out);
    else if (tutti__order_is_base(&o, rank))
        finish(call, &o, rank, out);
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
