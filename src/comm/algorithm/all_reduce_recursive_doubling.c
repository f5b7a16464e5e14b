/* all_reduce_recursive_doubling.c -- log2 n exchanges of everything with the rank ... 4, 2, 1 further, or with several where n is no power of two (order.h);
 * for small sizes.   SPDX-License-Identifier: MIT
 *
 * All partners of an exchange add in the common order, so all have the same bits.
 *
 *     copy │ exchange, add │ exchange, add │ ... │ finish │ the result, for extra ranks */
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

static void exchange(const tutti__coll *call, const tutti__order *o, int rank, int step, bool adds,
                     tutti__coll_round *out)
{
    const tutti__order_sum sum = {tutti__coll_work(0), tutti__coll_work(0),
                                  tutti__coll_work(call->count), call->count};
    const bool takes_part = tutti__order_takes_part(o, rank, step);
    const int proxies = tutti__order_proxies(o, step);

    if (adds && takes_part)
        tutti__order_add(o, rank, step, &sum, out);
    if (adds)
        return;
    for (int i = 0; i < proxies && tutti__order_folds(o, rank, step); i++)
        tutti__coll_send(out, tutti__order_proxy(o, rank, step, i), sum.own, call->count);
    for (int i = 1; i < o->step[step].radix && takes_part; i++)
        tutti__coll_send(out, tutti__order_next(o, rank, step, i), sum.own, call->count);
    if (takes_part)
        tutti__order_receive(o, rank, step, &sum, out);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const tutti__order o = tutti__order_of(call);
    const size_t finish = 1 + 2 * (size_t)o.n_steps;

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(0),
                          call->count);
    else if (round < finish)
        exchange(call, &o, rank, (int)(round - 1) / 2, round % 2 == 0, out);
    else if (round == finish && tutti__order_is_base(&o, rank))
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(0),
                          call->count);
    else if (round > finish)
        tutti__order_share(&o, rank, tutti__coll_dst(0), 0, call->count, out);
}

const tutti__coll_algorithm tutti__coll_all_reduce_recursive_doubling = {
    .op = TUTTI__OP_ALL_REDUCE,
    .name = "recursive_doubling",
    .in_common_order = true,
    .n_rounds = n_rounds,
    .most_actions = most_actions,
    .work = work,
    .round = round_of};
