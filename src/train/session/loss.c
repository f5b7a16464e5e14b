/* loss.c -- copies a loss to the host asynchronously.   SPDX-License-Identifier: MIT */
#include "train/session/loss.h"
#include "tensor/tensor.h"

#include <sched.h>

tutti_status tutti__loss_open(tutti__loss *l, tutti_ctx *cx)
{
    l->value = cx->device_ops->host_alloc(cx->device, sizeof *l->value);
    if (!l->value)
        return TUTTI_ERR_MEMORY;
    l->cx = cx;
    return cx->device_ops->event_new(cx->device, &l->event);
}

tutti_status tutti__loss_ask(tutti__loss *l, tutti_tensor *loss)
{
    const void *p;

    TUTTI_TRY(tutti_tensor_status(loss));
    if (loss->dtype != TUTTI_F32) { /* needs conversion */
        *l->value = tutti_item(loss);
    } else {
        TUTTI_TRY(tutti__tensor_row_major(loss, &p));
        TUTTI_TRY(tutti__copy_out(l->cx->stream, l->value, p, sizeof *l->value));
    }
    return l->cx->device_ops->event_record(l->event, l->cx->stream);
}

tutti_status tutti__loss_get(tutti__loss *l, double *value_p)
{
    bool passed = false;

    for (;;) {
        TUTTI_TRY(l->cx->device_ops->event_passed(l->event, &passed));
        if (passed)
            break;
        sched_yield();
    }
    *value_p = (double)*l->value;
    return TUTTI_OK;
}

void tutti__loss_close(tutti__loss *l)
{
    if (!l->cx)
        return;
    (void)l->cx->device_ops->stream_wait(l->cx->stream); /* a copy may be in flight */
    l->cx->device_ops->event_free(l->cx->device, l->event);
    l->cx->device_ops->host_free(l->cx->device, l->value);
    l->cx = NULL;
}
