/* window.h -- windows over images: for convolutions and pools.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_WINDOW_H
#define TUTTI_TENSOR_OP_WINDOW_H

#include "tensor/op.h"

/* The pixels from the first to the last of a window of `kernel` pixels, each `dilation` after the one before. */
static inline int64_t tutti__window_extent(int64_t kernel, int64_t dilation)
{
    return (kernel - 1) * dilation + 1;
}

/* The number of windows of this extent in `in` pixels padded on both sides; may be 0. */
static inline int64_t tutti__windows(int64_t in, int64_t extent, int64_t stride, int64_t padding)
{
    return in + 2 * padding < extent ? 0 : (in + 2 * padding - extent) / stride + 1;
}

/* An option of the columns: `both`, that of both dimensions, unless it has its own, -1 for zero. */
static inline int tutti__of_columns(int own, int both)
{
    return own == 0 ? both : own == -1 ? 0 : own;
}

/* For operations on [N,C,L], which run as those on images of one row: t as [N,C,1,L], poisoned with a message that names it
 * if it has other dimensions than `dims`; and the result back. Poison and NULL are passed on. */
tutti_tensor *tutti__with_row(tutti_tensor *t, const char *op, const char *what, const char *dims);
tutti_tensor *tutti__without_row(tutti_tensor *y);
/* x [N,C,H,W] with rows and columns of zeros at the end; x itself if none are wanted, or if it has other dimensions. */
tutti_tensor *tutti__with_zeros(tutti_tensor *x, int rows, int columns);

#endif
