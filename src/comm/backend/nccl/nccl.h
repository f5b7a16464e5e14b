/* nccl.h -- NCCL as the carrier of what lies on GPUs.   SPDX-License-Identifier: MIT
 *
 *     load.c      finds libtutti_nccl.so, which is all that touches nccl.h (module.h, module.c)
 *     choose.c    may this group use it? All ranks say which GPU and which NCCL they have
 *     comm.c      its communicator: made, waited for, ended, given up
 *     carrier.c   operations and memory
 *
 * The group is a native one: its store, control channel, heartbeats and signatures are as everywhere, and its host memory
 * goes by its own engine. NCCL gets an operation when all ranks have come to it. It has no time limits and does not know who
 * died, so whoever runs the operation polls it, with an eye on the group's failure and the time, and gives it up. */
#ifndef TUTTI_COMM_BACKEND_NCCL_NCCL_H
#define TUTTI_COMM_BACKEND_NCCL_NCCL_H

#include "comm/backend/nccl/module.h"
#include "comm/engine/device.h"

#include <pthread.h>

typedef enum tutti__nccl_choice {
    TUTTI__NCCL_UNDECIDED, /* before the first call on a GPU's memory */
    TUTTI__NCCL_CHOSEN,
    TUTTI__NCCL_STAGED /* without it: through memory of the host */
} tutti__nccl_choice;

typedef struct tutti__nccl_carrier {
    tutti__carrier base;
    tutti__engine *engine;   /* the group's, for the host's memory */
    tutti__devices *devices; /* which stages what is not carried */
    bool required;           /* backend nccl; else where it can be had */
    tutti__nccl_choice choice;

    const tutti__nccl *nccl;
    tutti__nccl_library library;
    tutti_device device; /* of the first call, and of all others */
    const tutti__device_ops *ops;
    tutti__nccl_comm *comm; /* NULL: not made yet, or given up */
    tutti_stream *stream;   /* its own */
    tutti__event *event;
    tutti__piece *pieces; /* two a rank */

    bool stuck; /* NCCL has not stopped when it was told to: what it uses is left to it */

    pthread_mutex_t lock; /* of `memory` */
    struct tutti__nccl_region *memory;
} tutti__nccl_carrier;

/* ---- load.c */

/* The module and its library, loaded by the first call. UNSUPPORTED with the remedy. Threads: any. */
tutti_status tutti__nccl_load(const tutti__nccl **nccl_p, tutti__nccl_library *library_p);

/* ---- choose.c: collectives of the group's engine, in the place of `op` */

/* Sets `choice`, the same on all ranks. UNSUPPORTED, on all ranks, where NCCL is required and cannot be had. */
tutti_status tutti__nccl_choose(tutti__nccl_carrier *c, const tutti__op *op);
/* Rank 0's id for all. */
tutti_status tutti__nccl_share_id(tutti__nccl_carrier *c, const tutti__op *op, tutti__nccl_id *id);
/* OK if all ranks say so, else MEMORY, no message made. */
tutti_status tutti__nccl_agree(tutti__nccl_carrier *c, const tutti__op *op, tutti_status mine);

/* ---- comm.c: kills the group where it fails */

/* Makes the device the thread's current one, which NCCL goes by. */
tutti_status tutti__nccl_use(const tutti__nccl_carrier *c);
/* Makes it unless it is there. */
tutti_status tutti__nccl_open(tutti__nccl_carrier *c, const tutti__op *op);
/* After a call that returned `result`: until it is done. */
tutti_status tutti__nccl_settle(tutti__nccl_carrier *c, const tutti__op *op, int result,
                                const char *what);
/* Until all that was given to its stream is done. */
tutti_status tutti__nccl_await(tutti__nccl_carrier *c, const tutti__op *op, const char *what);
/* Gives it up: nothing of it runs any more on this rank's device. */
void tutti__nccl_abort(tutti__nccl_carrier *c);
/* Ends it, with the others if they are still there. */
void tutti__nccl_close(tutti__nccl_carrier *c);

#endif
