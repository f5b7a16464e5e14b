/* ahead.c -- copies batches to the device ahead of time: pinned memory, a stream, events.   SPDX-License-Identifier: MIT */
#include "data/ahead.h"

#include <string.h>
#include <tutti/data.h>

_Static_assert(TUTTI__AHEAD == TUTTI_MAX_FIELDS, "a context is offered all arrays of a batch");

tutti_status tutti__ahead_open(tutti__ahead *ahead, tutti_ctx *cx)
{
    TUTTI_TRY(cx->device_ops->stream_new(&ahead->stream, cx->device, NULL));
    ahead->cx = cx;
    return TUTTI_OK;
}

tutti_status tutti__ahead_slot_open(const tutti__ahead *ahead, tutti__ahead_slot *slot,
                                    const size_t *bytes, int n)
{
    const tutti_device device = ahead->cx->device;
    const tutti__device_ops *ops = ahead->cx->device_ops;

    slot->n = n;
    for (int i = 0; i < n; i++) {
        slot->bytes[i] = bytes[i];
        slot->host[i] = ops->host_alloc(device, bytes[i]);
        slot->device[i] = slot->host[i] ? ops->alloc(device, bytes[i], false) : NULL;
        if (!slot->device[i])
            return TUTTI_ERR_MEMORY;
    }
    TUTTI_TRY(ops->event_new(device, &slot->copied));
    return ops->event_new(device, &slot->used);
}

tutti_status tutti__ahead_is_free(const tutti__ahead *ahead, tutti__ahead_slot *slot, bool *free_p)
{
    const tutti__device_ops *ops = ahead->cx->device_ops;

    *free_p = true;
    if (slot->queued)
        TUTTI_TRY(ops->event_passed(slot->copied, free_p));
    if (*free_p && slot->handed_back)
        TUTTI_TRY(ops->event_passed(slot->used, free_p));
    if (*free_p)
        slot->queued = slot->handed_back = false;
    return TUTTI_OK;
}

tutti_status tutti__ahead_copy(const tutti__ahead *ahead, tutti__ahead_slot *slot,
                               const size_t *bytes)
{
    slot->queued = true; /* even if only a part of it */
    for (int i = 0; i < slot->n; i++)
        TUTTI_TRY(tutti__copy_in(ahead->stream, slot->device[i], slot->host[i], bytes[i]));
    return ahead->cx->device_ops->event_record(slot->copied, ahead->stream);
}

void tutti__ahead_offer(const tutti__ahead *ahead, const tutti__ahead_slot *slot)
{
    for (int i = 0; i < TUTTI__AHEAD; i++)
        ahead->cx->ahead[i] = i < slot->n ? (tutti__copied){slot->host[i], slot->device[i],
                                                            slot->bytes[i], slot->copied}
                                          : (tutti__copied){NULL, NULL, 0, NULL};
}

/* Withdraws this slot's arrays from those offered to the context. */
static void withdraw(const tutti__ahead *ahead, const tutti__ahead_slot *slot)
{
    for (int i = 0; i < slot->n; i++)
        if (slot->host[i] && ahead->cx->ahead[i].host == slot->host[i])
            ahead->cx->ahead[i] = (tutti__copied){NULL, NULL, 0, NULL};
}

tutti_status tutti__ahead_take_back(const tutti__ahead *ahead, tutti__ahead_slot *slot)
{
    withdraw(ahead, slot);
    TUTTI_TRY(ahead->cx->device_ops->event_record(slot->used, ahead->cx->stream));
    slot->handed_back = true;
    return TUTTI_OK;
}

void tutti__ahead_slot_close(const tutti__ahead *ahead, tutti__ahead_slot *slot)
{
    const tutti_device device = ahead->cx->device;
    const tutti__device_ops *ops = ahead->cx->device_ops;

    /* Pinned memory is read by copies of either stream. A failed device no longer reads it. */
    if (slot->queued)
        (void)ops->stream_wait(ahead->stream);
    if (slot->queued || slot->handed_back)
        (void)ops->stream_wait(ahead->cx->stream);
    withdraw(ahead, slot);
    for (int i = 0; i < slot->n; i++) {
        ops->free(device, slot->device[i]);
        ops->host_free(device, slot->host[i]);
    }
    ops->event_free(device, slot->copied);
    ops->event_free(device, slot->used);
}

void tutti__ahead_close(tutti__ahead *ahead)
{
    if (ahead->cx)
        ahead->cx->device_ops->stream_free(ahead->stream);
    ahead->cx = NULL;
}
