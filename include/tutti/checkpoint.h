/* checkpoint.h -- weights in and out, as safetensors with PyTorch's names.
 * SPDX-License-Identifier: MIT
 *
 * Threads: the module's context's thread. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include <tutti/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes parameters and buffers to PATH (through PATH.tmp, fsync, rename): a failure leaves what was there.
 * Errors: DISK when it is full, IO; the message names the path. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_save(const tutti_module *m, const char *path);
/* Reads them. Every parameter and buffer must be there with its shape and dtype; missing, unexpected and misshapen
 * names are all listed in the message (num_batches_tracked may be missing). Nothing is changed on failure. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_load(tutti_module *m, const char *path);

#ifdef __cplusplus
}
#endif
#endif
