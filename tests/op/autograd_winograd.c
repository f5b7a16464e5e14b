/* autograd_winograd.c -- Winograd's convolutions, of each instruction set that this CPU has, against sums in double.
 * SPDX-License-Identifier: MIT
 *
 * Both strides, channels of x that only fill up a block, every direction: odd sizes, images smaller than a tile, one row, padding of 0 to 2, channels of one block and of an odd
 * number, results large enough to bypass the cache; with NaN in the work memory, which must not matter. The bits are those of one thread. A norm
 * that is computed while x is read gives the bits of a stored one.
 * timeout: 120 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op/isas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the norm of the differences, by the norm of the result: docs/design/cpu_kernels.md. */
#define TOLERANCE 2e-6

static const tutti__conv_shape shapes[] = {
    {2, 64, 64, 9, 7, 9, 7, 3, 1, 1, 0},       {1, 32, 48, 1, 13, 1, 13, 3, 1, 1, 0},
    {3, 16, 32, 8, 8, 6, 6, 3, 1, 0, 0},       {2, 48, 16, 5, 6, 7, 8, 3, 1, 2, 0},
    {1, 16, 16, 3, 3, 1, 1, 3, 1, 0, 0},       {4, 128, 128, 16, 16, 16, 16, 3, 1, 1, 0},
    {1, 256, 32, 4, 4, 4, 4, 3, 1, 1, 0},      {2, 32, 64, 8, 8, 4, 4, 3, 2, 1, 0},
    {3, 64, 32, 9, 7, 5, 4, 3, 2, 1, 0},       {1, 16, 16, 1, 1, 1, 1, 3, 2, 1, 0},
    {5, 48, 32, 17, 12, 9, 6, 3, 2, 1, 0},     {2, 16, 32, 2, 3, 1, 2, 3, 2, 1, 0},
    {4, 128, 128, 16, 16, 8, 8, 3, 2, 1, 0},   {1, 32, 256, 6, 5, 3, 3, 3, 2, 1, 0},
    {3, 64, 64, 27, 26, 27, 26, 3, 1, 1, 0},   {5, 32, 48, 33, 31, 17, 16, 3, 2, 1, 0},
    {5, 256, 128, 13, 13, 13, 13, 3, 1, 1, 0}, {130, 32, 64, 3, 3, 3, 3, 3, 1, 1, 0},
};
/* in_c: up to whole blocks */
static const tutti__conv_shape filled[] = {
    {2, 0, 64, 9, 7, 9, 7, 3, 1, 1, 24},
    {3, 0, 32, 7, 8, 4, 4, 3, 2, 1, 13},
};

/* A convolution's inputs and outputs: activations in blocks of lanes, weights row-major. */
typedef struct data {
    float *x, *w, *bias, *y, *dy, *dx, *dw, *dw_twice;
    int64_t n_x, n_w, n_y;
    double *exact_y, *exact_dx, *exact_dw;
} data;

static uint64_t state = 1;

static float noise(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(state >> 40) / 8388608.0 - 1.0);
}

static void *memory(int64_t n, bool fill)
{
    const size_t bytes = ((size_t)n * sizeof(float) + 63) / 64 * 64;
    float *p = aligned_alloc(64, bytes);

    assert_non_null(p);
    for (int64_t i = 0; i < n; i++)
        p[i] = fill ? noise() : NAN;
    return p;
}

static double *exact(int64_t n)
{
    double *p = calloc((size_t)n, sizeof *p);

    assert_non_null(p);
    return p;
}

static int64_t own_channels(const tutti__conv_shape *s)
{
    return s->own_in_c ? s->own_in_c : s->in_c;
}

static data data_new(const tutti__conv_shape *s)
{
    data d = {.n_x = s->n * s->in_c * s->in_h * s->in_w,
              .n_w = s->out_c * own_channels(s) * 9,
              .n_y = s->n * s->out_c * s->out_h * s->out_w};

    d.x = memory(d.n_x, true);
    d.w = memory(d.n_w, true);
    d.bias = memory(s->out_c, true);
    d.dy = memory(d.n_y, true);
    d.y = memory(d.n_y, false);
    d.dx = memory(d.n_x, false);
    d.dw = memory(d.n_w, false);
    d.dw_twice = memory(d.n_w, false);
    d.exact_y = exact(d.n_y);
    d.exact_dx = exact(d.n_x);
    d.exact_dw = exact(d.n_w);
    return d;
}

static void data_free(data *d)
{
    float *const all[] = {d->x, d->w, d->bias, d->y, d->dy, d->dx, d->dw, d->dw_twice};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(d->exact_y);
    free(d->exact_dx);
    free(d->exact_dw);
}

