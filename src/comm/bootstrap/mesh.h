/* mesh.h -- connections between a rank and its neighbours.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_MESH_H
#define TUTTI_COMM_BOOTSTRAP_MESH_H

#include "comm/bootstrap/acceptor.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/early_data.h"
#include "comm/bootstrap/socket.h"

/* The wanted connections. */
typedef struct tutti__mesh {
    uint64_t
        id; /* that all ranks name when they connect: the group's, or one that stands for it as yet */
    int n;
    const int *ranks; /* the peers, ascending */
    const tutti__address *addresses;
    int *fds;                  /* as a result; -1: failed */
    tutti__acceptor *acceptor; /* also of later connections: control/connect.c */
    tutti__early_data *early;
} tutti__mesh;

/* Opens the acceptor. */
tutti_status tutti__mesh_open(const tutti__bootstrap *boot, tutti__mesh *mesh,
                              const int listeners[2]);
/* Connects this rank and its peers, which call it too: the higher connects, the lower accepts. After a failure the caller tells those
 * that are connected, and closes them. */
tutti_status tutti__mesh_connect(const tutti__bootstrap *boot, tutti__mesh *mesh, double deadline);
/* Why this rank gives up. */
void tutti__mesh_tell(const tutti__mesh *mesh, const tutti__cause *cause);
/* Closes the acceptor, and what came early. */
void tutti__mesh_close(tutti__mesh *mesh);

/* The claim of this job's rank `rank` about a connection of the group; channel 0: control, others: data. */
tutti__claim tutti__group_claim(const tutti__secret *secret, uint64_t group, int rank,
                                uint32_t channel);

#endif
