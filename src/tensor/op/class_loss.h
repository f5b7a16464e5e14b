/* class_loss.h -- what nll_loss and cross_entropy share: classes, labels, and weights of classes.   SPDX-License-Identifier: MIT
 *   source 0 [N,C,d1,...] or [C]   source 1, labels [N,d1,...] or [] I64   source 2, weight [C] or NULL */
#ifndef TUTTI_TENSOR_OP_CLASS_LOSS_H
#define TUTTI_TENSOR_OP_CLASS_LOSS_H

#include "tensor/op/loss.h"

#define TUTTI__IGNORED_BY_DEFAULT (-100)

typedef struct tutti__class_loss {
    tutti__cross_entropy how; /* first: kernels read it */
    tutti_reduction reduction;
} tutti__class_loss;

/* Source 0 as [N,C,S]: class c of position i, of N S ones, is element tutti__class_at(..) + c S. */
typedef struct tutti__classes {
    int64_t N, C, S;
} tutti__classes;

tutti__classes tutti__classes_of(const tutti_op_args *p);
static inline int64_t tutti__class_at(tutti__classes k, int64_t i)
{
    return i / k.S * k.C * k.S + i % k.S;
}

/* Shape rules: source 0, which is named x, the weight, and the reduction; sets the shape of the loss. */
tutti_status tutti__class_loss_shape(const tutti_op_args *p, const char *x, tutti_shape *loss_p);
/* Source 1 as labels, each of which must be a class or the ignored one. */
tutti_status tutti__class_loss_labels(const tutti_op_args *p, const char *x);
/* ARG: the message about a label that is neither a class nor the ignored one. */
tutti_status tutti__class_loss_bad_label(int64_t row, int64_t label, int64_t classes,
                                         int64_t ignored);
/* By which a sum of losses is divided: for a mean over labels the sum of the weights of those that are not ignored; else 1. */
double tutti__class_loss_divisor(const tutti_op_args *p);
/* In a device's memory: *to = the sum of n floats, or if `divisor` is not NULL over that. */
tutti_status tutti__class_loss_sum(const tutti_op_args *p, float *to, const float *from, int64_t n,
                                   const float *divisor);

#endif
