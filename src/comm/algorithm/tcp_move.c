/* tcp_move.c -- pieces straight to where they belong, over sockets.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp.h"

#include <string.h>

static void set_pass(tutti__wire *wire, int rank, const void *out, size_t out_bytes, void *in,
                     size_t in_bytes)
{
    wire->room.passes[rank] = (tutti__pass){{(char *)(uintptr_t)out, out_bytes}, {in, in_bytes}};
}

/* What does not reduce: every piece straight to where it belongs. */
tutti_status tutti__tcp_move(tutti__wire *wire, const tutti__op *op)
{
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype);
    const char *src = op->src;
    char *dst = op->dst;

    for (int r = 0; r < wire->comm->size; r++) {
        tutti__piece out = tutti__piece_out(op, wire->comm->rank, r),
                     in = tutti__piece_in(wire->comm->rank, op, r);

        set_pass(wire, r, src + out.at * element, out.count * element, dst + in.at * element,
                 in.count * element);
        if (r != wire->comm->rank)
            continue;
        TUTTI_TRY(tutti__comm_check_sent(wire->comm, &op->signature, r, r, out.count, in.count));
        if (out.count > 0 && src + out.at * element != dst + in.at * element)
            memcpy(dst + in.at * element, src + out.at * element, out.count * element);
    }
    return tutti__wire_exchange(wire, op, true);
}

tutti_status tutti__tcp_barrier(tutti__wire *wire, const tutti__op *op)
{
    for (int r = 0; r < wire->comm->size; r++)
        set_pass(wire, r, NULL, 0, NULL, 0);
    return tutti__wire_exchange(wire, op, true);
}
