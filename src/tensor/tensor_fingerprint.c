/* tensor_fingerprint.c -- brings a tensor's elements into row-major order for a moment.   SPDX-License-Identifier: MIT */
#include "tensor/tensor_fingerprint.h"

#include "tensor/kernel.h"
#include "tensor/op/vocabulary_logits.h"

/* A row-major copy of t. */
static tutti_status copy_of(tutti_tensor *t, tutti_tensor **copy_p)
{
    const tutti__kernels *kernels;
    tutti_tensor *copy = tutti__tensor_new(t->cx, t->shape, t->dtype);

    if (!copy)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(copy, NULL));
    *copy_p = copy;
    TUTTI_TRY(tutti__kernels_of(t->cx, t->dtype, &kernels));
    return kernels->reorder(copy, t);
}

tutti_status tutti__tensor_fingerprint(tutti__fingerprint *f, tutti_tensor *t, bool *known_p)
{
    const bool lazy = !t->data && t->lazy;
    tutti__logits_sources of;
    tutti_tensor *copy = NULL;
    tutti_status status = TUTTI_OK;

    *known_p = !tutti__vocabulary_logits_of(t, &of);
    if (!*known_p)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tensor_compute(t));
    if (t->layout)
        status = copy_of(t, &copy);
    if (status == TUTTI_OK)
        status = tutti__fingerprint_of(f, t->cx->stream, copy ? copy->data : t->data,
                                       (size_t)tutti_shape_count(t->shape), t->dtype, 0);
    if (copy)
        tutti__tensor_release(copy);
    if (lazy)
        tutti__tensor_release(t);
    return status;
}
