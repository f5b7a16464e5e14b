/* reduce_halving_gather.c -- a reduce-scatter by recursive halving, then a gather to root along a binomial tree; for large sizes.
 * SPDX-License-Identifier: MIT
 *
 * If root is an extra rank (order.h), its representative gathers, and sends it all. */
#include "comm/algorithm/halving.h"

static size_t n_rounds(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return tutti__halving_rounds(call, &o) + 1 + (size_t)o.n_steps + (o.base < o.ranks);
}

static size_t most_actions(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return tutti__halving_actions(call, &o);
}

/* Where parts of the result are on their way to root. */
static size_t held(const tutti__coll *call, int rank)
{
    const tutti__order o = tutti__order_of(call);

    return rank == call->root || !tutti__order_is_base(&o, rank) ? 0 : call->count;
}

static tutti__coll_at result(const tutti__coll *call, int rank, size_t at)
{
    return rank == call->root ? tutti__coll_dst(at) : tutti__coll_held(at);
}

/* Base ranks with the digits of the one that gathers in later steps have what those of other digits had in them. */
static void gather(const tutti__coll *call, const tutti__order *o, int rank, int step,
                   tutti__coll_round *out)
{
    const int to = tutti__order_representative(o, call->root),
              mine = tutti__order_digit(o, rank, step), digit = tutti__order_digit(o, to, step);
    const tutti__piece part = tutti__halving_after(call, o, rank, step);

    for (int later = step + 1; later < o->n_steps; later++)
        if (tutti__order_digit(o, rank, later) != tutti__order_digit(o, to, later))
            return;
    if (mine != digit)
        tutti__coll_send(out, tutti__order_peer(o, rank, step, digit), result(call, rank, part.at),
                         part.count);
    for (int other = 0; other < o->step[step].radix && mine == digit; other++) {
        const int peer = tutti__order_peer(o, rank, step, other);
        const tutti__piece theirs = tutti__halving_after(call, o, peer, step);

        if (other != digit)
            tutti__coll_recv(out, peer, result(call, rank, theirs.at), theirs.count);
    }
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const tutti__order o = tutti__order_of(call);
    const size_t halving = tutti__halving_rounds(call, &o), gathered = halving + (size_t)o.n_steps;
    const tutti__piece mine = tutti__halving_after(call, &o, rank, o.n_steps - 1);

    if (round < halving)
        tutti__halving_round(call, &o, rank, round, out);
    else if (round > gathered)
        tutti__order_to_root(&o, rank, call->root, result(call, rank, 0), call->count, out);
    else if (!tutti__order_is_base(&o, rank))
        return;
    else if (round == halving)
        tutti__coll_local(out, TUTTI__COLL_FINISH, result(call, rank, mine.at),
                          tutti__coll_work(mine.at), mine.count);
    else
        gather(call, &o, rank, o.n_steps - (int)(round - halving), out);
}

const tutti__coll_algorithm tutti__coll_reduce_halving_gather = {.op = TUTTI__OP_REDUCE,
                                                                 .name = "halving_gather",
                                                                 .in_common_order = true,
                                                                 .n_rounds = n_rounds,
                                                                 .most_actions = most_actions,
                                                                 .work = tutti__halving_work,
                                                                 .held = held,
                                                                 .round = round_of};
