/* nccl.h -- NCCL as the backend of operations on GPUs.   SPDX-License-Identifier: MIT
 *
 *     nccl_load.c      finds libtutti_nccl.so, which contains everything that uses nccl.h (module.h, module.c)
 *     nccl_choose.c    whether this group may use it: all ranks publish their GPU and NCCL
 *     nccl_comm.c      its communicator: creating, waiting, closing, aborting
 *     nccl_backend.c   operations and memory
 *
 * The group is a native one: its store, control channel, heartbeats and signatures work as without NCCL, and host memory
 * goes through its own engine. NCCL gets an operation when all ranks have made the call. It has no time limits and does
 * not know which rank died, so the thread that runs the operation polls it, checks for the group's failure and the
 * deadline, and aborts it if necessary. */
#ifndef TUTTI_COMM_BACKEND_NCCL_NCCL_H
#define TUTTI_COMM_BACKEND_NCCL_NCCL_H

#include "comm/backend/nccl/module.h"
#include "comm/engine/device_buffers.h"

#include <pthread.h>

typedef enum tutti__nccl_choice {
    TUTTI__NCCL_UNDECIDED, /* before the first call on a GPU's memory */
    TUTTI__NCCL_CHOSEN,
    TUTTI__NCCL_STAGED /* without it: through host memory */
} tutti__nccl_choice;

typedef struct tutti__nccl_backend {
    tutti__device_backend base;
    tutti__engine *engine;   /* the group's, for host memory */
    tutti__devices *devices; /* stages what NCCL does not run */
    bool required;           /* backend nccl; else only if available */
    tutti__nccl_choice choice;

    const tutti__nccl *nccl;
    tutti__nccl_library library;
    tutti_device device; /* of the first call, and of all others */
    const tutti__device_ops *ops;
    tutti__nccl_comm *comm; /* NULL: not made yet, or aborted */
    tutti_stream *stream;   /* its own */
    tutti__event *event;
    tutti__piece *pieces; /* two for each rank */

    bool stuck; /* NCCL did not stop when aborted: the memory that it uses is leaked */

    pthread_mutex_t lock; /* of `memory` */
    struct tutti__nccl_region *memory;
} tutti__nccl_backend;

/* ---- nccl_load.c */

/* The module and its library, loaded by the first call. UNSUPPORTED with the remedy. Any thread. */
tutti_status tutti__nccl_load(const tutti__nccl **nccl_p, tutti__nccl_library *library_p);

/* ---- nccl_choose.c: collectives of the group's engine, as parts of `op` */

/* Sets `choice`, the same on all ranks. UNSUPPORTED on all ranks, if NCCL is required and not available. */
tutti_status tutti__nccl_choose(tutti__nccl_backend *c, const tutti__operation *op);
/* Sends rank 0's id to all. */
tutti_status tutti__nccl_share_id(tutti__nccl_backend *c, const tutti__operation *op,
                                  tutti__nccl_id *id);
/* OK if it is OK on all ranks, else MEMORY without a message. */
tutti_status tutti__nccl_agree(tutti__nccl_backend *c, const tutti__operation *op,
                               tutti_status mine);

/* ---- nccl_comm.c: an error kills the group */

/* Makes the device the thread's current one, as NCCL requires. */
tutti_status tutti__nccl_use(const tutti__nccl_backend *c);
/* Creates the communicator, if there is none. */
tutti_status tutti__nccl_open(tutti__nccl_backend *c, const tutti__operation *op);
/* After a call that returned `result`: waits until it is done. */
tutti_status tutti__nccl_settle(tutti__nccl_backend *c, const tutti__operation *op, int result,
                                const char *what);
/* Waits until all work on its stream is done. */
tutti_status tutti__nccl_await(tutti__nccl_backend *c, const tutti__operation *op,
                               const char *what);
/* Aborts it: afterwards it runs nothing on this rank's device. */
void tutti__nccl_abort(tutti__nccl_backend *c);
/* Closes it, together with the others if they are still alive. */
void tutti__nccl_close(tutti__nccl_backend *c);

#endif
