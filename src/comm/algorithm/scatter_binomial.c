/* scatter_binomial.c -- down a binomial tree, whose nodes receive the pieces of their subtree at once; for small sizes.   SPDX-License-Identifier: MIT
 *
 * Pieces on their way are ordered from root on; root sends them from their place, in two messages where ranks wrap around. */
#include "comm/algorithm/relative.h"

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 2;
}

/* In the buffer of `me`, the pieces of the subtree of `number`. */
static void move(const tutti__coll *call, int me, int number, int peer, bool sends,
                 tutti__coll_round *out)
{
    int n = tutti__relative_subtree(call, number);
    tutti__piece second, first = tutti__relative_pieces(call, number, n, &second);
    size_t held_at = (size_t)(number - me) * call->count;

    if (!sends) {
        bool leaf = n == 1;

        tutti__coll_recv(out, peer, leaf ? tutti__coll_dst(0) : tutti__coll_held(0), first.count);
        tutti__coll_recv(out, peer, tutti__coll_held(first.count), second.count);
    } else {
        tutti__coll_send(out, peer, me == 0 ? tutti__coll_src(first.at) : tutti__coll_held(held_at),
                         first.count);
        tutti__coll_send(out, peer,
                         me == 0 ? tutti__coll_src(second.at)
                                 : tutti__coll_held(held_at + first.count),
                         second.count);
    }
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int n = call->size, me = tutti__relative(call, rank);
    size_t steps = tutti__relative_rounds(call) - 1;
    int distance = round < steps ? 1 << (steps - 1 - round) : 0;

    if (round == steps && me == 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(0),
                          tutti__coll_src((size_t)rank * call->count), call->count);
    else if (round == steps && tutti__relative_held(call, rank) > 0)
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst(0), tutti__coll_held(0),
                          call->count);
    else if (round < steps && me % (2 * distance) == distance)
        move(call, me, me, (rank + n - distance) % n, false, out);
    else if (round < steps && me % (2 * distance) == 0 && me + distance < n)
        move(call, me, me + distance, (rank + distance) % n, true, out);
}

const tutti__coll_algorithm tutti__coll_scatter_binomial = {.op = TUTTI__OP_SCATTER,
                                                            .name = "binomial",
                                                            .n_rounds = tutti__relative_rounds,
                                                            .most_actions = most_actions,
                                                            .held = tutti__relative_held,
                                                            .round = round_of};
