/* module.h -- the table through which Tutti calls NCCL, which it is not linked with.   SPDX-License-Identifier: MIT
 *
 * libtutti_nccl.so, made of module.c, is all that touches nccl.h; it is loaded where a group asks for NCCL, and calls
 * nothing of Tutti. Communicators are non-blocking: a call may come back before it is done, and is done when state() no
 * longer says PENDING. None of these functions waits for other ranks, unless it is said. A communicator is used by one
 * thread at a time. */
#ifndef TUTTI_COMM_BACKEND_NCCL_MODULE_H
#define TUTTI_COMM_BACKEND_NCCL_MODULE_H

#include "comm/core/operation.h"

typedef struct tutti__nccl_comm tutti__nccl_comm; /* ncclComm_t */

/* What functions return: OK, PENDING, or what NCCL calls the error. */
enum { TUTTI__NCCL_OK = 0, TUTTI__NCCL_PENDING = 7 };

enum { TUTTI__NCCL_ID_BYTES = 128 };
typedef struct tutti__nccl_id {
    char bytes[TUTTI__NCCL_ID_BYTES];
} tutti__nccl_id;

/* A collective. The stream is a cudaStream_t of the communicator's device; count and pieces are elements. */
typedef struct tutti__nccl_call {
    tutti__op_kind kind;
    tutti__nccl_comm *comm;
    void *stream;
    const void *src; /* in place: equal to dst, or to this rank's place in it */
    void *dst;
    size_t count, element; /* of one piece; bytes of an element */
    tutti_dtype dtype;
    tutti_redop redop; /* SUM, AVG (each rank's is divided, then added), PRODUCT, MIN, MAX */
    int rank, size, root;
    const tutti__piece *out,
        *in; /* what goes to each rank, what comes from each; for what only moves */
} tutti__nccl_call;

/* Memory of the device that NCCL was told of, so that it moves what lies there without copies of its own. */
typedef struct tutti__nccl_memory {
    void *p;
    size_t bytes;
    void *handle; /* NULL: not registered */
    bool window;  /* the handle is a window's */
} tutti__nccl_memory;

/* What the library that was loaded can do. */
typedef struct tutti__nccl_library {
    int version;    /* 22809 is 2.28.9 */
    bool registers; /* alloc, free, add, remove */
    bool windows;   /* and memory of all ranks at once, which is faster yet */
} tutti__nccl_library;

enum { TUTTI__NCCL_TABLE = 1 }; /* goes up when the table changes */

typedef struct tutti__nccl {
    int table;           /* TUTTI__NCCL_TABLE */
    const char *version; /* TUTTI_VERSION */
    int header;          /* the version of NCCL that it was compiled with */

    /* Looks at the library. NULL, or why it will not do (a static text). */
    const char *(*start)(tutti__nccl_library *library_p);
    /* "unhandled system error: Call to connect ... failed". comm may be NULL. */
    void (*error_text)(tutti__nccl_comm *comm, int error, char *text, size_t capacity);

    int (*unique_id)(tutti__nccl_id *id_p);
    /* On the thread's current device. *comm_p is to be aborted also where it fails, unless it is NULL. */
    int (*init)(tutti__nccl_comm **comm_p, const tutti__nccl_id *id, int rank, int size);
    int (*state)(tutti__nccl_comm *comm);
    int (*begin)(const tutti__nccl_call *call);
    /* All ranks, once nothing is in flight; then, when it is done, destroy. */
    int (*finalize)(tutti__nccl_comm *comm);
    int (*destroy)(tutti__nccl_comm *comm);
    /* Ends what is in flight on this rank's device and frees the communicator, whatever its state; waits for the device. */
    int (*abort)(tutti__nccl_comm *comm);

    /* Memory of the thread's current device that can be registered. These four where the library has them. */
    int (*alloc)(void **p, size_t bytes);
    int (*free)(void *p);
    /* All ranks, in the same order, of memory from alloc. What NCCL cannot register, it carries all the same. */
    int (*add)(tutti__nccl_comm *comm, tutti__nccl_memory *memory);
    int (*remove)(tutti__nccl_comm *comm, tutti__nccl_memory *memory);
} tutti__nccl;

/* The table's name in the module. */
#define TUTTI__NCCL_SYMBOL "tutti_nccl_table"

#endif
