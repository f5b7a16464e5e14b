/* move.h -- operations that only move elements: permute, slice, cat, pad, and the like.   SPDX-License-Identifier: MIT
 *
 * Such an operation says which blocks of its sources lie where in its result; forward copies them, backward copies or adds them
 * back. Tensors have no strides: a result is a row-major copy, so that no operation after it can be slow or wrong because its
 * source is a view (docs/design/tape.md). Elements are of any dtype, I64 included. */
#ifndef TUTTI_TENSOR_MOVE_H
#define TUTTI_TENSOR_MOVE_H

#include "tensor/op.h"

/* A block of n dimensions, outermost first: its sizes, and where it starts in source and result and how far apart its elements
 * are there, in elements. Strides may be negative, but never 0, and no element of the result lies in two blocks. */
typedef struct tutti__block {
    int source;
    int n;
    int64_t size[TUTTI_MAX_DIMS], src_stride[TUTTI_MAX_DIMS], dst_stride[TUTTI_MAX_DIMS];
    int64_t src_at, dst_at;
} tutti__block;

typedef struct tutti__move_op {
    const char *name;
    tutti_status (*shape)(const tutti_op_args *p, tutti_shape *shape_p, tutti_dtype *dtype_p);
    /* *b = the i-th block, from 0; false if there is none. *b has no dimensions and source 0 before the call. */
    bool (*block)(const tutti_op_args *p, int i, tutti__block *b);
    /* What the result is where no block lies; NULL: 0. */
    float (*fill)(const tutti_op_args *p);
    bool overlaps; /* an element of a source may lie in several blocks */
} tutti__move_op;

/* As tutti_op_run, with any number of sources. */
tutti_tensor *tutti__move_run(const tutti__move_op *op, tutti_tensor *const *src, int n_src,
                              const void *attributes, size_t attributes_bytes);

/* For shape rules: source i exists, and has the dtype that has been set, or any if i is 0, which sets it. */
tutti_status tutti__move_source(const tutti_op_args *p, int i, const char *what,
                                tutti_dtype *dtype_p);
/* dim, or if negative counted from the end, as an index below n; -1 with the message set if there is no such dimension. A scalar
 * counts as having one, as in PyTorch. */
int tutti__dim_index(int dim, int n);
/* The whole of source i, and strides of the shapes of source i and the result: dimension k of the block is dimension k of
 * source i. */
void tutti__block_of_source(const tutti_op_args *p, int i, tutti__block *b);
/* Strides of a row-major tensor. */
void tutti__strides(tutti_shape shape, int64_t *stride);

#endif
