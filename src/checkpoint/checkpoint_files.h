/* checkpoint_files.h -- the files of a checkpoint, which a run (train/) and tutti_checkpoint_save have in common.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_CHECKPOINT_FILES_H
#define TUTTI_CHECKPOINT_CHECKPOINT_FILES_H

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/optim_block.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/state.h"
#include <tutti/amp.h>

/* What is written. */
typedef struct tutti__checkpoint_parts {
    const tutti_module *m;
    const tutti__snapshot
        *model; /* NULL: ranks write parts of it (part.h), and its digest is in state */
    const tutti__optim_block *block; /* NULL: without an optimizer, or parts */
    const tutti__snapshot *ema;      /* the averages and the model's buffers; NULL: none */
    uint64_t step;
    json_t *state; /* state.json, to which the digests are added */
} tutti__checkpoint_parts;

/* A draft as what tutti__headed_put writes to, with the digest of what it writes first: a file's header. Starts as {.draft}. */
typedef struct tutti__headed {
    tutti__draft *draft;
    uint64_t header;
    bool begun;
} tutti__headed;
tutti_status tutti__headed_put(void *headed, const void *p, size_t bytes);

/* Writes model.safetensors, optimizer.safetensors and ema.safetensors. headers: in this order, digests of those that are written. */
tutti_status tutti__checkpoint_write_files(tutti__draft *draft,
                                           const tutti__checkpoint_parts *parts,
                                           uint64_t headers[3]);
/* Adds a file's digest to state.json (TUTTI__STATE_FILES). */
tutti_status tutti__state_add_file(json_t *state, const char *name, const char *digest);
/* And state.json, after all others. */
tutti_status tutti__checkpoint_write_state(tutti__draft *draft,
                                           const tutti__checkpoint_parts *parts);
/* Makes `model` from FOLDER's model.safetensors, which must have the digest that `state` says; starts as {0}. The module does
 * not change. Free it after a failure too. */
tutti_status tutti__checkpoint_read_model(tutti__snapshot *model, tutti_module *m,
                                          const char *folder, const json_t *state);
/* The same from ema.safetensors; *updates_p: those that the averages have had. `ema` stays {0} if the checkpoint has none. */
tutti_status tutti__checkpoint_read_ema(tutti__snapshot *ema, tutti_module *m, const char *folder,
                                        const json_t *state, uint64_t *updates_p);

/* An average's "ema" in state.json: null without one. */
json_t *tutti__ema_json(const tutti_ema *ema);
/* A scaler in state.json: null without one. */
json_t *tutti__scaler_json(const tutti_scaler *scaler);
tutti_scaler_state tutti__scaler_of_json(const json_t *object);

#endif
