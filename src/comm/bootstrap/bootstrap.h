/* bootstrap.h -- how the ranks of one communicator find each other.   SPDX-License-Identifier: MIT
 *
 *     store/            the key-value store that all reach
 *     peer_info.c          each rank publishes its host and addresses, and reads its neighbours'
 *     mesh.c               a connection between each two neighbours; socket.c, interface.c, authentication.c
 *     gather.c             so all learn those of all; directory.c keeps them
 *     choose_transport.c   and choose the same transport
 *     cause.c              why that failed, left in the store for the others */
#ifndef TUTTI_COMM_BOOTSTRAP_BOOTSTRAP_H
#define TUTTI_COMM_BOOTSTRAP_BOOTSTRAP_H

#include "comm/bootstrap/authentication.h"
#include "comm/core/failure.h"
#include <tutti/group.h>

/* What set-up needs besides the communicator. */
typedef struct tutti__bootstrap {
    tutti__comm *comm;
    tutti_store *store; /* NULL: none, as under MPI or in a group of one */
    char prefix[160];   /* of its keys */
    tutti__secret secret;
    int heartbeat_ms; /* requested; 0: off */
    bool tcp;         /* requested for all connections */
    bool mpi;         /* MPI is the engine; sockets are for the control channel only */
} tutti__bootstrap;

/* Whether ranks are threads of this process. */
bool tutti__bootstrap_in_process(const tutti__bootstrap *boot);
/* While the communicator is being made: stores why that failed, unless another rank did so first, whose cause is then
 * returned in *first (NULL: not wanted). Preserves the thread's message. */
void tutti__bootstrap_note_cause(const tutti__bootstrap *boot, tutti_status status,
                                 tutti__cause *first);

#endif
