/* handle.h -- state of the module for a context's convolutions and matrix products.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_MODULE_HANDLE_H
#define TUTTI_TENSOR_KERNEL_CUDA_MODULE_HANDLE_H

#include "device/cuda/module/shared.h"
#include "tensor/kernel/cuda/products.h"

enum { TUTTI__CUDA_KEY = 20, TUTTI__CUDA_BUCKETS = 256 };

/* A cached plan, found by what it computes. The first member of each kind's own struct. */
typedef struct tutti__cuda_plan {
    struct tutti__cuda_plan *next;
    void (*free)(struct tutti__cuda_plan *plan);
    int64_t key[TUTTI__CUDA_KEY];
} tutti__cuda_plan;

typedef struct tutti__cuda_handle {
    tutti__cuda_products_options o;
    cudaStream_t stream;
    /* NULL until needed: a program without convolutions never loads cuDNN's engines. */
    struct cudnnContext *cudnn;
    struct cublasLtContext *blas;
    void *preference; /* cublasLtMatmulPreference_t */
    tutti__cuda_plan *buckets[TUTTI__CUDA_BUCKETS];
    size_t n_plans;
} tutti__cuda_handle;

/* NULL: not planned yet. */
tutti__cuda_plan *tutti__cuda_plan_find(const tutti__cuda_handle *h, const int64_t *key);
/* Takes ownership of plan, whose key is set. */
void tutti__cuda_plan_add(tutti__cuda_handle *h, tutti__cuda_plan *plan);
/* NULL: out of memory, with the error set. */
void *tutti__cuda_host_memory(size_t bytes);
/* The handle's workspace; *p is NULL for none. MEMORY. */
tutti_status tutti__cuda_workspace(const tutti__cuda_handle *h, size_t bytes, void **p);
/* The common alignment: 4, 8 or 16 bytes (2 with 16-bit elements); NULL is fine. No kernel uses more. */
int64_t tutti__cuda_alignment(const void *a, const void *b, const void *c);

/* convolution.c and matrix_product.c */
tutti_status tutti__cuda_convolve(void *handle, const tutti__cuda_convolution *c, void *x, void *w,
                                  void *y);
void tutti__cuda_convolution_close(tutti__cuda_handle *h);
tutti_status tutti__cuda_multiply(void *handle, const tutti__cuda_product *p);
void tutti__cuda_product_close(tutti__cuda_handle *h);

#endif
