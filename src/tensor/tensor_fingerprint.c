/* tensor_fingerprint.c -- reads a tensor's elements as they are in memory, or brings them into row-major order for a moment.
 * SPDX-License-Identifier: MIT */
#include "tensor/tensor_fingerprint.h"

#include "tensor/kernel.h"
#include "tensor/op/vocabulary_logits.h"

enum { PART = 4096 }; /* elements of a lazy tensor at a time */

/* Without storing or reordering them. False: this tensor's cannot be read so. */
static bool read_in_place(tutti__fingerprint *f, const tutti_tensor *t,
                          const tutti__kernels *kernels)
{
    tutti__fingerprint_sums sums = {.dtype = t->dtype};
    const bool lazy = !t->data && t->lazy && t->lazy->read && t->dtype == TUTTI_F32;
    const int64_t n = lazy && !t->layout ? tutti_shape_count(t->shape) : 0;
    float part[PART];

    if (!tutti__on_host(t->cx->stream) || (!t->data && !lazy) || (t->data && !t->layout) ||
        (t->layout && !(kernels->fingerprint && kernels->fingerprint(&sums, t))))
        return false;
    for (int64_t i = 0; i < n; i += PART) {
        const int64_t here = n - i < PART ? n - i : PART;

        t->lazy->read(t, i, here, part);
        tutti__fingerprint_add(&sums, part, (size_t)here, (size_t)i);
    }
    *f = tutti__fingerprint_end(&sums);
    return true;
}

/* A row-major copy of t. */
static tutti_status copy_of(tutti_tensor *t, const tutti__kernels *kernels, tutti_tensor **copy_p)
{
    tutti_tensor *copy = tutti__tensor_new(t->cx, t->shape, t->dtype);

    if (!copy)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(copy, NULL));
    *copy_p = copy;
    return kernels->reorder(copy, t);
}

tutti_status tutti__tensor_fingerprint(tutti__fingerprint *f, tutti_tensor *t, bool *known_p)
{
    const bool lazy = !t->data && t->lazy;
    const tutti__kernels *kernels;
    tutti__logits_sources of;
    tutti_tensor *copy = NULL;
    tutti_status status = TUTTI_OK;

    *known_p = !tutti__vocabulary_logits_of(t, &of);
    if (!*known_p)
        return TUTTI_OK;
    TUTTI_TRY(tutti__kernels_of(t->cx, t->dtype, &kernels));
    if (read_in_place(f, t, kernels))
        return TUTTI_OK;
    TUTTI_TRY(tutti__tensor_compute(t));
    if (t->layout)
        status = copy_of(t, kernels, &copy);
    if (status == TUTTI_OK)
        status = tutti__fingerprint_of(f, t->cx->stream, copy ? copy->data : t->data,
                                       (size_t)tutti_shape_count(t->shape), t->dtype, 0);
    if (copy)
        tutti__tensor_release(copy);
    if (lazy)
        tutti__tensor_release(t);
    return status;
}
