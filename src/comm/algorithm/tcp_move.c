/* tcp_move.c -- pieces directly to their destinations, over TCP.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"

#include <string.h>

tutti_status tutti__tcp_move(tutti__tcp *tcp, const tutti__operation *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype);
    const char *src = op->src;
    char *dst = op->dst;
    int me = tcp->comm->rank;
    tutti__piece from = tutti__piece_out(op, me, me), to = tutti__piece_in(me, op, me);

    TUTTI_TRY(tutti__comm_check_sent(tcp->comm, &op->signature, me, me, from.count, to.count));
    TUTTI_TRY(tutti__tcp_start_all(tcp, op, true, 1));
    for (int r = 0; r < tcp->comm->size; r++) {
        tutti__piece out = tutti__piece_out(op, me, r), in = tutti__piece_in(me, op, r);

        tutti__tcp_send(tcp, r, src + out.at * element, out.count * element);
        tutti__tcp_recv(tcp, r, dst + in.at * element, in.count * element);
    }
    if (from.count > 0 && src + from.at * element != dst + to.at * element)
        memcpy(dst + to.at * element, src + from.at * element, from.count * element);
    return tutti__tcp_finish(tcp);
}
