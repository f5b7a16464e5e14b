/* device.h -- operations on buffers of devices.   SPDX-License-Identifier: MIT
 *
 *     host's memory      engine
 *     a device's         carrier, if the group has one and that can: after the engine has compared the calls
 *                        else staged: wait for the mark, copy out, engine, copy in
 *
 * Engines know the host's memory only; the queue comes here with what bears a stream. */
#ifndef TUTTI_COMM_ENGINE_DEVICE_H
#define TUTTI_COMM_ENGINE_DEVICE_H

#include "comm/engine/engine.h"
#include "device/device.h"

typedef struct tutti__devices tutti__devices;
typedef struct tutti__carrier tutti__carrier;

/* What moves bytes between devices without the host, such as NCCL. */
typedef struct tutti__carrier_ops {
    const char *name;
    /* Whether it runs the operation, on buffers of a device of its kind; else that is staged. It answers by the signature,
     * so all ranks alike; a rank whose buffers are elsewhere is a MISMATCH. Any thread. */
    bool (*takes)(const tutti__carrier *carrier, const tutti__op *op);
    /* Runs it to its end, on a stream of its own behind op->mark; as engine's `run`. When it is called, all ranks have come to
     * the same call (uneven counts included), so it is called on all of them. While it waits it looks after the
     * group (tutti__devices_await, or tutti__comm_failed and op->deadline by itself), and leaves nothing running when that
     * has died. */
    tutti_status (*run)(tutti__carrier *carrier, tutti__op *op);
    /* Memory of a device that it moves best, zeroed for all streams. All ranks call it, in the order of the operations, and
     * each may fail for itself. NULL, both: the device's own allocator will do. */
    tutti_status (*alloc)(tutti__carrier *carrier, tutti_device device, size_t bytes, void **p);
    void (*release)(tutti__carrier *carrier, void *p); /* any thread; nothing in flight uses it */
    void (*close)(tutti__carrier *carrier);            /* frees it; the group may be dead */
} tutti__carrier_ops;

struct tutti__carrier {
    const tutti__carrier_ops *ops;
    tutti__comm *comm;
    tutti_device_kind kind; /* of the devices whose buffers it moves */
};

/* ---- Of a group ----------------------------------------------------------------------------------------- */

tutti_status tutti__devices_new(tutti__devices **devices_p, tutti__comm *comm);
/* Before the first operation. */
void tutti__devices_set_engine(tutti__devices *devices, tutti__engine *engine);
/* On all ranks alike, before the first operation on a device's buffers. Takes it over. */
void tutti__devices_set_carrier(tutti__devices *devices, tutti__carrier *carrier);
/* After the queue, before the engine. NULL is fine. */
void tutti__devices_free(tutti__devices *devices);

/* ---- Calls ---------------------------------------------------------------------------------------------- */

/* Notes how far a stream has come. By the thread that calls, when it calls. */
tutti_status tutti__devices_mark(tutti__devices *devices, tutti_stream *stream,
                                 tutti__mark **mark_p);
/* Nobody looks at it any more. NULL is fine. */
void tutti__devices_unmark(tutti__devices *devices, tutti__mark *mark);
/* Whether the carrier runs it; then its signature says so, which all ranks compare. */
void tutti__devices_claim(const tutti__devices *devices, tutti__op *op);

/* By whoever has the turn: runs an operation on a device's buffers, as an engine's `run`. */
tutti_status tutti__devices_run(tutti__devices *devices, tutti__op *op);
/* The same through memory of the host: for a carrier that finds that it cannot. All ranks. */
tutti_status tutti__devices_stage(tutti__devices *devices, tutti__op *op);

/* Waits until a stream has come as far as the mark; `op`: for whose time, and on which device. GROUP errors. */
tutti_status tutti__devices_reach(tutti__comm *comm, const tutti__op *op, const tutti__mark *mark);
/* Of the stream's device, for calls that travel together: memory, `bytes` the first time and ever after, and the group's own
 * stream. What fails has killed the group. */
tutti_status tutti__devices_scratch(tutti__devices *devices, tutti_stream *stream, size_t bytes,
                                    void **p, tutti_stream **own_p);
/* Waits until all that was given to that stream is done; `op`: of it, with a deadline. */
tutti_status tutti__devices_settle(tutti__devices *devices, const tutti__op *op);

/* Memory of the stream's device (NULL: of the host, and of this rank alone), zeroed; of this rank's own accord. It goes with the
 * group at the latest. */
tutti_status tutti__devices_alloc(tutti__devices *devices, tutti_stream *stream, size_t bytes,
                                  void **p);
/* False if it is not from there. */
bool tutti__devices_release(tutti__devices *devices, void *p);

/* ---- Messages ------------------------------------------------------------------------------------------- */

/* Of a send or receive: the message in the host's memory. It knows no turn, and may outlive the group. */
typedef struct tutti__parcel {
    tutti_stream *stream; /* its own; NULL: there is no parcel, the buffer is the host's */
    void *host, *dst;     /* dst: of a receive, on the device */
    size_t bytes;
} tutti__parcel;

/* `op`: a send or receive, with its stream, src or dst, and deadline. A send waits for its stream here. What fails has killed the
 * group, but for MEMORY and DEVICE where the parcel could not be made. */
tutti_status tutti__parcel_open(tutti__parcel *parcel, tutti__devices *devices, tutti__op *op);
/* The message has come, or gone: brings it to the device, if it is to go there. Once; `arrived`: it is whole. */
tutti_status tutti__parcel_close(tutti__parcel *parcel, bool arrived);

/* ---- For carriers ---------------------------------------------------------------------------------------- */

/* Where the call came. NULL on devices without events: it has passed. */
tutti__event *tutti__mark_event(const tutti__mark *mark);
/* Waits until an event of the stream's device has passed, and sees to the deadline of an operation (of none: TUTTI__N_OPS)
 * meanwhile, and, with `abandons`, to the group's life. What fails or is late has killed the group; `what` says what was waited
 * for: "rank 1 waited timed out after 600 s waiting for <what>". */
tutti_status tutti__devices_await(tutti__comm *comm, const tutti__op *op, tutti_stream *stream,
                                  tutti__event *event, bool abandons, const char *what);
/* This rank's device, or its memory, has failed with the thread's message: kills the group, which says so. */
tutti_status tutti__devices_fail(tutti__comm *comm);
/* Between two looks at something: n counts them, from 0. Gives the core away, later sleeps, for 0.1 ms at most. */
void tutti__devices_pause(unsigned *n);

#endif
