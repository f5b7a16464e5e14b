/* tcp.h -- collectives by messages between ranks.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ALGORITHM_TCP_H
#define TUTTI_COMM_ALGORITHM_TCP_H

#include "comm/transport/tcp/wire.h"

/* all_reduce of `count` elements at p among some ranks, in their order. */
typedef struct tutti__direct {
    const int *ranks;
    int n, me; /* this rank is ranks[me] */
    char *p;
    size_t count;
    tutti_redop redop;
    size_t divisor; /* of AVG */
    /* Called once for each piece, in order, if set: before elements [begin, begin + n) are read, and when they hold the
     * result. */
    void (*prepare)(void *self, size_t begin, size_t n);
    void (*finish)(void *self, size_t begin, size_t n);
    void *self;
} tutti__direct;
tutti_status tutti__tcp_all_reduce(tutti__wire *wire, const tutti__op *op, bool heads,
                                   const tutti__direct *shares);

/* Runs an operation over all ranks, any but an alloc. */
tutti_status tutti__tcp_run(tutti__wire *wire, const tutti__op *op);
/* Signatures only: nobody leaves before everybody has come. */
tutti_status tutti__tcp_barrier(tutti__wire *wire, const tutti__op *op);

tutti_status tutti__tcp_reduce(tutti__wire *wire, const tutti__op *op);
tutti_status tutti__tcp_reduce_scatter(tutti__wire *wire, const tutti__op *op);
/* What does not reduce: every piece straight to where it belongs. */
tutti_status tutti__tcp_move(tutti__wire *wire, const tutti__op *op);

#endif
