/* checkpoint.h -- weights in and out, with PyTorch's names: safetensors files, and PyTorch's own .pt files.
 * SPDX-License-Identifier: MIT
 *
 * Threads: the thread of the module's context. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include <tutti/nn.h>

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

#ifdef __cplusplus
}
#endif
#endif
