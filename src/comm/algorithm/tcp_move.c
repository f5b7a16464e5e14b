/* tcp_move.c -- pieces directly to their destinations, over TCP.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"

#include <string.h>

tutti_status tutti__tcp_move(tutti__tcp *tcp, const tutti__operation *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype);
    int me = tcp->comm->rank;
    tutti__piece from = tutti__piece_out(op, me, me), to = tutti__piece_in(me, op, me);
    const void *src = tutti__piece_of(op->src, from, element);
    void *dst = tutti__piece_of(op->dst, to, element);

    TUTTI_TRY(tutti__comm_check_sent(tcp->comm, &op->signature, me, me, from.count, to.count));
    TUTTI_TRY(tutti__tcp_start_all(tcp, op, true, 1));
    for (int r = 0; r < tcp->comm->size; r++) {
        tutti__piece out = tutti__piece_out(op, me, r), in = tutti__piece_in(me, op, r);

        tutti__tcp_send(tcp, r, tutti__piece_of(op->src, out, element), out.count * element);
        tutti__tcp_recv(tcp, r, tutti__piece_of(op->dst, in, element), in.count * element);
    }
    if (from.count > 0 && src != dst)
        memcpy(dst, src, from.count * element);
    return tutti__tcp_finish(tcp);
}
