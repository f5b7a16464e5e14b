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
/* Whether it is the name of a part, STEM-00001-of-00003.safetensors; stem "": of any. */
bool tutti__is_part_name(const char *name, const char *stem);
/* FOLDER/STEM.safetensors, or if there is none but its index: that. False: neither. */
bool tutti__tensor_files_path(const char *folder, const char *stem, char path[4096]);

/* What state.json says of FOLDER's STEM, and its digest: the file's name, and 16 digits. An index's is that of its JSON, in which the
 * digests of its files' headers are; a file's that of its header, in which those of its tensors are. */
#define TUTTI__STATE_FILES "files"
/* Of a checkpoint, whose index is Tutti's: FORMAT if FOLDER has an index of STEM, and it has no digests of the files, or it, or the one
 * file of STEM, says another step than state.json, or is another one than that says. */
tutti_status tutti__state_check_files(const char *folder, const char *stem, const json_t *state);

/* The tensors of a file, or of an index and its files, of which each is opened when it is needed. Starts as {0}; closed after a failure
 * too. A tensor of the index counts in that file alone. */
typedef struct tutti__tensor_files {
    char path[4096];
    tutti__safetensors **p; /* by file, in the order of their names; NULL: not opened yet */
    size_t n;
    /* Of an index; else NULL. */
    json_t *index, *map; /* its weight_map */
    struct tutti__mapped *mapped;
    struct tutti__part_file *parts;
} tutti__tensor_files;

/* Opens FOLDER's, or a file or index. NOT_FOUND if there are none. FORMAT if the index is none. */
tutti_status tutti__tensor_files_open(tutti__tensor_files *files, const char *folder,
                                      const char *stem);
tutti_status tutti__tensor_files_open_at(tutti__tensor_files *files, const char *path, bool index);
void tutti__tensor_files_close(tutti__tensor_files *files);
size_t tutti__tensor_files_count(const tutti__tensor_files *files);
bool tutti__tensor_files_has(const tutti__tensor_files *files, const char *name);
/* File k of n, opened if it was not. FORMAT if it lacks a tensor that the index says, or if the index has digests of the files, and it is
 * another file. */
tutti_status tutti__tensor_files_file(tutti__tensor_files *files, size_t k,
                                      const tutti__safetensors **file_p);
/* Reads one tensor, which must be there, of this dtype and shape, with a digest. FORMAT. */
tutti_status tutti__tensor_files_read(tutti__tensor_files *files, const char *name,
                                      tutti_dtype dtype, tutti_shape shape, void *dst);

#endif
