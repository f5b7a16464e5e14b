/* reduce_binomial.c -- up a binomial tree, or one of several children a step where n is no power of two (order.h): log2 n steps, each of everything; for small
 * sizes.   SPDX-License-Identifier: MIT
 *
 *     copy │ those p/2 away from root's half: send, add │ a quarter │ ... │ to root, if it is an extra rank │ finish
 *
 * Sums are in the common order: which ranks add depends on root, what they add does not. */
#include "comm/algorithm/order.h"

static size_t n_rounds(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return 2 + 2 * (size_t)o.n_steps + (o.base < o.ranks);
}

static size_t most_actions(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return tutti__order_actions(&o);
}

static size_t work(const tutti__coll *call, int rank)
{
    const tutti__order o = tutti__order_of(call);

    (void)rank;
    return call->count * (1 + (size_t)tutti__order_most_incoming(&o));
}

/* Whether its sum is still its own: in the steps before it had the digits of the base rank where the sum is made. */
static bool has_sum(const tutti__order *o, int rank, int to, int step)
{
    int same = 0;

    while (same < step && tutti__order_takes_part(o, rank, same) &&
           tutti__order_digit(o, rank, same) == tutti__order_digit(o, to, same))
        same++;
    return same == step ||
           (tutti__order_folds(o, rank, step) && same == o->level[o->step[step].level].first);
}

/* Of the proxies of an extra rank, the one with the digits of the base rank where the sum is made. */
static int proxy_of(const tutti__order *o, int rank, int to, int step)
{
    return tutti__order_proxy(o, rank, step, tutti__order_member(o, to, step));
}

static void reduce(const tutti__coll *call, const tutti__order *o, int rank, int step, bool adds,
                   tutti__coll_round *out)
{
    const int to = tutti__order_representative(o, call->root),
              digit = tutti__order_digit(o, to, step);
    const tutti__order_sum sum = {tutti__coll_work(0), tutti__coll_work(0),
                                  tutti__coll_work(call->count), call->count};

    if (!has_sum(o, rank, to, step))
        return;
    if (tutti__order_folds(o, rank, step) && !adds)
        tutti__coll_send(out, proxy_of(o, rank, to, step), sum.own, call->count);
    if (!tutti__order_takes_part(o, rank, step))
        return;
    if (tutti__order_digit(o, rank, step) != digit && !adds)
        tutti__coll_send(out, tutti__order_peer(o, rank, step, digit), sum.own, call->count);
    else if (tutti__order_digit(o, rank, step) == digit)
        (adds ? tutti__order_add : tutti__order_receive)(o, rank, step, &sum, out);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const tutti__order o = tutti__order_of(call);

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(0),
                          call->count);
    else if (round <= 2 * (size_t)o.n_steps)
        reduce(call, &o, rank, (int)(round - 1) / 2, round % 2 == 0, out);
    else if (round + 1 < n_rounds(call))
        tutti__order_to_root(&o, rank, call->root, tutti__coll_work(0), call->count, out);
    else if (rank == call->root)
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(0),
                          call->count);
}

const tutti__coll_algorithm tutti__coll_reduce_binomial = {.op = TUTTI__OP_REDUCE,
                                                           .name = "binomial",
                                                           .in_common_order = true,
                                                           .n_rounds = n_rounds,
                                                           .most_actions = most_actions,
                                                           .work = work,
                                                           .round = round_of};
