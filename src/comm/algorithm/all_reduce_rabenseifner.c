/* all_reduce_rabenseifner.c -- a reduce-scatter by recursive halving, then an all-gather by recursive doubling: for middle and large sizes, 2 log2 n
 * messages and 2 (n-1)/n of the data a rank.   SPDX-License-Identifier: MIT
 *
 * Large data are cut into parts. Part k begins in round k, so while one part's messages move, another's sums are made; and while one passes the links
 * between near ranks (pairs.h), another passes those between far ones. */
#include "comm/algorithm/halving.h"

enum { PARTS = 16 /* at most */, PART_CHUNKS = 8 /* at least */ };

static size_t n_parts(const tutti__coll *call)
{
    size_t n = call->count / (PART_CHUNKS * call->chunk);

    return n < 1 ? 1 : n > PARTS ? PARTS : n;
}

/* The call of a part; *at_p: where it begins. The first is the largest. */
static tutti__coll part(const tutti__coll *call, size_t k, size_t *at_p)
{
    const tutti__piece piece = tutti__part(call->count, n_parts(call), k, 1);
    tutti__coll one = *call;

    one.count = piece.count;
    *at_p = piece.at;
    return one;
}

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

static size_t n_rounds(const tutti__coll *call)
{
    return n_parts(call) + tutti__halving_rounds(call) + n_steps(call) + (tutti__pairs(call) > 0);
}

static size_t most_actions(const tutti__coll *call)
{
    return 2 * n_parts(call);
}

static size_t work_of_part(const tutti__coll *call, int rank)
{
    size_t at;
    const tutti__coll first = part(call, 0, &at);

    return tutti__halving_work(&first, rank);
}

static size_t work(const tutti__coll *call, int rank)
{
    return n_parts(call) * work_of_part(call, rank);
}

static void round_of_part(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
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
    else if (round == halving + n_steps(call) + 1 && other >= 0 && takes_part)
        tutti__coll_send(out, other, tutti__coll_dst(0), call->count);
    else if (round == halving + n_steps(call) + 1 && other >= 0)
        tutti__coll_recv(out, other, tutti__coll_dst(0), call->count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const size_t slot = work_of_part(call, rank);

    for (size_t k = 0; k < n_parts(call) && k <= round; k++) {
        size_t at, first = out->n;
        const tutti__coll one = part(call, k, &at);

        round_of_part(&one, rank, round - k, out);
        for (size_t i = first; i < out->n && i < out->capacity; i++) {
            tutti__coll_action *a = &out->actions[i];

            a->from.at += a->from.place == TUTTI__COLL_WORK ? k * slot : at;
            a->to.at += a->to.place == TUTTI__COLL_WORK ? k * slot : at;
        }
    }
}

const tutti__coll_algorithm tutti__coll_all_reduce_rabenseifner = {.op = TUTTI__OP_ALL_REDUCE,
                                                                   .name = "rabenseifner",
                                                                   .in_common_order = true,
                                                                   .n_rounds = n_rounds,
                                                                   .most_actions = most_actions,
                                                                   .work = work,
                                                                   .round = round_of};