static int64_t at(int lanes, int64_t channels, int64_t pixels, int64_t n, int64_t c, int64_t pixel)
{
    return ((n * (channels / lanes) + c / lanes) * pixels + pixel) * lanes + c % lanes;
}

/* Channels of x, or its gradient, that have no weights. */
static void fill_up(const tutti__conv_shape *s, int lanes, float *x)
{
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t c = own_channels(s); c < s->in_c; c++)
            for (int64_t i = 0; i < s->in_h * s->in_w; i++)
                x[at(lanes, s->in_c, s->in_h * s->in_w, n, c, i)] = 0;
}

/* One pixel and channel of y, and its contribution to the gradients. */
static void convolve_pixel(const tutti__conv_shape *s, data *d, int lanes, int64_t n, int64_t m,
                           int64_t pixel)
{
    const int64_t i_y = at(lanes, s->out_c, s->out_h * s->out_w, n, m, pixel);
    const int64_t h = pixel / s->out_w * s->stride - s->padding;
    const int64_t w = pixel % s->out_w * s->stride - s->padding;
    double sum = (double)d->bias[m];

    for (int64_t c = 0; c < own_channels(s); c++)
        for (int k = 0; k < 9; k++) {
            const int64_t i = h + k / 3, j = w + k % 3, i_w = (m * own_channels(s) + c) * 9 + k;
            int64_t i_x;

            if (i < 0 || i >= s->in_h || j < 0 || j >= s->in_w)
                continue;
            i_x = at(lanes, s->in_c, s->in_h * s->in_w, n, c, i * s->in_w + j);
            sum += (double)d->x[i_x] * (double)d->w[i_w];
            d->exact_dx[i_x] += (double)d->dy[i_y] * (double)d->w[i_w];
            d->exact_dw[i_w] += (double)d->dy[i_y] * (double)d->x[i_x];
        }
    d->exact_y[i_y] = sum;
}

static double error(const float *a, const double *b, int64_t n)
{
    double difference = 0, norm = 0;

    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(difference / norm);
}

static void *work_new(const tutti__isa *isa, const tutti_ctx *cx, const tutti__conv_shape *s,
                      tutti__direction direction)
{
    return memory((int64_t)(isa->winograd_work(cx, s, direction) / sizeof(float)), false);
}

static void run(const tutti__isa *isa, tutti_ctx *cx, const tutti__conv_shape *s, data *d)
{
    void *work = work_new(isa, cx, s, TUTTI__FORWARD);

    isa->winograd_forward(cx, s, d->y, d->x, NULL, d->w, d->bias, work);
    free(work);
    work = work_new(isa, cx, s, TUTTI__BACKWARD_DATA);
    isa->winograd_data(cx, s, d->dx, d->dy, d->w, work);
    free(work);
    work = work_new(isa, cx, s, TUTTI__BACKWARD_WEIGHTS);
    isa->winograd_weights(cx, s, d->dw, false, d->dy, d->x, NULL, work);
    memcpy(d->dw_twice, d->dw, (size_t)d->n_w * sizeof *d->dw);
    isa->winograd_weights(cx, s, d->dw_twice, true, d->dy, d->x, NULL, work);
    free(work);
}

static void check(const tutti__isa *isa, const tutti__conv_shape *s, data *d)
{
    const double y = error(d->y, d->exact_y, d->n_y), dx = error(d->dx, d->exact_dx, d->n_x);
    const double dw = error(d->dw, d->exact_dw, d->n_w);

    print_message("%-6s x %dx%dx%dx%d out %d stride %d padding %d: y %.2g dx %.2g dw %.2g\n",
                  isa->name, (int)s->n, (int)s->in_c, (int)s->in_h, (int)s->in_w, (int)s->out_c,
                  (int)s->stride, (int)s->padding, y, dx, dw);
    assert_true(y < TOLERANCE && dx < TOLERANCE && dw < TOLERANCE);
    for (int64_t i = 0; i < d->n_w; i++)
        assert_true(d->dw_twice[i] == 2 * d->dw[i]);
}

