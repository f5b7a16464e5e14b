/* cuda_kernels.h -- state of the CUDA kernels in a context, and functions shared by their files.   SPDX-License-Identifier: MIT
 *
 * Activations of four dimensions are stored channels last (NHWC), everything else row-major; for shapes in which the two
 * are the same (one channel, or one pixel) the layout is NULL, row-major. So all kernels agree on the layout of a shape,
 * and elementwise kernels run flat. Work is submitted to the context's stream: memory may be given to the next kernel as
 * soon as the call returns. Batches may be empty (N = 0): kernels then write empty sums, and launch nothing else. */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_KERNELS_H
#define TUTTI_TENSOR_KERNEL_CUDA_KERNELS_H

#include "device/cuda/module.h"
#include "tensor/kernel.h"
#include "tensor/kernel/cuda/own.h"

/* cx->kernel_state */
typedef struct tutti__cuda_state {
    const tutti__cuda *module;
    const tutti__cuda_own *own;
    const struct tutti__cuda_products *products;
    int device;
    void *stream; /* the cudaStream_t of cx->stream */
    struct tutti__cuda_layout_entry *layouts;
    void *scratch;
    size_t scratch_bytes;
    void *products_state; /* of convolution.c and linear.c: handles, plans */
} tutti__cuda_state;

static inline tutti__cuda_state *tutti__cuda_state_of(const tutti_ctx *cx)
{
    return cx->kernel_state;
}

/* OK, or the failure of a function of the module, with its name and the module's text. */
tutti_status tutti__cuda_check(const tutti_ctx *cx, tutti_status status, const char *what);
/* TUTTI__CUDA(cx, own, relu, dtype, y, x, n): calls it with the context's device and stream, and returns on failure. */
#define TUTTI__CUDA(cx, table, function, ...)                                                      \
    TUTTI_TRY(tutti__cuda_check(                                                                   \
        (cx),                                                                                      \
        tutti__cuda_state_of(cx)->table->function(tutti__cuda_state_of(cx)->device,                \
                                                  tutti__cuda_state_of(cx)->stream, __VA_ARGS__),  \
        #function))

/* ---- Layouts ---- */

/* The interned layout of activations of this shape and dtype; *layout_p is NULL for row-major. */
tutti_status tutti__cuda_nhwc_layout(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype,
                                     const tutti__layout **layout_p);
/* Allocates memory for a result, in that layout. */
tutti_status tutti__cuda_alloc(tutti_tensor *t);
/* t's elements channels last: t->data, or a copy kept for this step. t has four dimensions. */
tutti_status tutti__cuda_nhwc(tutti_tensor *t, const void **p);
/* The values of a parameter w, F32 and row-major, in dtype, for channels_last reordered from OIHW to OHWI: w->data itself,
 * or a copy made once a round (cx->round). */
tutti_status tutti__cuda_weights(tutti_tensor *w, tutti_dtype dtype, bool channels_last,
                                 const void **p);
/* dw, F32 and row-major with data set, = or += from, which is OHWI of dtype. */
tutti_status tutti__cuda_weight_gradient(tutti_tensor *dw, const void *from, tutti_dtype dtype);
/* db [C] = or += the sum of dy's rows: dy [..,C] row-major or [N,C,H,W]. */
tutti_status tutti__cuda_bias_gradient(tutti_tensor *db, tutti_tensor *dy);

/* Device memory for use within a kernel; valid until the next call. */
tutti_status tutti__cuda_scratch(tutti_ctx *cx, size_t bytes, void **p);

/* ---- convolution.c and linear.c: cuDNN and cuBLASLt, for all dtypes ---- */

/* Makes and frees products_state. */
tutti_status tutti__cuda_products_open(tutti_ctx *cx);
void tutti__cuda_products_close(tutti_ctx *cx);

tutti_status tutti__cuda_conv2d_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                        tutti_tensor *b, const tutti__conv2d *a);
tutti_status tutti__cuda_conv2d_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                              tutti_tensor *b, const tutti__conv2d *a);
tutti_status tutti__cuda_conv2d_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                 tutti_tensor *dy, tutti_tensor *x,
                                                 const tutti__conv2d *a);
tutti_status tutti__cuda_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                        tutti_tensor *b);
tutti_status tutti__cuda_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w);
tutti_status tutti__cuda_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                 tutti_tensor *dy, tutti_tensor *x);
tutti_status tutti__cuda_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                const tutti__matmul *m);

