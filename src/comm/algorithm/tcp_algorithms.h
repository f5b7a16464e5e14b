/* tcp_algorithms.h -- collectives by messages between ranks.   SPDX-License-Identifier: MIT
 *
 * Each runs one operation to completion, over all ranks, and begins with the signature on every connection. */
#ifndef TUTTI_COMM_ALGORITHM_TCP_ALGORITHMS_H
#define TUTTI_COMM_ALGORITHM_TCP_ALGORITHMS_H

#include "comm/core/reduce.h"
#include "comm/transport/tcp/tcp.h"

/* Any operation but an alloc. */
tutti_status tutti__tcp_run(tutti__tcp *tcp, const tutti__operation *op);

/* Signatures only: no rank leaves before all have arrived. */
tutti_status tutti__tcp_barrier(tutti__tcp *tcp, const tutti__operation *op);
tutti_status tutti__tcp_all_reduce(tutti__tcp *tcp, const tutti__operation *op);
tutti_status tutti__tcp_reduce(tutti__tcp *tcp, const tutti__operation *op);
tutti_status tutti__tcp_reduce_scatter(tutti__tcp *tcp, const tutti__operation *op);
/* Operations that do not reduce: every piece goes directly to its destination. */
tutti_status tutti__tcp_move(tutti__tcp *tcp, const tutti__operation *op);

#endif
