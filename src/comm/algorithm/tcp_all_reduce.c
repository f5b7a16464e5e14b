/* shares.c -- all_reduce over sockets.   SPDX-License-Identifier: MIT
 *
 * Each rank owns a share of every chunk: the others send it theirs, it reduces them in order and sends the result to all.
 * That moves as many bytes as a ring in two steps instead of 2(n-1). Chunks follow each other without waiting: while the
 * shares of one are reduced those of the next travel, and results return meanwhile; the row of messages to each peer is
 *
 *     shares 0 .. DEPTH-1 | result 0, shares DEPTH | result 1, shares DEPTH+1 | ... | the last DEPTH results
 *
 * Where little is to be sent, everybody sends all of it to everybody, and each rank reduces all: one step instead of two,
 * the same sums in the same order. */
#include "comm/algorithm/tcp.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 128 << 10, DEPTH = 2, SMALL_BYTES = 32 << 10 };

typedef struct all_reduce {
    tutti__schedule schedule;
    tutti__wire *wire;
    const tutti__direct *shares;
    tutti_dtype dtype;
    size_t element, chunk, n_chunks; /* chunk: elements */
    size_t depth, prepared, reduced, finished;
    size_t slot_bytes;
    char *scratch; /* a slot for each chunk in flight and rank */
    const void **src;
} all_reduce;

/* ---- The row of messages -------------------------------------------------------------------------------------------- */

typedef struct turn {
    bool result; /* else shares */
    size_t chunk;
} turn;

static turn turn_of(const all_reduce *a, size_t step)
{
    size_t n = a->n_chunks, depth = a->depth;

    if (step < depth)
        return (turn){false, step};
    if (step >= 2 * n - depth)
        return (turn){true, step - n};
    return (step - depth) % 2 ? (turn){false, depth + (step - depth) / 2}
                              : (turn){true, (step - depth) / 2};
}

static size_t step_of_shares(const all_reduce *a, size_t chunk)
{
    return chunk < a->depth ? chunk : a->depth + 2 * (chunk - a->depth) + 1;
}

static size_t step_of_result(const all_reduce *a, size_t chunk)
{
    return chunk < a->n_chunks - a->depth ? a->depth + 2 * chunk : chunk + a->n_chunks;
}

/* The part of chunk k that the i-th rank owns. */
static struct iovec share(const all_reduce *a, size_t k, int i)
{
    size_t begin = k * a->chunk,
           n = a->shares->count - begin < a->chunk ? a->shares->count - begin : a->chunk;
    tutti__piece part = tutti__part(n, (size_t)a->shares->n, (size_t)i, 64 / a->element);

    return (struct iovec){a->shares->p + (begin + part.at) * a->element, part.count * a->element};
}

static char *slot(const all_reduce *a, size_t k, int i)
{
    return a->scratch + ((k % a->depth) * (size_t)a->shares->n + (size_t)i) * a->slot_bytes;
}

static void prepare(all_reduce *a, size_t k)
{
    size_t begin = k * a->chunk, left = a->shares->count - begin;

    a->prepared = k + 1;
    if (a->shares->prepare)
        a->shares->prepare(a->shares->self, begin, left < a->chunk ? left : a->chunk);
}

static bool out(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    all_reduce *a = (all_reduce *)schedule;
    turn t = turn_of(a, step);

    if (t.result && t.chunk >= a->reduced)
        return false;
    if (!t.result && t.chunk >= a->prepared)
        prepare(a, t.chunk);
    *io = share(a, t.chunk, t.result ? a->shares->me : i);
    return true;
}

static bool in(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const all_reduce *a = (const all_reduce *)schedule;
    turn t = turn_of(a, step);

    if (t.result) {
        *io = share(a, t.chunk, i);
        return true;
    }
    if (t.chunk >= a->reduced + a->depth)
        return false; /* its slot is in use */
    *io = (struct iovec){slot(a, t.chunk, i), share(a, t.chunk, a->shares->me).iov_len};
    return true;
}

/* Reduces what src points at. */
static void combine(const all_reduce *a, void *dst, size_t n)
{
    const tutti__direct *s = a->shares;

    if (s->redop == TUTTI_AVG)
        tutti__average(a->dtype, s->divisor, dst, a->src, (size_t)s->n, n);
    else
        tutti__reduce(a->dtype, s->redop, &dst, 1, a->src, (size_t)s->n, n);
}

