/* optim_block.h -- an optimizer's state taken out whole, and its file.   SPDX-License-Identifier: MIT
 *
 * In optimizer.safetensors a parameter's state has the optimizer's name for it before its own, "momentum_buffer.fc1.weight",
 * and its number of updates is "step.fc1.weight". */
#ifndef TUTTI_CHECKPOINT_OPTIM_BLOCK_H
#define TUTTI_CHECKPOINT_OPTIM_BLOCK_H

#include "checkpoint/safetensors.h"
#include "device/device.h"
#include <jansson.h>
#include <tutti/optim.h>

#define TUTTI__OPTIM_BLOCK_STATES 4

/* Starts as {0}. */
typedef struct tutti__optim_block {
    size_t n_states, n_parameters;
    size_t n; /* numbers of one kind of state: elements of all parameters */
    char names[TUTTI__OPTIM_BLOCK_STATES][32];
    float *
        values; /* n of each kind, in the module's order of parameters; of the device's host_alloc */
    const tutti__device_ops *ops;
    tutti_device device;
    uint64_t *updates; /* of each parameter */
} tutti__optim_block;

/* Room for the states of this optimizer over the whole module, zeros. */
tutti_status tutti__optim_block_new(tutti__optim_block *block, const tutti_optim *optim,
                                    const tutti_module *m);
void tutti__optim_block_free(tutti__optim_block *block);
/* From the optimizer (with ZeRO: where it is consolidated), in the order of a stream of its device: values are there when it
 * has come so far. And back (with ZeRO: on every rank, before its first step). */
tutti_status tutti__optim_block_take(tutti__optim_block *block, const tutti_optim *optim,
                                     const tutti_module *m, tutti_stream *stream);
tutti_status tutti__optim_block_put(const tutti__optim_block *block, tutti_optim *optim,
                                    const tutti_module *m);
/* The contents of its file, to put(user, ...). */
tutti_status tutti__optim_block_write(const tutti__optim_block *block, const tutti_module *m,
                                      tutti__put *put, void *user);
/* Makes the block as the file says. FORMAT where it is not of this module, or a digest is not that of its contents. */
tutti_status tutti__optim_block_read(tutti__optim_block *block, const tutti_module *m,
                                     const char *path);

#endif
