/* reference.h -- plain C kernels: row-major, one thread, the oracle for the others.
 * SPDX-License-Identifier: MIT
 *
 * Correctness first. Sums over a batch or an image are accumulated in double if that costs little; row loops use the two
 * helpers below, whose fixed trip counts any compiler vectorises. */
#ifndef TUTTI_TENSOR_KERNEL_REFERENCE_H
#define TUTTI_TENSOR_KERNEL_REFERENCE_H

#include "tensor/kernel.h"

#define TUTTI__LANES 8

/* y[i] += a * x[i] */
static inline void tutti__axpy(float *restrict y, float a, const float *restrict x, int64_t n)
{
    int64_t i = 0;

    for (; i + TUTTI__LANES <= n; i += TUTTI__LANES)
        for (int k = 0; k < TUTTI__LANES; k++)
            y[i + k] += a * x[i + k];
    for (; i < n; i++)
        y[i] += a * x[i];
}

static inline float tutti__dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float lanes[TUTTI__LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + TUTTI__LANES <= n; i += TUTTI__LANES)
        for (int k = 0; k < TUTTI__LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (int k = 0; k < TUTTI__LANES; k++)
        sum += lanes[k];
    return sum;
}

/* The outputs o in [low, high) whose input o * stride + k - padding is in [0, in). */
typedef struct tutti__span {
    int64_t low, high;
} tutti__span;
static inline tutti__span tutti__span_of(int64_t out, int64_t in, int64_t k, int64_t stride,
                                         int64_t padding)
{
    int64_t low = k < padding ? (padding - k + stride - 1) / stride : 0;
    int64_t high = in + padding - k <= 0 ? 0 : (in + padding - k - 1) / stride + 1;

    return (tutti__span){low, high < out ? high : out};
}

tutti_status tutti__reference_conv2d_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                             tutti_tensor *b, const tutti__conv2d *a);
tutti_status tutti__reference_conv2d_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                   tutti_tensor *w, tutti_tensor *b,
                                                   const tutti__conv2d *a);
tutti_status tutti__reference_conv2d_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                      tutti_tensor *dy, tutti_tensor *x,
                                                      const tutti__conv2d *a);

tutti_status tutti__reference_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                             tutti_tensor *b);
tutti_status tutti__reference_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                   tutti_tensor *w);
tutti_status tutti__reference_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                      tutti_tensor *dy, tutti_tensor *x);

tutti_status tutti__reference_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                     const tutti__matmul *m);

tutti_status tutti__reference_batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                                 tutti_tensor *b, tutti_tensor *residual,
                                                 tutti_tensor *running_mean,
                                                 tutti_tensor *running_var,
                                                 const tutti__batch_norm *a,
                                                 tutti__batch_norm_saved *saved);
tutti_status tutti__reference_batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw,
                                                  tutti_tensor *db, tutti_tensor *dresidual,
                                                  tutti_tensor *dy, tutti_tensor *y,
                                                  tutti_tensor *x, tutti_tensor *w,
                                                  const tutti__batch_norm *a,
                                                  const tutti__batch_norm_saved *saved);

tutti_status tutti__reference_reorder(tutti_tensor *dst, tutti_tensor *src);
tutti_status tutti__reference_add_forward(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b);
tutti_status tutti__reference_add_to(tutti_tensor *dst, tutti_tensor *src);

tutti_status tutti__reference_max_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                               const tutti__pool *a, void **saved);
tutti_status tutti__reference_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                                const tutti__pool *a, void *saved);
tutti_status tutti__reference_avg_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                               const tutti__pool *a);
tutti_status tutti__reference_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                                const tutti__pool *a);
tutti_status tutti__reference_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x);
tutti_status tutti__reference_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy);

tutti_status tutti__reference_embedding_forward(tutti_tensor *y, tutti_tensor *w,
                                                tutti_tensor *indices);
tutti_status tutti__reference_embedding_backward(tutti_tensor *dw, tutti_tensor *dy,
                                                 tutti_tensor *indices);

#endif
