/* onednn_taps.c -- the weight gradient of a convolution of many small images, as matrix products.   SPDX-License-Identifier: MIT
 *
 * Tap (i, j) of the kernel meets pixel (h, w) of y at one pixel of x, or at its padding:
 *
 *     dw[:, :, i, j] = sum over (h, w) where that is a pixel of    dy[:, :, h, w]^T x[:, :, pixel of x]
 *
 * a product over the images for each pixel, added up in order. oneDNN's code goes from image to image, and reads and writes dw
 * for each, which exceeds the caches where there are many channels; and it multiplies padding. Here dw is written once. */
#include "tensor/kernel/onednn/onednn_state.h"

#include <string.h>

typedef struct taps {
    const tutti__conv2d *a;
    int64_t n, in_c, out_c, in[2], out[2], kernel[2]; /* two: height, width */
} taps;

static taps taps_of(tutti_shape x, tutti_shape w, tutti_shape y, const tutti__conv2d *a)
{
    return (taps){a, x.d[0], x.d[1], y.d[1], {x.d[2], x.d[3]}, {y.d[2], y.d[3]}, {w.d[2], w.d[3]}};
}

/* ---- Sources: [N][C/lanes][pixels][lanes] to [pixels][N][C] ------------------------------------------------------- */

typedef struct unblock {
    float *to;
    const float *from;
    int64_t n, channels, pixels, lanes;
} unblock;

static void unblock_job(void *arg, int64_t pixel, int member)
{
    const unblock *u = arg;
    float *to = u->to + pixel * u->n * u->channels;

    (void)member;
    for (int64_t i = 0; i < u->n * u->channels; i += u->lanes)
        memcpy(to + i, u->from + i * u->pixels + pixel * u->lanes,
               (size_t)u->lanes * sizeof(float));
}

