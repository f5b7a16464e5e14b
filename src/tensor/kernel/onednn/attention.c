/* attention.c -- attention by our own kernel for the instruction set.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/onednn_state.h"

static const tutti__isa *isa_of(const tutti_ctx *cx)
{
    return ((const tutti__onednn *)cx->kernel_state)->isa;
}

size_t tutti__onednn_attention_work(const tutti_ctx *cx, const tutti__attention *a)
{
    if (a->dtype == TUTTI_F32)
        return isa_of(cx)->attention_work(cx, a);
    return a->dtype == TUTTI_BF16 && tutti__onednn_has_bf16()
               ? isa_of(cx)->half_attention_work(cx, a)
               : 0;
}

tutti_status tutti__onednn_attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    (a->dtype == TUTTI_F32 ? isa_of(cx)->attention_forward
                           : isa_of(cx)->half_attention_forward)(cx, a, work);
    return TUTTI_OK;
}

tutti_status tutti__onednn_attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work)
{
    (a->dtype == TUTTI_F32 ? isa_of(cx)->attention_backward
                           : isa_of(cx)->half_attention_backward)(cx, a, work);
    return TUTTI_OK;
}
