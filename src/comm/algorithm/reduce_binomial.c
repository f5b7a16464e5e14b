/* reduce_binomial.c -- up a binomial tree: log2 n steps, each of everything; for small sizes.   SPDX-License-Identifier: MIT
 *
 *     copy │ pairs: give, add │ those p/2 away from root's half: give, add │ a quarter │ ... │ finish
 *
 * Sums are in the common order: which ranks add depends on root, what they add does not. */
#include "comm/algorithm/pairs.h"

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

static size_t n_folds(const tutti__coll *call)
{
    return tutti__pairs(call) > 0;
}

static size_t n_rounds(const tutti__coll *call)
{
    return 2 + 2 * (n_folds(call) + n_steps(call));
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

/* Whom the rank gives its sum (gives), or gets one from; -1: nobody in this step. */
static int peer_of(const tutti__coll *call, int rank, size_t step, bool *gives)
{
    int number = tutti__pairs_number(call, rank), apart, distance;

    *gives = !tutti__pairs_takes_part(call, rank);
    if (step < n_folds(call))
        return tutti__pairs_other(call, rank);
    if (*gives)
        return -1;
    distance = tutti__pairs_numbers(call) >> (step - n_folds(call) + 1);
    apart = number ^ tutti__pairs_number(call, call->root);
    *gives = (apart & distance) != 0;
    return apart >= 2 * distance ? -1 : tutti__pairs_rank(call, number ^ distance);
}

/* Of a pair, whose number is one, that of the lower rank. */
static bool is_left(const tutti__coll *call, int rank, int peer)
{
    int mine = tutti__pairs_number(call, rank), theirs = tutti__pairs_number(call, peer);

    return theirs < mine || (theirs == mine && peer < rank);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t count = call->count, step = (round - 1) / 2;
    bool gives;
    int peer;

    if (round == 0) {
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(0), count);
        return;
    }
    if (round + 1 == n_rounds(call)) {
        if (rank == call->root)
            tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(0),
                              count);
        return;
    }
    peer = peer_of(call, rank, step, &gives);
    if (peer < 0)
        return;
    if (gives && round % 2 == 1)
        tutti__coll_send(out, peer, tutti__coll_work(0), count);
    else if (!gives && round % 2 == 1)
        tutti__coll_recv(out, peer, tutti__coll_work(count), count);
    else if (!gives)
        tutti__coll_local(out,
                          is_left(call, rank, peer) ? TUTTI__COLL_REDUCE_LEFT : TUTTI__COLL_REDUCE,
                          tutti__coll_work(0), tutti__coll_work(count), count);
}

const tutti__coll_algorithm tutti__coll_reduce_binomial = {.op = TUTTI__OP_REDUCE,
                                                           .name = "binomial",
                                                           .in_common_order = true,
                                                           .n_rounds = n_rounds,
                                                           .most_actions = most_actions,
                                                           .work = work,
                                                           .round = round_of};
