/* convolve.h -- what convolution and its transposed one share, which runs the same kernels with x and y exchanged.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_CONVOLVE_H
#define TUTTI_TENSOR_OP_CONVOLVE_H

#include "tensor/op/window.h"

/* Checks the options; that source 0, x, and source 1, weight, have four dimensions; and that source 2, the bias, is NULL or has
 * one element for each of `channels` = the size of weight in dim `dim`, times `times`. */
tutti_status tutti__convolve_check(const tutti_op_args *p, const tutti__conv2d *a,
                                   const char *weight, int dim, int times);
/* The options of an image's only row, from those given for L. */
static inline tutti__conv2d tutti__of_row(tutti__conv2d a)
{
    return (tutti__conv2d){.stride = {1, a.stride[0]},
                           .padding = {0, a.padding[0]},
                           .dilation = {1, a.dilation[0]},
                           .groups = a.groups};
}

#endif
