/* tcp.c -- which algorithm over sockets for which operation.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp.h"

static tutti_status all_reduce(tutti__wire *wire, const tutti__op *op)
{
    const tutti__direct shares = {.ranks = wire->everyone,
                                  .n = wire->comm->size,
                                  .me = wire->comm->rank,
                                  .p = op->dst,
                                  .count = (size_t)op->signature.count,
                                  .redop = (tutti_redop)op->signature.redop,
                                  .divisor = (size_t)wire->comm->size};

    return tutti__tcp_all_reduce(wire, op, true, &shares);
}

tutti_status tutti__tcp_run(tutti__wire *wire, const tutti__op *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);

    if (tutti__op_is_empty(op))
        return tutti__tcp_barrier(wire, op);
    if (!traits->reduces)
        return tutti__tcp_move(wire, op);
    return (traits->scatters  ? tutti__tcp_reduce_scatter
            : traits->to_root ? tutti__tcp_reduce
                              : all_reduce)(wire, op);
}
