/* vocabulary_logits.h -- logits that are not stored unless something other than cross entropy reads them.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TENSOR_OP_VOCABULARY_LOGITS_H
#define TUTTI_TENSOR_OP_VOCABULARY_LOGITS_H

#include "tensor/op/peers.h"

/* Where the classes are divided among ranks: weight and bias are this rank's of all `classes`, by tutti__chunk. NULL: they are not. The
 * logits then have all classes, and cross entropy exchanges four numbers a row: the largest logit, the sum of exponentials, the
 * label's logit, and the sum of logits; whatever else reads them has them gathered. */
typedef struct tutti__divided_classes {
    const tutti_peers *peers;
    int64_t classes;
} tutti__divided_classes;

/* Whether linear_cross_entropy.c computes a context's losses by chunks. */
static inline bool tutti__has_label_rows(const tutti_ctx *cx)
{
    const tutti__kernels *k = cx->f32_kernels;

    return cx->device_ops->is_host || (k->label_rows && k->fold && k->elementwise_forward);
}

/* tutti_functional_linear, whose result is lazy (tensor.h) where these exist: x [..,K], weight [V,K], bias [V] or NULL
 * -> [..,V]. tutti_cross_entropy of it, also after tutti_reshape and its like, is tutti_linear_cross_entropy; whatever else reads it
 * has it stored. `divided` is borrowed until backward; x must then be a tutti__peers_copy. */
tutti_tensor *tutti__lazy_linear(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                 const tutti__divided_classes *divided);

/* The sources of such a result. */
typedef struct tutti__logits_sources {
    tutti_tensor *x, *weight, *bias;
    const tutti__divided_classes *divided;
} tutti__logits_sources;
/* False: t is something else, or stored. */
bool tutti__vocabulary_logits_of(const tutti_tensor *t, tutti__logits_sources *of);
/* Their cross entropy, without storing them; NULL: that is not possible with these options. */
tutti_tensor *tutti__logits_cross_entropy(const tutti__logits_sources *of, tutti_tensor *target,
                                          const tutti_cross_entropy_opts *o);
/* Such a result in another shape, which ends with the classes, too; NULL if t is none, or for other shapes. */
tutti_tensor *tutti__vocabulary_logits_as(tutti_tensor *t, tutti_shape shape);

#endif
