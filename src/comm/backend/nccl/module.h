/* module.h -- the table through which Tutti calls NCCL, which it is not linked with.   SPDX-License-Identifier: MIT
 *
 * libtutti_nccl.so, built from module.c, contains everything that uses nccl.h; it is loaded when a group asks for NCCL,
 * and calls nothing of Tutti. Communicators are non-blocking: a call may return before it is done, and is done when
 * state() no longer returns PENDING. No function waits for other ranks, except where noted. A communicator is used by one
 * thread at a time. */
#ifndef TUTTI_COMM_BACKEND_NCCL_MODULE_H
#define TUTTI_COMM_BACKEND_NCCL_MODULE_H

#include "comm/core/operation.h"

typedef struct tutti__nccl_comm tutti__nccl_comm; /* ncclComm_t */

/* Functions return OK, PENDING, or NCCL's error code. */
enum { TUTTI__NCCL_OK = 0, TUTTI__NCCL_PENDING = 7 };

enum { TUTTI__NCCL_ID_BYTES = 128 };
typedef struct tutti__nccl_id {
    char bytes[TUTTI__NCCL_ID_BYTES];
} tutti__nccl_id;

/* A collective. The stream is a cudaStream_t of the communicator's device; count and pieces are in elements. */
typedef struct tutti__nccl_call {
    tutti__op_kind kind;
    tutti__nccl_comm *comm;
    void *stream;
    const void *src; /* in place: equal to dst, or to this rank's piece in it */
    void *dst;
    size_t count, element; /* of one piece; bytes of an element */
    tutti_dtype dtype;
    /* SUM, AVG (each rank's values are divided, then added), PRODUCT, MIN, MAX */
    tutti_redop redop;
    int rank, size, root;
    const tutti__piece *out,
        /* pieces to each rank, pieces from each; for operations that only move data */
        *in;
} tutti__nccl_call;

/* Device memory registered with NCCL, so that NCCL moves data in it without copies of its own. */
typedef struct tutti__nccl_memory {
    void *p;
    size_t bytes;
    void *handle; /* NULL: not registered */
    bool window;  /* the handle is of a window */
} tutti__nccl_memory;

/* What the loaded library supports. */
typedef struct tutti__nccl_library {
    int version;    /* 22809 is 2.28.9 */
    bool registers; /* alloc, free, add, remove */
    bool windows;   /* and windows, registered by all ranks at once, which are faster */
} tutti__nccl_library;

enum { TUTTI__NCCL_TABLE = 1 }; /* increased when the table changes */

typedef struct tutti__nccl {
    int table;           /* TUTTI__NCCL_TABLE */
    const char *version; /* TUTTI_VERSION */
    int header;          /* the version of NCCL that it was compiled with */

    /* Checks the library. NULL, or why it cannot be used (a static text). */
    const char *(*start)(tutti__nccl_library *library_p);
    /* "unhandled system error: Call to connect ... failed". comm may be NULL. */
    void (*error_text)(tutti__nccl_comm *comm, int error, char *text, size_t capacity);

    int (*unique_id)(tutti__nccl_id *id_p);
    /* On the thread's current device. If it fails, *comm_p must be aborted too, unless it is NULL. */
    int (*init)(tutti__nccl_comm **comm_p, const tutti__nccl_id *id, int rank, int size);
    int (*state)(tutti__nccl_comm *comm);
    int (*begin)(const tutti__nccl_call *call);
    /* All ranks call finalize, when nothing is in flight; and destroy when that is done. */
    int (*finalize)(tutti__nccl_comm *comm);
    int (*destroy)(tutti__nccl_comm *comm);
    /* Stops what runs on this rank's device and frees the communicator, in any state; waits for the device. */
    int (*abort)(tutti__nccl_comm *comm);

    /* Memory of the thread's current device that can be registered. These four only if the library has them. */
    int (*alloc)(void **p, size_t bytes);
    int (*free)(void *p);
    /* All ranks call it, in the same order, with memory from alloc. NCCL also moves data that it cannot register. */
    int (*add)(tutti__nccl_comm *comm, tutti__nccl_memory *memory);
    int (*remove)(tutti__nccl_comm *comm, tutti__nccl_memory *memory);
} tutti__nccl;

/* The table's name in the module. */
#define TUTTI__NCCL_SYMBOL "tutti_nccl_table"

#endif
