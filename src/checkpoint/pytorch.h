/* pytorch.h -- PyTorch's .pt files, read and written: a zip file of storages and a pickle that describes them.
 * SPDX-License-Identifier: MIT
 *
 *   NAME/data.pkl        a pickle of protocol 2 (pickle.h): names to tensors, a tensor to its storage, offset, size, stride
 *   NAME/data/0 ...      the storages' bytes
 *   NAME/version         "3\n"; also byteorder and others, which may be missing
 *
 * Reads what torch.save writes since PyTorch 1.6: a state_dict, or a dictionary that has one under "model", "state_dict" or the
 * like. Nothing in the file is executed. */
#ifndef TUTTI_CHECKPOINT_PYTORCH_H
#define TUTTI_CHECKPOINT_PYTORCH_H

#include "checkpoint/safetensors.h"

typedef struct tutti__pytorch tutti__pytorch;

/* Whether a file that begins with these 8 bytes is a .pt file, of this kind or an older one, which `open` rejects with the
 * remedy. */
bool tutti__pytorch_is(const unsigned char head[8]);
/* Errors: NOT_FOUND, IO; FORMAT with path and cause; UNSUPPORTED with the remedy. */
tutti_status tutti__pytorch_open(tutti__pytorch **file_p, const char *path);
void tutti__pytorch_close(tutti__pytorch *file);
/* Tensors in the order of the state_dict, described as in a safetensors file (`offset` is 0). */
size_t tutti__pytorch_count(const tutti__pytorch *file);
const tutti__safetensors_entry *tutti__pytorch_at(const tutti__pytorch *file, size_t i);
/* The first tensor with i's elements, which are the same bytes of the file: another name of it. i itself: there is none before. */
size_t tutti__pytorch_first(const tutti__pytorch *file, size_t i);
/* The key of the state_dict in the file's dictionary; "": the file is the state_dict. */
const char *tutti__pytorch_key(const tutti__pytorch *file);
/* Copies tensor i, row-major, to dst (bytes of its entry). FORMAT if its storage's CRC-32 does not match. */
tutti_status tutti__pytorch_read(const tutti__pytorch *file, size_t i, void *dst);

/* Writes a state_dict atomically, in the format that torch.load(weights_only=True) of PyTorch 1.6 and later reads. tied: further names
 * of tensors (keys), and the sources' names (values), whose storage they have. fetch NULL: the sources have their elements. */
tutti_status tutti__pytorch_write(const char *path, const tutti__safetensors_source *sources,
                                  size_t n, const tutti__safetensors_pair *tied, size_t n_tied,
                                  const tutti__fetch *fetch);

#endif
