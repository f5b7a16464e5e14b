/* checkpoint_files.h -- the files of a checkpoint, which a run (train/) and tutti_checkpoint_save have in common.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_CHECKPOINT_FILES_H
#define TUTTI_CHECKPOINT_CHECKPOINT_FILES_H

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/optim_block.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/state.h"
#include <tutti/amp.h>

/* Writes model.safetensors, optimizer.safetensors (unless block is NULL), and state.json: `state`, to which this adds the
 * digests. */
tutti_status tutti__checkpoint_write_files(tutti__draft *draft, const tutti_module *m,
                                           const tutti__snapshot *model,
                                           const tutti__optim_block *block, json_t *state);
/* Makes `model` from FOLDER's model.safetensors, which must have the digest that `state` says; starts as {0}. The module does
 * not change. Free it after a failure too. */
tutti_status tutti__checkpoint_read_model(tutti__snapshot *model, tutti_module *m,
                                          const char *folder, const json_t *state);
/* Makes the block from FOLDER's optimizer.safetensors. */
tutti_status tutti__checkpoint_read_optim(tutti__optim_block *block, const tutti_module *m,
                                          const char *folder);

/* A scaler in state.json: null without one. */
json_t *tutti__scaler_json(const tutti_scaler *scaler);
tutti_scaler_state tutti__scaler_of_json(const json_t *object);

#endif
