/* bootstrap.h -- how the ranks of one communicator find each other.   SPDX-License-Identifier: MIT
 *
 *     store/            the small dictionary that all reach
 *     peer_info.c       each rank publishes who and where it is, and reads that of all
 *     choose.c          so all choose the same way to talk
 *     mesh.c            a connection between each pair; socket.c, interface.c, authentication.c
 *     cause.c           why that failed, left where the others look */
#ifndef TUTTI_COMM_BOOTSTRAP_BOOTSTRAP_H
#define TUTTI_COMM_BOOTSTRAP_BOOTSTRAP_H

#include "comm/bootstrap/authentication.h"
#include "comm/core/failure.h"
#include <tutti/group.h>

/* What set-up needs beyond the communicator. */
typedef struct tutti__bootstrap {
    tutti__comm *comm;
    tutti_store *store; /* NULL: none, as under MPI or in a group of one */
    char prefix[160];   /* of its keys */
    tutti__secret secret;
    int heartbeat_ms; /* asked for; 0: off */
    bool tcp;         /* asked for everywhere */
    bool mpi;         /* MPI carries it; sockets are for the control channel only */
} tutti__bootstrap;

/* Ranks are threads of this process. */
bool tutti__bootstrap_in_process(const tutti__bootstrap *boot);
/* While the communicator is being made: leaves in the store why that failed, unless another rank was first, whose reason
 * then is *first (NULL: not asked for). The thread's message stays. */
void tutti__bootstrap_note_cause(const tutti__bootstrap *boot, tutti_status status,
                                 tutti__cause *first);

#endif
