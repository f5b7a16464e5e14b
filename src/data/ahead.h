/* ahead.h -- batches that are on the device before they are asked for.   SPDX-License-Identifier: MIT
 *
 *     a worker      fills pinned memory of the host, and queues its copy on a stream of the loader's own
 *     the context   waits on its stream for that copy, where the batch becomes an input (tutti_input)
 *     the worker    fills that memory again once the copy, and what was given to the context's stream before the batch was
 *                   handed back, are done
 *
 * Nothing of it is used where the device is the host. */
#ifndef TUTTI_DATA_AHEAD_H
#define TUTTI_DATA_AHEAD_H

#include "tensor/tensor.h"

/* A loader's. */
typedef struct tutti__ahead {
    tutti_ctx *cx; /* NULL: batches stay on the host */
    tutti_stream *stream;
} tutti__ahead;

/* A batch's two arrays, x and y. */
typedef struct tutti__ahead_slot {
    void *host[2], *device[2];
    size_t bytes[2]; /* of a whole batch */
    tutti__event *copied, *used;
    bool queued, handed_back; /* since when `copied` and `used` count */
} tutti__ahead_slot;

tutti_status tutti__ahead_open(tutti__ahead *ahead, tutti_ctx *cx);
tutti_status tutti__ahead_slot_open(const tutti__ahead *ahead, tutti__ahead_slot *slot,
                                    const size_t bytes[2]);
/* Its memory may be written: true in *free_p. */
tutti_status tutti__ahead_is_free(const tutti__ahead *ahead, tutti__ahead_slot *slot, bool *free_p);
/* Queues the copies. One thread at a time. */
tutti_status tutti__ahead_copy(const tutti__ahead *ahead, tutti__ahead_slot *slot,
                               const size_t bytes[2]);
/* The next inputs are of this batch; and: the caller is done with it. The context's thread. */
void tutti__ahead_offer(const tutti__ahead *ahead, const tutti__ahead_slot *slot);
tutti_status tutti__ahead_take_back(const tutti__ahead *ahead, tutti__ahead_slot *slot);
/* Waits for the copies under way. Slots first. */
void tutti__ahead_slot_close(const tutti__ahead *ahead, tutti__ahead_slot *slot);
void tutti__ahead_close(tutti__ahead *ahead);

#endif