static void reduce(all_reduce *a, size_t k)
{
    const tutti__direct *s = a->shares;
    struct iovec mine = share(a, k, s->me);

    if (k >= a->prepared)
        prepare(a, k);
    for (int i = 0; i < s->n; i++)
        a->src[i] = i == s->me ? mine.iov_base : slot(a, k, i);
    combine(a, mine.iov_base, mine.iov_len / a->element);
}

static bool all_have_come(const all_reduce *a, size_t step)
{
    for (int i = 0; i < a->shares->n; i++)
        if (i != a->shares->me && tutti__wire_came(a->wire, &a->schedule, i) <= step)
            return false;
    return true;
}

static void came(tutti__schedule *schedule)
{
    all_reduce *a = (all_reduce *)schedule;
    const tutti__direct *s = a->shares;

    while (a->reduced < a->n_chunks && all_have_come(a, step_of_shares(a, a->reduced)))
        reduce(a, a->reduced++);
    while (s->finish && a->finished < a->reduced &&
           all_have_come(a, step_of_result(a, a->finished))) {
        size_t begin = a->finished++ * a->chunk, left = s->count - begin;

        s->finish(s->self, begin, left < a->chunk ? left : a->chunk);
    }
}

/* ---- Little ------------------------------------------------------------------------------------------------------- */

static bool all_out(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const all_reduce *a = (const all_reduce *)schedule;

    (void)i;
    (void)step;
    *io = (struct iovec){a->shares->p, a->shares->count * a->element};
    return true;
}

static bool all_in(tutti__schedule *schedule, int i, size_t step, struct iovec *io)
{
    const all_reduce *a = (const all_reduce *)schedule;

    (void)step;
    *io = (struct iovec){slot(a, 0, i), a->shares->count * a->element};
    return true;
}

static tutti_status run_small(all_reduce *a)
{
    const tutti__direct *s = a->shares;

    a->schedule.n_steps = 1;
    a->schedule.out = all_out;
    a->schedule.in = all_in;
    a->schedule.came = NULL;
    if (s->prepare)
        s->prepare(s->self, 0, s->count);
    TUTTI_TRY(tutti__wire_run(a->wire, &a->schedule));
    for (int i = 0; i < s->n; i++)
        a->src[i] = i == s->me ? s->p : slot(a, 0, i);
    combine(a, s->p, s->count);
    if (s->finish)
        s->finish(s->self, 0, s->count);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------------------------------------------- */

tutti_status tutti__tcp_all_reduce(tutti__wire *wire, const tutti__op *op, bool heads,
                                   const tutti__direct *s)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype), n = (size_t)s->n,
           bytes = s->count * element,
           chunk_bytes = tutti__comm_chunk_bytes(wire->comm, CHUNK_BYTES);
    bool small = bytes * (n - 1) <= SMALL_BYTES;
    all_reduce a = {.schedule = {.op = op,
                                 .heads = heads,
                                 .bytes = tutti__signature_bytes(&op->signature),
                                 .ranks = s->ranks,
                                 .n_ranks = s->n,
                                 .out = out,
                                 .in = in,
                                 .came = came},
                    .wire = wire,
                    .shares = s,
                    .dtype = (tutti_dtype)op->signature.dtype,
                    .element = element,
                    .chunk = chunk_bytes / element * n};
    tutti_status status;

    a.n_chunks = (s->count + a.chunk - 1) / a.chunk;
    a.depth = a.n_chunks < DEPTH ? a.n_chunks : DEPTH;
    a.schedule.n_steps = 2 * a.n_chunks;
    a.slot_bytes = small ? (bytes + 63) / 64 * 64 : chunk_bytes;
    a.scratch =
        tutti__wire_scratch(wire, (small ? 1 : a.depth) * n * a.slot_bytes + n * sizeof *a.src);
    if (!a.scratch)
        return tutti__comm_status(wire->comm);
    a.src = (const void **)(void *)(a.scratch + (small ? 1 : a.depth) * n * a.slot_bytes);
    status = small ? run_small(&a) : tutti__wire_run(wire, &a.schedule);
    return status;
}
