/* order.c -- the common order of sums, and the exchanges in which ranks make them.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/order.h"

enum { GROUP = 12, MOST_GROUP = 28, LARGEST_RADIX = 7 };

/* The smallest radix that divides n; 0: none. */
static int radix_of(int n)
{
    for (int r = 2; r <= LARGEST_RADIX; r++)
        if (n % r == 0)
            return r;
    return 0;
}

static bool is_product(int n)
{
    while (n > 1 && radix_of(n) > 0)
        n /= radix_of(n);
    return n == 1;
}

/* Whether ranks stand in the order of a topology that is known. */
static bool is_near_first(const tutti__coll *call)
{
    int i = 0;

    while (i < TUTTI__COLL_LEVELS && call->block[i] == 1)
        i++;
    return i < TUTTI__COLL_LEVELS && call->block[i] > 1;
}

static void add_level(tutti__order *o, int below, int places)
{
    const int level = o->n_levels++;
    int base = places, summed = 1;

    while (!is_product(base))
        base--;
    o->level[level].below = below;
    o->level[level].places = places;
    o->level[level].base = base;
    o->level[level].first = o->n_steps;
    for (int step; summed < base; summed *= o->step[step].radix) {
        const int radix = radix_of(base / summed), left = base / summed / radix;

        step = o->n_steps++;
        o->step[step].level = level;
        o->step[step].radix = radix;
        o->step[step].stride = (o->near_first ? summed : left) * below;
        if (summed > 1 && (summed >= GROUP || summed * radix > MOST_GROUP))
            continue;
        o->level[level].last = step;
        o->level[level].groups = left;
        o->level[level].between = o->near_first ? summed * radix : 1;
        o->level[level].within = o->near_first ? 1 : left;
    }
    o->base *= base;
}

tutti__order tutti__order_of(const tutti__coll *call)
{
    const bool by_blocks = tutti__op_table[call->op].reduces;
    tutti__order o = {
        .ranks = call->size, .base = 1, .near_first = by_blocks && is_near_first(call)};
    int below = 1, left;

    for (int i = 0; by_blocks && i < TUTTI__COLL_LEVELS && call->block[i] > 0; i++)
        if (call->block[i] > below && call->block[i] < call->size && call->block[i] % below == 0 &&
            call->size % call->block[i] == 0) {
            add_level(&o, below, call->block[i] / below);
            below = call->block[i];
        }
    add_level(&o, below, call->size / below);
    left = o.base;
    for (int step = 0; step < o.n_steps; step++)
        o.step[step].width = left /= o.step[step].radix;
    return o;
}

int tutti__order_vrank(const tutti__order *o, int rank)
{
    int vrank = 0;

    for (int step = 0; step < o->n_steps; step++)
        vrank = vrank * o->step[step].radix +
                (tutti__order_takes_part(o, rank, step) ? tutti__order_digit(o, rank, step) : 0);
    return vrank;
}

int tutti__order_rank(const tutti__order *o, int vrank)
{
    int rank = 0;

    for (int step = 0; step < o->n_steps; step++)
        rank += vrank / o->step[step].width % o->step[step].radix * o->step[step].stride;
    return rank;
}

/* ---- Extra ranks --------------------------------------------------------------------------------------------------------- */

static int at_place(const tutti__order *o, int level, int rank, int place)
{
    return rank + (place - tutti__order_place(o, level, rank)) * o->level[level].below;
}

/* The group of a base rank. */
static int group_of(const tutti__order *o, int level, int rank)
{
    return tutti__order_place(o, level, rank) / o->level[level].between % o->level[level].groups;
}

int tutti__order_extras(const tutti__order *o, int rank, int step)
{
    const int level = o->step[step].level, groups = o->level[level].groups,
              others = o->level[level].places - o->level[level].base;

    return step == o->level[level].last ? (others - group_of(o, level, rank) + groups - 1) / groups
                                        : 0;
}

int tutti__order_extra(const tutti__order *o, int rank, int step, int i)
{
    const int level = o->step[step].level;

    return at_place(o, level, rank,
                    o->level[level].base + group_of(o, level, rank) + i * o->level[level].groups);
}

int tutti__order_proxies(const tutti__order *o, int step)
{
    const int level = o->step[step].level;

    return o->level[level].base / o->level[level].groups;
}

int tutti__order_proxy(const tutti__order *o, int rank, int step, int i)
{
    const int level = o->step[step].level,
              group = (tutti__order_place(o, level, rank) - o->level[level].base) %
                      o->level[level].groups;

    return at_place(o, level, rank, group * o->level[level].between + i * o->level[level].within);
}

int tutti__order_member(const tutti__order *o, int rank, int step)
{
    const int level = o->step[step].level;

    return tutti__order_place(o, level, rank) / o->level[level].within %
           tutti__order_proxies(o, step);
}

int tutti__order_representative(const tutti__order *o, int rank)
{
    for (int l = 0; l < o->n_levels; l++) {
        const int place = tutti__order_place(o, l, rank), base = o->level[l].base;

        rank = at_place(o, l, rank, place < base ? place : place - base);
    }
    return rank;
}

/* Whether the rank's place stands for another one, too. */
static bool is_double(const tutti__order *o, int level, int place)
{
    return place + o->level[level].base < o->level[level].places;
}

int tutti__order_represented(const tutti__order *o, int rank)
{
    int n = 1;

    for (int l = 0; l < o->n_levels; l++)
        n *= 1 + is_double(o, l, tutti__order_place(o, l, rank));
    return n;
}

