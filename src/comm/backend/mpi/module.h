/* module.h -- the table through which Tutti calls an MPI that it was not linked with.   SPDX-License-Identifier: MIT
 *
 * MPI fixes an API, not an ABI: handles are pointers in one and integers in another. So module.c, the only file that uses
 * mpi.h, is compiled once for each MPI into libtutti_mpi_<name>.so, which exports one table. The table uses Tutti's types,
 * and integers for handles. A module calls only those functions of Tutti that it is given. */
#ifndef TUTTI_COMM_BACKEND_MPI_MODULE_H
#define TUTTI_COMM_BACKEND_MPI_MODULE_H

#include "comm/core/reduce.h"
#include "comm/core/signature.h"

typedef uintptr_t tutti__mpi_comm, tutti__mpi_request;

/* What a module needs from Tutti. */
typedef struct tutti__mpi_host {
    void (*reduce)(tutti_dtype dtype, tutti_redop op, void *const *dst, size_t n_dst,
                   const void *const *src, size_t n_src, size_t count);
} tutti__mpi_host;

/* What MPI reports about itself. */
typedef struct tutti__mpi_world {
    tutti__mpi_comm comm;
    int rank, size;
    bool ours;     /* we initialised it */
    bool multiple; /* any thread may call it at any time */
    char version[96];
    char error[512]; /* why it would not start */
} tutti__mpi_world;

/* A collective on a communicator: names and meanings as in tutti__operation. Everything pointed to is borrowed until the request
 * is done. At most INT_MAX bytes on either side. */
typedef struct tutti__mpi_call {
    tutti__op_kind kind;
    tutti__mpi_comm comm;
    const void *src; /* in place if MPI can: equal to dst, or to this rank's piece in it */
    void *dst;
    size_t count;
    tutti_dtype dtype;
    tutti_redop redop; /* AVG: the sum */
    int root;
    const int *src_counts, *src_at, *dst_counts, *dst_at; /* uneven: in elements, for each rank */
} tutti__mpi_call;

enum { TUTTI__MPI_TABLE = 2 }; /* increased when the table changes */

/* Functions return 0 or MPI's error code. None waits for other ranks, except where noted. */
typedef struct tutti__mpi {
    int table;           /* TUTTI__MPI_TABLE */
    const char *version; /* TUTTI_VERSION */
    const char *name;    /* "Open MPI": what it was compiled against */
    size_t chunk_bytes;  /* of the requests into which a large all_reduce is cut */

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
    /* Receives a message with this tag if one has arrived; else *rank_p is -1. */
    int (*take)(tutti__mpi_comm comm, void *p, int bytes, int tag, int *rank_p);
} tutti__mpi;

/* The table's name in the module. */
#define TUTTI__MPI_SYMBOL "tutti_mpi_table"

#endif
