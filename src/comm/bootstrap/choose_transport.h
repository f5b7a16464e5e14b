/* choose_transport.h -- chooses the transport for all ranks.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_CHOOSE_TRANSPORT_H
#define TUTTI_COMM_BOOTSTRAP_CHOOSE_TRANSPORT_H

#include "comm/bootstrap/peer_info.h"

/* The choice, which all ranks make alike from the same information. */
typedef struct tutti__transport_plan {
    bool tcp;    /* for all connections */
    bool shared; /* memory: all are on one host */
    /* several, one of them with more than one rank: shared memory within, TCP between them */
    bool hosts;
    int heartbeat_ms;
    int sockets;       /* for data, a pair, if they are needed */
    int n_connections; /* a pair: the control channel, then sockets for data */
} tutti__transport_plan;

/* host_ids[r]: infos[r].host_id. */
tutti__transport_plan tutti__choose(const tutti__bootstrap *boot, const tutti__peer_info *infos,
                                    const uint64_t *host_ids);
/* The same for n of the ranks for which `whole` was chosen. */
tutti__transport_plan tutti__choose_part(const tutti__bootstrap *boot,
                                         const tutti__transport_plan *whole,
                                         const uint64_t *host_ids, int n);

#endif
