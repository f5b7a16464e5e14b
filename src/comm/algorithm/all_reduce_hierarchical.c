/* all_reduce_hierarchical.c -- for ranks on hosts: ranks of a host sum for each other, ranks with the same place on all hosts sum what is theirs,
 * and ranks of a host give each other what they have.   SPDX-License-Identifier: MIT
 *
 * A host sends and receives 2 (h-1)/h of the data once, however many ranks share its link. The data are cut into parts, each into a piece for every
 * place. Part k is under way beside the others, with another algorithm between the hosts, of R rounds:
 *
 *     round k        each rank sends every other of its host the piece of that one's place
 *     round k+1      adds what it received, in the order of the ranks
 *     round k+2      the first round between the hosts
 *     round k+2+R    each rank sends its piece of the result to the others of its host
 *
 * Needs as many ranks on each host. */
#include "comm/algorithm/rounds.h"

enum {
    PARTS = 48 /* at most */,
    SMALL = 8 << 10 /* bytes of a piece, which all ranks of a place then send whole */
};

extern const tutti__coll_algorithm tutti__coll_all_reduce_recursive_doubling,
    tutti__coll_all_reduce_rabenseifner;

/* Ranks that are nearest to each other; 1: there are no blocks of them. */
static int places(const tutti__coll *call)
{
    int i = 0;

    while (i < TUTTI__COLL_LEVELS && call->block[i] == 1)
        i++;
    return i < TUTTI__COLL_LEVELS && call->block[i] > 1 ? call->block[i] : 1;
}

static bool fits(const tutti__coll *call)
{
    return places(call) > 1 && call->size % places(call) == 0 && call->size > places(call);
}

static size_t n_parts(const tutti__coll *call)
{
    size_t n = call->count / ((size_t)places(call) * call->chunk);

    return n < 1 ? 1 : n > PARTS ? PARTS : n;
}

/* Of part k. */
static tutti__piece part(const tutti__coll *call, size_t k)
{
    return tutti__part(call->count, n_parts(call), k, 1);
}

/* What part k has for a place, from the beginning of the data. */
static tutti__piece piece(const tutti__coll *call, size_t k, int place)
{
    tutti__piece of = part(call, k),
                 is = tutti__part(of.count, (size_t)places(call), (size_t)place, 1);

    is.at += of.at;
    return is;
}

static size_t largest(const tutti__coll *call)
{
    return piece(call, 0, 0).count;
}

/* Between the hosts: what a rank sums with those of its place. */
static tutti__coll between(const tutti__coll *call, size_t count)
{
    const int n = places(call);
    tutti__coll c = *call;

    c.size = call->size / n;
    c.count = count;
    memset(c.block, 0, sizeof c.block);
    for (int i = 0, to = 0; i < TUTTI__COLL_LEVELS; i++)
        if (call->block[i] > n)
            c.block[to++] = call->block[i] / n;
    return c;
}

static const tutti__coll_algorithm *algorithm_between(const tutti__coll *call)
{
    return largest(call) * tutti__coll_element(call, TUTTI__COLL_WORK) <= SMALL
               ? &tutti__coll_all_reduce_recursive_doubling
               : &tutti__coll_all_reduce_rabenseifner;
}

/* Rounds between the hosts: as many for each part. */
static size_t rounds_between(const tutti__coll *call)
{
    tutti__coll c = between(call, largest(call));

    return algorithm_between(call)->n_rounds(&c);
}

static size_t n_rounds(const tutti__coll *call)
{
    return n_parts(call) + 2 + rounds_between(call);
}

static size_t most_actions(const tutti__coll *call)
{
    tutti__coll c = between(call, largest(call));

    return 5 * (size_t)places(call) + n_parts(call) * algorithm_between(call)->most_actions(&c);
}

/* A part's piece, and the scratch of the algorithm between the hosts: as much on each, but that a rank may need none whose part another
 * takes over. */
static size_t slot(const tutti__coll *call)
{
    const tutti__coll_algorithm *a = algorithm_between(call);
    tutti__coll c = between(call, largest(call));
    const int some[] = {0, 1, c.size - 1};
    size_t most = 0;

    for (int i = 0; i < 3 && a->work; i++) {
        size_t here = a->work(&c, some[i]);

        most = here > most ? here : most;
    }
    return largest(call) + most;
}

