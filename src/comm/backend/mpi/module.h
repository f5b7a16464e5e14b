/* module.h -- the table through which Tutti calls an MPI that it was not linked with.   SPDX-License-Identifier: MIT
 *
 * MPI fixes an API, not an ABI: handles are pointers in one and integers in another. So module.c, the only file that uses
 * mpi.h, is compiled once for each MPI into libtutti_mpi_<name>.so, which exports one table. The table uses Tutti's types,
 * and integers for handles. A module calls no function of Tutti. */
#ifndef TUTTI_COMM_BACKEND_MPI_MODULE_H
#define TUTTI_COMM_BACKEND_MPI_MODULE_H

#include "base/base.h"

typedef uintptr_t tutti__mpi_comm, tutti__mpi_request;

/* What MPI reports about itself. */
typedef struct tutti__mpi_world {
    tutti__mpi_comm comm;
    int rank, size;
    bool ours;     /* we initialised it */
    bool multiple; /* any thread may call it at any time */
    char version[96];
    char error[512]; /* why it would not start */
} tutti__mpi_world;

enum { TUTTI__MPI_TABLE = 3 }; /* increased when the table changes */

/* Functions return 0 or MPI's error code. None waits for other ranks, except where noted. Memory is borrowed until the request is done; a
 * message has at most INT_MAX bytes. */
typedef struct tutti__mpi {
    int table;           /* TUTTI__MPI_TABLE */
    const char *version; /* TUTTI_VERSION */
    const char *name;    /* "Open MPI": what it was compiled against */

    int (*start)(tutti__mpi_world *world); /* waits for all */
    int (*finish)(void);                   /* waits for all */
    void (*error_text)(int error, char *text, size_t capacity);

    int (*dup)(tutti__mpi_comm comm, tutti__mpi_comm *dup_p, tutti__mpi_request *request_p);
    /* Waits for those ranks of comm. */
    int (*sub)(tutti__mpi_comm comm, const int *ranks, int n, int tag, tutti__mpi_comm *sub_p);
    int (*return_errors)(tutti__mpi_comm comm); /* from now on, instead of ending the process */
    int (*free)(tutti__mpi_comm *comm_p);

    /* all[r] = what rank r gives, `bytes` each. */
    int (*all_gather)(tutti__mpi_comm comm, const void *mine, void *all, size_t bytes,
                      tutti__mpi_request *request_p);
    int (*send)(tutti__mpi_comm comm, const void *p, size_t bytes, int rank, int tag,
                tutti__mpi_request *request_p);
    int (*recv)(tutti__mpi_comm comm, void *p, size_t bytes, int rank, int tag,
                tutti__mpi_request *request_p);
    /* Tests n requests. done[i]: request i is done, and gone; bytes[i]: how many a receive has got. */
    int (*test)(tutti__mpi_request *requests, size_t n, bool *done, size_t *bytes);
    /* The same, once one is done; NULL, as of every real MPI: it would not return if a peer died. For simulators of MPI, in which no time passes
     * while ranks test. */
    int (*wait)(tutti__mpi_request *requests, size_t n, bool *done, size_t *bytes);
    /* Receives a message with this tag that no receive waits for, if one has arrived; else *rank_p is -1. Of one communicator, by one
     * thread at a time. */
    int (*take)(tutti__mpi_comm comm, void *p, size_t capacity, int tag, int *rank_p,
                size_t *bytes_p);
} tutti__mpi;

/* The table's name in the module. */
#define TUTTI__MPI_SYMBOL "tutti_mpi_table"

#endif
