/* reference.c -- the table of the reference kernels.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/reference/reference.h"

const tutti__kernels tutti__kernels_reference = {
    .name = "reference",
    .reorder = tutti__reference_reorder,
    .cast = tutti__cast_row_major,
    .move = tutti__move_row_major,
    .fill = tutti__fill_row_major,
    .conv2d_forward = tutti__reference_conv2d_forward,
    .conv2d_backward_data = tutti__reference_conv2d_backward_data,
    .conv2d_backward_weights = tutti__reference_conv2d_backward_weights,
    .linear_forward = tutti__reference_linear_forward,
    .linear_backward_data = tutti__reference_linear_backward_data,
    .linear_backward_weights = tutti__reference_linear_backward_weights,
    .matmul = tutti__reference_matmul,
    .batch_norm_forward = tutti__reference_batch_norm_forward,
    .batch_norm_backward = tutti__reference_batch_norm_backward,
    .add_forward = tutti__reference_add_forward,
    .add_to = tutti__reference_add_to,
    .max_pool_forward = tutti__reference_max_pool_forward,
    .max_pool_backward = tutti__reference_max_pool_backward,
    .avg_pool_forward = tutti__reference_avg_pool_forward,
    .avg_pool_backward = tutti__reference_avg_pool_backward,
    .global_avg_pool_forward = tutti__reference_global_avg_pool_forward,
    .global_avg_pool_backward = tutti__reference_global_avg_pool_backward,
    .embedding_forward = tutti__reference_embedding_forward,
    .embedding_backward = tutti__reference_embedding_backward,
};
