/* vocabulary_logits.h -- logits that are not stored unless something other than cross entropy reads them.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_VOCABULARY_LOGITS_H
#define TUTTI_TENSOR_OP_VOCABULARY_LOGITS_H

#include "tensor/op.h"

/* Whether linear_cross_entropy.c computes a context's losses by chunks. */
static inline bool tutti__has_label_rows(const tutti_ctx *cx)
{
    const tutti__kernels *k = cx->f32_kernels;

    return cx->device_ops->is_host || (k->label_rows && k->fold && k->elementwise_forward);
}

/* tutti_functional_linear, whose result is lazy (tensor.h) where these exist: x [..,K], weight [V,K], bias [V] or NULL
 * -> [..,V]. tutti_cross_entropy of it, also after tutti_reshape and its like, is tutti_linear_cross_entropy; whatever else reads it
 * has it stored. */
tutti_tensor *tutti__lazy_linear(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias);

/* The sources of such a result, or false. */
bool tutti__vocabulary_logits_of(const tutti_tensor *t, tutti_tensor **x_p, tutti_tensor **weight_p,
                                 tutti_tensor **bias_p);
/* Such a result in another shape, which ends with the classes, too; NULL if t is none, or for other shapes. */
tutti_tensor *tutti__vocabulary_logits_as(tutti_tensor *t, tutti_shape shape);

#endif