/* Images of one pixel have that layout. */
static const float *rows_of(tutti_ctx *cx, const unblock *u)
{
    if (u->pixels == 1)
        return u->from;
    tutti__parallel(cx, unblock_job, (void *)(uintptr_t)u, u->pixels);
    return u->to;
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Where, in dimension d, pixels [*begin_p, *end_p) of y meet pixels of x by tap i. */
static void meets(const taps *t, int d, int64_t i, int64_t *begin_p, int64_t *end_p)
{
    const int64_t stride = t->a->stride[d], shift = i * t->a->dilation[d] - t->a->padding[d];
    const int64_t last = t->in[d] - 1 - shift;

    *begin_p = shift < 0 ? (-shift + stride - 1) / stride : 0;
    *end_p = last < 0 ? 0 : last / stride + 1;
    *end_p = *end_p > t->out[d] ? t->out[d] : *end_p;
}

/* The product of tap (i, j), without its result; false: it meets only padding. */
static bool product_of(const taps *t, int64_t i, int64_t j, const float *dy, const float *x,
                       tutti__product *p)
{
    const int64_t dy_pixel = t->n * t->out_c, x_pixel = t->n * t->in_c, at[2] = {i, j};
    int64_t begin[2], end[2], from[2];

    for (int d = 0; d < 2; d++) {
        meets(t, d, at[d], &begin[d], &end[d]);
        if (begin[d] >= end[d])
            return false;
        from[d] = begin[d] * t->a->stride[d] + at[d] * t->a->dilation[d] - t->a->padding[d];
    }
    *p = (tutti__product){
        .rows = t->out_c,
        .columns = t->in_c,
        .inner = t->n,
        .a = dy + (begin[0] * t->out[1] + begin[1]) * dy_pixel,
        .a_row = 1,
        .a_k = t->out_c,
        .b = x + (from[0] * t->in[1] + from[1]) * x_pixel,
        .b_k = t->in_c,
        .b_column = 1,
        .c_step = t->in_c,
        .n_batch = 2,
        .batch = {end[0] - begin[0], end[1] - begin[1]},
        .a_batch = {t->out[1] * dy_pixel, dy_pixel},
        .b_batch = {t->a->stride[0] * t->in[1] * x_pixel, t->a->stride[1] * x_pixel}};
    return true;
}

/* ---- Result: [taps][M][C] to [M][C][taps] ------------------------------------------------------------------------- */

enum { GATHER = 64 }; /* elements of a tap at a time */

typedef struct gather {
    float *dw;
    const float *products; /* of taps that meet pixels, in order */
    const bool *met;
    int64_t each, n_taps; /* elements of a tap */
    bool add;
} gather;

static void gather_job(void *arg, int64_t job, int member)
{
    const gather *g = arg;
    const int64_t first = job * GATHER, n = g->each - first < GATHER ? g->each - first : GATHER;
    float *dw = g->dw + first * g->n_taps;
    const float *from = g->products + first;

    (void)member;
    if (!g->add)
        memset(dw, 0, (size_t)(n * g->n_taps) * sizeof *dw);
    for (int64_t tap = 0; tap < g->n_taps; tap++) {
        if (!g->met[tap])
            continue;
        for (int64_t i = 0; i < n; i++)
            dw[i * g->n_taps + tap] += from[i];
        from += g->each;
    }
}

/* ---- The gradient ------------------------------------------------------------------------------------------------- */

enum { MOST_TAPS = 64, LINE = 16 }; /* LINE: floats of a cache line */

static int64_t whole_lines(int64_t floats)
{
    return (floats + LINE - 1) / LINE * LINE;
}

/* Bytes of work for any of the products. */
static size_t work_of(const tutti_ctx *cx, const tutti__isa *isa, const taps *t, const float *dy,
                      const float *x)
{
    size_t most = 0;
    tutti__product p;

    for (int64_t tap = 0; tap < t->kernel[0] * t->kernel[1]; tap++)
        if (product_of(t, tap / t->kernel[1], tap % t->kernel[1], dy, x, &p)) {
            const size_t bytes = isa->multiply_work(cx, &p);

            most = bytes > most ? bytes : most;
        }
    return most;
}

/* A 1x1 kernel's product is dw itself; others are gathered from behind each other at `results`. */
static void multiply_all(tutti_ctx *cx, const taps *t, tutti_tensor *dw, const float *dy,
                         const float *x, float *results, void *work)
{
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;
    bool met[MOST_TAPS];
    gather g = {dw->data,      results, met, t->out_c * t->in_c, t->kernel[0] * t->kernel[1],
                dw->accumulate};
    tutti__product p;

    for (int64_t tap = 0; tap < g.n_taps; tap++) {
        met[tap] = product_of(t, tap / t->kernel[1], tap % t->kernel[1], dy, x, &p);
        if (!met[tap])
            continue;
        p.c = g.n_taps == 1 ? dw->data : results;
        p.add = g.n_taps == 1 && dw->accumulate;
        isa->multiply(cx, &p, work);
        results += g.each;
    }
    if (g.n_taps > 1 || !met[0])
        tutti__parallel(cx, gather_job, &g, (g.each + GATHER - 1) / GATHER);
}

bool tutti__taps_can(tutti_ctx *cx, tutti_shape x, tutti_shape w)
{
    const int lanes = ((const tutti__onednn *)cx->kernel_state)->isa->lanes;

    return x.d[1] % lanes == 0 && w.d[0] % lanes == 0 && w.d[2] * w.d[3] <= MOST_TAPS;
}

tutti_status tutti__taps_backward_weights(tutti_tensor *dw, tutti_tensor *dy, tutti_tensor *x,
                                          const tutti__conv2d *a)
{
    tutti_ctx *cx = dw->cx;
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;
    const taps t = taps_of(x->shape, dw->shape, dy->shape, a);
    const int64_t x_floats = whole_lines(tutti_shape_count(x->shape)),
                  dy_floats = whole_lines(tutti_shape_count(dy->shape)),
                  results = whole_lines(tutti_shape_count(dw->shape));
    const tutti__layout *x_layout, *dy_layout;
    void *x_data, *dy_data, *memory;
    size_t work;
    float *rows;

    TUTTI_TRY(tutti__onednn_blocked(cx, x->shape, &x_layout));
    TUTTI_TRY(tutti__onednn_blocked(cx, dy->shape, &dy_layout));
    TUTTI_TRY(tutti__onednn_in(x, x_layout, &x_data));
    TUTTI_TRY(tutti__onednn_in(dy, dy_layout, &dy_data));
    work = work_of(cx, isa, &t, dy_data, x_data);
    TUTTI_TRY(tutti__onednn_scratch(
        cx, work + (size_t)(x_floats + dy_floats + results) * sizeof(float), &memory));
    rows = memory;
    multiply_all(cx, &t, dw,
                 rows_of(cx, &(unblock){rows + x_floats, dy_data, t.n, t.out_c, t.out[0] * t.out[1],
                                        isa->lanes}),
                 rows_of(cx, &(unblock){rows, x_data, t.n, t.in_c, t.in[0] * t.in[1], isa->lanes}),
                 rows + x_floats + dy_floats, rows + x_floats + dy_floats + results);
    return TUTTI_OK;
}
