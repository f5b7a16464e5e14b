/* snapshot.h -- copies of a module's parameters and buffers, from which weight files are written.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_SNAPSHOT_H
#define TUTTI_CHECKPOINT_SNAPSHOT_H

#include "checkpoint/safetensors.h"
#include "device/device.h"
#include "optim/ema.h"
#include <tutti/nn.h>

/* What a file of a module's weights says besides them. Starts as {0}. */
typedef struct tutti__file_notes {
    tutti__safetensors_pair *
        pairs; /* {"format", "pt"}; then further names of tied parameters, and the first one of each; then the adapters, if any */
    size_t n, n_tied;
    char *adapters; /* what the file says of them (adapter.h) */
} tutti__file_notes;

/* MEMORY. Free it after a failure too. */
tutti_status tutti__file_pairs(tutti__file_notes *notes, const tutti_module *m);
void tutti__file_notes_free(tutti__file_notes *notes);

/* Starts as {0}. Names are the module's, which must outlive it. */
typedef struct tutti__snapshot {
    size_t n;                           /* tensors, in the order of tutti_module_state */
    tutti__safetensors_source *sources; /* one for each, with its values */
    tutti__file_notes notes;
    char *values; /* the memory of the values, each 64-byte aligned; from the device's host_alloc */
    size_t bytes;
    const tutti__device_ops *ops;
    tutti_device device;
} tutti__snapshot;

/* Allocates memory for all tensors, not filled yet. Free it after a failure too. */
tutti_status tutti__snapshot_new(tutti__snapshot *snapshot, const tutti_module *m);
void tutti__snapshot_free(tutti__snapshot *snapshot);
/* Copies the tensors that are parameters, or those that are not, asynchronously, in the order of a stream of the module's
 * device. */
tutti_status tutti__snapshot_take(tutti__snapshot *snapshot, const tutti_module *m, bool parameters,
                                  tutti_stream *stream);
/* Copies the averages of parameters, likewise; prepared before (tutti__ema_prepare). Then, when they are there, all other tensors
 * from a snapshot of the module. */
tutti_status tutti__snapshot_take_ema(tutti__snapshot *snapshot, const tutti_ema *ema,
                                      tutti_stream *stream);
void tutti__snapshot_take_buffers(tutti__snapshot *snapshot, const tutti_module *m,
                                  const tutti__snapshot *model);
/* Makes the averages these of the snapshot, after `updates`. */
tutti_status tutti__snapshot_put_ema(const tutti__snapshot *snapshot, tutti_ema *ema,
                                     uint64_t updates);
/* Reads all tensors from a weight file, as tutti_module_load; the module does not change (module_load.c). */
tutti_status tutti__snapshot_read(tutti__snapshot *snapshot, tutti_module *m, const char *path);
/* Writes them to the module. */
tutti_status tutti__snapshot_put(const tutti__snapshot *snapshot, tutti_module *m);
/* tutti_module_digest of a module with these values. MEMORY. */
tutti_status tutti__snapshot_digest(const tutti__snapshot *snapshot, char digest[33]);

#endif