/* ---- Our own kernels ---- */

tutti_status tutti__cuda_open(tutti_ctx *cx);
void tutti__cuda_close(tutti_ctx *cx);
tutti_status tutti__cuda_reorder(tutti_tensor *dst, tutti_tensor *src);
tutti_status tutti__cuda_cast(tutti_tensor *dst, tutti_tensor *src);
tutti_status tutti__cuda_move(tutti_ctx *cx, const tutti__move *c);
tutti_status tutti__cuda_fill(tutti_tensor *t, float value);
tutti_status tutti__cuda_relu_forward(tutti_tensor *y, tutti_tensor *x);
tutti_status tutti__cuda_relu_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y);
tutti_status tutti__cuda_add_forward(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b);
tutti_status tutti__cuda_add_to(tutti_tensor *dst, tutti_tensor *src);
tutti_status tutti__cuda_elementwise_forward(tutti_tensor *y, const tutti__formula_args *a);
tutti_status tutti__cuda_elementwise_backward(tutti_tensor *const *dsrc, tutti_tensor *dy,
                                              tutti_tensor *y, const tutti__formula_args *a);
tutti_status tutti__cuda_attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work);
tutti_status tutti__cuda_attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work);
tutti_status tutti__cuda_job(tutti_ctx *cx, const tutti__each_job *job, int64_t n);
/* The sum over the dimensions in which `narrow` has 1; both have as many dimensions, in the order in memory. */
tutti__cuda_fold tutti__cuda_fold_of(tutti_shape narrow, tutti_shape wide);
tutti_status tutti__cuda_fold_tensor(tutti_tensor *y, tutti_tensor *x, const tutti__fold_args *a);
tutti_status tutti__cuda_dropout(tutti_tensor *y, tutti_tensor *x, float p, uint32_t call);
tutti_status tutti__cuda_batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                            tutti_tensor *b, tutti_tensor *residual,
                                            tutti_tensor *running_mean, tutti_tensor *running_var,
                                            const tutti__batch_norm *a,
                                            tutti__batch_norm_saved *saved);
tutti_status tutti__cuda_batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                             tutti_tensor *dresidual, tutti_tensor *dy,
                                             tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                             const tutti__batch_norm *a,
                                             const tutti__batch_norm_saved *saved);
tutti_status tutti__cuda_max_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a,
                                          void **saved);
tutti_status tutti__cuda_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                           const tutti__pool *a, void *saved);
tutti_status tutti__cuda_avg_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a);
tutti_status tutti__cuda_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                           const tutti__pool *a);
tutti_status tutti__cuda_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x);
tutti_status tutti__cuda_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy);

tutti_status tutti__cuda_softmax_forward(tutti_tensor *y, tutti_tensor *x, bool log);
tutti_status tutti__cuda_softmax_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y,
                                          bool log);
tutti_status tutti__cuda_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                      tutti_tensor *b, const tutti__row_norm *a, float *moments);
tutti_status tutti__cuda_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                       tutti_tensor *dy, tutti_tensor *x, tutti_tensor *w,
                                       const tutti__row_norm *a, const float *moments);
tutti_status tutti__cuda_cross_entropy_forward(tutti_tensor *loss, tutti_tensor *logits,
                                               tutti_tensor *labels, const tutti__cross_entropy *a,
                                               void **saved);
tutti_status tutti__cuda_cross_entropy_backward(tutti_tensor *dx, tutti_tensor *dloss,
                                                tutti_tensor *logits, tutti_tensor *labels,
                                                const tutti__cross_entropy *a, void *saved);
tutti_status tutti__cuda_label_rows(tutti_tensor *logits, const int64_t *labels, float *loss,
                                    const tutti__label_rows *a);
tutti_status tutti__cuda_label_sums(tutti_tensor *logits, const int64_t *labels,
                                    tutti__row_sums *sums, const tutti__label_rows *a);
tutti_status tutti__cuda_mse_forward(tutti_tensor *loss, tutti_tensor *x, tutti_tensor *target);
tutti_status tutti__cuda_mse_backward(tutti_tensor *dx, tutti_tensor *dloss, tutti_tensor *x,
                                      tutti_tensor *target);
tutti_status tutti__cuda_embedding_forward(tutti_tensor *y, tutti_tensor *w, tutti_tensor *indices);
tutti_status tutti__cuda_embedding_backward(tutti_tensor *dw, tutti_tensor *dy,
                                            tutti_tensor *indices);

#endif
