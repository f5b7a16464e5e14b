/* frame_ring.c -- a ring of cache lines in shared memory.   SPDX-License-Identifier: MIT */
#include "comm/p2p/frame_ring.h"

#include <stdatomic.h>
#include <string.h>

/* A record that fills the ring up to its end, if the next one does not fit there. */
enum { SKIP = UINT16_MAX };

size_t tutti__ring_bytes(size_t n_lines)
{
    return sizeof(tutti__ring) + n_lines * TUTTI__RING_LINE;
}

static uint64_t lines_of(uint32_t bytes)
{
    return 1 + (bytes <= TUTTI__RING_SMALL ? 0 : (bytes + TUTTI__RING_LINE - 1) / TUTTI__RING_LINE);
}

static tutti__ring_record *line(tutti__ring *ring, uint64_t n_lines, uint64_t number)
{
    return &ring->lines[number & (n_lines - 1)];
}

/* There must be room for it. */
static void write_record(tutti__ring_writer *w, const tutti__frame *head, const void *body,
                         uint64_t lines)
{
    tutti__ring_record *record = line(w->ring, w->n_lines, w->tail);

    atomic_store_explicit(&line(w->ring, w->n_lines, w->tail + lines)->stamp, 0,
                          memory_order_relaxed);
    record->head = *head;
    if (body && head->bytes > 0)
        memcpy((char *)(uintptr_t)tutti__ring_body(record), body, head->bytes);
    /* sequentially consistent: before the read of the reader's bell */
    atomic_store(&record->stamp, w->tail + 1);
    w->tail += lines;
}

bool tutti__ring_write(tutti__ring_writer *w, const tutti__frame *head, const void *body)
{
    uint64_t lines = lines_of(head->bytes), to_end = w->n_lines - (w->tail & (w->n_lines - 1)),
             skip = lines > to_end ? to_end : 0;

    if (w->tail + skip + lines + 1 - w->head > w->n_lines) {
        w->head = atomic_load(&w->ring->head);
        if (w->tail + skip + lines + 1 - w->head > w->n_lines)
            return false;
    }
    if (skip > 0)
        write_record(w, &(tutti__frame){.kind = SKIP}, NULL, skip);
    write_record(w, head, body, lines);
    return true;
}

const tutti__ring_record *tutti__ring_peek(tutti__ring_reader *r)
{
    const tutti__ring_record *record = line(r->ring, r->n_lines, r->head);

    if (atomic_load(&record->stamp) != r->head + 1)
        return NULL;
    if (record->head.kind != SKIP)
        return record;
    r->head += r->n_lines - (r->head & (r->n_lines - 1));
    return tutti__ring_peek(r);
}

void tutti__ring_pass(tutti__ring_reader *r, const tutti__ring_record *record)
{
    r->head += lines_of(record->head.bytes);
    if (r->head - r->announced >= r->n_lines / 8) {
        r->announced = r->head;
        atomic_store_explicit(&r->ring->head, r->head, memory_order_release);
    }
}

bool tutti__ring_announce(tutti__ring_reader *r)
{
    r->announced = r->head;
    atomic_store(&r->ring->head, r->head);
    return atomic_load(&r->ring->starved) && atomic_exchange(&r->ring->starved, 0);
}
