/* weights_parts.h -- safetensors in several files, with an index: how Hugging Face stores large models.   SPDX-License-Identifier: MIT
 *
 *   {"metadata": {...}, "weight_map": {"name of a tensor": "model-00001-of-00003.safetensors", ...}} */
#ifndef TUTTI_CHECKPOINT_WEIGHTS_PARTS_H
#define TUTTI_CHECKPOINT_WEIGHTS_PARTS_H

#include "checkpoint/safetensors.h"
#include <jansson.h>

/* The end of an index's name, after that of what it lists; of a model's weights, as Hugging Face names it. */
#define TUTTI__PARTS_INDEX   ".safetensors.index.json"
#define TUTTI__WEIGHTS_INDEX "model" TUTTI__PARTS_INDEX
/* In the index's metadata, what Tutti adds: XXH3-64 of the header of each file, which has the digests of the file's tensors. */
#define TUTTI__PARTS_DIGESTS "xxh3_headers"

/* Whether a path's first bytes and name are those of an index. */
bool tutti__weights_is_index(const char *path, const unsigned char *head);
/* Opens the files that an index names, each once, in the order of their names; they lie beside it. The caller closes the *n_p files
 * and frees the list, also on failure. FORMAT if it is no index, or a tensor is not in the file that it says.
 * A tensor of the index counts in that file alone. FORMAT too if the index has digests of the files, and one is another file. */
tutti_status tutti__weights_open_parts(const char *index, tutti__safetensors ***parts_p,
                                       size_t *n_p);
/* Whether it is the name of a part, STEM-00001-of-00003.safetensors; stem "": of any. */
bool tutti__is_part_name(const char *name, const char *stem);
/* FOLDER/STEM.safetensors, or if there is none but its index: that. False: neither. */
bool tutti__tensor_files_path(const char *folder, const char *stem, char path[4096]);

/* Of a checkpoint, whose index is Tutti's: FORMAT if FOLDER has an index of STEM, and it has no digests of the files, or it, or the one
 * file of STEM, says another step than state.json. */
tutti_status tutti__parts_check_step(const char *folder, const char *stem, const json_t *state);

/* The tensors of a file, or of an index and its files. Starts as {0}; closed after a failure too. */
typedef struct tutti__tensor_files {
    tutti__safetensors **p;
    size_t n;
    char path[4096];
} tutti__tensor_files;

/* Opens FOLDER's. NOT_FOUND if there are none. */
tutti_status tutti__tensor_files_open(tutti__tensor_files *parts, const char *folder,
                                      const char *stem);
void tutti__tensor_files_close(tutti__tensor_files *parts);
size_t tutti__tensor_files_count(const tutti__tensor_files *parts);
const tutti__safetensors_entry *tutti__tensor_files_find(const tutti__tensor_files *parts,
                                                         const char *name,
                                                         const tutti__safetensors **file_p);
/* Reads one tensor, which must be there, of this dtype and shape, with a digest. FORMAT. */
tutti_status tutti__tensor_files_read(const tutti__tensor_files *files, const char *name,
                                      tutti_dtype dtype, tutti_shape shape, void *dst);

#endif
