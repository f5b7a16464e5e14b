/* optim_block.h -- all of an optimizer's state, and its file.   SPDX-License-Identifier: MIT
 *
 * In optimizer.safetensors a parameter's state is named by kind and parameter, "momentum_buffer.fc1.weight",
 * and its number of updates is "step.fc1.weight". */
#ifndef TUTTI_CHECKPOINT_OPTIM_BLOCK_H
#define TUTTI_CHECKPOINT_OPTIM_BLOCK_H

#include "checkpoint/safetensors.h"
#include "checkpoint/weights_parts.h"
#include "device/device.h"
#include <jansson.h>
#include <tutti/group.h>
#include <tutti/optim.h>

#define TUTTI__OPTIM_BLOCK_STATES 4

/* Starts as {0}. */
typedef struct tutti__optim_block {
    size_t n_states, n_parameters;
    size_t n; /* elements of one kind of state: those of the parameters that have it */
    char names[TUTTI__OPTIM_BLOCK_STATES][32];
    /* n of each kind, in the module's order of parameters; of the device's host_alloc */
    float *values;
    /* by parameter: whether it has state. A frozen one that was never updated has none, whose memory and bytes would be zeros */
    bool *has;
    const tutti__device_ops *ops;
    tutti_device device;
    uint64_t *updates; /* by parameter */
} tutti__optim_block;

/* Allocates zeroed memory for this optimizer's state over the whole module. */
tutti_status tutti__optim_block_new(tutti__optim_block *block, const tutti_optim *optim,
                                    const tutti_module *m);
void tutti__optim_block_free(tutti__optim_block *block);
/* Copies the state from the optimizer (with ZeRO: on the rank where it is consolidated) asynchronously, in the order of a
 * stream of its device. And back (with ZeRO: on every rank, before its first step). */
tutti_status tutti__optim_block_take(tutti__optim_block *block, const tutti_optim *optim,
                                     const tutti_module *m, tutti_stream *stream);
tutti_status tutti__optim_block_put(const tutti__optim_block *block, tutti_optim *optim,
                                    const tutti_module *m);
/* Writes the contents of its file by put(user, ...). */
tutti_status tutti__optim_block_write(const tutti__optim_block *block, const tutti_module *m,
                                      uint64_t step, tutti__put *put, void *user);
/* Makes the block from FOLDER's optimizer.safetensors, or its parts; the state of a parameter that had no updates, and is not in the file, is zeros. FORMAT if that is not of
 * this module, or a digest does not match. */
tutti_status tutti__optim_block_read(tutti__optim_block *block, const tutti_module *m,
                                     const char *folder);
/* Makes an empty block with the names of the states that the file holds, or one of the files `path`. FORMAT. */
tutti_status tutti__optim_block_names_of(tutti__optim_block *block, const char *path,
                                         const tutti__safetensors *file);
tutti_status tutti__optim_block_names(tutti__optim_block *block, tutti__tensor_files *file);
/* The names of the states of an optimizer, as its file lists them: "exp_avg exp_avg_sq". */
void tutti__optim_states_text(const tutti_optim *optim, char text[160]);
/* FORMAT, naming `path`, if the block's kinds of state are not this optimizer's. */
tutti_status tutti__optim_block_fits(const tutti__optim_block *block, const tutti_optim *optim,
                                     const char *path);
/* Sends rank 0's block to all ranks' blocks, which are of the same optimizer and module. Collective. */
tutti_status tutti__optim_block_share(tutti__optim_block *block, const tutti_module *m,
                                      tutti_group *group);

#endif
