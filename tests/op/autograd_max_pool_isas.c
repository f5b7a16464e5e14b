/* autograd_max_pool_isas.c -- max pooling in blocks, of each instruction set that this CPU has, against loops over pixels.
 * SPDX-License-Identifier: MIT
 *
 * Windows with pixels between them and beside them, one pixel, the whole image, dx large enough to bypass the cache; equal values,
 * infinities and NaN. The bits are those of one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op/isas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tutti__pool_shape shapes[] = {
    {3, 31, 31, 15, 15, {2, 2}, {2, 2}}, {2, 7, 8, 2, 3, {2, 1}, {4, 3}},
    {2, 5, 4, 5, 4, {1, 1}, {1, 1}},     {1, 3, 17, 1, 1, {3, 17}, {3, 17}},
    {5, 9, 6, 3, 2, {3, 2}, {3, 3}},     {70, 48, 48, 24, 24, {2, 2}, {2, 2}},
};

typedef struct data {
    float *x, *y, *dy, *dx;
    uint8_t *taps;
    size_t in, out; /* floats */
} data;

static float *memory(size_t n, const float *values, size_t n_values)
{
    float *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = values ? values[i * 2654435761u / 7 % n_values] : NAN;
    return p;
}

static data data_new(const tutti__pool_shape *s, int lanes)
{
    static const float values[] = {0, -1, 2, -INFINITY, 2, 1, -0.0f, 0.5f, INFINITY, -3, NAN, 1, 2};
    data d = {.in = (size_t)(s->planes * s->in_h * s->in_w * lanes),
              .out = (size_t)(s->planes * s->out_h * s->out_w * lanes)};

    d.x = memory(d.in, values, 13);
    d.dx = memory(d.in, NULL, 0);
    d.y = memory(d.out, NULL, 0);
    d.dy = memory(d.out, values, 10);
    d.taps = malloc(d.out);
    assert_non_null(d.taps);
    return d;
}

static void data_free(data *d)
{
    free(d->x);
    free(d->dx);
    free(d->y);
    free(d->dy);
    free(d->taps);
}

/* The pixel of channel `lane` that window (h, w) of a plane takes. */
static size_t largest(const tutti__pool_shape *s, const data *d, int lanes, int64_t plane,
                      int64_t h, int64_t w, int lane)
{
    size_t best = SIZE_MAX;

    for (int i = 0; i < s->kernel[0]; i++)
        for (int j = 0; j < s->kernel[1]; j++) {
            const int64_t row = h * s->stride[0] + i, column = w * s->stride[1] + j;
            const size_t at = (size_t)(((plane * s->in_h + row) * s->in_w + column) * lanes + lane);

            if (best == SIZE_MAX || d->x[at] > d->x[best] || isnan(d->x[at]))
                best = at;
        }
    return best;
}

static void check(const tutti__pool_shape *s, const data *d, int lanes)
{
    float *dx = calloc(d->in, sizeof *dx);
    size_t k = 0;

    assert_non_null(dx);
    for (int64_t plane = 0; plane < s->planes; plane++)
        for (int64_t h = 0; h < s->out_h; h++)
            for (int64_t w = 0; w < s->out_w; w++)
                for (int lane = 0; lane < lanes; lane++, k++) {
                    const size_t at = largest(s, d, lanes, plane, h, w, lane);

                    assert_memory_equal(&d->y[k], &d->x[at], sizeof(float));
                    dx[at] = d->dy[k];
                }
    assert_memory_equal(d->dx, dx, d->in * sizeof *dx);
    free(dx);
}

static void check_isa(const tutti__isa *isa)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        tutti_ctx *cx;

        assert_int_equal(
            tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, &(tutti_ctx_opts){.threads = threads}),
            TUTTI_OK);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            data d = data_new(&shapes[i], isa->lanes);

            isa->max_pool_forward(cx, &shapes[i], d.y, d.taps, d.x);
            isa->max_pool_backward(cx, &shapes[i], d.dx, d.dy, d.taps);
            check(&shapes[i], &d, isa->lanes);
            data_free(&d);
        }
        tutti_ctx_free(cx);
    }
}

ISA_TESTS(check_isa)
