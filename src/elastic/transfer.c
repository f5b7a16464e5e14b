/* transfer.c -- sends ranges of memory from one rank to the others.   SPDX-License-Identifier: MIT
 *
 * Large ranges are sent one by one; small ones are packed into a crate, which is sent when it is full. */
#include "elastic/transfer.h"

#include "device/device.h"

#include <stdlib.h>

enum { ALWAYS_BYTES = 1 << 20, CRATE_BYTES = 256 << 10, SMALL_BYTES = 32 << 10, ALIGN = 64 };

static tutti_status add_crate(tutti__transfer *t, size_t bytes)
{
    tutti__crate *crate = tutti__alloc_unset(sizeof *crate + bytes);

    if (!crate)
        return TUTTI_ERR_MEMORY;
    crate->next = t->crates;
    t->crates = crate;
    return TUTTI_OK;
}

static tutti_status add_parcel(tutti__transfer *t, tutti_buf to, unsigned char *from)
{
    tutti__parcel *parcel = tutti__alloc(sizeof *parcel);

    if (!parcel)
        return TUTTI_ERR_MEMORY;
    *parcel = (tutti__parcel){.to = to, .from = from};
    if (!t->first)
        t->end = &t->first;
    *t->end = parcel;
    t->end = &parcel->next;
    return TUTTI_OK;
}

/* Copies everything to its destination. */
static tutti_status unpack(tutti__transfer *t)
{
    tutti_status status = TUTTI_OK;

    while (t->first) {
        tutti__parcel *parcel = t->first;
        tutti_stream *stream = tutti__stream_or_cpu(parcel->to.stream);

        if (status == TUTTI_OK)
            status = tutti__copy_in(stream, parcel->to.p, parcel->from, parcel->to.count);
        if (status == TUTTI_OK && (!parcel->next || parcel->next->to.stream != parcel->to.stream))
            status = tutti_stream_wait(stream);
        t->first = parcel->next;
        free(parcel);
    }
    return status;
}

static bool sends(const tutti__transfer *t)
{
    return tutti_group_rank(t->group) == t->from;
}

/* Sends the open crate. */
static tutti_status close_crate(tutti__transfer *t)
{
    tutti__crate *crate = t->open;

    if (!crate)
        return TUTTI_OK;
    t->open = NULL;
    TUTTI_TRY(
        tutti_broadcast(t->group, TUTTI_BUF(crate->bytes, t->packed, TUTTI_U8), t->from, NULL));
    return t->whole ? TUTTI_OK : unpack(t);
}

static tutti_status move_small(tutti__transfer *t, tutti_buf buf)
{
    unsigned char *at;

    if (t->open && t->packed + buf.count > CRATE_BYTES)
        TUTTI_TRY(close_crate(t));
    if (!t->open) {
        TUTTI_TRY(add_crate(t, CRATE_BYTES));
        t->open = t->crates;
        t->packed = 0;
    }
    at = t->open->bytes + t->packed;
    t->packed += (buf.count + ALIGN - 1) / ALIGN * ALIGN;
    if (!sends(t))
        return add_parcel(t, buf, at);
    TUTTI_TRY(tutti__copy_out(tutti__stream_or_cpu(buf.stream), at, buf.p, buf.count));
    return tutti_stream_wait(tutti__stream_or_cpu(buf.stream));
}

static tutti_status move_large(tutti__transfer *t, tutti_buf buf)
{
    if (!t->whole || sends(t))
        return tutti_broadcast(t->group, buf, t->from, NULL);
    TUTTI_TRY(add_crate(t, buf.count));
    TUTTI_TRY(add_parcel(t, buf, t->crates->bytes));
    return tutti_broadcast(t->group, TUTTI_BUF(t->crates->bytes, buf.count, TUTTI_U8), t->from,
                           NULL);
}

tutti_status tutti__transfer_move(void *transfer, tutti_buf buf)
{
    tutti__transfer *t = transfer;

    buf.count *= tutti_dtype_size(buf.dtype);
    buf.dtype = TUTTI_U8;
    if (buf.count == 0 || (!t->all && buf.count > ALWAYS_BYTES))
        return TUTTI_OK;
    return buf.count <= SMALL_BYTES ? move_small(t, buf) : move_large(t, buf);
}

tutti_status tutti__transfer_end(tutti__transfer *t)
{
    TUTTI_TRY(close_crate(t));
    return unpack(t);
}

void tutti__transfer_destroy(tutti__transfer *t)
{
    while (t->first) {
        tutti__parcel *parcel = t->first;

        t->first = parcel->next;
        free(parcel);
    }
    while (t->crates) {
        tutti__crate *crate = t->crates;

        t->crates = crate->next;
        free(crate);
    }
}
