/* tcp_direct.h -- the direct all-reduce: reduce-scatter and all-gather by owners.   SPDX-License-Identifier: MIT
 *
 * The buffer is cut into chunks, and each chunk into one shard a rank. A rank owns its shard of every chunk: the others
 * send it theirs, it reduces them in rank order, and sends the result to all. Chunks are pipelined: while the shards of
 * one are reduced, those of the next travel, and results return. The row of messages to each peer:
 *
 *     shards 0 .. DEPTH-1 | result 0, shard DEPTH | result 1, shard DEPTH+1 | ... | the last DEPTH results
 *
 * That moves as many bytes as a ring, in 2 steps instead of 2(n-1). The caller runs each step as soon as it can be run, so
 * that it may compute a chunk before it is sent, and use it when it is complete; see tcp_all_reduce.c. */
#ifndef TUTTI_COMM_ALGORITHM_TCP_DIRECT_H
#define TUTTI_COMM_ALGORITHM_TCP_DIRECT_H

#include "comm/core/reduce.h"
#include "comm/transport/tcp/tcp.h"

typedef struct tutti__direct {
    tutti__tcp *tcp;
    const tutti__operation *op;
    bool first;       /* of the operation's schedules */
    const int *ranks; /* the participants, in the order of the sum */
    int n, me;        /* this rank is ranks[me] */
    char *p;          /* reduced in place */
    size_t count;
    tutti_redop redop;
    size_t divisor; /* of AVG */

    /* Set by tutti__direct_start. */
    size_t element, chunk, n_chunks, depth; /* chunk: elements; depth: how many are in flight */
    /* in chunks: shards sent; own shard reduced; all results here */
    size_t sent, reduced, complete;
    size_t slot_bytes;
    char *slots; /* received shards: one from each rank for each chunk in flight */
} tutti__direct;

tutti_status tutti__direct_start(tutti__direct *d);
/* Elements of chunk k, from p. */
tutti__piece tutti__direct_chunk(const tutti__direct *d, size_t k);
/* Whether chunk `sent` may be sent: each rank gets its shard. */
bool tutti__direct_may_send(const tutti__direct *d);
void tutti__direct_send(tutti__direct *d);
/* Whether all ranks' parts of this rank's shard of chunk `reduced` are here. It is reduced, and the result goes to all. */
bool tutti__direct_may_reduce(const tutti__direct *d);
void tutti__direct_reduce(tutti__direct *d);
/* Whether all results of chunk `complete` are here. */
bool tutti__direct_is_complete(const tutti__direct *d);

/* Small data: each rank sends everything to all others and reduces everything: one step instead of two, the same sums in
 * the same order. Runs to completion, instead of tutti__direct_start. */
bool tutti__tcp_all_reduce_is_small(const tutti__direct *d);
tutti_status tutti__tcp_all_reduce_small(tutti__direct *d);

/* Sums or averages the sources in tcp->src, one entry a rank. For both algorithms. */
void tutti__direct_combine(const tutti__direct *d, void *dst, size_t n);

#endif
