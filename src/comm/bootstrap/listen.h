/* listen.h -- a rank's listening sockets, opened before its address is published.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_LISTEN_H
#define TUTTI_COMM_BOOTSTRAP_LISTEN_H

#include "comm/bootstrap/peer_info.h"

typedef struct tutti__listeners {
    int local, tcp; /* unix socket, TCP; -1: none */
} tutti__listeners;

/* Opens them, and sets the addresses in *mine. If mine->no_sharing is set on entry, no unix socket is opened; if the unix
 * socket fails, no_sharing becomes the reason. */
tutti_status tutti__listeners_open(const tutti__bootstrap *boot, tutti__peer_info *mine,
                                   tutti__listeners *at);
void tutti__listeners_close(const tutti__listeners *at);

#endif
