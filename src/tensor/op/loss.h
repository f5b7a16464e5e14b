/* loss.h -- losses with an elementwise part, and their reduction.   SPDX-License-Identifier: MIT
 *
 * Such a loss is declared as an elementwise operation, `each`: the loss of each element, and its gradients. Reduced to a mean or a
 * sum, its values are summed part by part, and never stored. Sources have one shape: none is broadcast. */
#ifndef TUTTI_TENSOR_OP_LOSS_H
#define TUTTI_TENSOR_OP_LOSS_H

#include "tensor/op.h"

typedef struct tutti__loss_op {
    tutti__op each; /* backward must not read the result */
    /* for means: in place of tutti__plain_forward and _backward; NULL: none */
    tutti_status (*mean_forward)(tutti__node *n);
    tutti_status (*mean_backward)(tutti__node *n);
} tutti__loss_op;

/* attributes_bytes <= 32 */
tutti_tensor *tutti__loss_run(const tutti__loss_op *loss, tutti_tensor *const *src, int n_src,
                              tutti_reduction reduction, const void *attributes,
                              size_t attributes_bytes);
/* `weight` in the shape of x, repeated if it is narrower; NULL for NULL. */
tutti_tensor *tutti__loss_weight(tutti_tensor *x, tutti_tensor *weight);
/* A shape rule: the sources exist, except those in `optional` (bit i: source i), are real, and have the shape of source 0. */
tutti_status tutti__loss_shape(const tutti_op_args *p, const char *const *names, unsigned optional,
                               tutti_shape *shape_p);
/* ARG unless it is TUTTI_REDUCTION_MEAN, _SUM or _NONE */
tutti_status tutti__loss_check(tutti_reduction reduction);
/* The sum, in double, in a fixed order. */
double tutti__sum(const float *x, int64_t n);

#endif
