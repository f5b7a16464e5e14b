/* device_buffers.h -- operations on device buffers.   SPDX-License-Identifier: MIT
 *
 *     host memory      engine
 *     device memory    backend, if the group has one that supports it: after the engine has compared the calls
 *                      else staged: wait for the event, copy out, engine, copy in
 *
 * Engines know host memory only; the queue calls this for operations with a stream. */
#ifndef TUTTI_COMM_ENGINE_DEVICE_BUFFERS_H
#define TUTTI_COMM_ENGINE_DEVICE_BUFFERS_H

#include "comm/engine/engine.h"
#include "device/device.h"

typedef struct tutti__devices tutti__devices;
typedef struct tutti__device_backend tutti__device_backend;

/* Moves data between devices without the host, such as NCCL. */
typedef struct tutti__device_backend_ops {
    const char *name;
    /* Whether it runs the operation, on buffers of a device of its kind; else that is staged. The answer depends only on
     * the signature, so it is the same on all ranks; a rank whose buffers are elsewhere is a MISMATCH. Any thread. */
    bool (*takes)(const tutti__device_backend *backend, const tutti__operation *op);
    /* Runs it to completion, on a stream of its own after op->after; as engine's `run`. It is called on all ranks, after
     * all have made the same call (uneven counts included). While waiting it checks that the group is alive
     * (tutti__devices_await, or tutti__comm_failed and op->deadline itself), and leaves nothing running when that has
     * died. */
    tutti_status (*run)(tutti__device_backend *backend, tutti__operation *op);
    /* Device memory that it moves fastest, zeroed for all streams. All ranks call it, in operation order, and each may
     * fail separately. Both NULL: the device's own allocator is used. */
    tutti_status (*alloc)(tutti__device_backend *backend, tutti_device device, size_t bytes,
                          void **p);
    /* Any thread; nothing in flight uses p. */
    void (*release)(tutti__device_backend *backend, void *p);
    void (*close)(tutti__device_backend *backend); /* frees it; the group may be dead */
} tutti__device_backend_ops;

struct tutti__device_backend {
    const tutti__device_backend_ops *ops;
    tutti__comm *comm;
    tutti_device_kind kind; /* of the devices whose buffers it moves */
};

/* ---- Of a group ----------------------------------------------------------------------------------------- */

tutti_status tutti__devices_new(tutti__devices **devices_p, tutti__comm *comm);
/* Call it before the first operation. */
void tutti__devices_set_engine(tutti__devices *devices, tutti__engine *engine);
/* On all ranks, before the first operation on device buffers. Takes ownership. */
void tutti__devices_set_backend(tutti__devices *devices, tutti__device_backend *backend);
/* After the queue, before the engine. NULL is fine. */
void tutti__devices_free(tutti__devices *devices);

/* ---- Calls ---------------------------------------------------------------------------------------------- */

/* Records a stream's current position. Called by the thread that makes the call. */
tutti_status tutti__devices_record(tutti__devices *devices, tutti_stream *stream,
                                   tutti__pooled_event **event_p);
/* Returns the event for reuse. NULL is fine. */
void tutti__devices_release_event(tutti__devices *devices, tutti__pooled_event *event);
/* Decides whether the backend runs it, and sets that in its signature, which all ranks compare. */
void tutti__devices_claim(const tutti__devices *devices, tutti__operation *op);

/* Runs an operation on device buffers, as an engine's `run`. One thread at a time. */
tutti_status tutti__devices_run(tutti__devices *devices, tutti__operation *op);
/* The same through host memory: for a backend that finds that it cannot. On all ranks. */
tutti_status tutti__devices_stage(tutti__devices *devices, tutti__operation *op);

/* Waits until a stream has reached the event; `op`: its deadline and device. GROUP errors. */
tutti_status tutti__devices_reach(tutti__comm *comm, const tutti__operation *op,
                                  const tutti__pooled_event *event);
/* For coalesced calls: memory on the stream's device, which has `bytes` from the first call on, and the group's own
 * stream. A failure has killed the group. */
tutti_status tutti__devices_scratch(tutti__devices *devices, tutti_stream *stream, size_t bytes,
                                    void **p, tutti_stream **own_p);
/* Waits for all work submitted to that stream; `op`: on it, with a deadline. */
tutti_status tutti__devices_settle(tutti__devices *devices, const tutti__operation *op);

/* Memory of the stream's device (NULL: of the host), zeroed, for this rank alone; not collective. Freed with the group at
 * the latest. */
tutti_status tutti__devices_alloc(tutti__devices *devices, tutti_stream *stream, size_t bytes,
                                  void **p);
/* False if p was not allocated by it. */
bool tutti__devices_release(tutti__devices *devices, void *p);

/* ---- Messages ------------------------------------------------------------------------------------------- */

/* The host copy of a device message to send or receive. It is independent of the queue, and may outlive the group. */
typedef struct tutti__bounce {
    tutti_stream *stream; /* its own; NULL: none, the buffer is in host memory */
    void *host, *dst;     /* dst: of a receive, on the device */
    size_t bytes;
} tutti__bounce;

/* `op`: a send or receive, with its stream, src or dst, and deadline. A send waits for its stream here. A failure has
 * killed the group, except MEMORY and DEVICE if it could not be made. */
tutti_status tutti__bounce_open(tutti__bounce *bounce, tutti__devices *devices,
                                tutti__operation *op);
/* The message has arrived or was sent: copies a received one to the device. Call it once; `arrived`: the message is complete. */
tutti_status tutti__bounce_close(tutti__bounce *bounce, bool arrived);

/* ---- For backends ---------------------------------------------------------------------------------------- */

/* The stream's position at the call. NULL on devices without events: it has already been reached. */
tutti__event *tutti__pooled_event_of(const tutti__pooled_event *event);
/* Waits for an event of the stream's device, until the deadline of an operation (outside of one: TUTTI__N_OPS) and, with
 * `abandons`, until the group's death. A failure or timeout has killed the group; `what`, for the message: "rank 1 waited
 * timed out after 600 s waiting for <what>". */
tutti_status tutti__devices_await(tutti__comm *comm, const tutti__operation *op,
                                  tutti_stream *stream, tutti__event *event, bool abandons,
                                  const char *what);
/* This rank's device, or its memory, has failed with the thread's message: kills the group with that cause. */
tutti_status tutti__devices_fail(tutti__comm *comm);
/* Between two polls: n counts them, from 0. Yields the core, later sleeps, for 0.1 ms at most. */
void tutti__devices_pause(unsigned *n);

#endif
