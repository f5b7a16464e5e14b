/* listener.c -- registers the backward listener.   SPDX-License-Identifier: MIT */
#include "tensor/tensor.h"

tutti_status tutti_ctx_set_backward_listener(tutti_ctx *cx, const tutti_backward_listener *listener)
{
    static const tutti_backward_listener none;
    const tutti_backward_listener *l;

    TUTTI_TRY(TUTTI__NOT_NULL(cx));
    l = &cx->listener;
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_backward_listener, listener));
    if (listener && (l->self || l->step_begin || l->begin || l->ready || l->end))
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_ctx_set_backward_listener: the context has a listener already "
                           "(one tutti_ddp a context); remove it first");
    cx->listener = listener ? *listener : none;
    cx->ready_but_rows = NULL;
    return TUTTI_OK;
}
