/* glue.h -- shared by convolution.c and linear.c.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_GLUE_H
#define TUTTI_TENSOR_KERNEL_CUDA_GLUE_H

#include "tensor/kernel/cuda/cuda_kernels.h"
#include "tensor/kernel/cuda/products.h"

/* The module's handle. */
void *tutti__cuda_products_handle(const tutti_ctx *cx);
/* Device memory for one result between two kernels; valid until the next call. */
tutti_status tutti__cuda_staging(tutti_ctx *cx, size_t bytes, void **p);
/* dst, which has data, = 0 unless it accumulates: an empty sum. NULL is fine. */
tutti_status tutti__cuda_sum_of_nothing(tutti_tensor *dst);
/* y's rows of b's length, channels last: each += b [C]. */
tutti_status tutti__cuda_add_bias(tutti_tensor *y, tutti_tensor *b);

#endif
