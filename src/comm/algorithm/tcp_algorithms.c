/* tcp_algorithms.c -- chooses the algorithm over TCP.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"

tutti_status tutti__tcp_run(tutti__tcp *tcp, const tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);

    if (tutti__op_is_empty(op))
        return tutti__tcp_barrier(tcp, op);
    if (!traits->reduces)
        return tutti__tcp_move(tcp, op);
    return (traits->scatters  ? tutti__tcp_reduce_scatter
            : traits->to_root ? tutti__tcp_reduce
                              : tutti__tcp_all_reduce)(tcp, op);
}

tutti_status tutti__tcp_barrier(tutti__tcp *tcp, const tutti__operation *op)
{
    TUTTI_TRY(tutti__tcp_start_all(tcp, op, true, 0));
    return tutti__tcp_finish(tcp);
}