int tutti__order_represented_rank(const tutti__order *o, int rank, int i)
{
    for (int l = 0; l < o->n_levels; l++) {
        const int place = tutti__order_place(o, l, rank);

        if (!is_double(o, l, place))
            continue;
        rank = at_place(o, l, rank, place + i % 2 * o->level[l].base);
        i /= 2;
    }
    return rank;
}

/* How many of a level's places that have lower digits than `place`, the first step's first, are double. */
static int doubles_before(const tutti__order *o, int level, int place)
{
    const int others = o->level[level].places - o->level[level].base;
    int n = 0, low = 0;

    if (!o->near_first)
        return place < others ? place : others;
    for (int step = o->level[level].first; low < place; step++) {
        const int radix = o->step[step].radix,
                  stride = o->step[step].stride / o->level[level].below,
                  digit = place / stride % radix;

        for (int d = 0; d < digit; d++, low += stride)
            n += low < others ? (others - low - 1) / (stride * radix) + 1 : 0;
    }
    return n;
}

int tutti__order_first(const tutti__order *o, int vrank)
{
    int first = 0, here = 1, left = o->base, ranks = o->ranks;
    const int rank = tutti__order_rank(o, vrank);

    if (vrank == o->base)
        return o->ranks;
    for (int l = 0; l < o->n_levels; l++) {
        const int place = tutti__order_place(o, l, rank);

        left /= o->level[l].base;
        ranks /= o->level[l].places;
        first += here * (vrank / left % o->level[l].base + doubles_before(o, l, place)) * ranks;
        here *= 1 + is_double(o, l, place);
    }
    return first;
}

/* ---- Sums of a step ------------------------------------------------------------------------------------------------------ */

int tutti__order_incoming(const tutti__order *o, int rank, int step)
{
    return o->step[step].radix - 1 + tutti__order_extras(o, rank, step);
}

int tutti__order_most_incoming(const tutti__order *o)
{
    int most = 0;

    for (int step = 0; step < o->n_steps; step++) {
        const int here = tutti__order_incoming(o, 0, step); /* the first group has most extras */

        most = here > most ? here : most;
    }
    return most;
}

static bool is_fresh(const tutti__order_sum *sum)
{
    return sum->own.place != sum->to.place || sum->own.at != sum->to.at;
}

tutti__coll_at tutti__order_slot(const tutti__order_sum *sum, int i)
{
    tutti__coll_at at = sum->received;

    if (is_fresh(sum) && i == 0)
        return sum->to;
    at.at += (size_t)(i - is_fresh(sum)) * sum->count;
    return at;
}

void tutti__order_receive(const tutti__order *o, int rank, int step, const tutti__order_sum *sum,
                          tutti__coll_round *out)
{
    const int others = o->step[step].radix - 1, mine = tutti__order_digit(o, rank, step),
              n = tutti__order_incoming(o, rank, step);

    for (int i = 0; i < n; i++)
        tutti__coll_recv(out,
                         i < others ? tutti__order_peer(o, rank, step, i + (i >= mine))
                                    : tutti__order_extra(o, rank, step, i - others),
                         tutti__order_slot(sum, i), sum->count);
}

void tutti__order_add(const tutti__order *o, int rank, int step, const tutti__order_sum *sum,
                      tutti__coll_round *out)
{
    const int mine = tutti__order_digit(o, rank, step), n = tutti__order_incoming(o, rank, step);
    const tutti__coll_at first = tutti__order_slot(sum, 0);
    int i = 1;

    /* what is on the left of this rank's is added up where its first is */
    for (; i < mine; i++)
        tutti__coll_local(out, TUTTI__COLL_REDUCE, first, tutti__order_slot(sum, i), sum->count);
    if (is_fresh(sum)) {
        tutti__coll_local(out, mine > 0 ? TUTTI__COLL_REDUCE : TUTTI__COLL_REDUCE_LEFT, sum->to,
                          sum->own, sum->count);
    } else {
        tutti__coll_local(out, mine > 0 ? TUTTI__COLL_REDUCE_LEFT : TUTTI__COLL_REDUCE, sum->to,
                          first, sum->count);
    }
    for (; i < n; i++)
        tutti__coll_local(out, TUTTI__COLL_REDUCE, sum->to, tutti__order_slot(sum, i), sum->count);
}

size_t tutti__order_actions(const tutti__order *o)
{
    int most = tutti__order_represented(o, 0);

    for (int step = 0; step < o->n_steps; step++) {
        const int proxies = tutti__order_proxies(o, step),
                  here = tutti__order_incoming(o, 0, step) + o->step[step].radix - 1;

        most = proxies > most ? proxies : most;
        most = here > most ? here : most;
    }
    return (size_t)most;
}

/* ---- After the steps ------------------------------------------------------------------------------------------------------ */

void tutti__order_share(const tutti__order *o, int rank, tutti__coll_at others, size_t apart,
                        size_t count, tutti__coll_round *out)
{
    const int representative = tutti__order_representative(o, rank),
              n = representative == rank ? tutti__order_represented(o, rank) : 1;

    if (representative != rank)
        tutti__coll_recv(out, representative, tutti__coll_dst(0), count);
    for (int i = 1; i < n; i++, others.at += apart)
        tutti__coll_send(out, tutti__order_represented_rank(o, rank, i), others, count);
}

void tutti__order_to_root(const tutti__order *o, int rank, int root, tutti__coll_at result,
                          size_t count, tutti__coll_round *out)
{
    const int from = tutti__order_representative(o, root);

    if (from != root && rank == from)
        tutti__coll_send(out, root, result, count);
    else if (from != root && rank == root)
        tutti__coll_recv(out, from, result, count);
}
