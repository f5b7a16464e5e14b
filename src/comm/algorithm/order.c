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

static void add_level(tutti__order *o, int below, int places)
{
    const int level = o->n_levels++;
    int kept = places, left;

    while (!is_product(kept))
        kept--;
    o->level[level].below = below;
    o->level[level].places = places;
    o->level[level].kept = left = kept;
    o->level[level].first = o->n_steps;
    while (left > 1) {
        const int radix = radix_of(left), step = o->n_steps++;

        if (step == o->level[level].first ||
            (kept / left < GROUP && kept / left * radix <= MOST_GROUP)) {
            o->level[level].last = step;
            o->level[level].groups = left / radix;
        }
        left /= radix;
        o->step[step].level = level;
        o->step[step].radix = radix;
        o->step[step].stride = left * below;
    }
    o->numbers *= kept;
}

tutti__order tutti__order_of(const tutti__coll *call)
{
    const bool by_blocks = tutti__op_table[call->op].reduces;
    tutti__order o = {.ranks = call->size, .numbers = 1};
    int below = 1, left;

    for (int i = 0; by_blocks && i < TUTTI__COLL_LEVELS && call->block[i] > 0; i++)
        if (call->block[i] > below && call->block[i] < call->size && call->block[i] % below == 0 &&
            call->size % call->block[i] == 0) {
            add_level(&o, below, call->block[i] / below);
            below = call->block[i];
        }
    add_level(&o, below, call->size / below);
    left = o.numbers;
    for (int step = 0; step < o.n_steps; step++)
        o.step[step].width = left /= o.step[step].radix;
    return o;
}

int tutti__order_number(const tutti__order *o, int rank)
{
    const int until = tutti__order_given_at(o, rank);
    int number = 0;

    for (int l = 0; l < o->n_levels; l++)
        number = number * o->level[l].kept + (l < until ? tutti__order_place(o, l, rank) : 0);
    return number;
}

int tutti__order_rank(const tutti__order *o, int number)
{
    int rank = 0;

    for (int l = o->n_levels - 1; l >= 0; l--) {
        rank += number % o->level[l].kept * o->level[l].below;
        number /= o->level[l].kept;
    }
    return rank;
}

/* ---- Those that give --------------------------------------------------------------------------------------------------- */

static int at_place(const tutti__order *o, int level, int rank, int place)
{
    return rank + (place - tutti__order_place(o, level, rank)) * o->level[level].below;
}

int tutti__order_givers(const tutti__order *o, int rank, int step)
{
    const int level = o->step[step].level, groups = o->level[level].groups,
              others = o->level[level].places - o->level[level].kept,
              group = tutti__order_place(o, level, rank) % groups;

    return step == o->level[level].last ? (others - group + groups - 1) / groups : 0;
}

int tutti__order_giver(const tutti__order *o, int rank, int step, int i)
{
    const int level = o->step[step].level, groups = o->level[level].groups;

    return at_place(o, level, rank,
                    o->level[level].kept + tutti__order_place(o, level, rank) % groups +
                        i * groups);
}

int tutti__order_takers(const tutti__order *o, int step)
{
    const int level = o->step[step].level;

    return o->level[level].kept / o->level[level].groups;
}

int tutti__order_taker(const tutti__order *o, int rank, int step, int i)
{
    const int level = o->step[step].level, groups = o->level[level].groups,
              other = tutti__order_place(o, level, rank) - o->level[level].kept;

    return at_place(o, level, rank, other % groups + i * groups);
}

int tutti__order_representative(const tutti__order *o, int rank)
{
    for (int l = 0; l < o->n_levels; l++) {
        const int place = tutti__order_place(o, l, rank), kept = o->level[l].kept;

        rank = at_place(o, l, rank, place < kept ? place : place - kept);
    }
    return rank;
}

/* Whether the rank's place stands for another one, too. */
static bool is_double(const tutti__order *o, int level, int place)
{
    return place + o->level[level].kept < o->level[level].places;
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
        rank = at_place(o, l, rank, place + i % 2 * o->level[l].kept);
        i /= 2;
    }
    return rank;
}

int tutti__order_first(const tutti__order *o, int number)
{
    int first = 0, here = 1, numbers = o->numbers, ranks = o->ranks;

    if (number == o->numbers)
        return o->ranks;
    for (int l = 0; l < o->n_levels; l++) {
        const int others = o->level[l].places - o->level[l].kept;
        int place;

        numbers /= o->level[l].kept;
        ranks /= o->level[l].places;
        place = number / numbers % o->level[l].kept;
        first += here * (place + (place < others ? place : others)) * ranks;
        here *= 1 + is_double(o, l, place);
    }
    return first;
}

/* ---- Sums of a step ------------------------------------------------------------------------------------------------------ */

int tutti__order_incoming(const tutti__order *o, int rank, int step)
{
    return o->step[step].radix - 1 + tutti__order_givers(o, rank, step);
}

int tutti__order_most_incoming(const tutti__order *o)
{
    int most = 0;

    for (int step = 0; step < o->n_steps; step++) {
        const int here = tutti__order_incoming(o, 0, step); /* the first group has most givers */

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
                                    : tutti__order_giver(o, rank, step, i - others),
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
    size_t most = 0;

    for (int step = 0; step < o->n_steps; step++) {
        const size_t takers = (size_t)tutti__order_takers(o, step),
                     here = (size_t)(tutti__order_incoming(o, 0, step) + o->step[step].radix - 1);

        most = takers > most ? takers : most;
        most = here > most ? here : most;
    }
    return most;
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
