/* norm.c -- norms, whose bits depend on nothing but the elements.   SPDX-License-Identifier: MIT */
#include "optim/optim.h"

#include "tensor/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements per job: enough to be worth a thread. */
#define PART ((size_t)1 << 16)

typedef struct squares_job {
    tutti_stream *stream;
    const tutti__flat_span *spans;
    size_t n;
    tutti__squares *sums; /* by member */
} squares_job;

/* Elements i * PART to (i + 1) * PART of the spans one after another. */
static void add_part(void *arg, int64_t i, int member)
{
    const squares_job *t = arg;
    size_t skip = (size_t)i * PART, left = PART;
    tutti__squares sum = t->sums[member];

    for (size_t k = 0; k < t->n && left > 0; k++) {
        const size_t n = t->spans[k].n;
        tutti__flat_span span;

        if (skip >= n) {
            skip -= n;
            continue;
        }
        span = (tutti__flat_span){t->spans[k].p + skip, n - skip < left ? n - skip : left};
        (void)!t->stream->ops->flat->sum_squares(t->stream, &span, 1, &sum); /* on the host: OK */
        left -= span.n;
        skip = 0;
    }
    t->sums[member] = sum;
}

tutti_status tutti__add_squares(tutti_ctx *cx, const tutti__flat_span *spans, size_t n,
                                tutti__squares *sum)
{
    const int members = cx->threads; /* the threads may become fewer */
    squares_job t = {.stream = cx->stream, .spans = spans, .n = n};
    size_t elements = 0;

    for (size_t i = 0; i < n; i++)
        elements += spans[i].n;
    if (!cx->device_ops->is_host || members == 1 || elements <= PART)
        return cx->stream->ops->flat->sum_squares(cx->stream, spans, n, sum);
    t.sums = tutti__alloc((size_t)members * sizeof *t.sums);
    if (!t.sums)
        return TUTTI_ERR_MEMORY;
    tutti__parallel(cx, add_part, &t, (int64_t)((elements + PART - 1) / PART));
    for (int i = 0; i < members; i++)
        tutti__squares_add(sum, &t.sums[i]);
    free(t.sums);
    return TUTTI_OK;
}

/* ---- Between ranks: as whole numbers below 2^16, which every transport of floats keeps ---- */

enum { WORDS = 5, FLOATS = 4 * WORDS };

static void to_floats(const tutti__squares *s, float values[FLOATS])
{
    const uint64_t words[WORDS] = {s->largest, (uint64_t)s->high[0], (uint64_t)s->high[1],
                                   (uint64_t)s->low[0], (uint64_t)s->low[1]};

    for (int i = 0; i < FLOATS; i++)
        values[i] = (float)(words[i / 4] >> 16 * (i % 4) & UINT16_MAX);
}

static tutti__squares from_floats(const float values[FLOATS])
{
    uint64_t words[WORDS] = {0};

    for (int i = 0; i < FLOATS; i++)
        words[i / 4] |= (uint64_t)values[i] << 16 * (i % 4);
    return (tutti__squares){.largest = (uint32_t)words[0],
                            .high = {(int64_t)words[1], (int64_t)words[2]},
                            .low = {(int64_t)words[3], (int64_t)words[4]}};
}

tutti_status tutti__add_peers_squares(const tutti_peers *peers, tutti__squares *sums, size_t n)
{
    const size_t size = peers->size > 1 ? (size_t)peers->size : 1;
    float *mine, *all;
    tutti_status status;

    if (size == 1 || n == 0)
        return TUTTI_OK;
    mine = tutti__alloc((size + 1) * n * FLOATS * sizeof *mine);
    if (!mine)
        return TUTTI_ERR_MEMORY;
    all = mine + n * FLOATS;
    for (size_t i = 0; i < n; i++)
        to_floats(&sums[i], mine + i * FLOATS);
    status = peers->all_gather(peers->self, NULL, mine, n * FLOATS, all);
    memset(sums, 0, n * sizeof *sums);
    for (size_t k = 0; k < size * n && status == TUTTI_OK; k++) {
        const tutti__squares more = from_floats(all + k * FLOATS);

        tutti__squares_add(&sums[k % n], &more);
    }
    free(mine);
    return status;
}

/* ---- Of one range ---- */

tutti_status tutti__optim_norm(const tutti_optim *optim, const float *p, size_t n, double *norm_p)
{
    const tutti__flat_span span = {(float *)(uintptr_t)p, n};
    tutti__squares sum = {0};

    TUTTI_TRY(tutti__add_squares(optim->cx, &span, 1, &sum));
    *norm_p = sqrt(tutti__squares_value(&sum));
    return TUTTI_OK;
}
