/* products.h -- the table for convolutions, by cuDNN, and matrix products, by cuBLASLt.   SPDX-License-Identifier: MIT
 *
 * Functions over pointers and sizes, in the module (module/convolution.c, module/product.c). A handle belongs to a
 * context: it holds the libraries' handles, each made when first needed, and caches the plan of everything it has
 * computed, by shape; so after a first step nothing is planned, and no memory allocated. Calls on one handle come from one
 * thread at a time. Statuses and errors: device/cuda/module.h. */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_PRODUCTS_H
#define TUTTI_TENSOR_KERNEL_CUDA_PRODUCTS_H

#include "device/cuda/module.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti__cuda_products_options {
    int device;
    void *stream;       /* cudaStream_t for all of the handle's work */
    bool deterministic; /* no algorithm with varying bits, and none chosen by measuring */
    bool tf32;          /* products of F32 may round their inputs to TF32 */
    /* Device memory for use within one call, aligned to 256 bytes and at least as large as ever before; NULL if there is none. */
    void *(*workspace)(void *arg, size_t bytes);
    void *arg;
} tutti__cuda_products_options;

typedef enum tutti__cuda_direction {
    TUTTI__CUDA_FORWARD,         /* y = x * w */
    TUTTI__CUDA_BACKWARD_DATA,   /* x = the gradient of x, from y (its gradient) and w */
    TUTTI__CUDA_BACKWARD_WEIGHTS /* w = the gradient of w, from y (its gradient) and x */
} tutti__cuda_direction;

/* x [N,C,H,W], w [M,C/groups,kh,kw], y [N,M,H',W'], each stored channels last; no size is 0. */
typedef struct tutti__cuda_convolution {
    tutti__cuda_direction direction;
    tutti_dtype dtype; /* F32, BF16, F16: of x, w and y, also of w's gradient; sums are F32 */
    int64_t x[4], w[4], y[4];
    int64_t stride[2], padding[2], dilation[2]; /* of H, W */
} tutti__cuda_convolution;

/* c [rows,columns] = or += op(a) op(b), all row-major; no size is 0. Or `batch` of them, whose matrices are so many elements apart;
 * then without bias and sums. */
typedef struct tutti__cuda_product {
    int64_t rows, columns, inner;
    bool a_transposed, b_transposed; /* a is stored as [inner,rows], b as [columns,inner] */
    tutti_dtype dtype, result;       /* of a and b; of c: dtype or F32 */
    const void *a, *b;
    void *c;
    bool accumulate;
    int64_t batch, a_stride, b_stride,
        c_stride;     /* batch 0 or 1: one; a or b with stride 0 is used in all */
    const void *bias; /* [columns] of `result`, added to each row; or NULL */
    /* [rows] of `result`: also writes the sums of op(a) over inner; or NULL; not with bias */
    void *a_sums;
} tutti__cuda_product;

typedef struct tutti__cuda_products {
    tutti_status (*open)(const tutti__cuda_products_options *options, void **handle_p);
    void (*close)(void *handle); /* waits for the stream; NULL is fine */
    /* UNSUPPORTED: cuDNN has none. */
    tutti_status (*convolution)(void *handle, const tutti__cuda_convolution *c, void *x, void *w,
                                void *y);
    /* UNSUPPORTED: cuBLASLt has none; with bias or a_sums, it may work without. */
    tutti_status (*product)(void *handle, const tutti__cuda_product *p);
} tutti__cuda_products;

#ifdef __cplusplus
}
#endif
#endif
