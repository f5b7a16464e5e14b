/* all_gather_recursive_doubling.c -- exchanges of all that a rank has with the rank 1, 2, 4, ... further, or with several where n is no power of two (order.h), which
 * keeps pieces together; for small and middle sizes.   SPDX-License-Identifier: MIT
 *
 *     copy; pieces of the extra ranks │ exchange │ exchange │ ... │ all, for the extra ranks */
#include "comm/algorithm/order.h"

static size_t n_rounds(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return 1 + (size_t)o.n_steps + (o.base < o.ranks);
}

static size_t most_actions(const tutti__coll *call)
{
    const tutti__order o = tutti__order_of(call);

    return 2 + 2 * tutti__order_actions(&o);
}

/* The pieces that the rank has after a step: of base ranks, or of the extra ones that these represent. */
static tutti__piece pieces_of(const tutti__coll *call, const tutti__order *o, int rank, int step,
                              bool of_base)
{
    const int width = o->step[step].width, from = rank / width * width,
              after = of_base ? 0 : o->base;
    int begin = from + after, end = begin + width;

    end = end < call->size ? end : call->size;
    begin = begin < end ? begin : end;
    return (tutti__piece){(size_t)begin * call->count, (size_t)(end - begin) * call->count};
}

static void exchange(const tutti__coll *call, const tutti__order *o, int rank, int step,
                     tutti__coll_round *out)
{
    for (int i = 1; i < o->step[step].radix; i++) {
        const int peer = tutti__order_next(o, rank, step, i);

        for (int of_base = 1; of_base >= 0; of_base--) {
            const tutti__piece sent = pieces_of(call, o, rank, step, of_base),
                               received = pieces_of(call, o, peer, step, of_base);

            tutti__coll_send(out, peer, tutti__coll_dst(sent.at), sent.count);
            tutti__coll_recv(out, peer, tutti__coll_dst(received.at), received.count);
        }
    }
}

/* An extra rank brings its representative its piece. */
static void bring(const tutti__coll *call, const tutti__order *o, int rank, tutti__coll_round *out)
{
    const int representative = tutti__order_representative(o, rank);

    if (representative != rank)
        tutti__coll_send(out, representative, tutti__coll_src(0), call->count);
    else if (tutti__order_represented(o, rank) > 1)
        tutti__coll_recv(out, tutti__order_represented_rank(o, rank, 1),
                         tutti__coll_dst((size_t)(rank + o->base) * call->count), call->count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const tutti__order o = tutti__order_of(call);

    if (round == 0) {
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst((size_t)rank * call->count),
                          tutti__coll_src(0), call->count);
        bring(call, &o, rank, out);
    } else if (round > (size_t)o.n_steps) {
        tutti__order_share(&o, rank, tutti__coll_dst(0), 0, call->count * (size_t)call->size, out);
    } else if (tutti__order_is_base(&o, rank)) {
        exchange(call, &o, rank, o.n_steps - (int)round, out);
    }
}

const tutti__coll_algorithm tutti__coll_all_gather_recursive_doubling = {
    .op = TUTTI__OP_ALL_GATHER,
    .name = "recursive_doubling",
    .n_rounds = n_rounds,
    .most_actions = most_actions,
    .round = round_of};
