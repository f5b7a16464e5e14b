/* frame_ring.h -- a ring of cache lines in shared memory: frames from one rank to another.   SPDX-License-Identifier: MIT
 *
 * A frame is a record of whole lines, one after the other. Its first line contains the stamp that marks it as written, and
 * up to eight bytes of body, so that a short message is a single cache line that goes from core to core. The stamp of the
 * following line is cleared first, so data of an earlier lap are never taken for a stamp. */
#ifndef TUTTI_COMM_P2P_FRAME_RING_H
#define TUTTI_COMM_P2P_FRAME_RING_H

#include "comm/control/control.h"

enum { TUTTI__RING_LINE = 64, TUTTI__RING_SMALL = 8, TUTTI__RING_OFFERS = 16 };

typedef struct tutti__ring_record {
    _Atomic uint64_t stamp; /* 1 + its line's number, counted through all laps */
    tutti__frame head;
    char small[TUTTI__RING_SMALL];
} tutti__ring_record;
_Static_assert(sizeof(tutti__ring_record) == TUTTI__RING_LINE, "a record begins with one line");

/* A rendezvous that the writer of a ring offers (p2p_rendezvous.c). */
typedef struct tutti__ring_offer {
    _Atomic uint64_t state; /* and the request's number */
    uint64_t at;            /* the sender's memory, in its process */
    uint64_t offset;        /* offset in memory that both have mapped ... */
    uint64_t segment;       /* 1 + its number; 0: not in such memory */
} tutti__ring_offer;

typedef struct tutti__ring {
    _Alignas(64) _Atomic uint64_t head;    /* lines that are read; written by the reader */
    _Alignas(64) _Atomic uint32_t starved; /* the writer waits for room */
    _Alignas(64) tutti__ring_offer offers[TUTTI__RING_OFFERS];
    _Alignas(64) tutti__ring_record lines[];
} tutti__ring;

typedef struct tutti__ring_writer {
    tutti__ring *ring; /* NULL: none */
    uint64_t n_lines, tail, head;
} tutti__ring_writer;

typedef struct tutti__ring_reader {
    tutti__ring *ring;
    uint64_t n_lines, head, announced;
} tutti__ring_reader;

size_t tutti__ring_bytes(size_t n_lines);
/* False if there is no room now. */
bool tutti__ring_write(tutti__ring_writer *writer, const tutti__frame *head, const void *body);
/* The next record, or NULL. */
const tutti__ring_record *tutti__ring_peek(tutti__ring_reader *reader);
static inline const char *tutti__ring_body(const tutti__ring_record *record)
{
    return record->head.bytes <= TUTTI__RING_SMALL ? record->small : (const char *)(record + 1);
}
/* Frees the record after it was read, and announces that to the writer now and then; tutti__ring_announce does so at once, and
 * returns whether the writer waits for room. */
void tutti__ring_pass(tutti__ring_reader *reader, const tutti__ring_record *record);
bool tutti__ring_announce(tutti__ring_reader *reader);

#endif
