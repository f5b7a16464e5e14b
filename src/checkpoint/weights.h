/* weights.h -- one way to read weights, whatever holds them.   SPDX-License-Identifier: MIT
 *
 * A path is a .safetensors file, a PyTorch .pt file (told apart by their first bytes, not by their names), a checkpoint's folder,
 * or a run folder or its checkpoints/, of which the latest checkpoint is meant. */
#ifndef TUTTI_CHECKPOINT_WEIGHTS_H
#define TUTTI_CHECKPOINT_WEIGHTS_H

#include "checkpoint/safetensors.h"

/* What a path means. */
typedef struct tutti__weights_place {
    char file[4096];   /* that holds the weights */
    char folder[4096]; /* the checkpoint that it is of, with its state.json; "": of none */
    char run[4096];    /* the run folder beside it, with its config.json; "": none */
} tutti__weights_place;

/* Errors: NOT_FOUND, IO, with what was expected there. */
tutti_status tutti__weights_find(tutti__weights_place *place, const char *path);

typedef struct tutti__weights tutti__weights;

/* Finds and opens. Errors: those of find, of the formats. */
tutti_status tutti__weights_open(tutti__weights **weights_p, const char *path);
void tutti__weights_close(tutti__weights *weights);
/* The file; and what it is: "safetensors", "PyTorch", "PyTorch, key \"model\"". */
const char *tutti__weights_path(const tutti__weights *weights);
const char *tutti__weights_kind(const tutti__weights *weights);
/* Tensors, in the file's order. */
size_t tutti__weights_count(const tutti__weights *weights);
const tutti__safetensors_entry *tutti__weights_at(const tutti__weights *weights, size_t i);
/* Tensor i as the file has it, to entry->bytes bytes at dst; digests that the file has are checked. */
tutti_status tutti__weights_read(const tutti__weights *weights, size_t i, void *dst);
/* Whether read compares tensor i with a digest (or CRC-32) of the file's. */
bool tutti__weights_has_digest(const tutti__weights *weights, size_t i);
/* The same as `dtype`. UNSUPPORTED where it cannot be converted, FORMAT where a number overflows on the way. */
tutti_status tutti__weights_read_as(const tutti__weights *weights, size_t i, tutti_dtype dtype,
                                    void *dst);

#endif
