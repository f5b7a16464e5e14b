/* optim_load.h -- an optimizer's state from a checkpoint, of which each rank takes what its layout needs.   SPDX-License-Identifier: MIT
 *
 * With ZeRO it is known only in the first step which part that is. Until then the files are open, and no rank has any of it. Then
 * each tensor is read once, by one rank, which compares its digest and sends each rank its pieces. */
#ifndef TUTTI_CHECKPOINT_OPTIM_LOAD_H
#define TUTTI_CHECKPOINT_OPTIM_LOAD_H

#include "checkpoint/optim_block.h"

/* An empty block with the names of the states that FOLDER's optimizer has. */
tutti_status tutti__optim_file_names(tutti__optim_block *block, const char *folder);
/* The optimizer's next step reads it (or tutti__optim_load_now). folder, digest (of its state.json): the same on all ranks; those
 * that do not have it get all from the others. Collective. */
tutti_status tutti__optim_load_later(tutti_optim *optim, tutti_module *m, tutti_group *group,
                                     const char *folder, const char *digest);

#endif
