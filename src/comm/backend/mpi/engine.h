/* engine.h -- the table through which Tutti calls an MPI that it was not linked with.   SPDX-License-Identifier: MIT
 *
 * MPI fixes a language, not a binary interface: handles are pointers in one and integers in another. So what touches
 * mpi.h, src/comm/module/mpi.c, is compiled once for each MPI into a module, libtutti_mpi_<name>.so, that exports one
 * table. The table speaks of Tutti's types and of handles as words. A module calls nothing of Tutti but what it is given. */
#ifndef TUTTI_COMM_MPI_ENGINE_H
#define TUTTI_COMM_MPI_ENGINE_H

#include "comm/core/reduce.h"
#include "comm/engine/engine.h"
#include "comm/transport/plain_memory.h"

typedef uintptr_t tutti__mpi_comm, tutti__mpi_request;

/* What a module needs of Tutti. */
typedef struct tutti__mpi_host {
    void (*reduce)(tutti_dtype dtype, tutti_redop op, void *const *dst, size_t n_dst,
                   const void *const *src, size_t n_src, size_t count);
} tutti__mpi_host;

/* What MPI says of itself. */
typedef struct tutti__mpi_world {
    tutti__mpi_comm comm;
    int rank, size;
    bool ours;     /* we initialised it */
    bool multiple; /* any thread may call it at any time */
    char version[96];
    char error[512]; /* why it would not start */
} tutti__mpi_world;

/* A collective on a communicator: names and meanings as in tutti__op. All that is pointed to is borrowed until it is done.
 * Reductions, and uneven operations on either side, have at most INT_MAX elements in all. */
typedef struct tutti__mpi_call {
    tutti__op_kind kind;
    tutti__mpi_comm comm;
    const void *src; /* in place where MPI can: equal to dst, or to this rank's place in it */
    void *dst;
    size_t count;
    tutti_dtype dtype;
    tutti_redop redop; /* AVG: the sum */
    int root;
    const int *src_counts, *src_at, *dst_counts, *dst_at; /* uneven: elements, a rank */
} tutti__mpi_call;

enum { TUTTI__MPI_TABLE = 1 }; /* goes up when the table changes */

/* Functions return 0 or MPI's error code. None waits for other ranks, unless it is said. */
typedef struct tutti__mpi {
    int table;           /* TUTTI__MPI_TABLE */
    const char *version; /* TUTTI_VERSION */
    const char *name;    /* "Open MPI": what it was compiled against */
    size_t chunk_bytes;  /* of the parts of a large all_reduce that it is quickest with */

    int (*start)(const tutti__mpi_host *host, tutti__mpi_world *world); /* waits for all */
    int (*finish)(void);                                                /* waits for all */
    void (*error_text)(int error, char *text, size_t capacity);

    int (*dup)(tutti__mpi_comm comm, tutti__mpi_comm *dup_p, tutti__mpi_request *request_p);
    /* Waits for those ranks of comm. */
    int (*sub)(tutti__mpi_comm comm, const int *ranks, int n, int tag, tutti__mpi_comm *sub_p);
    int (*return_errors)(tutti__mpi_comm comm); /* from now on, instead of ending the process */
    int (*free)(tutti__mpi_comm *comm_p);

    int (*begin)(const tutti__mpi_call *call, tutti__mpi_request *request_p);
    int (*send)(tutti__mpi_comm comm, const void *p, int bytes, int rank, int tag,
                tutti__mpi_request *request_p);
    int (*test)(tutti__mpi_request *request_p, bool *done_p);
    /* Takes a message of this tag if one has come; *rank_p is -1 if none has. */
    int (*take)(tutti__mpi_comm comm, void *p, int bytes, int tag, int *rank_p);
} tutti__mpi;

/* The table's name in the module. */
#define TUTTI__MPI_SYMBOL "tutti_mpi_table"

/* ---- load.c: one MPI a process ------------------------------------------------------------------------- */

const tutti__mpi *tutti__mpi_loaded(void); /* NULL before tutti__mpi_start has succeeded */
tutti__mpi_comm tutti__mpi_world_comm(void);
/* For the exit: groups that live, and whether the last that ended had failed. */
void tutti__mpi_note_open(void);
void tutti__mpi_note_closed(bool failed);

/* ---- transport.c, roll_call.c: a group ------------------------------------------------------------------ */

typedef struct tutti__mpi_note tutti__mpi_note;

typedef struct tutti__mpi_state {
    tutti__engine base;
    tutti__plain_memory memory; /* of tutti_group_alloc */
    const tutti__mpi *mpi;
    tutti__mpi_comm comm;
    int cores;          /* that this process may use */
    bool usable;        /* comm is there */
    bool abandoned;     /* requests may be under way in it that nobody waits for */
    int64_t verdict[2]; /* what ranks agree on before they move anything */
    tutti__signature mine, *signatures;
    int64_t *counts; /* two a rank */
    int *pieces;     /* of an uneven operation: counts and places in src, in dst */
    char *scratch;   /* for reduce_scatter; NULL before the first that needs it */
    tutti__mpi_note *requests;
    struct tutti__mpi_state *next; /* of those that are left behind */
} tutti__mpi_state;

/* Takes in what others ask, and answers if this rank is in the same operation. */
void tutti__mpi_answer(tutti__mpi_state *s, const tutti__op *op);
/* missing[r] unless rank r says, in a fraction of a second, that it is in this operation. */
void tutti__mpi_call_roll(tutti__mpi_state *s, const tutti__op *op, bool *missing);

#endif
