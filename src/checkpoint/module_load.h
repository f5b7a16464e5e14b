/* module_load.h -- a file's weights for a module of which ranks have pieces.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_MODULE_LOAD_H
#define TUTTI_CHECKPOINT_MODULE_LOAD_H

#include "checkpoint/divided_load.h"
#include <tutti/checkpoint.h>

/* tutti_module_load_with, by rank 0 of the group, which has one whole tensor at a time in memory and sends each rank what it holds; said:
 * there. Its adapters may keep their values. Collective; on an error some tensors may have been replaced. */
tutti_status tutti__module_load_pieces(tutti_module *m, tutti_group *group, const char *path,
                                       const tutti_load_opts *opts, bool keeps_adapters, char *said,
                                       size_t size);

#endif