static size_t work(const tutti__coll *call, int rank)
{
    (void)rank;
    return n_parts(call) * slot(call);
}

/* What the others of the host sent, of two parts. */
static size_t held(const tutti__coll *call, int rank)
{
    (void)rank;
    return 2 * (size_t)places(call) * largest(call);
}

static tutti__coll_at sent(const tutti__coll *call, size_t k, int place)
{
    return tutti__coll_held((k % 2 * (size_t)places(call) + (size_t)place) * largest(call));
}

static void exchange(const tutti__coll *call, int rank, size_t k, bool result,
                     tutti__coll_round *out)
{
    const int n = places(call), me = rank % n, first = rank - me;
    const tutti__piece mine = piece(call, k, me);

    for (int i = 1; i < n; i++) {
        const int to = (me + i) % n, from = (me + n - i) % n;
        const tutti__piece theirs = piece(call, k, to), part_of = piece(call, k, from);

        if (result) {
            tutti__coll_send(out, first + to, tutti__coll_dst(mine.at), mine.count);
            tutti__coll_recv(out, first + from, tutti__coll_dst(part_of.at), part_of.count);
        } else {
            tutti__coll_send(out, first + to, tutti__coll_src(theirs.at), theirs.count);
            tutti__coll_recv(out, first + from, sent(call, k, from), mine.count);
        }
    }
}

static void add(const tutti__coll *call, int rank, size_t k, tutti__coll_round *out)
{
    const int n = places(call), me = rank % n;
    const tutti__piece mine = piece(call, k, me);

    for (int i = 0; i < n; i++)
        tutti__coll_local(out, i == 0 ? TUTTI__COLL_COPY : TUTTI__COLL_REDUCE,
                          tutti__coll_work(k * slot(call)),
                          i == me ? tutti__coll_src(mine.at) : sent(call, k, i), mine.count);
}

/* From a place of the algorithm between the hosts. */
static tutti__coll_at place_of(const tutti__coll *call, size_t k, size_t at, tutti__coll_at in)
{
    if (in.place == TUTTI__COLL_DST)
        return tutti__coll_dst(at + in.at);
    return tutti__coll_work(k * slot(call) + in.at +
                            (in.place == TUTTI__COLL_WORK ? largest(call) : 0));
}

static void go_between(const tutti__coll *call, int rank, size_t k, size_t round,
                       tutti__coll_round *out)
{
    const int n = places(call), me = rank % n;
    const tutti__piece mine = piece(call, k, me);
    const tutti__coll c = between(call, mine.count);
    const tutti__coll_algorithm *a = algorithm_between(call);
    const size_t first = out->n;

    if (mine.count == 0 || round >= a->n_rounds(&c))
        return;
    a->round(&c, rank / n, round, out);
    for (size_t i = first; i < out->n && i < out->capacity; i++) {
        tutti__coll_action *action = &out->actions[i];

        action->peer = action->peer < 0 ? -1 : action->peer * n + me;
        action->from = place_of(call, k, mine.at, action->from);
        action->to = place_of(call, k, mine.at, action->to);
    }
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    const size_t parts = n_parts(call), between_hosts = rounds_between(call);

    for (size_t k = 0; k < parts && k <= round; k++) {
        const size_t i = round - k;

        if (i == 0)
            exchange(call, rank, k, false, out);
        else if (i == 1)
            add(call, rank, k, out);
        else if (i < 2 + between_hosts)
            go_between(call, rank, k, i - 2, out);
        else if (i == 2 + between_hosts)
            exchange(call, rank, k, true, out);
    }
}

const tutti__coll_algorithm tutti__coll_all_reduce_hierarchical = {.op = TUTTI__OP_ALL_REDUCE,
                                                                   .name = "hierarchical",
                                                                   .fits = fits,
                                                                   .n_rounds = n_rounds,
                                                                   .most_actions = most_actions,
                                                                   .work = work,
                                                                   .held = held,
                                                                   .round = round_of};
