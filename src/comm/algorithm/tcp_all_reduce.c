/* tcp_all_reduce.c -- all_reduce over TCP.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_algorithms.h"
#include "comm/algorithm/tcp_direct.h"

tutti_status tutti__tcp_all_reduce(tutti__tcp *tcp, const tutti__operation *op)
{
    tutti__direct d = {.tcp = tcp,
                       .op = op,
                       .first = true,
                       .ranks = tcp->everyone,
                       .n = tcp->comm->size,
                       .me = tcp->comm->rank,
                       .p = op->dst,
                       .count = (size_t)op->signature.count,
                       .redop = (tutti_redop)op->signature.redop,
                       .divisor = (size_t)tcp->comm->size};

    if (tutti__tcp_all_reduce_is_small(&d))
        return tutti__tcp_all_reduce_small(&d);
    TUTTI_TRY(tutti__direct_start(&d));
    while (d.reduced < d.n_chunks) {
        if (tutti__direct_may_send(&d))
            tutti__direct_send(&d);
        else if (tutti__direct_may_reduce(&d))
            tutti__direct_reduce(&d);
        else
            TUTTI_TRY(tutti__tcp_wait(tcp));
    }
    return tutti__tcp_finish(tcp);
}
