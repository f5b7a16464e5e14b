/* runs.h -- arithmetic over runs of vectors, one table per instruction set.   SPDX-License-Identifier: MIT
 *
 * The functions in isa/runs.c give the same bits in every set: the sixteen lanes use as many registers as necessary, every
 * lane is summed in the order of the steps, and no product and sum are fused. */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_RUNS_H
#define TUTTI_TENSOR_KERNEL_VECTOR_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#define TUTTI__WIDTH 16

/* `steps` times `width` floats, each `stride` floats after the previous. */
typedef struct tutti__vector_run {
    int64_t offset; /* of the first from the start of an image: for callers that split runs */
    int64_t steps, stride;
    int width; /* 1 to TUTTI__WIDTH */
} tutti__vector_run;

/* For batch norm, one value per lane: y = (x - mean) * scale + bias, dx = (dy - dy_mean - (x - mean) * slope) * scale. */
typedef struct tutti__norm {
    float mean[TUTTI__WIDTH], scale[TUTTI__WIDTH], bias[TUTTI__WIDTH];
    float dy_mean[TUTTI__WIDTH], slope[TUTTI__WIDTH]; /* backward */
    /* forward with residual and relu: stores y non-temporally; y is aligned to a vector of the set in every step */
    bool streams;
} tutti__norm;

/* The same for channels [C], forward: y = (x - mean) * scale + bias, then relu if requested. */
typedef struct tutti__channel_norm {
    const float *mean, *scale, *bias;
    bool relu;
} tutti__channel_norm;

/* How backward finds where the relu after batch norm has output 0. */
typedef enum tutti__mask {
    TUTTI__MASK_NONE,   /* no relu */
    TUTTI__MASK_FROM_X, /* where (x - mean) * scale + bias <= 0 */
    TUTTI__MASK_FROM_Y  /* where y <= 0 */
} tutti__mask;

/* Every pointer to floats is to the first step of a run of the same form. Sums are over `width` lanes, in float over the
 * run, and are then added to the caller's doubles. The gradient passes where the relu's input is NaN, and a NaN stays one. */
typedef struct tutti__runs {
    /* The sums of x; y = value. */
    void (*sum)(const float *x, const tutti__vector_run *r, double *of_lane);
    void (*fill)(float *y, const tutti__vector_run *r, const float *value);

    /* Sums of x - shift and of its square. */
    void (*moments)(const float *x, const tutti__vector_run *r, const float *shift, double *sum,
                    double *square);
    /* residual may be NULL; y may be x */
    void (*normalise)(float *y, const float *x, const float *residual, const tutti__vector_run *r,
                      const tutti__norm *p, bool relu);
    /* Sums of d and of d * (x - mean), with d = dy, or 0 where the relu's output is 0; stores d in masked, if that is not
     * NULL; masked may be dy. */
    void (*norm_sums)(const float *dy, const float *x, const float *y, float *masked,
                      const tutti__vector_run *r, const tutti__norm *p, tutti__mask from,
                      double *sum, double *product);
    /* dx may be dy */
    void (*norm_dx)(float *dx, const float *dy, const float *x, const float *y,
                    const tutti__vector_run *r, const tutti__norm *p, tutti__mask from);

    /* Flat over n floats; y may be a or b. y = max(a, 0); y = a where b > 0, else 0; y = a + b. */
    void (*relu)(float *y, const float *a, int64_t n);
    void (*relu_gradient)(float *y, const float *a, const float *b, int64_t n);
    void (*add)(float *y, const float *a, const float *b, int64_t n);
} tutti__runs;

#endif
