/* verify_together.h -- ranks verify a checkpoint before they read it, each a part of its files.   SPDX-License-Identifier: MIT
 *
 *   rank 0    chooses a folder ─ asks ─ all verify ─▶ intact, or the first damage ─ chooses another ... ─ ends
 *   others    answer ─────────────────────────────────────────────────────────────────────────────────┘
 *
 * Of what a layout divides no rank reads all. state.json has the digests of the files' headers (tutti__state_check_files), and those have the
 * tensors' digests, so that together the ranks know what one would that had read everything. */
#ifndef TUTTI_CHECKPOINT_VERIFY_TOGETHER_H
#define TUTTI_CHECKPOINT_VERIFY_TOGETHER_H

#include "checkpoint/checkpoint_folder.h"
#include "nn/nn.h"
#include <tutti/group.h>

/* Which of a checkpoint's files. All false: the end. */
typedef struct tutti__verify_wish {
    bool model, average, optim;
    char folder[TUTTI__CHECKPOINT_PATH];
    char digest[40]; /* of its state.json, by which other ranks know it */
} tutti__verify_wish;

/* Rank 0: every tensor in the files is compared with its digest, once, by a rank that sees the folder, and each rank finds the tensors of
 * its module there, whole, whatever of them it has, with their state. Errors name the rank, the file and the tensor. */
tutti_status tutti__verify_ask(tutti_group *group, const tutti_module *m,
                               const tutti__verify_wish *wish);
/* Rank 0's work ends with this status, which is returned with its message: after a failure too, or the others would wait. */
tutti_status tutti__verify_end(tutti_group *group, tutti_status status);
/* The other ranks, until rank 0 ends. Errors: those of the group. */
tutti_status tutti__verify_answer(tutti_group *group, const tutti_module *m);

#endif
