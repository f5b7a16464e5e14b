/* snapshot.h -- a module's parameters and buffers copied, as what a file of weights is written from.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_SNAPSHOT_H
#define TUTTI_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/safetensors.h"
#include "device/device.h"
#include <tutti/nn.h>

/* Starts as {0}. Names are the module's, which must outlive it. */
typedef struct tutti__snapshot {
    size_t n;                           /* tensors, in the order of tutti_module_state */
    tutti__safetensors_source *sources; /* of each, with its values */
    char *values; /* where those point: aligned to 64 bytes; of the device's host_alloc */
    const tutti__device_ops *ops;
    tutti_device device;
} tutti__snapshot;

/* Room for all tensors, not yet filled. To be freed after a failure too. */
tutti_status tutti__snapshot_new(tutti__snapshot *snapshot, const tutti_module *m);
void tutti__snapshot_free(tutti__snapshot *snapshot);
/* Copies the tensors that are parameters, or those that are not, in the order of a stream of the module's device: they are
 * there when it has come so far. */
tutti_status tutti__snapshot_take(tutti__snapshot *snapshot, const tutti_module *m, bool parameters,
                                  tutti_stream *stream);

#endif
