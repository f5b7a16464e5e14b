/* rounds.c -- the table of algorithms, what they are built from, and what they cost.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/rounds.h"

#include <stdlib.h>

#define ALGORITHM(name) extern const tutti__coll_algorithm tutti__coll_##name;
#include "comm/algorithm/algorithms.def"
#undef ALGORITHM

const tutti__coll_algorithm *const tutti__coll_algorithms[] = {
#define ALGORITHM(name) &tutti__coll_##name,
#include "comm/algorithm/algorithms.def"
#undef ALGORITHM
};
const size_t tutti__coll_n_algorithms = TUTTI__COUNT_OF(tutti__coll_algorithms);

const tutti__coll_algorithm *tutti__coll_find(tutti__op_kind op, const char *name)
{
    for (size_t i = 0; i < tutti__coll_n_algorithms; i++)
        if (tutti__coll_algorithms[i]->op == op &&
            strcmp(tutti__coll_algorithms[i]->name, name) == 0)
            return tutti__coll_algorithms[i];
    return NULL;
}

bool tutti__coll_fits(const tutti__coll_algorithm *algorithm, const tutti__coll *call)
{
    return algorithm->op == call->op && call->size > 1 && call->count > 0 &&
           (!algorithm->fits || algorithm->fits(call));
}

void tutti__coll_actions(const tutti__coll_algorithm *algorithm, const tutti__coll *call, int rank,
                         size_t round, tutti__coll_round *out)
{
    out->n = 0;
    algorithm->round(call, rank, round, out);
}

/* ---- Types ------------------------------------------------------------------------------------------------------- */

bool tutti__coll_is_wide(const tutti__coll *call)
{
    return tutti__op_table[call->op].reduces &&
           (call->dtype == TUTTI_F16 || call->dtype == TUTTI_BF16) && call->redop != TUTTI_BAND &&
           call->redop != TUTTI_BOR && call->redop != TUTTI_BXOR;
}

size_t tutti__coll_element(const tutti__coll *call, tutti__coll_place place)
{
    return place == TUTTI__COLL_WORK && tutti__coll_is_wide(call) ? sizeof(float)
                                                                  : tutti__element(call->dtype);
}

size_t tutti__coll_scratch(const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                           int rank, size_t *held_p)
{
    const size_t line = 64;
    size_t work = algorithm->work ? algorithm->work(call, rank) : 0,
           held = algorithm->held ? algorithm->held(call, rank) : 0;

    *held_p = (work * tutti__coll_element(call, TUTTI__COLL_WORK) + line - 1) / line * line;
    return *held_p + held * tutti__coll_element(call, TUTTI__COLL_HELD);
}

/* ---- For algorithms ---------------------------------------------------------------------------------------------- */

static void add(tutti__coll_round *out, const tutti__coll_action *action)
{
    if (action->count > 0 && out->n < out->capacity)
        out->actions[out->n] = *action;
    out->n += action->count > 0; /* beyond the capacity: the caller sees it */
}

void tutti__coll_send(tutti__coll_round *out, int to, tutti__coll_at from, size_t count)
{
    add(out, &(tutti__coll_action){
                 .kind = TUTTI__COLL_SEND, .peer = to, .to = from, .from = from, .count = count});
}

void tutti__coll_recv(tutti__coll_round *out, int from, tutti__coll_at to, size_t count)
{
    add(out, &(tutti__coll_action){
                 .kind = TUTTI__COLL_RECV, .peer = from, .to = to, .from = to, .count = count});
}

void tutti__coll_local(tutti__coll_round *out, tutti__coll_kind kind, tutti__coll_at to,
                       tutti__coll_at from, size_t count)
{
    add(out,
        &(tutti__coll_action){.kind = kind, .peer = -1, .to = to, .from = from, .count = count});
}

size_t tutti__coll_log_up(size_t n)
{
    size_t k = 0;

    while (((size_t)1 << k) < n)
        k++;
    return k;
}

