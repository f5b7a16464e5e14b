/* setup.h -- how ranks find each other.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_SETUP_H
#define TUTTI_COMM_SETUP_H

#include "comm/group.h"

/* Who wants to join what. */
typedef struct tutti__member {
    char name[64], base[32]; /* base: of the keys in the store; "" for none */
    int rank, size, local_rank, local_size, timeout_ms;
    int heartbeat_ms; /* 0: off */
    tutti_transport transport;
    tutti__tuning tuning;
    bool mpi;            /* MPI carries it */
    tutti_group *parent; /* of a split */
    const int *ranks;    /* of a split: the members' in the parent */
    int world_rank, attempt;
    bool launched; /* the launcher hosts the store */
} tutti__member;

/* Meets the others through the store (NULL in a group of one), of which it keeps a clone. */
tutti_status tutti__join(tutti_group **group_p, const tutti__member *member, tutti_store *store);

/* Text that no other process has, now or later. */
void tutti__process_text(char *text, size_t capacity);

#endif
