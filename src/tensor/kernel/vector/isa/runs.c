/* runs.c -- sums and maps over runs of vectors.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/vector/isa/vector.h"

#include <string.h>

#define R (TUTTI__WIDTH / W) /* registers per step */

/* For each register of a step, in a fully unrolled loop. */
#define EACH_REGISTER _Pragma("GCC unroll 4") for (int k = 0; k < R; k++)
#define AT(p)         (*(const vec_at *)((p) + k * W))
#define PUT(p)        (*(vec_at *)((p) + k * W))

/* v, or 0 where test <= 0 (false for NaN) */
#define WHERE_ABOVE(test, v) ((vec)(~((test) <= 0) & (veci)(v)))

/* The floats of a partial step, followed by zeros. */
static const float *widened(const float *p, int width, float *buffer)
{
    memset(buffer, 0, TUTTI__WIDTH * sizeof *buffer);
    return memcpy(buffer, p, (size_t)width * sizeof *buffer);
}

/* In a loop over steps: declares `name`, the step's floats, widened if they are less than a vector. */
#define SOURCE(name, p, width)                                                                     \
    float name##_buffer[TUTTI__WIDTH];                                                             \
    const float *name = (width) == TUTTI__WIDTH                                                    \
                            ? (p) + i * stride                                                     \
                            : widened((p) + i * stride, (width), name##_buffer)
#define DESTINATION(name, p, width)                                                                \
    float name##_buffer[TUTTI__WIDTH],                                                             \
        *name = (width) == TUTTI__WIDTH ? (p) + i * stride : name##_buffer
#define WRITTEN(name, p, width)                                                                    \
    if ((width) != TUTTI__WIDTH)                                                                   \
    memcpy((p) + i * stride, name, (size_t)(width) * sizeof(float))

INLINE void load(vec *v, const float *p)
{
    EACH_REGISTER v[k] = AT(p);
}

/* Adds the lanes to their sums; in a partial step only `width` of them. */
INLINE void join(double *of_lane, const vec *v, int width)
{
    float lane[TUTTI__WIDTH];

    EACH_REGISTER PUT(lane) = v[k];
    for (int l = 0; l < width; l++)
        of_lane[l] += (double)lane[l];
}

/* ---- Sums ------------------------------------------------------------------------------------------------- */

INLINE void sum_steps(const float *x, const tutti__vector_run *r, int width, double *of_lane)
{
    const int64_t steps = r->steps, stride = r->stride; /* copies: no store changes them */
    vec s[R] = {0};

    for (int64_t i = 0; i < steps; i++) {
        SOURCE(v, x, width);

        EACH_REGISTER s[k] += AT(v);
    }
    join(of_lane, s, width);
}

static void sum(const float *x, const tutti__vector_run *r, double *of_lane)
{
    if (r->width == TUTTI__WIDTH)
        sum_steps(x, r, TUTTI__WIDTH, of_lane);
    else
        sum_steps(x, r, r->width, of_lane);
}

static void fill(float *y, const tutti__vector_run *r, const float *value)
{
    const int64_t steps = r->steps, stride = r->stride;

    for (int64_t i = 0; i < steps; i++)
        if (r->width == TUTTI__WIDTH)
            EACH_REGISTER PUT(y + i * stride) = AT(value);
        else
            memcpy(y + i * stride, value, (size_t)r->width * sizeof(float));
}

/* ---- Batch norm, forward ------------------------------------------------------------------------------------ */

INLINE void moments_steps(const float *x, const tutti__vector_run *r, int width, const float *shift,
                          double *sum, double *square)
{
    const int64_t steps = r->steps, stride = r->stride;
    vec shifts[R], s[R] = {0}, q[R] = {0};

    load(shifts, shift);
    for (int64_t i = 0; i < steps; i++) {
        SOURCE(v, x, width);

        EACH_REGISTER
        {
            const vec d = AT(v) - shifts[k];

            s[k] += d;
            q[k] += d * d;
        }
    }
    join(sum, s, width);
    join(square, q, width);
}

static void moments(const float *x, const tutti__vector_run *r, const float *shift, double *sum,
                    double *square)
{
    if (r->width == TUTTI__WIDTH)
        moments_steps(x, r, TUTTI__WIDTH, shift, sum, square);
    else
        moments_steps(x, r, r->width, shift, sum, square);
}

INLINE void normalise_steps(float *y, const float *x, const float *residual,
                            const tutti__vector_run *r, int width, const tutti__norm *p, bool relu,
                            bool streams)
{
    const int64_t steps = r->steps, stride = r->stride;
    vec mean[R], scale[R], bias[R];

    load(mean, p->mean);
    load(scale, p->scale);
    load(bias, p->bias);
    for (int64_t i = 0; i < steps; i++) {
        SOURCE(v, x, width);
        SOURCE(z, residual ? residual : x, width);
        DESTINATION(to, y, width);

        EACH_REGISTER
        {
            vec u = (AT(v) - mean[k]) * scale[k] + bias[k];

            if (residual)
                u += AT(z);
            if (relu)
                u = (vec)(~(u < 0) & (veci)u);
            if (streams)
                stream(to + k * W, u);
            else
                PUT(to) = u;
        }
        WRITTEN(to, y, width);
    }
}

static void normalise(float *y, const float *x, const float *residual, const tutti__vector_run *r,
                      const tutti__norm *p, bool relu)
{
    if (r->width != TUTTI__WIDTH)
        normalise_steps(y, x, residual, r, r->width, p, relu, false);
    else if (residual && relu && p->streams) {
        normalise_steps(y, x, residual, r, TUTTI__WIDTH, p, true, true);
        streamed();
    } else if (residual && relu)
        normalise_steps(y, x, residual, r, TUTTI__WIDTH, p, true, false);
    else if (relu)
        normalise_steps(y, x, NULL, r, TUTTI__WIDTH, p, true, false);
    else if (residual)
        normalise_steps(y, x, residual, r, TUTTI__WIDTH, p, false, false);
    else
        normalise_steps(y, x, NULL, r, TUTTI__WIDTH, p, false, false);
}

/* ---- Batch norm, backward ----------------------------------------------------------------------------------- */

/* dy, or 0 where the relu's output is 0; v is x - mean */
INLINE vec behind_relu(vec dy, vec v, vec y, vec scale, vec bias, tutti__mask from)
{
    if (from == TUTTI__MASK_NONE)
        return dy;
    return WHERE_ABOVE(from == TUTTI__MASK_FROM_X ? v * scale + bias : y, dy);
}

INLINE void norm_sums_steps(const float *dy, const float *x, const float *y, float *masked,
                            const tutti__vector_run *r, int width, const tutti__norm *p,
                            tutti__mask from, double *sum, double *product)
{
    const int64_t steps = r->steps, stride = r->stride;
    vec mean[R], scale[R], bias[R], s[R] = {0}, q[R] = {0};

    load(mean, p->mean);
    load(scale, p->scale);
    load(bias, p->bias);
    for (int64_t i = 0; i < steps; i++) {
        SOURCE(g, dy, width);
        SOURCE(v, x, width);
        SOURCE(z, from == TUTTI__MASK_FROM_Y ? y : x, width);
        DESTINATION(to, masked, width);

        EACH_REGISTER
        {
            const vec u = AT(v) - mean[k];
            const vec d = behind_relu(AT(g), u, AT(z), scale[k], bias[k], from);

            if (masked)
                PUT(to) = d;
            s[k] += d;
            q[k] += d * u;
        }
        if (masked)
            WRITTEN(to, masked, width);
    }
    join(sum, s, width);
    join(product, q, width);
}

static void norm_sums(const float *dy, const float *x, const float *y, float *masked,
                      const tutti__vector_run *r, const tutti__norm *p, tutti__mask from,
                      double *sum, double *product)
{
    if (r->width != TUTTI__WIDTH)
        norm_sums_steps(dy, x, y, masked, r, r->width, p, from, sum, product);
    else if (from == TUTTI__MASK_FROM_X)
        norm_sums_steps(dy, x, NULL, masked, r, TUTTI__WIDTH, p, TUTTI__MASK_FROM_X, sum, product);
    else if (from == TUTTI__MASK_FROM_Y)
        norm_sums_steps(dy, x, y, masked, r, TUTTI__WIDTH, p, TUTTI__MASK_FROM_Y, sum, product);
    else
        norm_sums_steps(dy, x, NULL, masked, r, TUTTI__WIDTH, p, TUTTI__MASK_NONE, sum, product);
}

INLINE void norm_dx_steps(float *dx, const float *dy, const float *x, const float *y,
                          const tutti__vector_run *r, int width, const tutti__norm *p,
                          tutti__mask from)
{
    const int64_t steps = r->steps, stride = r->stride;
    vec mean[R], scale[R], bias[R], dy_mean[R], slope[R];

    load(mean, p->mean);
    load(scale, p->scale);
    load(bias, p->bias);
    load(dy_mean, p->dy_mean);
    load(slope, p->slope);
    for (int64_t i = 0; i < steps; i++) {
        SOURCE(g, dy, width);
        SOURCE(v, x, width);
        SOURCE(z, from == TUTTI__MASK_FROM_Y ? y : x, width);
        DESTINATION(to, dx, width);

        EACH_REGISTER
        {
            const vec u = AT(v) - mean[k];
            const vec d = behind_relu(AT(g), u, AT(z), scale[k], bias[k], from);

            PUT(to) = (d - dy_mean[k] - u * slope[k]) * scale[k];
        }
        WRITTEN(to, dx, width);
    }
}

static void norm_dx(float *dx, const float *dy, const float *x, const float *y,
                    const tutti__vector_run *r, const tutti__norm *p, tutti__mask from)
{
    if (r->width != TUTTI__WIDTH)
        norm_dx_steps(dx, dy, x, y, r, r->width, p, from);
    else if (from == TUTTI__MASK_FROM_X)
        norm_dx_steps(dx, dy, x, NULL, r, TUTTI__WIDTH, p, TUTTI__MASK_FROM_X);
    else if (from == TUTTI__MASK_FROM_Y)
        norm_dx_steps(dx, dy, x, y, r, TUTTI__WIDTH, p, TUTTI__MASK_FROM_Y);
    else
        norm_dx_steps(dx, dy, x, NULL, r, TUTTI__WIDTH, p, TUTTI__MASK_NONE);
}

/* ---- Flat maps ------------------------------------------------------------------------------------------- */

static void relu(float *y, const float *a, int64_t n)
{
    int64_t i = 0;

    for (; i + W <= n; i += W) {
        const vec v = *(const vec_at *)(a + i);

        *(vec_at *)(y + i) = (vec)(~(v < 0) & (veci)v);
    }
    for (; i < n; i++)
        y[i] = a[i] < 0 ? 0.0f : a[i];
}

static void relu_gradient(float *y, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;

    for (; i + W <= n; i += W)
        *(vec_at *)(y + i) = WHERE_ABOVE(*(const vec_at *)(b + i), *(const vec_at *)(a + i));
    for (; i < n; i++)
        y[i] = b[i] <= 0 ? 0.0f : a[i];
}

static void add(float *y, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;

    for (; i + W <= n; i += W)
        *(vec_at *)(y + i) = *(const vec_at *)(a + i) + *(const vec_at *)(b + i);
    for (; i < n; i++)
        y[i] = a[i] + b[i];
}

extern const tutti__runs TUTTI__OF_ISA(tutti__runs);

const tutti__runs TUTTI__OF_ISA(tutti__runs) = {
    .sum = sum,
    .fill = fill,
    .moments = moments,
    .normalise = normalise,
    .norm_sums = norm_sums,
    .norm_dx = norm_dx,
    .relu = relu,
    .relu_gradient = relu_gradient,
    .add = add,
};
