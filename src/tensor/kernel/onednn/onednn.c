/* onednn.c -- the table of the oneDNN kernels.   SPDX-License-Identifier: MIT
 *
 * Operations that gain nothing from oneDNN (losses, softmax, dropout: small, or dependent on element indices) use their
 * plain C, which gets row-major sources. */
#include "tensor/kernel/onednn/onednn_state.h"
#include "tensor/kernel/reference/reference.h"

#include <stdio.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static tutti_status reorder(tutti_tensor *dst, tutti_tensor *src)
{
    if (dst->dtype == TUTTI_I64) /* labels: no kernel gives them a layout */
        return tutti__kernels_reference.reorder(dst, src);
    return tutti__onednn_reorder(
        dst->cx, dst->shape, &(tutti__onednn_place){src->layout, src->dtype, src->data},
        &(tutti__onednn_place){dst->layout, dst->dtype, dst->data}, dst->accumulate);
}

#define NAME                                                                                       \
    "onednn " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH)

static void bits(const tutti_ctx *cx, char *text, size_t size)
{
    const int threads = tutti__onednn_foreign_threads();

    const tutti__onednn_conv conv = ((const tutti__onednn *)cx->kernel_state)->conv;

    snprintf(text, size, "%s %s", NAME, tutti__onednn_isa_name());
    if (conv != TUTTI__ONEDNN_CONV_AUTO)
        snprintf(text + strlen(text), size - strlen(text), " conv %s",
                 tutti__onednn_conv_name(conv));
    if (threads)
        snprintf(text + strlen(text), size - strlen(text), " tbb %d", threads);
}

static bool can_half(tutti_ctx *cx, tutti_dtype dtype)
{
    return tutti__onednn_can_convolve(cx, dtype) && tutti__onednn_can_multiply(cx, dtype);
}

/* Products, batch norm and elementwise kernels in 16 bit; the others are small: F32's, with rounding around them. */
static const tutti__kernels half_kernels = {
    .name = NAME,
    .reorder = reorder,
    .fingerprint = tutti__onednn_fingerprint,
    .cast = tutti__cast_row_major,
    .move = tutti__move_row_major,
    .fill = tutti__fill_row_major,
    .conv2d_forward = tutti__onednn_conv2d_forward,
    .conv2d_backward_data = tutti__onednn_conv2d_backward_data,
    .conv2d_backward_weights = tutti__onednn_conv2d_backward_weights,
    .linear_forward = tutti__onednn_half_linear_forward,
    .linear_backward_data = tutti__onednn_half_linear_backward_data,
    .linear_backward_weights = tutti__onednn_half_linear_backward_weights,
    .matmul = tutti__onednn_half_matmul,
    .batch_norm_forward = tutti__onednn_batch_norm_forward,
    .batch_norm_backward = tutti__onednn_batch_norm_backward,
    .relu_forward = tutti__onednn_relu_forward,
    .relu_backward = tutti__onednn_relu_backward,
    .add_forward = tutti__onednn_add_forward,
    .add_to = tutti__onednn_add_to,
    .max_pool_forward = tutti__onednn_half_max_pool_forward,
    .max_pool_backward = tutti__onednn_half_max_pool_backward,
    .avg_pool_forward = tutti__emulated_avg_pool_forward,
    .avg_pool_backward = tutti__emulated_avg_pool_backward,
    .global_avg_pool_forward = tutti__emulated_global_avg_pool_forward,
    .global_avg_pool_backward = tutti__emulated_global_avg_pool_backward,
};

tutti_status tutti__kernels_onednn(const tutti__kernels **kernels_p)
{
    static const tutti__kernels kernels = {
        .name = NAME,
        .open = tutti__onednn_open,
        .bits = bits,
        .close = tutti__onednn_close,
        .step_end = tutti__onednn_step_end,
        .can_half = can_half,
        .half = &half_kernels,
        .empty = &tutti__kernels_reference,
        .reorder = reorder,
        .fingerprint = tutti__onednn_fingerprint,
        .cast = tutti__cast_row_major,
        .move = tutti__move_row_major,
        .fill = tutti__fill_row_major,
        .conv2d_forward = tutti__onednn_conv2d_forward,
        .conv2d_backward_data = tutti__onednn_conv2d_backward_data,
        .conv2d_backward_weights = tutti__onednn_conv2d_backward_weights,
        .linear_forward = tutti__onednn_linear_forward,
        .linear_backward_data = tutti__onednn_linear_backward_data,
        .linear_backward_weights = tutti__onednn_linear_backward_weights,
        .matmul = tutti__onednn_matmul,
        .batch_norm_forward = tutti__onednn_batch_norm_forward,
        .batch_norm_backward = tutti__onednn_batch_norm_backward,
        .relu_forward = tutti__onednn_relu_forward,
        .relu_backward = tutti__onednn_relu_backward,
        .add_forward = tutti__onednn_add_forward,
        .add_to = tutti__onednn_add_to,
        .max_pool_forward = tutti__onednn_max_pool_forward,
        .max_pool_backward = tutti__onednn_max_pool_backward,
        .avg_pool_forward = tutti__onednn_avg_pool_forward,
        .avg_pool_backward = tutti__onednn_avg_pool_backward,
        .global_avg_pool_forward = tutti__onednn_global_avg_pool_forward,
        .global_avg_pool_backward = tutti__onednn_global_avg_pool_backward,
        .attention_work = tutti__onednn_attention_work,
        .attention_forward = tutti__onednn_attention_forward,
        .attention_backward = tutti__onednn_attention_backward,
        .embedding_forward = tutti__reference_embedding_forward,
        .embedding_backward = tutti__reference_embedding_backward,
    };

    *kernels_p = &kernels;
    return TUTTI_OK;
}
