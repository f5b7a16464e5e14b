/* choose.h -- which way of talking fits all ranks.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_CHOOSE_H
#define TUTTI_COMM_BOOTSTRAP_CHOOSE_H

#include "comm/bootstrap/peer_info.h"

/* What all ranks do, since all read the same information. */
typedef struct tutti__plan {
    bool tcp;    /* everywhere */
    bool shared; /* memory: all are on one host */
    bool hosts;  /* several, one of them with more than one rank: memory inside, TCP between them */
    int heartbeat_ms;
    int n_connections; /* a pair: the control channel, then sockets for data */
} tutti__plan;

tutti__plan tutti__choose(const tutti__bootstrap *boot, const tutti__peer_info *infos);

#endif
