/* group.h -- the struct of a group, and what the files of comm/ share.
 * SPDX-License-Identifier: MIT
 *
 * Each of these files calls only those before it:
 *
 *     recorded_calls.c   an operation is submitted, or recorded
 *     group.c            queries, leaving, aborting
 *     collective.c       public collectives: arguments -> an operation
 *     group_agree.c      one status for all ranks
 *     group_memory.c     memory that collectives access directly;  pool.c: in pieces
 *     coalesce.c         recorded operations, run as one
 *     send_recv.c        between two ranks;  atomics.c: an integer a rank;  windows.c: memory that others read
 *     call.c             any of these calls, by a structure;  functions of the program
 *     group_refuse.c     what others are told if a group cannot be made
 *     group_descriptors.c   whether the limit of open files is enough
 *     group_join.c       set-up, from the first address to the first barrier
 *     group_init.c       by the environment;  split.c: from another group */
#ifndef TUTTI_COMM_GROUP_H
#define TUTTI_COMM_GROUP_H

#include "comm/bootstrap/choose_transport.h"
#include "comm/comm.h"
#include "comm/engine/queue.h"
#include "comm/p2p/p2p.h"
#include <tutti/call.h>

/* ---- Group ------------------------------------------------------------------------------------------ */

/* How many groups with these ranks and this name their members have made from a group. */
typedef struct tutti__made {
    struct tutti__made *next;
    uint64_t digest;
    uint32_t times;
} tutti__made;

struct tutti_group {
    tutti__comm comm;
    int forks; /* of the process when it made the group: see tutti__forks */
    /* Of a split: each rank's number in the first group of the family; else NULL. */
    int *global_ranks;
    tutti__bootstrap boot;
    uint64_t *host_ids;        /* by rank: equal for ranks of one host. NULL in a group of one */
    tutti__switches *switches; /* by rank; likewise */
    tutti__transport_plan plan;
    tutti_device device;
    tutti_backend backend; /* as in tutti__group_member */
    tutti__flight flight;
    tutti__control *control;
    tutti__p2p *p2p;
    tutti__devices *devices;
    tutti__engine *engine;
    /* Of backend mpi: its messages, which are the engine's once there is one (mpi_is_free: not yet); NULL: all ranks share memory. */
    struct tutti__tcp *mpi;
    bool mpi_is_free;
    tutti__queue *queue;
    int n_splits;
    tutti__made *made;
    void *scratch; /* through which coalesced calls go together; NULL before the first */
};

tutti_status tutti__group_init(tutti_group **group_p, const tutti_group_opts *opts,
                               const tutti__tuning *tuning);
/* ---- Calls ------------------------------------------------------------------------------------------ */

/* How many forks there were from the first process to this one. */
int tutti__forks(void);
/* Whether this is a forked child's copy of a group that its parent made. */
bool tutti__group_is_parents(const tutti_group *group);
/* The error of a call on no group, or on such a copy. */
tutti_status tutti__refuse_group(const char *call, const tutti_group *group);
/* ARG for an invalid buffer. */
tutti_status tutti__check_buf(const char *call, const char *name, tutti_const_buf buf);
/* Submits a checked operation, or records it between tutti_coalesce_begin and tutti_coalesce_end. */
tutti_status tutti__submit_or_record(tutti_group *group, tutti__operation *op, tutti_work **work_p);
/* A call of tutti/call.h: a collective, or a send or receive. Its time limit is valid. */
tutti_status tutti__call_collective(tutti_group *group, const tutti_call *call,
                                    tutti_work **work_p);
tutti_status tutti__call_message(tutti_group *group, const tutti_call *call, tutti_work **work_p);
/* Whether this thread is between the two; and drops what it has recorded. */
bool tutti__coalescing(const tutti_group *group);
void tutti__coalesce_forget(const tutti_group *group);

#endif
