/* move_kernel.c -- copies a block of elements between row-major memories, on the host.   SPDX-License-Identifier: MIT
 *
 * If the source is contiguous along another dimension than the destination, as in a transpose, those two are copied in tiles that
 * stay in the cache. Threads take rows of the remaining dimensions. */
#include "tensor/kernel.h"
#include "tensor/parallel.h"

#include <string.h>

#define TILE 32                 /* elements of an edge: two tiles of doubles are 16 KiB */
#define PART ((int64_t)1 << 14) /* elements per job, at least a row */

/* A block as it is copied. */
typedef struct block_copy {
    const tutti__move *c;
    int tiled; /* the dimension along which `from` is contiguous, if that is not the last; else -1 */
    int64_t bands;              /* of tiles along it; 1 without tiles */
    int64_t rows, rows_per_job; /* rows of the last dimension, or bands */
} block_copy;

#define COPY_ROW(type)                                                                             \
    do {                                                                                           \
        type *t = (type *)to;                                                                      \
        const type *f = (const type *)from;                                                        \
                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            t[i * ts] = f[i * fs];                                                                 \
    } while (0)

/* n elements, ts and fs apart. */
static void copy_row(const tutti__move *c, char *to, const char *from, int64_t n, int64_t ts,
                     int64_t fs)
{
    if (c->add) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i * ts] += ((const float *)from)[i * fs];
        return;
    }
    if (ts == 1 && fs == 1)
        memcpy(to, from, (size_t)n * c->element);
    else if (c->element == 4)
        COPY_ROW(uint32_t);
    else if (c->element == 2)
        COPY_ROW(uint16_t);
    else
        COPY_ROW(uint64_t);
}

/* A band of tiles, from element `a` of dimension b->tiled on. */
static void copy_band(const block_copy *b, char *to, const char *from, int64_t a)
{
    const tutti__move *c = b->c;
    const int64_t element = (int64_t)c->element;
    const int last = c->n - 1, d = b->tiled;
    const int64_t end = a + TILE < c->size[d] ? a + TILE : c->size[d];

    for (int64_t s = 0; s < c->size[last]; s += TILE) {
        const int64_t n = c->size[last] - s < TILE ? c->size[last] - s : TILE;

        for (int64_t r = a; r < end; r++)
            copy_row(c, to + (r * c->to_stride[d] + s * c->to_stride[last]) * element,
                     from + (r * c->from_stride[d] + s * c->from_stride[last]) * element, n,
                     c->to_stride[last], c->from_stride[last]);
    }
}

static void copy_job(void *arg, int64_t job, int member)
{
    const block_copy *b = arg;
    const tutti__move *c = b->c;
    const int64_t element = (int64_t)c->element, first = job * b->rows_per_job;
    const int last = c->n - 1;

    (void)member;
    for (int64_t row = first; row < first + b->rows_per_job && row < b->rows; row++) {
        int64_t to = 0, from = 0, rest = row / b->bands;

        for (int i = last - 1; i >= 0; i--) {
            if (i == b->tiled)
                continue;
            to += rest % c->size[i] * c->to_stride[i];
            from += rest % c->size[i] * c->from_stride[i];
            rest /= c->size[i];
        }
        if (b->tiled >= 0)
            copy_band(b, (char *)c->to + to * element, (const char *)c->from + from * element,
                      row % b->bands * TILE);
        else
            copy_row(c, (char *)c->to + to * element, (const char *)c->from + from * element,
                     c->size[last], c->to_stride[last], c->from_stride[last]);
    }
}

static bool is_contiguous(int64_t stride)
{
    return stride == 1 || stride == -1;
}

void tutti__move_on_host(tutti_ctx *cx, const tutti__move *c)
{
    block_copy b = {.c = c, .tiled = -1};
    int64_t row;

    for (int i = 0; i < c->n - 1; i++)
        if (is_contiguous(c->from_stride[i]))
            b.tiled = i;
    b.bands = b.tiled < 0 ? 1 : (c->size[b.tiled] + TILE - 1) / TILE;
    b.rows = b.bands;
    for (int i = 0; i < c->n - 1; i++)
        b.rows *= i == b.tiled ? 1 : c->size[i];
    row = c->size[c->n - 1] * (b.tiled < 0 ? 1 : TILE);
    b.rows_per_job = row < PART ? (PART + row - 1) / row : 1;
    tutti__parallel(cx, copy_job, &b, (b.rows + b.rows_per_job - 1) / b.rows_per_job);
}

tutti_status tutti__move_row_major(tutti_ctx *cx, const tutti__move *c)
{
    tutti__move_on_host(cx, c);
    return TUTTI_OK;
}

void tutti__fill_on_host(void *p, int64_t count, tutti_dtype dtype, float value)
{
    uint16_t half;

    if (dtype == TUTTI_F32)
        for (int64_t i = 0; i < count; i++)
            ((float *)p)[i] = value;
    else if (dtype == TUTTI_I64)
        for (int64_t i = 0; i < count; i++)
            ((int64_t *)p)[i] = (int64_t)value;
    else {
        tutti__half_from_f32(&half, &value, 1, dtype);
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)p)[i] = half;
    }
}

tutti_status tutti__fill_row_major(tutti_tensor *t, float value)
{
    tutti__fill_on_host(t->data, tutti_shape_count(t->shape), t->dtype, value);
    return TUTTI_OK;
}
