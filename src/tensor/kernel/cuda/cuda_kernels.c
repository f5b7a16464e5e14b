/* cuda_kernels.c -- the table of the CUDA kernels.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/cuda_kernels.h"

/* The GPUs that the module is compiled for support both. */
static bool can_half(tutti_ctx *cx, tutti_dtype dtype)
{
    (void)cx;
    return tutti__is_half(dtype);
}

/* Kernels that take activations of any dtype. */
#define OF_ALL                                                                                     \
    .reorder = tutti__cuda_reorder, .cast = tutti__cuda_cast, .move = tutti__cuda_move,            \
    .fill = tutti__cuda_fill, .conv2d_forward = tutti__cuda_conv2d_forward,                        \
    .conv2d_backward_data = tutti__cuda_conv2d_backward_data,                                      \
    .conv2d_backward_weights = tutti__cuda_conv2d_backward_weights,                                \
    .linear_forward = tutti__cuda_linear_forward,                                                  \
    .linear_backward_data = tutti__cuda_linear_backward_data,                                      \
    .linear_backward_weights = tutti__cuda_linear_backward_weights, .matmul = tutti__cuda_matmul,  \
    .batch_norm_forward = tutti__cuda_batch_norm_forward,                                          \
    .batch_norm_backward = tutti__cuda_batch_norm_backward,                                        \
    .relu_forward = tutti__cuda_relu_forward, .relu_backward = tutti__cuda_relu_backward,          \
    .add_forward = tutti__cuda_add_forward, .add_to = tutti__cuda_add_to,                          \
    .max_pool_forward = tutti__cuda_max_pool_forward,                                              \
    .max_pool_backward = tutti__cuda_max_pool_backward,                                            \
    .avg_pool_forward = tutti__cuda_avg_pool_forward,                                              \
    .avg_pool_backward = tutti__cuda_avg_pool_backward,                                            \
    .global_avg_pool_forward = tutti__cuda_global_avg_pool_forward,                                \
    .global_avg_pool_backward = tutti__cuda_global_avg_pool_backward,                              \
    .elementwise_forward = tutti__cuda_elementwise_forward,                                        \
    .elementwise_backward = tutti__cuda_elementwise_backward, .dropout = tutti__cuda_dropout,      \
    .fold = tutti__cuda_fold_tensor

static const tutti__kernels half_kernels = {.name = "cuda", OF_ALL};

const tutti__kernels tutti__kernels_cuda = {
    .name = "cuda",
    .open = tutti__cuda_open,
    .close = tutti__cuda_close,
    .can_half = can_half,
    .half = &half_kernels,
    OF_ALL,
    .softmax_forward = tutti__cuda_softmax_forward,
    .softmax_backward = tutti__cuda_softmax_backward,
    .norm_forward = tutti__cuda_norm_forward,
    .norm_backward = tutti__cuda_norm_backward,
    .cross_entropy_forward = tutti__cuda_cross_entropy_forward,
    .cross_entropy_backward = tutti__cuda_cross_entropy_backward,
    .attention_forward = tutti__cuda_attention_forward,
    .attention_backward = tutti__cuda_attention_backward,
    .label_rows = tutti__cuda_label_rows,
    .label_sums = tutti__cuda_label_sums,
    .job = tutti__cuda_job,
    .mse_forward = tutti__cuda_mse_forward,
    .mse_backward = tutti__cuda_mse_backward,
    .embedding_forward = tutti__cuda_embedding_forward,
    .embedding_backward = tutti__cuda_embedding_backward,
};
