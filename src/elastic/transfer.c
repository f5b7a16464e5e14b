/* transfer.c -- sends ranges of memory from one rank to the others.   SPDX-License-Identifier: MIT
 *
 * Large ranges are sent one by one; small ones are gathered in a packet, which is sent when it is full. */
#include "elastic/transfer.h"

#include "device/device.h"

#include <stdlib.h>

enum { ALWAYS_BYTES = 1 << 20, PACKET_BYTES = 256 << 10, SMALL_BYTES = 32 << 10, ALIGN = 64 };

static tutti_status add_packet(tutti__transfer *t, size_t bytes)
{
    tutti__packet *packet = tutti__alloc_unset(sizeof *packet + bytes);

    if (!packet)
        return TUTTI_ERR_MEMORY;
    packet->next = t->packets;
    t->packets = packet;
    return TUTTI_OK;
}

static tutti_status add_fragment(tutti__transfer *t, tutti_buf to, unsigned char *from)
{
    tutti__fragment *fragment = tutti__alloc(sizeof *fragment);

    if (!fragment)
        return TUTTI_ERR_MEMORY;
    *fragment = (tutti__fragment){.to = to, .from = from};
    if (!t->first)
        t->end = &t->first;
    *t->end = fragment;
    t->end = &fragment->next;
    return TUTTI_OK;
}

/* Copies everything to its destination. */
static tutti_status unpack(tutti__transfer *t)
{
    tutti_status status = TUTTI_OK;

    while (t->first) {
        tutti__fragment *fragment = t->first;
        tutti_stream *stream = tutti__stream_or_cpu(fragment->to.stream);

        if (status == TUTTI_OK)
            status = tutti__copy_in(stream, fragment->to.p, fragment->from, fragment->to.count);
        if (status == TUTTI_OK &&
            (!fragment->next || fragment->next->to.stream != fragment->to.stream))
            status = tutti_stream_wait(stream);
        t->first = fragment->next;
        free(fragment);
    }
    return status;
}

static bool sends(const tutti__transfer *t)
{
    return tutti_group_rank(t->group) == t->from;
}

/* Sends the open packet. */
static tutti_status close_packet(tutti__transfer *t)
{
    tutti__packet *packet = t->open;

    if (!packet)
        return TUTTI_OK;
    t->open = NULL;
    TUTTI_TRY(
        tutti_broadcast(t->group, TUTTI_BUF(packet->bytes, t->packed, TUTTI_U8), t->from, NULL));
    return t->whole ? TUTTI_OK : unpack(t);
}

static tutti_status move_small(tutti__transfer *t, tutti_buf buf)
{
    unsigned char *at;

    if (t->open && t->packed + buf.count > PACKET_BYTES)
        TUTTI_TRY(close_packet(t));
    if (!t->open) {
        TUTTI_TRY(add_packet(t, PACKET_BYTES));
        t->open = t->packets;
        t->packed = 0;
    }
    at = t->open->bytes + t->packed;
    t->packed += (buf.count + ALIGN - 1) / ALIGN * ALIGN;
    if (!sends(t))
        return add_fragment(t, buf, at);
    TUTTI_TRY(tutti__copy_out(tutti__stream_or_cpu(buf.stream), at, buf.p, buf.count));
    return tutti_stream_wait(tutti__stream_or_cpu(buf.stream));
}

static tutti_status move_large(tutti__transfer *t, tutti_buf buf)
{
    if (!t->whole || sends(t))
        return tutti_broadcast(t->group, buf, t->from, NULL);
    TUTTI_TRY(add_packet(t, buf.count));
    TUTTI_TRY(add_fragment(t, buf, t->packets->bytes));
    return tutti_broadcast(t->group, TUTTI_BUF(t->packets->bytes, buf.count, TUTTI_U8), t->from,
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
    TUTTI_TRY(close_packet(t));
    return unpack(t);
}

void tutti__transfer_destroy(tutti__transfer *t)
{
    while (t->first) {
        tutti__fragment *fragment = t->first;

        t->first = fragment->next;
        free(fragment);
    }
    while (t->packets) {
        tutti__packet *packet = t->packets;

        t->packets = packet->next;
        free(packet);
    }
}
