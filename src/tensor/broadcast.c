/* broadcast.c -- a narrow tensor read as if it had a wide shape, and gradients of the wide shape summed back.
 * SPDX-License-Identifier: MIT */
#include "tensor/broadcast.h"
#include "tensor/parallel.h"

#include <string.h>

#define LANES                                                                                      \
    16 /* partial sums of a row: a fixed number, so that the bits do not depend on vectors' width */
#define COLUMNS 1024 /* summed at once */

/* ---- The dimensions -------------------------------------------------------------------------- */

/* Appends a dimension, or continues the last one. */
static void append(tutti__broadcast *b, int64_t size, int64_t stride)
{
    const int last = b->n - 1;

    if (size == 1)
        return;
    if (last >= 0 && b->stride[last] == stride * size && (stride > 0) == (b->stride[last] > 0)) {
        b->size[last] *= size;
        b->stride[last] = stride;
        return;
    }
    b->size[b->n] = size;
    b->stride[b->n++] = stride;
}

tutti__broadcast tutti__broadcast_of(tutti_shape narrow, tutti_shape wide)
{
    tutti__broadcast b = {.narrow = tutti_shape_count(narrow), .wide = tutti_shape_count(wide)};
    int64_t stride = b.narrow;

    for (int i = 0; i < wide.n; i++) {
        const int k = i - (wide.n - narrow.n);
        const int64_t size = k < 0 ? 1 : narrow.d[k];

        stride = size > 1 ? stride / size : stride;
        append(&b, wide.d[i], size == 1 ? 0 : stride);
    }
    return b;
}

/* ---- Reading --------------------------------------------------------------------------------- */

void tutti__broadcast_read(const tutti__broadcast *b, float *to, const float *narrow, int64_t from,
                           int64_t n)
{
    const int last = b->n - 1;
    int64_t at[TUTTI_MAX_DIMS] = {0}, offset = 0, rest = from;

    for (int i = last; i >= 0; i--) {
        at[i] = rest % b->size[i];
        rest /= b->size[i];
        offset += at[i] * b->stride[i];
    }
    while (n > 0) {
        const int64_t left = last < 0 ? 1 : b->size[last] - at[last], run = left < n ? left : n;

        if (last >= 0 && b->stride[last] == 1)
            memcpy(to, narrow + offset, (size_t)run * sizeof(float));
        else
            for (int64_t i = 0; i < run; i++)
                to[i] = narrow[offset];
        to += run;
        n -= run;
        if (last < 0)
            continue;
        offset -= at[last] * b->stride[last];
        at[last] = 0;
        for (int i = last - 1; i >= 0; i--) {
            offset += b->stride[i];
            if (++at[i] < b->size[i])
                break;
            offset -= at[i] * b->stride[i];
            at[i] = 0;
        }
    }
}

/* ---- Summing --------------------------------------------------------------------------------- */

/* Some of the dimensions of the wide shape. */
typedef struct dims {
    int n;
    int64_t size[TUTTI_MAX_DIMS], stride[TUTTI_MAX_DIMS]; /* strides in the wide memory */
    int64_t count;
} dims;

/* The last dimension is apart: rows, or parts of rows, are summed at once. */
typedef struct sum {
    const float *wide;
    float *narrow;
    dims kept, summed;
    bool keeps_last;
    int64_t last, chunks; /* its size; into how many parts it is cut */
} sum;

static int64_t offset_of(const dims *d, int64_t index)
{
    int64_t offset = 0;

    for (int i = d->n - 1; i >= 0; i--) {
        offset += index % d->size[i] * d->stride[i];
        index /= d->size[i];
    }
    return offset;
}

TUTTI__CLONES static double row_sum(const float *row, int64_t n)
{
    double lane[LANES] = {0}, total = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)row[i + k];
    for (; i < n; i++)
        lane[i % LANES] += (double)row[i];
    for (int k = 0; k < LANES; k++)
        total += lane[k];
    return total;
}

TUTTI__CLONES static void add_wide_row(double *total, const float *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        total[i] += (double)row[i];
}

static void sum_job(void *arg, int64_t index, int member)
{
    const sum *s = arg;
    const int64_t kept = index / s->chunks, from = index % s->chunks * COLUMNS;
    const int64_t n = s->last - from < COLUMNS ? s->last - from : COLUMNS;
    const float *wide = s->wide + offset_of(&s->kept, kept);
    double total[COLUMNS];

    (void)member;
    if (!s->keeps_last) {
        total[0] = 0;
        for (int64_t i = 0; i < s->summed.count; i++)
            total[0] += row_sum(wide + offset_of(&s->summed, i), s->last);
        s->narrow[kept] = (float)total[0];
        return;
    }
    memset(total, 0, (size_t)n * sizeof *total);
    for (int64_t i = 0; i < s->summed.count; i++)
        add_wide_row(total, wide + offset_of(&s->summed, i) + from, n);
    for (int64_t i = 0; i < n; i++)
        s->narrow[kept * s->last + from + i] = (float)total[i];
}

void tutti__broadcast_sum(tutti_ctx *cx, const tutti__broadcast *b, float *narrow,
                          const float *wide)
{
    sum s = {.wide = wide, .narrow = narrow, .kept.count = 1, .summed.count = 1, .last = 1};
    int64_t stride = 1;

    if (b->wide == 0) {
        memset(narrow, 0, (size_t)b->narrow * sizeof *narrow);
        return;
    }
    for (int i = 0; i < b->n; i++)
        stride *= b->size[i];
    for (int i = 0; i < b->n - 1; i++) {
        dims *d = b->stride[i] ? &s.kept : &s.summed;

        stride /= b->size[i];
        d->size[d->n] = b->size[i];
        d->stride[d->n++] = stride;
        d->count *= b->size[i];
    }
    if (b->n > 0) {
        s.keeps_last = b->stride[b->n - 1] > 0;
        s.last = b->size[b->n - 1];
    }
    s.chunks = s.keeps_last ? (s.last + COLUMNS - 1) / COLUMNS : 1;
    tutti__parallel(cx, sum_job, &s, s.kept.count * s.chunks);
}
