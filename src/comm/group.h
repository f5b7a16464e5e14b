/* group.h -- the inside of a group, and what other layers may ask of it beyond the public contract.
 * SPDX-License-Identifier: MIT
 *
 *     collective.c   public collectives: arguments -> an operation;  send_recv.c: the same between two ranks
 *     coalesce.c     many of them as one
 *     group.c        asking a group, leaving, aborting;  init.c: joining by the environment;  split.c
 *     join.c         set-up, from the first address to the first barrier */
#ifndef TUTTI_COMM_GROUP_H
#define TUTTI_COMM_GROUP_H

#include "comm/bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/engine/queue.h"
#include "comm/p2p/p2p.h"

/* ---- Group ------------------------------------------------------------------------------------------ */

struct tutti_group {
    tutti__comm comm;
    int forks; /* that this process had seen when it made the group */
    /* Of a split: each rank's in the group that all splits began with; else NULL. */
    int *global_ranks;
    tutti__bootstrap boot;
    tutti_device device;
    tutti_backend backend; /* as in tutti__member */
    tutti__flight flight;
    tutti__control *control;
    tutti__p2p *p2p;
    tutti__devices *devices;
    tutti__engine *engine;
    tutti__queue *queue;
    int n_splits;
    void *scratch; /* in which coalesced calls travel together; NULL before the first */
};

tutti_status tutti__group_init(tutti_group **group_p, const tutti_group_opts *opts,
                               const tutti__tuning *tuning);
/* ---- Calls ------------------------------------------------------------------------------------------ */

/* How often this process has come out of a fork as the child. */
int tutti__forks(void);
/* In a forked child: the group is a copy, and all of it is the parent's. */
bool tutti__group_is_parents(const tutti_group *group);
/* ARG for a buffer that cannot be. */
tutti_status tutti__check_buf(const char *call, const char *name, tutti_const_buf buf);
/* Submits a checked operation, or notes it between tutti_coalesce_begin and tutti_coalesce_end. */
tutti_status tutti__coalesce(tutti_group *group, tutti__op *op, tutti_work **work_p);
/* This thread is between the two; and gives up what it has noted. */
bool tutti__coalescing(const tutti_group *group);
void tutti__coalesce_forget(const tutti_group *group);

#endif
