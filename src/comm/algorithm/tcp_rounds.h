/* tcp_rounds.h -- runs an algorithm of the table over TCP.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ALGORITHM_TCP_ROUNDS_H
#define TUTTI_COMM_ALGORITHM_TCP_ROUNDS_H

#include "comm/algorithm/rounds.h"
#include "comm/transport/tcp/tcp.h"

typedef struct tutti__tcp_rounds {
    tutti__tcp *tcp;
    const tutti__operation *op;
    bool first; /* of the operation's schedules: connections begin with the signature */
    const tutti__coll_algorithm *algorithm;
    tutti__coll call;
    const int *ranks; /* rank i of the call is ranks[i]; this one is ranks[me] */
    int me;
    const void *src;
    void *dst;
    size_t divisor; /* of AVG */
} tutti__tcp_rounds;

/* To completion. Only connections to the peers that the algorithm needs are in the schedule. */
tutti_status tutti__tcp_run_rounds(const tutti__tcp_rounds *run);

#endif
