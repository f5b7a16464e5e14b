/* rounds_act.c -- the local actions of rounds, on memory.   SPDX-License-Identifier: MIT
 *
 * Where types differ, elements are converted in tiles that stay in the first-level cache. */
#include "comm/algorithm/rounds_act.h"

#include "base/half.h"
#include "comm/algorithm/order.h"
#include "comm/core/reduce.h"

enum { TILE = 512 };

TUTTI__CLONES static void coll_widen(bool bf16, float *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; bf16 && i < n; i++)
        to[i] = tutti__f32_of_bf16(from[i]);
    for (size_t i = 0; !bf16 && i < n; i++)
        to[i] = tutti__f32_of_f16(from[i]);
}

TUTTI__CLONES static void coll_round(bool bf16, uint16_t *to, const float *from, float divisor,
                                     size_t n)
{
    for (size_t i = 0; bf16 && i < n; i++)
        to[i] = tutti__bf16_of_f32(from[i] / divisor);
    for (size_t i = 0; !bf16 && i < n; i++)
        to[i] = tutti__f16_of_f32(from[i] / divisor);
}

/* The partial results of an average are sums. */
static tutti_redop partial(tutti_redop redop)
{
    return redop == TUTTI_AVG ? TUTTI_SUM : redop;
}

static void reduce(const tutti__coll *call, tutti_dtype dtype, bool left, void *to,
                   const void *from, size_t n)
{
    const void *src[] = {left ? from : to, left ? to : from};

    tutti__reduce(dtype, partial(call->redop), &to, 1, src, 2, n);
}

static void finish(const tutti__coll *call, const tutti__coll_memory *memory, char *to,
                   const char *from, size_t n)
{
    const void *src = from;

    if (tutti__coll_is_wide(call))
        coll_round(call->dtype == TUTTI_BF16, (uint16_t *)(void *)to, src,
                   call->redop == TUTTI_AVG ? (float)memory->divisor : 1.0f, n);
    else if (call->redop == TUTTI_AVG)
        tutti__average(call->dtype, memory->divisor, to, &src, 1, n);
    else if (to != from)
        memcpy(to, from, n * tutti__element(call->dtype));
}

/* Copies or reduces elements of 16 bits into WORK's of F32. */
static void widen(const tutti__coll *call, tutti__coll_kind kind, float *to, const uint16_t *from,
                  size_t n)
{
    float tile[TILE];

    if (kind == TUTTI__COLL_COPY) {
        coll_widen(call->dtype == TUTTI_BF16, to, from, n);
        return;
    }
    for (size_t at = 0, part; at < n; at += part) {
        part = n - at < TILE ? n - at : TILE;
        coll_widen(call->dtype == TUTTI_BF16, tile, from + at, part);
        reduce(call, TUTTI_F32, kind == TUTTI__COLL_REDUCE_LEFT, to + at, tile, part);
    }
}

void tutti__coll_act(const tutti__coll *call, const tutti__coll_memory *memory,
                     const tutti__coll_action *action)
{
    char *to = tutti__coll_address(call, memory, action->to);
    const char *from = tutti__coll_address(call, memory, action->from);
    bool wide = tutti__coll_is_wide(call) && action->to.place == TUTTI__COLL_WORK;

    if (action->kind == TUTTI__COLL_FINISH)
        finish(call, memory, to, from, action->count);
    else if (wide && action->from.place != TUTTI__COLL_WORK)
        widen(call, action->kind, (float *)(void *)to, (const uint16_t *)(const void *)from,
              action->count);
    else if (action->kind != TUTTI__COLL_COPY)
        reduce(call, wide ? TUTTI_F32 : call->dtype, action->kind == TUTTI__COLL_REDUCE_LEFT, to,
               from, action->count);
    else if (to != from)
        memcpy(to, from, action->count * tutti__coll_element(call, action->to.place));
}

/* ---- The common order, of memory that is all here -------------------------------------------------------------------- */

enum { SUM_TILE = 256 };

typedef struct summing {
    const tutti__coll *call;
    const void *const *src;
    size_t at, n; /* the tile */
} summing;

/* Adds the rank's elements to the tile, or begins it with them. */
static void take(const summing *s, tutti__coll_kind kind, int rank, void *tile)
{
    const tutti__coll *call = s->call;
    const size_t element = tutti__element(call->dtype);
    const char *from = (const char *)s->src[rank] + s->at * element;

    if (tutti__coll_is_wide(call))
        widen(call, kind, tile, (const uint16_t *)(const void *)from, s->n);
    else if (kind == TUTTI__COLL_COPY)
        memcpy(tile, from, s->n * element);
    else
        reduce(call, call->dtype, false, tile, from, s->n);
}

/* What the rank has after a step; after step -1: what it gives. */
static void sum_after(const summing *s, const tutti__order *o, int rank, int step, void *tile)
{
    const tutti__coll *call = s->call;
    const int radix = step < 0 ? 0 : o->step[step].radix,
              n = step < 0 ? 0 : radix + tutti__order_extras(o, rank, step);
    uint64_t other[SUM_TILE]; /* elements of up to 8 bytes */

    if (step < 0)
        take(s, TUTTI__COLL_COPY, rank, tile);
    for (int i = 0; i < n; i++) {
        const bool folds = i >= radix;
        const int from = folds ? tutti__order_extra(o, rank, step, i - radix)
                               : tutti__order_peer(o, rank, step, i),
                  before = folds ? o->level[o->step[step].level].first - 1 : step - 1;

        if (i > 0 && before < 0) {
            take(s, TUTTI__COLL_REDUCE, from, tile);
            continue;
        }
        sum_after(s, o, from, before, i == 0 ? tile : other);
        if (i > 0)
            reduce(call, tutti__coll_is_wide(call) ? TUTTI_F32 : call->dtype, false, tile, other,
                   s->n);
    }
}

void tutti__coll_sum(const tutti__coll *call, size_t divisor, void *dst, const void *const *src,
                     size_t count)
{
    const tutti__coll_memory memory = {.divisor = divisor};
    const tutti__order order = tutti__order_of(call);
    uint64_t tile[SUM_TILE];

    for (summing s = {call, src, 0, 0}; s.at < count; s.at += s.n) {
        s.n = count - s.at < SUM_TILE ? count - s.at : SUM_TILE;
        sum_after(&s, &order, 0, order.n_steps - 1, tile);
        finish(call, &memory, (char *)dst + s.at * tutti__element(call->dtype),
               (const char *)(const void *)tile, s.n);
    }
}
