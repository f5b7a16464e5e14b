/* operation.h -- one collective call, and which piece of its buffers goes where.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_CORE_OPERATION_H
#define TUTTI_COMM_CORE_OPERATION_H

#include "comm/core/signature.h"

typedef struct tutti__mark tutti__mark; /* how far a stream had come: engine/device.h */

typedef struct tutti__op {
    tutti__signature signature;
    /* This rank's contribution, which nobody writes; in place: src == dst. Of a reduce: also where dst is of no use. */
    const void *src;
    void *dst;
    /* Uneven: elements of the piece for each rank (NULL unless it scatters), and of each. Borrowed, or the work's. */
    const size_t *src_counts, *dst_counts;
    /* Where src and dst lie, both, and where in that stream the call came; NULL, NULL: in the host's memory. Engines see
     * operations on the host's memory only. */
    tutti_stream *stream;
    const tutti__mark *mark;
    bool only_compared; /* nothing moves: all ranks have come, and to the same call */
    int timeout_ms;
    double deadline; /* set when it starts */
} tutti__op;

/* Of TUTTI__OP_WORD: the word of `rank` becomes `wanted` if it is `expected`; it was `was`. */
typedef struct tutti__word_exchange {
    int rank;
    uint64_t expected, wanted, was;
} tutti__word_exchange;

/* Elements, from the beginning of src or dst. */
typedef struct tutti__piece {
    size_t at, count;
} tutti__piece;

static inline const tutti__op_traits *tutti__op_traits_of(const tutti__op *op)
{
    return &tutti__op_table[op->signature.op];
}
/* What `from` gives to `to`, as it lies in from's src; uneven: of this rank's own only. Nothing where one does not give
 * or the other does not take. */
tutti__piece tutti__piece_out(const tutti__op *op, int from, int to);
/* The same, as it lies in the dst of `rank`, this rank, whose counts those are. */
tutti__piece tutti__piece_in(int rank, const tutti__op *op, int from);
/* Elements that `rank`, this rank of `size`, gives: all of its src. */
size_t tutti__op_given(int rank, int size, const tutti__op *op);
/* Elements that it takes: all of its dst. */
size_t tutti__op_taken(int rank, int size, const tutti__op *op);
/* Memory is to be had. */
bool tutti__op_allocates(const tutti__op *op);
/* A reduction that is not in place, for who can only do that: src is copied to dst, and read there. */
void tutti__op_in_place(tutti__op *op);
/* True if no rank has anything to move: a barrier, for one. */
bool tutti__op_is_empty(const tutti__op *op);
/* The i-th of n parts of `count` elements, cut at multiples of `grain`: equal ones, but that the last are short or empty. */
tutti__piece tutti__part(size_t count, size_t n, size_t i, size_t grain);

#endif