static void check_shape(const tutti__isa *isa, tutti_ctx *cx[2], const tutti__conv_shape *s)
{
    data one = data_new(s), three = one;

    three.y = memory(one.n_y, false);
    three.dx = memory(one.n_x, false);
    three.dw = memory(one.n_w, false);
    three.dw_twice = memory(one.n_w, false);
    fill_up(s, isa->lanes, one.x); /* in the memory of three, too */
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t m = 0; m < s->out_c; m++)
            for (int64_t pixel = 0; pixel < s->out_h * s->out_w; pixel++)
                convolve_pixel(s, &one, isa->lanes, n, m, pixel);
    run(isa, cx[0], s, &one);
    check(isa, s, &one);
    run(isa, cx[1], s, &three);
    assert_memory_equal(one.y, three.y, (size_t)one.n_y * sizeof(float));
    assert_memory_equal(one.dx, three.dx, (size_t)one.n_x * sizeof(float));
    assert_memory_equal(one.dw, three.dw, (size_t)one.n_w * sizeof(float));
    free(three.y);
    free(three.dx);
    free(three.dw);
    free(three.dw_twice);
    data_free(&one);
}

/* stored = the norm of x, as batch norm stores it */
static void normalise(const tutti__isa *isa, const tutti__conv_shape *s, float *stored,
                      const float *x, const tutti__channel_norm *norm)
{
    const int64_t plane = s->in_h * s->in_w * isa->lanes;
    const tutti__vector_run whole = {0, plane / TUTTI__WIDTH, TUTTI__WIDTH, TUTTI__WIDTH};
    const tutti__vector_run rest = {0, plane % TUTTI__WIDTH != 0, TUTTI__WIDTH,
                                    (int)(plane % TUTTI__WIDTH)};

    for (int64_t i = 0; i < s->n * s->in_c / isa->lanes; i++) {
        const int64_t first = i % (s->in_c / isa->lanes) * isa->lanes, from = i * plane;
        const int64_t behind = from + whole.steps * TUTTI__WIDTH;
        tutti__norm p;

        for (int l = 0; l < TUTTI__WIDTH; l++) {
            p.mean[l] = norm->mean[first + l % isa->lanes];
            p.scale[l] = norm->scale[first + l % isa->lanes];
            p.bias[l] = norm->bias[first + l % isa->lanes];
        }
        isa->runs->normalise(stored + from, x + from, NULL, &whole, &p, norm->relu);
        if (rest.steps)
            isa->runs->normalise(stored + behind, x + behind, NULL, &rest, &p, norm->relu);
    }
}

static void same_bits(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(isnan(a[i]) && isnan(b[i])) && memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i, (double)a[i],
                     (double)b[i]);
}

static void check_norm(const tutti__isa *isa, tutti_ctx *cx, const tutti__conv_shape *s, bool relu)
{
    float *mean = memory(s->in_c, true), *scale = memory(s->in_c, true);
    float *bias = memory(s->in_c, true), *x, *stored, *dw;
    const tutti__channel_norm norm = {mean, scale, bias, relu};
    void *work;
    data d = data_new(s);

    stored = memory(d.n_x, false);
    x = d.x;
    dw = memory(d.n_w, false);
    x[d.n_x / 2] = NAN; /* stays */
    x[0] = mean[0];     /* a zero of either sign before the bias */
    bias[0] = -0.0f;
    normalise(isa, s, stored, x, &norm);
    d.x = stored;
    run(isa, cx, s, &d); /* y and dw of what is stored */
    work = work_new(isa, cx, s, TUTTI__FORWARD);
    isa->winograd_forward(cx, s, d.dy, x, &norm, d.w, d.bias, work);
    same_bits(d.dy, d.y, d.n_y);
    free(work);
    for (int64_t i = 0; i < d.n_y; i++)
        d.dy[i] = noise();
    work = work_new(isa, cx, s, TUTTI__BACKWARD_WEIGHTS);
    isa->winograd_weights(cx, s, d.dw, false, d.dy, stored, NULL, work);
    isa->winograd_weights(cx, s, dw, false, d.dy, x, &norm, work);
    same_bits(dw, d.dw, d.n_w);
    free(work);
    free(mean);
    free(scale);
    free(bias);
    free(x);
    free(dw);
    data_free(&d);
}

static void check_isa(const tutti__isa *isa)
{
    tutti_ctx *cx[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(tutti_ctx_new(&cx[i], (tutti_device){TUTTI_CPU, 0},
                                       &(tutti_ctx_opts){.threads = i ? 3 : 1}),
                         TUTTI_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(isa, cx, &shapes[i]);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_norm(isa, cx[i % 2], &shapes[i], i % 3 != 0);
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++) {
        tutti__conv_shape s = filled[i];

        s.in_c = (s.own_in_c + isa->lanes - 1) / isa->lanes * isa->lanes;
        check_shape(isa, cx, &s);
    }
    for (int i = 0; i < 2; i++)
        tutti_ctx_free(cx[i]);
}

ISA_TESTS(check_isa)
