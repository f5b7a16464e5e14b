/* tcp_reduce_scatter.c -- reduce_scatter over TCP: pieces to their owners, which reduce them, chunk by chunk.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"

enum { CHUNK_BYTES = 1 << 20 };

tutti_status tutti__tcp_reduce_scatter(tutti__tcp *tcp, const tutti__operation *op)
{
    tutti_dtype dtype = (tutti_dtype)op->signature.dtype;
    size_t element = tutti_dtype_size(dtype), count = (size_t)op->signature.count,
           chunk = tutti__comm_chunk_bytes(tcp->comm, CHUNK_BYTES) / element,
           most = count < chunk ? count : chunk;
    char *slots = tutti__tcp_scratch(tcp, most * element * (size_t)tcp->comm->size);

    if (!slots)
        return tutti__comm_status(tcp->comm);
    for (size_t begin = 0, n; begin < count; begin += n) {
        void *dst = (char *)op->dst + begin * element;

        n = count - begin < most ? count - begin : most;
        TUTTI_TRY(tutti__tcp_start_all(tcp, op, begin == 0, 1));
        for (int r = 0; r < tcp->comm->size; r++) {
            const char *piece = (const char *)op->src + ((size_t)r * count + begin) * element;
            char *slot = slots + (size_t)r * most * element;

            tutti__tcp_send(tcp, r, piece, n * element);
            tutti__tcp_recv(tcp, r, slot, n * element);
            tcp->src[r] = r == tcp->comm->rank ? piece : slot;
        }
        TUTTI_TRY(tutti__tcp_finish(tcp));
        tutti__reduce(dtype, (tutti_redop)op->signature.redop, &dst, 1, tcp->src,
                      (size_t)tcp->comm->size, n);
    }
    return TUTTI_OK;
}
