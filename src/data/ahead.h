/* ahead.h -- batches that are copied to the device ahead of time.   SPDX-License-Identifier: MIT
 *
 *     a worker      fills pinned host memory, and submits its copy to the loader's own stream
 *     the context   makes its stream wait for that copy when the batch becomes an input (tutti_input)
 *     the worker    fills that memory again when the copy is done, and the work submitted to the context's stream before
 *                   the batch was handed back
 *
 * Not used if the device is the host. */
#ifndef TUTTI_DATA_AHEAD_H
#define TUTTI_DATA_AHEAD_H

#include "tensor/tensor.h"

/* Of a loader. */
typedef struct tutti__ahead {
    tutti_ctx *cx; /* NULL: batches stay on the host */
    tutti_stream *stream;
} tutti__ahead;

/* A batch's arrays. */
typedef struct tutti__ahead_slot {
    int n;
    void *host[TUTTI__AHEAD], *device[TUTTI__AHEAD];
    size_t bytes[TUTTI__AHEAD]; /* of a whole batch */
    tutti__event *copied, *used;
    bool queued, handed_back; /* whether `copied` and `used` are recorded */
} tutti__ahead_slot;

tutti_status tutti__ahead_open(tutti__ahead *ahead, tutti_ctx *cx);
tutti_status tutti__ahead_slot_open(const tutti__ahead *ahead, tutti__ahead_slot *slot,
                                    const size_t *bytes, int n);
/* *free_p: whether its memory may be written. */
tutti_status tutti__ahead_is_free(const tutti__ahead *ahead, tutti__ahead_slot *slot, bool *free_p);
/* Submits the copies, of bytes[i] of each array. One thread at a time. */
tutti_status tutti__ahead_copy(const tutti__ahead *ahead, tutti__ahead_slot *slot,
                               const size_t *bytes);
/* The next inputs come from this batch; the caller has finished with it. On the context's thread. */
void tutti__ahead_offer(const tutti__ahead *ahead, const tutti__ahead_slot *slot);
tutti_status tutti__ahead_take_back(const tutti__ahead *ahead, tutti__ahead_slot *slot);
/* Waits for copies in flight. Close the slots first. */
void tutti__ahead_slot_close(const tutti__ahead *ahead, tutti__ahead_slot *slot);
void tutti__ahead_close(tutti__ahead *ahead);

#endif
