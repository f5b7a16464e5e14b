/* all_reduce_rabenseifner.c -- a reduce-scatter by recursive halving, then an all-gather by recursive doubling: for middle and large sizes, some 2 log2 n
 * messages and 2 (n-1)/n of the data a rank.   SPDX-License-Identifier: MIT
 *
 * Large data are cut into parts. Part k begins in round k, so while one part's messages move, another's sums are made; and while one passes the links
 * between near ranks (order.h), another passes those between far ones.
 *
 * A round's small messages leave first. If large ones did, a rank would receive nothing from most of its peers while those send to their first; two that are ahead of the others would wait for
 * that in each round, and the whole with them. */
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

static size_t n_rounds(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return n_parts(call) + tutti__halving_rounds(call, &o) + (size_t)o.n_steps;
}

static size_t most_actions(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return n_parts(call) * tutti__halving_actions(call, &o);
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

static void send(const tutti__coll *call, const tutti__order *o, int to, int of, int step,
                 tutti__coll_round *out)
{
    const tutti__piece p = tutti__halving_after(call, o, of, step);

    tutti__coll_send(out, to, tutti__coll_dst(p.at), p.count);
}

static void receive(const tutti__coll *call, const tutti__order *o, int from, int step,
                    tutti__coll_round *out)
{
    const tutti__piece p = tutti__halving_after(call, o, from, step);

    tutti__coll_recv(out, from, tutti__coll_dst(p.at), p.count);
}

/* A step of halving in the other direction: whoever has received another's part of the sum in it sends that its result. */
static void unfold(const tutti__coll *call, const tutti__order *o, int rank, int step,
                   tutti__coll_round *out)
{
    const int extras = tutti__order_extras(o, rank, step), proxies = tutti__order_proxies(o, step);

    if (tutti__order_folds(o, rank, step))
        for (int i = 0; i < proxies; i++)
            receive(call, o, tutti__order_proxy(o, rank, step, i), step, out);
    if (!tutti__order_takes_part(o, rank, step))
        return;
    for (int i = 1; i < o->step[step].radix; i++) {
        const int peer = tutti__order_next(o, rank, step, i);

        send(call, o, peer, rank, step, out);
        receive(call, o, peer, step, out);
    }
    for (int i = 0; i < extras; i++)
        send(call, o, tutti__order_extra(o, rank, step, i), rank, step, out);
}

static void round_of_part(const tutti__coll *call, const tutti__order *o, int rank, size_t round,
                          tutti__coll_round *out)
{
    const size_t halving = tutti__halving_rounds(call, o);
    const tutti__piece mine = tutti__halving_after(call, o, rank, o->n_steps - 1);

    if (round < halving)
        tutti__halving_round(call, o, rank, round, out);
    else if (round == halving && tutti__order_is_base(o, rank))
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(mine.at),
                          tutti__coll_work(mine.at), mine.count);
    else if (round > halving && round <= halving + (size_t)o->n_steps)
        unfold(call, o, rank, o->n_steps - (int)(round - halving), out);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const size_t slot = work_of_part(call, rank);
    const tutti__order o = tutti__order_of(call);
    const size_t halving = tutti__halving_rounds(call, &o), parts = n_parts(call),
                 summed = round <= halving          ? 0
                          : round - halving < parts ? round - halving
                                                    : parts;

    for (size_t i = 0; i < parts && i <= round; i++) {
        const size_t k = i < summed ? summed - 1 - i : i; /* of results the youngest first */
        size_t at, first = out->n;
        const tutti__coll one = part(call, k, &at);

        round_of_part(&one, &o, rank, round - k, out);
        for (size_t j = first; j < out->n && j < out->capacity; j++) {
            tutti__coll_action *a = &out->actions[j];

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
