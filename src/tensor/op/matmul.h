/* matmul.h -- a product of two tensors, for operations that are one.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_MATMUL_H
#define TUTTI_TENSOR_OP_MATMUL_H

#include "tensor/op.h"

/* How a product reads its sources, and what they must be. */
typedef struct tutti__matmul_kind {
    const char *a_dims,
        *b_dims; /* as in tutti_op_check_source; NULL: any, with a broadcast batch */
    bool a_transposed, b_transposed;
    bool outer; /* of two vectors, a column and a row */
} tutti__matmul_kind;

/* op(a) op(b) as an operation of this name, a string literal. */
tutti_tensor *tutti__matmul_run(const char *name, tutti_tensor *a, tutti_tensor *b,
                                const tutti__matmul_kind *kind);

#endif
