/* checkpoint.h -- weights in and out, with PyTorch's names (safetensors files, and PyTorch's own .pt files), and whole
 * checkpoints, from which a training loop continues.
 * SPDX-License-Identifier: MIT
 *
 * Threads: the thread of the module's context. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include <tutti/amp.h>
#include <tutti/data.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes parameters and buffers to PATH (through PATH.tmp, fsync, rename): a failure leaves an existing file unchanged. A PATH
 * that ends in .pt or .pth becomes a state_dict for torch.load, any other a safetensors file.
 * Errors: DISK when it is full, IO; the message names the path. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_save(const tutti_module *m, const char *path);
/* Reads them from a safetensors or .pt file (recognised by its first bytes), a checkpoint's folder or a run folder. Every
 * parameter and buffer must be there with its shape; the message lists all names that are missing, unexpected or have another
 * shape (num_batches_tracked may be missing). F64, F16 and BF16 become F32; a prefix "module." of all names (PyTorch's DDP) is
 * removed. A failure changes nothing, and nothing in a file is ever executed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_load(tutti_module *m, const char *path);

/* Zero means as tutti_module_load. */
typedef struct tutti_load_opts {
    /* Loads only these tensors, all of which must fit: names of tensors or modules ("fc", "layers.0"), or patterns with * and ?
     * ("layers.*.weight"), separated by commas. NULL or "": all. */
    const char *only;
    bool partial; /* loads what fits by name and shape, leaves the rest; FORMAT if nothing fits */
    bool finite;  /* FORMAT, with the name, if a loaded number is NaN or infinite */
    uint64_t reserved[4]; /* zero */
} tutti_load_opts;
/* The same with options; opts may be NULL. `said`, if not NULL, receives a summary of at most `size` bytes: how many tensors were
 * loaded, from what, what was converted, and which were not loaded. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_load_with(tutti_module *m, const char *path,
                                                              const tutti_load_opts *opts,
                                                              char *said, size_t size);

/* Reads a module's low-rank adapters (tutti_lora_apply), and what is trained besides them, from PEFT's files: a folder with
 * adapter_model.safetensors and adapter_config.json, or the former's path. Rank, alpha and layers must be the module's. What is
 * trained besides may be missing, and then stays. A failure changes nothing. The base weights are tutti_module_load's. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_lora_load(tutti_module *m, const char *path);

/* ---- Whole checkpoints ----------------------------------------------------------------------------------------------------
 * A folder PATH with model.safetensors, optimizer.safetensors and state.json, as each of `tutti train`'s: `tutti checkpoint`,
 * `tutti eval` and tutti_module_load read it. Loading it continues with the bits of a run that was never interrupted, if the
 * number of ranks is the same.
 * Collective: all ranks of the group call it (group NULL: a process alone). Rank 0 writes and reads. What ranks have divided (ZeRO's
 * shares, parts of parameters) they write and read themselves, in files with an index, if they see PATH; else they need no access to
 * it. All ranks return the same status and message, and the group stays usable; GROUP errors as in group.h. */

/* Writes rank 0's parameters, buffers, optimizer's state and learning rate, context's step, on which dropout depends, and, if
 * DDP averages over logical shards, the ranges of its reducer (tutti_reducer_ranges). optim NULL: without an optimizer. With ZeRO
 * over logical shards the state is gathered on rank 0 first. Missing folders above PATH are made. The new checkpoint is written beside PATH, as
 * PATH.tmp, synced, read back and renamed, so that after a failure or a kill an older one at PATH is intact. Waits until that is
 * done. Not kept: other options of the optimizer; gradients (save after the optimizer's step, not while gradients accumulate); the
 * state of communication hooks (PowerSGD's error feedback starts again from zero).
 * Errors: DISK when it is full, IO; STATE, if another program is saving to PATH; ARG, if PATH exists and is not a checkpoint, is
 * one of a run of `tutti train`, or holds other files too, which would be lost. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_checkpoint_save(const char *path,
                                                             const tutti_module *m,
                                                             tutti_optim *optim,
                                                             tutti_group *group);
/* Reads it on rank 0, and sends it to all ranks, whose number and layout may differ from those of the saving ones. Before or after
 * tutti_ddp_new; not within a step. With ZeRO the optimizer's state is checked now, and read in its next step, when each rank knows
 * its share; until then it cannot be read or written (STATE). A failure changes nothing on any rank; but if a rank is lost, or a
 * divided model's file is changed meanwhile, some may have loaded it. optim NULL: weights and step only. Another program may save to PATH meanwhile.
 * Errors: NOT_FOUND only if there is no PATH, so that the first run can go on without one; IO, if it cannot be read; FORMAT, if it
 * is damaged, of another model, or of an optimizer with other options (momentum); ARG, if it lacks a part, or is of another kind of
 * optimizer; STATE, if it was replaced so often meanwhile that it could not be read; MISMATCH, if ranks pass different things. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_checkpoint_load(const char *path, tutti_module *m,
                                                             tutti_optim *optim,
                                                             tutti_group *group);

/* Where a training loop is. */
typedef struct tutti_position {
    uint64_t step;  /* the loop's own count, for logs and schedules */
    uint64_t epoch; /* from 0 */
    uint64_t batch; /* batches of it that are done, on each rank */
    /* samples of it that were used before those batches, by another number of ranks */
    uint64_t start;
    uint64_t reserved[4]; /* zero */
} tutti_position;

/* Further parts. NULL: not saved, or not loaded. */
typedef struct tutti_checkpoint_opts {
    tutti_scaler *scaler;
    /* Its place: saving counts the batches that tutti_loader_next has returned; loading continues with the next one, so that no
     * sample is repeated or skipped. With another number of ranks or another batch size the rest of the epoch is divided anew.
     * tutti_loader_set_epoch directly after loading, for the same epoch, keeps the place. ARG if data set, seed or shuffle differ;
     * UNSUPPORTED for a loader by shard. */
    tutti_loader *loader;
    tutti_position *position; /* loading sets it. Saving reads it; with loader only its step */
    tutti_ema *ema;           /* the averages: ema.safetensors, which is a weight file, too */
    uint64_t reserved[3];     /* zero */
} tutti_checkpoint_opts;
TUTTI_API TUTTI_NODISCARD tutti_status
tutti_checkpoint_save_with(const char *path, const tutti_module *m, tutti_optim *optim,
                           tutti_group *group, const tutti_checkpoint_opts *opts);
TUTTI_API TUTTI_NODISCARD tutti_status
tutti_checkpoint_load_with(const char *path, tutti_module *m, tutti_optim *optim,
                           tutti_group *group, const tutti_checkpoint_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
