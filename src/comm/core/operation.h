/* operation.h -- one collective call, and the pieces of its buffers.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_CORE_OPERATION_H
#define TUTTI_COMM_CORE_OPERATION_H

#include "comm/core/signature.h"

typedef struct tutti__pooled_event tutti__pooled_event; /* engine/device_buffers.h */

typedef struct tutti__operation {
    tutti__signature signature;
    /* This rank's contribution, which is not written. In place: src == dst; so also in a reduce on ranks other than root. */
    const void *src;
    void *dst;
    /* Uneven: elements of the piece for each rank (NULL unless it scatters), and of the piece from each. Borrowed, or
     * owned by the work. */
    const size_t *src_counts, *dst_counts;
    /* The stream of src's and dst's device, NULL: host memory; and the event that its work before the call ends with. Engines see
     * operations on host memory only. */
    tutti_stream *stream;
    const tutti__pooled_event *after;
    bool only_compared; /* no data moves: it only checks that all ranks make the same call */
    bool scales;        /* what this rank gives is still to be multiplied by `scale` */
    double scale;
    int timeout_ms;  /* 0 before it is submitted: that of the function that runs, or the group's */
    double deadline; /* set when it starts */
} tutti__operation;

/* Of TUTTI__OP_COMPARE_AND_SWAP: the atomic of `rank` becomes `wanted` if it equals `expected`; `was` is its value before. */
typedef struct tutti__compare_and_swap {
    int rank;
    uint64_t expected, wanted, was;
} tutti__compare_and_swap;

/* In elements, from the beginning of src or dst. */
typedef struct tutti__piece {
    size_t at, count;
} tutti__piece;

static inline const tutti__op_traits *tutti__op_traits_of(const tutti__operation *op)
{
    return &tutti__op_table[op->signature.op];
}
/* The piece that `from` gives to `to`, as an offset in from's src; uneven: only for this rank as `from`. Empty if one does
 * not give or the other does not take. */
tutti__piece tutti__piece_out(const tutti__operation *op, int from, int to);
/* The same as an offset in the dst of `rank`, which is this rank: the counts are its own. */
tutti__piece tutti__piece_in(int rank, const tutti__operation *op, int from);
/* Its memory; NULL if it is empty: then there may be none, to which nothing can be added. */
static inline void *tutti__piece_of(const void *memory, tutti__piece piece, size_t element)
{
    return piece.count > 0 ? (char *)(uintptr_t)memory + piece.at * element : NULL;
}
/* Elements of src: all that `rank`, this rank of `size`, gives. */
size_t tutti__op_given(int rank, int size, const tutti__operation *op);
/* Elements of dst: all that it takes. */
size_t tutti__op_taken(int rank, int size, const tutti__operation *op);
/* Whether it is a collective allocation. */
bool tutti__op_allocates(const tutti__operation *op);
/* Makes a reduction in place, for algorithms that need that: copies src to dst, and reads it there. */
void tutti__op_in_place(tutti__operation *op);
/* Multiplies what this rank of `size` gives, if it is still to be done: in dst where that is this rank's to write, else in *copy_p,
 * which becomes src, and which the caller frees after the operation. Errors: MEMORY. */
tutti_status tutti__op_scale(int rank, int size, tutti__operation *op, void **copy_p);
/* True if no rank has data to move, as in a barrier. */
bool tutti__op_is_empty(const tutti__operation *op);
/* The i-th of n parts of `count` elements, cut at multiples of `grain`: equal, except that the last may be shorter or empty. */
tutti__piece tutti__part(size_t count, size_t n, size_t i, size_t grain);

#endif
