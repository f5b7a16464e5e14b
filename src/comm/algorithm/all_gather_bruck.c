/* all_gather_bruck.c -- in step k each rank sends the pieces of the 2^k ranks from itself on to the rank 2^k before it: log2 n steps for any number of
 * ranks; for small sizes.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/rounds.h"

static size_t n_rounds(const tutti__coll *call)
{
    return 1 + tutti__coll_log_up((size_t)call->size);
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return 4;
}

/* The pieces of n ranks from `first` on: where ranks wrap around they are two messages. */
static void move(const tutti__coll *call, int peer, int first, int n, bool sends,
                 tutti__coll_round *out)
{
    int rank = first % call->size, until_end = n < call->size - rank ? n : call->size - rank;
    const size_t at[] = {(size_t)rank * call->count, 0},
                 count[] = {(size_t)until_end * call->count, (size_t)(n - until_end) * call->count};

    for (int i = 0; i < 2; i++)
        (sends ? tutti__coll_send : tutti__coll_recv)(out, peer, tutti__coll_dst(at[i]), count[i]);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    int n = call->size, distance = 1 << (round - 1),
        pieces = distance < n - distance ? distance : n - distance;

    if (round == 0) {
        tutti__coll_local(out, TUTTI__COLL_COPY, tutti__coll_dst((size_t)rank * call->count),
                          tutti__coll_src(0), call->count);
        return;
    }
    move(call, (rank + n - distance) % n, rank, pieces, true, out);
    move(call, (rank + distance) % n, rank + distance, pieces, false, out);
}

const tutti__coll_algorithm tutti__coll_all_gather_bruck = {.op = TUTTI__OP_ALL_GATHER,
                                                            .name = "bruck",
                                                            .n_rounds = n_rounds,
                                                            .most_actions = most_actions,
                                                            .round = round_of};
