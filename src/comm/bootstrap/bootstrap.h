/* bootstrap.h -- how the ranks of one communicator find each other.   SPDX-License-Identifier: MIT
 *
 *     store/            the key-value store that all reach
 *     peer_info.c          each rank publishes its host and addresses, and reads its neighbours'
 *     mesh.c               a connection between each two neighbours; socket.c, interface.c, authentication.c
 *     gather.c             so all learn those of all; directory.c keeps them
 *     choose_transport.c   and choose the same transport
 *     cause.c              why that failed: the first cause, by the store */
#ifndef TUTTI_COMM_BOOTSTRAP_BOOTSTRAP_H
#define TUTTI_COMM_BOOTSTRAP_BOOTSTRAP_H

#include "comm/bootstrap/authentication.h"
#include "comm/bootstrap/topology.h"
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
    bool mpi; /* MPI carries messages between hosts; sockets are for the control channel only */
    bool connected; /* with all neighbours */
    int attempt;    /* of the job, if it is launched */
    bool launched;  /* the launcher hosts the store */
    tutti__switches switches;
    _Atomic bool made; /* by all ranks, as far as this one knows */
} tutti__bootstrap;

/* Whether ranks are threads of this process. */
bool tutti__bootstrap_in_process(const tutti__bootstrap *boot);
/* The rank has closed its connection, or does not listen any more. */
tutti_status tutti__bootstrap_fail_lost(const tutti__bootstrap *boot, int rank, const char *reason);
/* This rank cannot connect to another, at an address (NULL: not said), for this errno: the cause is the rank itself if it has no descriptor or
 * memory for that (MEMORY, with the remedy), else the other one (PEER). */
tutti__cause tutti__connect_cause(const tutti__comm *comm, int rank, const tutti__address *at,
                                  int error);
/* Whether an errno is for want of something of this process or host: then who sees it on a connection is the cause. */
bool tutti__is_own_error(int error);
/* Of such an error of a connection that was there: of sending to the rank, or of receiving. */
tutti__cause tutti__own_cause(const tutti__comm *comm, int rank, bool sends, int error);
tutti_status tutti__fail_connect(tutti__comm *comm, int rank, const tutti__address *at, int error);
/* Where the store has the cause. */
void tutti__cause_key(const tutti__bootstrap *boot, char *key, size_t capacity);
/* An observer's (core/communicator.h). */
void tutti__bootstrap_agree(void *boot, tutti__cause *cause);

#endif
