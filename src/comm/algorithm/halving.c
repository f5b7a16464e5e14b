/* halving.c -- recursive halving.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/halving.h"

size_t tutti__halving_elements(const tutti__coll *call)
{
    return tutti__op_table[call->op].scatters ? call->count * (size_t)call->size : call->count;
}

static size_t begin_of(const tutti__coll *call, int number)
{
    size_t n = (size_t)tutti__pairs_numbers(call), k = (size_t)number, each = call->count / n,
           larger = call->count % n;

    if (tutti__op_table[call->op].scatters)
        return (size_t)tutti__pairs_first(call, number) * call->count;
    return k * each + (k < larger ? k : larger);
}

tutti__piece tutti__halving_parts(const tutti__coll *call, int number, int n)
{
    size_t begin = begin_of(call, number);

    return (tutti__piece){begin, begin_of(call, number + n) - begin};
}

static size_t n_steps(const tutti__coll *call)
{
    return tutti__coll_log_down((size_t)call->size);
}

/* Pieces of ranks stand in WORK in the order of numbers. */
static bool moves_pieces(const tutti__coll *call)
{
    return tutti__op_table[call->op].scatters && tutti__pairs_go_by_blocks(call);
}

/* The rounds in which all is copied to WORK first. */
static size_t n_copies(const tutti__coll *call)
{
    return tutti__coll_is_wide(call) || moves_pieces(call);
}

static size_t lead(const tutti__coll *call)
{
    return n_copies(call) + (tutti__pairs(call) > 0 ? 2 : 0);
}

size_t tutti__halving_rounds(const tutti__coll *call)
{
    return lead(call) + 2 * n_steps(call);
}

size_t tutti__halving_actions(const tutti__coll *call)
{
    return moves_pieces(call) ? (size_t)call->size : 2;
}

/* Half of the data is received at most. */
size_t tutti__halving_work(const tutti__coll *call, int rank)
{
    size_t all = tutti__halving_elements(call), most = 0;
    int n = tutti__pairs_numbers(call);

    (void)rank;
    for (int half = 0; half < 2 && n > 1; half++) {
        size_t count = tutti__halving_parts(call, half * n / 2, n / 2).count;

        most = count > most ? count : most;
    }
    return all + most;
}

/* Where the data of a rank are at its first exchange: where they were, unless they have been summed or widened. */
static bool is_in_src(const tutti__coll *call, int rank)
{
    return n_copies(call) == 0 && tutti__pairs_other(call, rank) < 0;
}

static void copy(const tutti__coll *call, tutti__coll_round *out)
{
    const size_t n = moves_pieces(call) ? (size_t)call->size : 1;

    for (size_t i = 0; i < n; i++)
        tutti__coll_local(
            out, TUTTI__COLL_COPY,
            tutti__coll_work(tutti__halving_parts(call, (int)i, 1).at * (n > 1)),
            tutti__coll_src(n > 1 ? (size_t)tutti__pairs_rank(call, (int)i) * call->count : 0),
            n > 1 ? call->count : tutti__halving_elements(call));
}

static void pair_up(const tutti__coll *call, int rank, bool adds, tutti__coll_round *out)
{
    size_t all = tutti__halving_elements(call);
    int other = tutti__pairs_other(call, rank);

    if (other < 0)
        return;
    if (!tutti__pairs_takes_part(call, rank)) {
        if (!adds)
            tutti__coll_send(out, other,
                             tutti__coll_is_wide(call) ? tutti__coll_work(0) : tutti__coll_src(0),
                             all);
    } else if (adds) {
        tutti__coll_local(out, other < rank ? TUTTI__COLL_REDUCE : TUTTI__COLL_REDUCE_LEFT,
                          tutti__coll_work(0), tutti__coll_src(0), all);
    } else {
        tutti__coll_recv(out, other, tutti__coll_work(0), all);
    }
}

static void exchange(const tutti__coll *call, int rank, size_t step, bool adds,
                     tutti__coll_round *out)
{
    int number = tutti__pairs_number(call, rank),
        distance = tutti__pairs_numbers(call) >> (step + 1), other = number ^ distance;
    tutti__piece kept = tutti__halving_parts(call, number / distance * distance, distance),
                 sent = tutti__halving_parts(call, other / distance * distance, distance);
    size_t all = tutti__halving_elements(call);
    bool fresh = step == 0 && is_in_src(call, rank), left = other < number;

    if (adds && fresh) { /* what was received is where the sum will be */
        tutti__coll_local(out, left ? TUTTI__COLL_REDUCE : TUTTI__COLL_REDUCE_LEFT,
                          tutti__coll_work(kept.at), tutti__coll_src(kept.at), kept.count);
    } else if (adds) {
        tutti__coll_local(out, left ? TUTTI__COLL_REDUCE_LEFT : TUTTI__COLL_REDUCE,
                          tutti__coll_work(kept.at), tutti__coll_work(all), kept.count);
    } else {
        int peer = tutti__pairs_rank(call, other);

        tutti__coll_send(out, peer, fresh ? tutti__coll_src(sent.at) : tutti__coll_work(sent.at),
                         sent.count);
        tutti__coll_recv(out, peer, tutti__coll_work(fresh ? kept.at : all), kept.count);
    }
}

void tutti__halving_round(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    size_t copies = n_copies(call), before = lead(call);
    bool receives = tutti__pairs_other(call, rank) >= 0 && tutti__pairs_takes_part(call, rank);

    if (round < copies && !receives)
        copy(call, out);
    else if (round >= copies && round < before)
        pair_up(call, rank, round > copies, out);
    else if (round >= before && round < tutti__halving_rounds(call) &&
             tutti__pairs_takes_part(call, rank))
        exchange(call, rank, (round - before) / 2, (round - before) % 2, out);
}
