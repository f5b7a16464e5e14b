/* all_gather_recursive_doubling.c -- exchanges of all that a rank has with the rank 1, 2, 4, ... further, which keeps pieces together; for small and
 * middle sizes.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/pairs.h"

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return 1 + n_steps(call) + (tutti__pairs(call) > 0);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 2;
}

/* The pieces of the ranks that consecutive numbers represent. */
static tutti__piece pieces(const tutti__coll *call, int number, int n)
{
    size_t begin = (size_t)tutti__pairs_first(call, number),
           end = (size_t)tutti__pairs_first(call, number + n);

    return (tutti__piece){begin * call->count, (end - begin) * call->count};
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t count = call->count;
    bool takes_part = tutti__pairs_takes_part(call, rank);
    int other = tutti__pairs_other(call, rank);

    if (round == 0) {
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst((size_t)rank * count),
                          tutti__coll_src(0), count);
        if (other >= 0 && takes_part)
            tutti__coll_recv(out, other, tutti__coll_dst((size_t)other * count), count);
        else if (other >= 0)
            tutti__coll_send(out, other, tutti__coll_src(0), count);
    } else if (round <= n_steps(call) && takes_part) {
        tutti__pairs_exchange(call, rank, round - 1, pieces, out);
    } else if (round > n_steps(call) && other >= 0 && takes_part) {
        tutti__coll_send(out, other, tutti__coll_dst(0), count * (size_t)call->size);
    } else if (round > n_steps(call) && other >= 0) {
        tutti__coll_recv(out, other, tutti__coll_dst(0), count * (size_t)call->size);
    }
}

const tutti__coll_algorithm tutti__coll_all_gather_recursive_doubling = {
    .op = TUTTI__OP_ALL_GATHER,
    .name = "recursive_doubling",
    .n_rounds = n_rounds,
    .most_actions = most_actions,
    .round = round_of};
