/* engine.h -- a group whose collectives are MPI's.   SPDX-License-Identifier: MIT
 *
 *     load.c        finds the module of the site's MPI, starts and ends MPI
 *     module.c      that module, built once for each MPI: all that touches mpi.h
 *     engine.c      init, running an operation, teardown
 *     wait.c        waiting for a request, with an eye on failures and the time
 *     agree.c       do all ranks call the same?
 *     collective.c  the data, chunk by chunk
 *     memory.c      memory of tutti_group_alloc
 *     missing.c     after a time limit: which ranks are not in the operation
 *
 * A collective of MPI that has begun cannot be cancelled: if the operation fails, its request is abandoned, and any later
 * progress of MPI in this process, in whatever group, may complete it. So requests name nothing but memory of this engine,
 * and an engine whose group has failed is never freed. */
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
    tutti__mpi_view *views; /* of that memory: the engine's own */
    const tutti__mpi *mpi;
    tutti__mpi_comm comm;
    bool usable; /* comm is there, and nothing was abandoned in it during init */
    int cores;   /* that this process may use */

    const tutti__op *op; /* that runs; NULL: init */
    double deadline;     /* of it, or of init */
    bool moving;         /* all ranks are in it */

    /* All that requests name. */
    int64_t verdict[2]; /* what ranks agree on before they move anything */
    tutti__signature mine, *signatures;
    int64_t *counts; /* two a rank, of an uneven operation */
    char *staging;   /* a slot for each request in flight */
    int *
        slot_counts; /* of an uneven operation, in each slot: counts and places of what goes out, of what comes in */
    tutti__mpi_query *queries;

    size_t slot_bytes;
    tutti__piece *pieces; /* of the operation: what goes to each rank, what comes from each */
    struct tutti__mpi_engine *next; /* of those that are never freed */
} tutti__mpi_engine;

/* ---- load.c: one MPI a process */

const tutti__mpi *tutti__mpi_loaded(void); /* NULL before tutti__mpi_start has succeeded */
tutti__mpi_comm tutti__mpi_world_comm(void);
/* For the exit: groups that live, and whether the last that ended had failed. */
void tutti__mpi_note_open(void);
void tutti__mpi_note_closed(bool failed);

/* ---- wait.c */

/* Until the request is done. Otherwise, because the group has failed, the time is up or MPI reports an error, it is
 * abandoned. */
tutti_status tutti__mpi_wait(tutti__mpi_engine *e, tutti__mpi_request *request);
/* Begins one collective and waits for it. */
tutti_status tutti__mpi_run_call(tutti__mpi_engine *e, const tutti__mpi_call *call);
/* What MPI reports: in init a plain error, later the cause of the group's failure. */
tutti_status tutti__mpi_fail(tutti__mpi_engine *e, const char *what, int error);

/* ---- agree.c */

/* A collective of bytes, which the engine's memory holds. */
tutti__mpi_call tutti__mpi_bytes_call(const tutti__mpi_engine *e, tutti__op_kind kind,
                                      const void *src, void *dst, size_t bytes);
/* All ranks call the same, or all learn the same two calls that differ. No rank returns before all have entered. */
tutti_status tutti__mpi_agree(tutti__mpi_engine *e);
/* Of an uneven operation: ranks give the same counts for what goes from one to the other, or all learn which two do not.
 * *largest_p: elements of the largest piece between any two. */
tutti_status tutti__mpi_agree_on_counts(tutti__mpi_engine *e, size_t *largest_p);

/* ---- collective.c */

/* Bytes of a slot. */
size_t tutti__mpi_slot_bytes(const tutti__mpi_engine *e);
tutti_status tutti__mpi_move(tutti__mpi_engine *e);

/* ---- memory.c */

tutti_status tutti__mpi_alloc(tutti__mpi_engine *e);
void tutti__mpi_release(tutti__mpi_engine *e, void *p);
void tutti__mpi_release_all(tutti__mpi_engine *e);
/* Where the engine sees these bytes of the program; NULL: nowhere. */
char *tutti__mpi_view_of(tutti__mpi_engine *e, const void *p, size_t bytes);

/* ---- missing.c */

/* Takes in what other ranks ask, and replies if this rank is in the same operation. */
void tutti__mpi_reply(tutti__mpi_engine *e);
/* missing[r] unless rank r says, in a fraction of a second, that it is in this operation. */
void tutti__mpi_find_missing(tutti__mpi_engine *e, bool *missing);

#endif
