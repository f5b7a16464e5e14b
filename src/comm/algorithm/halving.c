/* halving.c -- recursive halving, or division by another radix.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/halving.h"

static bool scatters(const tutti__coll *call)
{
    return tutti__op_table[call->op].scatters;
}

/* Elements of all that a rank gives. */
static size_t elements(const tutti__coll *call)
{
    return scatters(call) ? call->count * (size_t)call->size : call->count;
}

static size_t begin_of(const tutti__coll *call, const tutti__order *o, int vrank)
{
    size_t n = (size_t)o->base, k = (size_t)vrank, each = call->count / n, larger = call->count % n;

    if (scatters(call))
        return (size_t)tutti__order_first(o, vrank) * call->count;
    return k * each + (k < larger ? k : larger);
}

tutti__piece tutti__halving_parts(const tutti__coll *call, const tutti__order *o, int vrank, int n)
{
    size_t begin = begin_of(call, o, vrank);

    return (tutti__piece){begin, begin_of(call, o, vrank + n) - begin};
}

tutti__piece tutti__halving_after(const tutti__coll *call, const tutti__order *o, int rank,
                                  int step)
{
    const int width = step < 0 ? o->base : o->step[step].width;

    return tutti__halving_parts(call, o, tutti__order_vrank(o, rank) / width * width, width);
}

/* Pieces of ranks stand in WORK in the order of vranks. */
static bool moves_pieces(const tutti__coll *call, const tutti__order *o)
{
    return scatters(call) && !tutti__order_is_of_ranks(o);
}

/* The rounds in which all is copied to WORK first. */
static size_t n_copies(const tutti__coll *call, const tutti__order *o)
{
    return tutti__coll_is_wide(call) || moves_pieces(call, o);
}

size_t tutti__halving_rounds(const tutti__coll *call, const tutti__order *o)
{
    return n_copies(call, o) + 2 * (size_t)o->n_steps;
}

size_t tutti__halving_actions(const tutti__coll *call, const tutti__order *o)
{
    const size_t steps = tutti__order_actions(o);

    return moves_pieces(call, o) && (size_t)call->size > steps ? (size_t)call->size : steps;
}

/* The data, and what comes in in a step, which is most at the first vranks: their parts are the largest, and most extra ranks fold into theirs. */
size_t tutti__halving_work(const tutti__coll *call, int rank)
{
    const tutti__order o = tutti__order_of(call);
    size_t most = 0;

    (void)rank;
    for (int step = 0; step < o.n_steps; step++) {
        const size_t here = tutti__halving_after(call, &o, 0, step).count *
                            (size_t)tutti__order_incoming(&o, 0, step);

        most = here > most ? here : most;
    }
    return elements(call) + most;
}

static void copy(const tutti__coll *call, const tutti__order *o, tutti__coll_round *out)
{
    size_t to = 0;

    if (!moves_pieces(call, o)) {
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(0), tutti__coll_src(0),
                          elements(call));
        return;
    }
    for (int vrank = 0; vrank < o->base; vrank++) {
        const int rank = tutti__order_rank(o, vrank), n = tutti__order_represented(o, rank);

        for (int i = 0; i < n; i++) {
            const size_t from = (size_t)tutti__order_represented_rank(o, rank, i) * call->count;

            tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_work(to), tutti__coll_src(from),
                              call->count);
            to += call->count;
        }
    }
}

/* Data are where they were until they have been summed or widened. */
static tutti__coll_at own(const tutti__coll *call, const tutti__order *o, int rank, int step,
                          size_t at)
{
    const bool summed = step > 0 && tutti__order_extra_level(o, rank) > 0;

    return summed || n_copies(call, o) > 0 ? tutti__coll_work(at) : tutti__coll_src(at);
}

static void exchange(const tutti__coll *call, const tutti__order *o, int rank, int step,
                     tutti__coll_round *out)
{
    for (int i = 1; i < o->step[step].radix; i++) {
        const int peer = tutti__order_next(o, rank, step, i);
        const tutti__piece theirs = tutti__halving_after(call, o, peer, step);

        tutti__coll_send(out, peer, own(call, o, rank, step, theirs.at), theirs.count);
    }
}

static void fold(const tutti__coll *call, const tutti__order *o, int rank, int step,
                 tutti__coll_round *out)
{
    const int proxies = tutti__order_proxies(o, step);

    for (int i = 0; i < proxies; i++) {
        const int proxy = tutti__order_proxy(o, rank, step, i);
        const tutti__piece theirs = tutti__halving_after(call, o, proxy, step);

        tutti__coll_send(out, proxy, own(call, o, rank, step, theirs.at), theirs.count);
    }
}

void tutti__halving_round(const tutti__coll *call, const tutti__order *o, int rank, size_t round,
                          tutti__coll_round *out)
{
    const size_t copies = n_copies(call, o);
    const int step = (int)(round - copies) / 2;
    const bool adds = (round - copies) % 2;

    if (round < copies) {
        copy(call, o, out);
    } else if (round >= tutti__halving_rounds(call, o)) {
        return;
    } else if (tutti__order_takes_part(o, rank, step)) {
        const tutti__piece left = tutti__halving_after(call, o, rank, step);
        const tutti__order_sum sum = {own(call, o, rank, step, left.at), tutti__coll_work(left.at),
                                      tutti__coll_work(elements(call)), left.count};

        if (adds) {
            tutti__order_add(o, rank, step, &sum, out);
            return;
        }
        exchange(call, o, rank, step, out);
        tutti__order_receive(o, rank, step, &sum, out);
    } else if (!adds && tutti__order_folds(o, rank, step)) {
        fold(call, o, rank, step, out);
    }
}
