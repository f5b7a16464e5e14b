/* all_reduce_recursive_doubling.c -- log2 n exchanges of everything with the rank 1, 2, 4, ... further; for small sizes.
 * SPDX-License-Identifier: MIT
 *
 * If n is not a power of two, the first ranks form pairs, of which the even one gives its data to the odd one at the beginning and
 * receives the result at the end. Both partners of an exchange add the lower one's sum to the left of the higher one's, so all have the
 * same bits.
 *
 *     copy │ fold, add │ exchange, add │ exchange, add │ ... │ finish │ unfold */
#include "comm/algorithm/rounds.h"

/* Pairs at the beginning. */
static int n_pairs(const tutti__coll *call)
{
    return call->size - (1 << tutti__coll_log_down((size_t)call->size));
}

static size_t n_exchanges(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return 2 + 2 * n_exchanges(call) + (n_pairs(call) > 0 ? 3 : 0);
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

/* Ranks that exchange are numbered without those that only give. */
static int number_of(int rank, int pairs)
{
    return rank < 2 * pairs ? rank / 2 : rank - pairs;
}

static int rank_of(int number, int pairs)
{
    return number < pairs ? 2 * number + 1 : number + pairs;
}

static void fold(const tutti__coll *call, int rank, bool adds, tutti__coll_round *out)
{
    if (rank >= 2 * n_pairs(call))
        return;
    if (rank % 2 == 1 && adds)
        add_received(call, true, out);
    else if (rank % 2 == 1)
        tutti__coll_recv(out, rank - 1, tutti__coll_work(call->count), call->count);
    else if (!adds)
        tutti__coll_send(out, rank + 1, tutti__coll_work(0), call->count);
}

static void exchange(const tutti__coll *call, int rank, size_t step, tutti__coll_round *out)
{
    int pairs = n_pairs(call), number = number_of(rank, pairs), bit = 1 << step / 2,
        partner = rank_of(number ^ bit, pairs);

    if (step % 2 == 1) {
        add_received(call, number & bit, out);
        return;
    }
    tutti__coll_send(out, partner, tutti__coll_work(0), call->count);
    tutti__coll_recv(out, partner, tutti__coll_work(call->count), call->count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int pairs = n_pairs(call);
    bool only_gives = rank < 2 * pairs && rank % 2 == 0;
    size_t folds = pairs > 0 ? 2 : 0, exchanges = 2 * n_exchanges(call);

    if (round == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(0),
                          call->count);
    else if (round <= folds)
        fold(call, rank, round == 2, out);
    else if (round <= folds + exchanges && !only_gives)
        exchange(call, rank, round - folds - 1, out);
    else if (round == folds + exchanges + 1 && !only_gives)
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(0), tutti__coll_work(0),
                          call->count);
    else if (round == folds + exchanges + 2 && only_gives)
        tutti__coll_recv(out, rank + 1, tutti__coll_dst(0), call->count);
    else if (round == folds + exchanges + 2 && rank < 2 * pairs)
        tutti__coll_send(out, rank - 1, tutti__coll_dst(0), call->count);
}

const tutti__coll_algorithm tutti__coll_all_reduce_recursive_doubling = {
    .op = TUTTI__OP_ALL_REDUCE,
    .name = "recursive_doubling",
    .n_rounds = n_rounds,
    .most_actions = most_actions,
    .work = work,
    .round = round_of};
