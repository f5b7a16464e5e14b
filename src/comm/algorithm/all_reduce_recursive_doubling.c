/* all_reduce_recursive_doubling.c -- log2 n exchanges of everything with the rank ... 4, 2, 1 further; for small sizes.
 * SPDX-License-Identifier: MIT
 *
 * Both partners of an exchange add in the common order, so all have the same bits.
 *
 *     copy │ pairs: give, add │ exchange, add │ exchange, add │ ... │ finish │ pairs: the result */
#include "comm/algorithm/pairs.h"

static size_t n_exchanges(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return 2 + 2 * n_exchanges(call) + (tutti__pairs(call) > 0 ? 3 : 0);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 2;
}

static size_t work(const tutti__coll *call, int rank)
{
    (void)rank;
    return 2 * call->count;
}

static void add_received(const tutti__coll *call, bool left, tutti__coll_round *out)
{
    tutti__coll_local(out, left ? TUTTI__COLL_REDUCE_LEFT : TUTTI__COLL_REDUCE, tutti__coll_work(0),
                      tutti__coll_work(call->count), call->count);
}

static void pair_up(const tutti__coll *call, int rank, bool adds, tutti__coll_round *out)
{
    int other = tutti__pairs_other(call, rank);

    if (other < 0)
        return;
    if (tutti__pairs_takes_part(call, rank) && adds)
        add_received(call, other < rank, out);
    else if (tutti__pairs_takes_part(call, rank))
        tutti__coll_recv(out, other, tutti__coll_work(call->count), call->count);
    else if (!adds)
        tutti__coll_send(out, other, tutti__coll_work(0), call->count);
}

static void exchange(const tutti__coll *call, int rank, size_t step, tutti__coll_round *out)
{
    int number = tutti__pairs_number(call, rank),
        bit = tutti__pairs_numbers(call) >> (step / 2 + 1),
        partner = tutti__pairs_rank(call, number ^ bit);

    if (step % 2 == 1) {
        add_received(call, number & bit, out);
        return;
    }
    tutti__coll_send(out, partner, tutti__coll_work(0), call->count);
    tutti__coll_recv(out, partner, tutti__coll_work(call->count), call->count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int other = tutti__pairs_other(call, rank);
    bool takes_part = tutti__pairs_takes_part(call, rank);
    size_t pairs = tutti__pairs(call) > 0 ? 2 : 0, last = pairs + 2 * n_exchanges(call) + 1;

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(0),
                          call->count);
    else if (round <= pairs)
        pair_up(call, rank, round == 2, out);
    else if (round < last && takes_part)
        exchange(call, rank, round - pairs - 1, out);
    else if (round == last && takes_part)
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(0),
                          call->count);
    else if (round > last && other >= 0 && takes_part)
        tutti__coll_send(out, other, tutti__coll_dst(0), call->count);
    else if (round > last && other >= 0)
        tutti__coll_recv(out, other, tutti__coll_dst(0), call->count);
}

const tutti__coll_algorithm tutti__coll_all_reduce_recursive_doubling = {
    .op = TUTTI__OP_ALL_REDUCE,
    .name = "recursive_doubling",
    .in_common_order = true,
    .n_rounds = n_rounds,
    .most_actions = most_actions,
    .work = work,
    .round = round_of};
