/* group_join.h -- parameters of a rank that joins a group.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_GROUP_JOIN_H
#define TUTTI_COMM_GROUP_JOIN_H

#include "comm/bootstrap/mesh.h"
#include "comm/group.h"

typedef struct tutti__group_member {
    char name[64], base[32]; /* base: of the keys in the store; "" for none */
    int rank, size, local_rank, local_size, timeout_ms;
    int heartbeat_ms; /* 0: off */
    tutti_transport transport;
    tutti__tuning tuning;
    tutti_backend backend; /* AUTO: native, and NCCL for GPUs if it is available */
    tutti_group *parent;   /* the group has its connections; NULL: its own */
    const int *ranks;      /* the members' ranks in the parent */
    uint64_t id;           /* of a group with a parent: the same on its members, and new */
    int world_rank, attempt;
    bool launched; /* the launcher hosts the store */
    bool planned;  /* the others do not exist: tutti__group_plan */
} tutti__group_member;

/* Meets the other ranks through the store (NULL in a group of one), of which it keeps a clone. */
tutti_status tutti__join(tutti_group **group_p, const tutti__group_member *member,
                         tutti_store *store);

/* ---- group_descriptors.c --------------------------------------------------------------------------------------- */

/* Refuses a limit that is certainly too low at once, instead of while the others wait. known: the transport is chosen. */
tutti_status tutti__check_descriptors(const tutti_group *group, bool known);

/* ---- group_refuse.c: it failed --------------------------------------------------------------------------------- */

/* Before there was a group that could fail: tells the members of its parent. */
void tutti__refuse_early(const tutti__group_member *member, tutti_status status, const char *why);
/* Tells the other ranks, also over the mesh's connections, unless that is NULL; returns the first cause, with its message. */
tutti_status tutti__fail_setup(tutti_group *group, const tutti__group_member *member,
                               const tutti__mesh *mesh, tutti_status status);
/* Afterwards, when this rank's connections and listeners are closed, so that nobody waits for it: others ask the store why they miss it. The
 * rank that hosts it waits until they have. */
void tutti__leave_store(const tutti_group *group);

#endif
