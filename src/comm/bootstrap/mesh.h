/* mesh.h -- connections between every pair of ranks.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_MESH_H
#define TUTTI_COMM_BOOTSTRAP_MESH_H

#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/socket.h"

/* The wanted connections: addresses and fds at [connection * size + rank]. */
typedef struct tutti__mesh {
    int n_connections, listeners[2]; /* listeners -1: none */
    tutti__address *addresses;       /* length 0: no such connection is wanted */
    int *fds;                        /* -1: none; -1 for this rank itself */
} tutti__mesh;

/* Connects every pair of ranks as wanted: the higher rank connects, the lower accepts at its listeners. Closes all on failure. */
tutti_status tutti__mesh_connect(const tutti__bootstrap *boot, const tutti__mesh *mesh,
                                 double deadline);

#endif
