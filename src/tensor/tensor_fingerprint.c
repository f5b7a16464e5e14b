/* tensor_fingerprint.c -- brings a tensor's elements into row-major order for a moment.   SPDX-License-Identifier: MIT */
#include "tensor/tensor_fingerprint.h"

#include "tensor/kernel.h"
#include "tensor/op/vocabulary_logits.h"

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

/* By kernels that read a few elements without storing the others. False: they cannot. */
static bool gather(tutti__fingerprint *f, const tutti_tensor *t, const tutti__sample *sample,
                   const tutti__kernels *kernels)
{
    char gathered[TUTTI__SAMPLE * sizeof(int64_t)], *to = gathered;

    if (!kernels->read_run || (t->data && !t->layout))
        return false;
    for (int i = 0; i < sample->n_runs; i++) {
        const size_t n = sample->runs[i].n;

        if (!kernels->read_run(t, (int64_t)sample->runs[i].first, (int64_t)n, to))
            return false;
        to += n * tutti_dtype_size(t->dtype);
    }
    tutti__fingerprint_gathered(f, sample, gathered, t->dtype);
    return true;
}

tutti_status tutti__tensor_fingerprint(tutti__fingerprint *f, tutti_tensor *t,
                                       const tutti__sample *sample, bool *known_p)
{
    const bool lazy = !t->data && t->lazy;
    const tutti__kernels *kernels;
    tutti__logits_sources of;
    tutti_tensor *copy = NULL;
    tutti_status status = TUTTI_OK;
    const void *p;

    *known_p = !tutti__vocabulary_logits_of(t, &of);
    if (!*known_p)
        return TUTTI_OK;
    TUTTI_TRY(tutti__kernels_of(t->cx, t->dtype, &kernels));
    if (sample && gather(f, t, sample, kernels))
        return TUTTI_OK;
    TUTTI_TRY(tutti__tensor_compute(t));
    if (t->layout)
        status = copy_of(t, kernels, &copy);
    p = copy ? copy->data : t->data;
    if (status == TUTTI_OK && sample)
        status = tutti__fingerprint_sampled(f, t->cx->stream, p, t->dtype, 0, sample);
    else if (status == TUTTI_OK)
        status = tutti__fingerprint_of(f, t->cx->stream, p, (size_t)tutti_shape_count(t->shape),
                                       t->dtype, 0);
    if (copy)
        tutti__tensor_release(copy);
    if (lazy)
        tutti__tensor_release(t);
    return status;
}
