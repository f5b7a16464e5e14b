/* tcp_reduce.c -- reduce over TCP: shards to their owners, which reduce them and send the results to root, chunk by chunk.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"

enum { CHUNK_BYTES = 1 << 20 };

/* The shard of a chunk that a rank owns, and its position. */
typedef struct shards {
    size_t begin, n, size, element;
} shards;

static size_t shard_at(const shards *s, int rank)
{
    return (s->begin + tutti__part(s->n, s->size, (size_t)rank, 1).at) * s->element;
}

static size_t shard_bytes(const shards *s, int rank)
{
    return tutti__part(s->n, s->size, (size_t)rank, 1).count * s->element;
}

/* dst: NULL except on root; the others reduce into their slot, because only root's buffer may change. */
static tutti_status reduce_chunk(tutti__tcp *tcp, const tutti__operation *op, const shards *s,
                                 char *slots, char *dst)
{
    int me = tcp->comm->rank;
    size_t slot_bytes = shard_bytes(s, 0), bytes = shard_bytes(s, me);
    const char *src = op->src;
    void *result = dst ? dst + shard_at(s, me) : slots + (size_t)me * slot_bytes;

    TUTTI_TRY(tutti__tcp_start_all(tcp, op, s->begin == 0, 2));
    for (int r = 0; r < tcp->comm->size; r++) {
        char *slot = slots + (size_t)r * slot_bytes;

        tutti__tcp_send(tcp, r, src + shard_at(s, r), shard_bytes(s, r));
        tutti__tcp_recv(tcp, r, slot, bytes);
        tcp->src[r] = r == me ? src + shard_at(s, r) : slot;
    }
    TUTTI_TRY(tutti__tcp_finish(tcp));
    tutti__reduce((tutti_dtype)op->signature.dtype, (tutti_redop)op->signature.redop, &result, 1,
                  tcp->src, s->size, bytes / s->element);
    tutti__tcp_send(tcp, (int)op->signature.root, result, bytes);
    for (int r = 0; dst && r < tcp->comm->size; r++)
        tutti__tcp_recv(tcp, r, dst + shard_at(s, r), shard_bytes(s, r));
    return tutti__tcp_finish(tcp);
}

tutti_status tutti__tcp_reduce(tutti__tcp *tcp, const tutti__operation *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
           size = (size_t)tcp->comm->size, count = (size_t)op->signature.count,
           chunk = tutti__comm_chunk_bytes(tcp->comm, CHUNK_BYTES) / element * size;
    char *dst = tcp->comm->rank == (int)op->signature.root ? op->dst : NULL,
         *slots = tutti__tcp_scratch(
             tcp, tutti__part(count < chunk ? count : chunk, size, 0, 1).count * element * size);

    if (!slots)
        return tutti__comm_status(tcp->comm);
    for (shards s = {0, 0, size, element}; s.begin < count; s.begin += s.n) {
        s.n = count - s.begin < chunk ? count - s.begin : chunk;
        TUTTI_TRY(reduce_chunk(tcp, op, &s, slots, dst));
    }
    return TUTTI_OK;
}
