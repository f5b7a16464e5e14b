/* weights.h -- one interface to weights in any format.   SPDX-License-Identifier: MIT
 *
 * A path is a .safetensors file, an index of several, a PyTorch .pt file (distinguished by their first bytes, not by their names), a
 * folder that has one of the first two, a checkpoint's folder, or a run folder or its checkpoints/, which mean their latest
 * checkpoint. */
#ifndef TUTTI_CHECKPOINT_WEIGHTS_H
#define TUTTI_CHECKPOINT_WEIGHTS_H

#include "checkpoint/safetensors.h"

/* The files that a path means. */
typedef struct tutti__weights_place {
    char file[4096];   /* the weight file */
    char folder[4096]; /* its checkpoint, with state.json; "": none */
    char run[4096];    /* its run folder, with config.json; "": none */
    char hf[4096];     /* the folder with Hugging Face's config.json; "": none */
} tutti__weights_place;

/* The average of the weights beside a checkpoint's or a run's model.safetensors, if PATH is a folder that has one: its file in
 * `file`. */
bool tutti__weights_find_ema(const char *path, char file[4096]);
/* That it names something that can be read. Errors: ARG, NOT_FOUND, IO. */
tutti_status tutti__weights_check(const char *path);
/* Errors: those of check, and NOT_FOUND with what was expected there. */
tutti_status tutti__weights_find(tutti__weights_place *place, const char *path);

typedef struct tutti__weights tutti__weights;

/* Finds and opens. Errors: those of find, of the formats; FORMAT for a checkpoint's folder whose weights are of another one. */
tutti_status tutti__weights_open(tutti__weights **weights_p, const char *path);
void tutti__weights_close(tutti__weights *weights);
/* The file; its format: "safetensors", "PyTorch", "PyTorch, key \"model\"". */
const char *tutti__weights_path(const tutti__weights *weights);
const char *tutti__weights_kind(const tutti__weights *weights);
/* The text of a key of a safetensors file's __metadata__; NULL: none. */
const char *tutti__weights_metadata(const tutti__weights *weights, const char *key);
/* Tensors, in the file's order. */
size_t tutti__weights_count(const tutti__weights *weights);
const tutti__safetensors_entry *tutti__weights_at(const tutti__weights *weights, size_t i);
/* The shape of the first tensor whose name ends so; of no dimensions: there is none. */
tutti_shape tutti__weights_shape(const tutti__weights *weights, const char *ending);
/* Copies tensor i in the file's dtype to dst, of entry->bytes bytes; checks the file's digests. */
tutti_status tutti__weights_read(const tutti__weights *weights, size_t i, void *dst);
/* The i-th further name of a tensor that the file has once, and that tensor's; NULL past the end. */
const char *tutti__weights_tied(const tutti__weights *weights, size_t i, const char **to_p);
/* The first tensor of the file that is the same as i by another name; i: none before. */
size_t tutti__weights_first(const tutti__weights *weights, size_t i);
/* Whether read checks tensor i by a digest or CRC-32 in the file. */
bool tutti__weights_has_digest(const tutti__weights *weights, size_t i);
/* The same, converted to `dtype`. UNSUPPORTED if it cannot be converted, FORMAT if a number overflows. */
tutti_status tutti__weights_read_as(const tutti__weights *weights, size_t i, tutti_dtype dtype,
                                    void *dst);

#endif
