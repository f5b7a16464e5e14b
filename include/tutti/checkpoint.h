/* checkpoint.h -- weights in and out, with PyTorch's names: safetensors files, and PyTorch's own .pt files.
 * SPDX-License-Identifier: MIT
 *
 * Threads: the module's context's thread. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include <tutti/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes parameters and buffers to PATH (through PATH.tmp, fsync, rename): a failure leaves what was there. A PATH that ends in
 * .pt or .pth becomes a state_dict for torch.load, any other a safetensors file.
 * Errors: DISK when it is full, IO; the message names the path. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_save(const tutti_module *m, const char *path);
/* Reads them from a safetensors file or a .pt file (which of them, its first bytes say), a checkpoint's folder or a run folder.
 * Every parameter and buffer must be there with its shape; missing, unexpected and misshapen names are all listed in the message
 * (num_batches_tracked may be missing). F64, F16 and BF16 become F32; a "module." before all names, DDP's in PyTorch, is taken
 * off. Nothing is changed on failure, and nothing in a file is ever executed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_load(tutti_module *m, const char *path);

/* Zero means as tutti_module_load. */
typedef struct tutti_load_opts {
    /* Takes these tensors alone, all of which must fit: names separated by commas, each of a tensor or of the module above some
     * ("fc", "layers.0"), or with * and ? ("layers.*.weight"). NULL or "": all. */
    const char *only;
    bool
        partial; /* takes what fits by name and shape; the others keep their values. FORMAT if nothing does */
    bool finite; /* FORMAT, with the name, where a number that is taken is NaN or infinite */
    uint64_t reserved[4]; /* zero */
} tutti_load_opts;
/* The same by choice; opts may be NULL. `said`, if not NULL, gets a sentence of at most `size` bytes: how many tensors were
 * taken, from what, what was converted, and which were not. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_module_load_with(tutti_module *m, const char *path,
                                                              const tutti_load_opts *opts,
                                                              char *said, size_t size);

#ifdef __cplusplus
}
#endif
#endif
