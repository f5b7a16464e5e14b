/* shaped.h -- operations with the shapes of their inputs, for checks that run many.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_OP_SHAPED_H
#define TUTTI_TESTS_OP_SHAPED_H

#include "op/parameter.h"

/* An operation and its inputs. */
typedef struct row {
    const char *name;
    tutti_tensor *(*forward)(const struct row *r, tutti_tensor *x, tutti_tensor **parameters);
    int64_t x[4], w[4]; /* zeros at the end: fewer dimensions; w[0] 0: no parameters */
    int stride, padding;
} row;

static inline tutti_tensor *convolution(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    const tutti_conv2d_opts opts = {
        .stride = r->stride, .padding = r->padding, .groups = (int)(r->x[1] / r->w[1])};

    return tutti_functional_conv2d(x, p[0], p[1], opts);
}

static inline tutti_tensor *transposed(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    const tutti_conv_transpose_opts opts = {
        .stride = r->stride, .padding = r->padding, .groups = (int)(r->x[1] / r->w[1])};

    return tutti_functional_conv_transpose2d(x, p[0], p[1], opts);
}

static inline tutti_tensor *linear(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)r;
    return tutti_functional_linear(x, p[0], p[1]);
}

static inline tutti_tensor *softmaxes(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)r;
    (void)p;
    return tutti_add(tutti_softmax(x), tutti_log_softmax(x));
}

static inline tutti_shape shape_of(const int64_t d[4])
{
    tutti_shape shape = {0};

    for (; shape.n < 4 && d[shape.n]; shape.n++)
        shape.d[shape.n] = d[shape.n];
    return shape;
}

/* n numbers from -1 to 1, until the test's end. */
static inline float *noise(int64_t n, uint64_t state)
{
    float *values = test_keep((size_t)n * sizeof *values);

    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((double)(state >> 40) / 8388608.0 - 1.0);
    }
    return values;
}

#endif
