/* tcp_algorithms.h -- collectives by messages between ranks.   SPDX-License-Identifier: MIT
 *
 * Each runs one operation to completion, over all ranks, and begins with the signature on every connection. */
#ifndef TUTTI_COMM_ALGORITHM_TCP_ALGORITHMS_H
#define TUTTI_COMM_ALGORITHM_TCP_ALGORITHMS_H

#include "comm/algorithm/tuner.h"
#include "comm/core/reduce.h"
#include "comm/transport/tcp/tcp.h"

/* Any operation but an alloc, by the algorithm that the tuner chooses. */
tutti_status tutti__tcp_run(tutti__tcp *tcp, tutti__tuner *tuner, tutti__operation *op);
/* No rank leaves before all of ranks[0 .. n-1] have arrived; this one is ranks[me]. All compare their calls. */
tutti_status tutti__tcp_barrier(tutti__tcp *tcp, tutti__tuner *tuner, const tutti__operation *op,
                                const int *ranks, int n, int me);
/* Measures what messages cost on each level of the tuner's shapes, all ranks at once, unless the tuner knows; all get the same
 * numbers, the means over ranks. rail: those with this one's local rank, by host, between which calls go there, in which this one may be missing; NULL: there is no such. */
tutti_status tutti__tcp_measure(tutti__tcp *tcp, tutti__tuner *tuner, const int *rail,
                                double deadline);

/* The transport's own `direct`. */
tutti_status tutti__tcp_all_reduce(tutti__tcp *tcp, const tutti__operation *op);
tutti_status tutti__tcp_reduce(tutti__tcp *tcp, const tutti__operation *op);
tutti_status tutti__tcp_reduce_scatter(tutti__tcp *tcp, const tutti__operation *op);
/* Operations that do not reduce: every piece goes directly to its destination. */
tutti_status tutti__tcp_move(tutti__tcp *tcp, const tutti__operation *op);

#endif
