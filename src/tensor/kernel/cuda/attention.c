/* attention.c -- attention by our own kernels.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/cuda/cuda_kernels.h"

static tutti__cuda_mask mask_of(const tutti_ctx *cx, const tutti__attention *a)
{
    return (tutti__cuda_mask){.key = cx->seed,
                              .step = (uint32_t)cx->step,
                              .shard = (uint32_t)cx->shard,
                              .call = a->call,
                              .p = a->dropout};
}

tutti_status tutti__cuda_attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    const tutti__cuda_mask mask = mask_of(cx, a);

    (void)work;
    TUTTI__CUDA(cx, own, attention, a, &mask);
    return TUTTI_OK;
}

tutti_status tutti__cuda_attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    const tutti__cuda_mask mask = mask_of(cx, a);
    void *scratch;

    (void)work;
    TUTTI_TRY(tutti__cuda_scratch(
        cx, (size_t)(a->batch * a->heads * a->queries) * sizeof(float) + 1, &scratch));
    TUTTI__CUDA(cx, own, attention_backward, a, &mask, scratch);
    return TUTTI_OK;
}
