/* mpi_engine.h -- a group whose collectives are MPI's.   SPDX-License-Identifier: MIT
 *
 *     mpi_load.c         finds the module of the site's MPI, starts and ends MPI
 *     module.c           that module, built once for each MPI: everything that uses mpi.h
 *     mpi_engine.c       init, running an operation, teardown
 *     wait.c             waiting for a request, while watching for failures and the deadline
 *     mpi_agree.c        checks that all ranks make the same call
 *     mpi_collective.c   the data, chunk by chunk
 *     mpi_memory.c       memory of tutti_group_alloc
 *     missing.c          after a time limit: which ranks are not in the operation
 *
 * A running MPI collective cannot be cancelled: if the operation fails, its request is abandoned, and any later progress
 * of MPI in this process, in any group, may complete it. So requests name only memory of this engine, and an engine whose
 * group has failed is never freed. */
#ifndef TUTTI_COMM_BACKEND_MPI_ENGINE_H
#define TUTTI_COMM_BACKEND_MPI_ENGINE_H

#include "comm/backend/mpi/module.h"
#include "comm/engine/engine.h"
#include "comm/transport/plain_memory.h"

enum { TUTTI__MPI_WINDOW = 4 }; /* requests of one operation in flight */

typedef struct tutti__mpi_query tutti__mpi_query;
typedef struct tutti__mpi_view tutti__mpi_view;

typedef struct tutti__mpi_engine {
    tutti__engine base;
    tutti__plain_memory memory; /* of tutti_group_alloc */
    pthread_mutex_t views_lock;
    tutti__mpi_view *views; /* of that memory: the engine's own mappings */
    const tutti__mpi *mpi;
    tutti__mpi_comm comm;
    bool usable; /* comm exists, and no request on it was abandoned during init */
    int cores;   /* available to this process */

    const tutti__operation *op; /* the running one; NULL: init */
    double deadline;            /* of that, or of init */
    bool moving;                /* all ranks are in it */

    /* All memory that requests name. */
    int64_t verdict[2]; /* what ranks agree on before data move */
    tutti__signature mine, *signatures;
    int64_t *counts; /* two a rank, of an uneven operation */
    char *staging;   /* one slot for each request in flight */
    /* of an uneven operation, in each slot: counts and offsets of sent, then of received data */
    int *slot_counts;
    tutti__mpi_query *queries;

    size_t slot_bytes;
    tutti__piece *pieces;           /* of the operation: to each rank, then from each */
    struct tutti__mpi_engine *next; /* in the list of engines that are never freed */
} tutti__mpi_engine;

/* ---- mpi_load.c: one MPI a process */

const tutti__mpi *tutti__mpi_loaded(void); /* NULL before tutti__mpi_start has succeeded */
tutti__mpi_comm tutti__mpi_world_comm(void);
/* For the exit: the number of live groups, and whether the last that ended had failed. */
void tutti__mpi_note_open(void);
void tutti__mpi_note_closed(bool failed);

/* ---- wait.c */

/* Waits until the request is done. If the group has failed, the time is up or MPI reports an error, abandons it. */
tutti_status tutti__mpi_wait(tutti__mpi_engine *e, tutti__mpi_request *request);
/* Begins one collective and waits for it. */
tutti_status tutti__mpi_run_call(tutti__mpi_engine *e, const tutti__mpi_call *call);
/* Reports an error of MPI: in init as a plain error, later as the cause of the group's failure. */
tutti_status tutti__mpi_fail(tutti__mpi_engine *e, const char *what, int error);

/* ---- mpi_agree.c */

/* A collective of bytes in the engine's memory. */
tutti__mpi_call tutti__mpi_bytes_call(const tutti__mpi_engine *e, tutti__op_kind kind,
                                      const void *src, void *dst, size_t bytes);
/* All ranks make the same call, or all learn the same two calls that differ. No rank returns before all have entered. */
tutti_status tutti__mpi_agree(tutti__mpi_engine *e);
/* Of an uneven operation: senders and receivers have the same counts, or all ranks learn of the same pair that does not.
 * *largest_p: elements of the largest piece between any two. */
tutti_status tutti__mpi_agree_on_counts(tutti__mpi_engine *e, size_t *largest_p);

/* ---- mpi_collective.c */

/* Bytes of a slot. */
size_t tutti__mpi_slot_bytes(const tutti__mpi_engine *e);
tutti_status tutti__mpi_move(tutti__mpi_engine *e);

/* ---- mpi_memory.c */

tutti_status tutti__mpi_alloc(tutti__mpi_engine *e);
void tutti__mpi_release(tutti__mpi_engine *e, void *p);
void tutti__mpi_release_all(tutti__mpi_engine *e);
/* The engine's address of these bytes of the program; NULL: none. */
char *tutti__mpi_view_of(tutti__mpi_engine *e, const void *p, size_t bytes);

/* ---- missing.c */

/* Receives other ranks' queries, and replies if this rank is in the same operation. */
void tutti__mpi_reply(tutti__mpi_engine *e);
/* missing[r] becomes true unless rank r replies, in a fraction of a second, that it is in this operation. */
void tutti__mpi_find_missing(tutti__mpi_engine *e, bool *missing);

#endif
