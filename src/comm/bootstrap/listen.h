/* listen.h -- where a rank waits for others before anyone learns its address.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_LISTEN_H
#define TUTTI_COMM_BOOTSTRAP_LISTEN_H

#include "comm/bootstrap/peer_info.h"

typedef struct tutti__listeners {
    int local, tcp; /* unix socket, TCP; -1: none */
} tutti__listeners;

/* Listens where peers could call, and says so in *mine, of which no_sharing tells whether those of this host may share
 * memory. Where the unix socket is refused, no_sharing tells why. */
tutti_status tutti__listeners_open(const tutti__bootstrap *boot, tutti__peer_info *mine,
                                   tutti__listeners *at);
void tutti__listeners_close(const tutti__listeners *at);

#endif
