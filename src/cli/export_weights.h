/* export_weights.h -- writes the tensors of one file of weights to others, one tensor at a time.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_EXPORT_WEIGHTS_H
#define TUTTI_CLI_EXPORT_WEIGHTS_H

#include "checkpoint/adapter.h"
#include "checkpoint/weights.h"
#include "train/output/counter.h"

/* What is written. */
typedef struct tutti__export {
    tutti__weights *file;
    tutti__adapters *adapters; /* which are merged; NULL: none */
    int dtype;                 /* of real tensors; -1: as they are */
    const tutti__tick *tick;
    tutti__safetensors_source *sources; /* without elements */
    size_t *place;                      /* in the file, of each source */
    size_t n;
    tutti__safetensors_pair *pairs; /* {"format", "pt"}, and further names of tensors */
    size_t n_pairs;
} tutti__export;

/* Whether a file's name means PyTorch's format. */
bool tutti__export_is_pytorch(const char *path);
/* Close it after a failure too. tick is borrowed. */
tutti_status tutti__export_open(tutti__export *e, const char *path, int dtype,
                                const tutti__tick *tick);
void tutti__export_close(tutti__export *e);
tutti_status tutti__export_list(tutti__export *e);
/* All of them in one file, .safetensors or PyTorch's. */
tutti_status tutti__export_file(const tutti__export *e, const char *path);
/* The folder's model.safetensors, or if that would have more than `most` bytes, files with an index, as transformers writes them; other
 * such files that were there are removed. A tensor is never divided. */
tutti_status tutti__export_parts(const tutti__export *e, const char *folder, int64_t most);
/* Removes the folder's model-*-of-N.safetensors for all N but this. */
void tutti__export_remove_parts(const char *folder, size_t but);

#endif