size_t tutti__coll_log_down(size_t n)
{
    size_t k = 0;

    while (((size_t)2 << k) <= n)
        k++;
    return k;
}

tutti__piece tutti__coll_shard(const tutti__coll *call, int i)
{
    size_t n = (size_t)call->size, k = (size_t)((i % call->size + call->size) % call->size),
           each = call->count / n, larger = call->count % n;

    return (tutti__piece){k * each + (k < larger ? k : larger), each + (k < larger)};
}

tutti__piece tutti__coll_chunk(const tutti__coll *call, tutti__piece part, size_t k)
{
    size_t begin = k * call->chunk;

    if (begin >= part.count)
        return (tutti__piece){part.at + part.count, 0};
    return (tutti__piece){part.at + begin,
                          part.count - begin < call->chunk ? part.count - begin : call->chunk};
}

size_t tutti__coll_n_chunks(const tutti__coll *call)
{
    size_t n = (tutti__coll_shard(call, 0).count + call->chunk - 1) / call->chunk;

    return n > 0 ? n : 1;
}

/* ---- Costs --------------------------------------------------------------------------------------------------------- */

int tutti__coll_level(const tutti__coll *call, int a, int b)
{
    int level = 0;

    while (level < TUTTI__COLL_LEVELS && call->block[level] > 0 &&
           a / call->block[level] != b / call->block[level])
        level++;
    return level;
}

static uint64_t round_ns(const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                         const tutti__coll_links *links, int rank, size_t round,
                         tutti__coll_round *out)
{
    uint64_t latency = 0, messages = 0, in_ps = 0, out_ps = 0, local_ps = 0;

    tutti__coll_actions(algorithm, call, rank, round, out);
    for (size_t i = 0; i < out->n; i++) {
        const tutti__coll_action *a = &out->actions[i];
        uint64_t bytes = a->count * tutti__coll_element(call, a->to.place);

        if (a->kind != TUTTI__COLL_SEND && a->kind != TUTTI__COLL_RECV) {
            local_ps += bytes * links->reduce_ps;
            continue;
        }
        const tutti__coll_link *link = &links->level[tutti__coll_level(call, rank, a->peer)];

        messages += link->message_ns;
        *(a->kind == TUTTI__COLL_SEND ? &out_ps : &in_ps) += bytes * link->byte_ps;
        if (a->kind == TUTTI__COLL_RECV && link->latency_ns > latency)
            latency = link->latency_ns;
    }
    return latency + messages + ((in_ps > out_ps ? in_ps : out_ps) + local_ps) / 1000;
}

uint64_t tutti__coll_estimate(const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                              const tutti__coll_links *links)
{
    enum { LOOK = 10 };
    const int n = call->size;
    int few[LOOK] = {0,
                     1 % n,
                     n / 2,
                     n - 1,
                     call->root,
                     (call->root + 1) % n,
                     (call->root + n / 2) % n,
                     (call->root + n - 1) % n};
    size_t n_rounds = algorithm->n_rounds(call), most = algorithm->most_actions(call);
    tutti__coll_round out = {calloc(most ? most : 1, sizeof *out.actions), 0, most};
    uint64_t ns = 0;

    for (size_t r = 0; out.actions && r < n_rounds; r++) {
        uint64_t slowest = 0;

        /* of a chain, those that have their turn */
        few[LOOK - 2] = (int)((r + (size_t)call->root) % (size_t)n);
        few[LOOK - 1] = (int)((r + (size_t)call->root + 1) % (size_t)n);
        for (int i = 0; i < (n < LOOK ? n : LOOK); i++) {
            uint64_t here = round_ns(algorithm, call, links, n <= LOOK ? i : few[i], r, &out);

            slowest = here > slowest ? here : slowest;
        }
        ns += slowest;
    }
    if (!out.actions)
        ns = UINT64_MAX;
    free(out.actions);
    return ns;
}
