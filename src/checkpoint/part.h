/* part.h -- what this rank writes of a checkpoint that is divided over ranks.   SPDX-License-Identifier: MIT
 *
 *   optimizer-00001-of-00003.safetensors    whole tensors, each in one file, with a digest; "step" says of which step they are
 *   optimizer.safetensors.index.json        which file has which tensor, as Hugging Face's index; and the digest of each file's header
 *
 * Each rank copies what it writes (whole tensors, brought together from the ranks that hold pieces), and writes it while training
 * continues. Rank 0 gives the folder its name when all are done. */
#ifndef TUTTI_CHECKPOINT_PART_H
#define TUTTI_CHECKPOINT_PART_H

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/safetensors.h"
#include "ddp/pieces.h"
#include "device/device.h"
#include <jansson.h>

enum { TUTTI__PART_STEM = 16 };

/* Starts as {0}; memory is kept from checkpoint to checkpoint. */
typedef struct tutti__part {
    char stem[TUTTI__PART_STEM]; /* "optimizer" */
    tutti__pieces pieces;
    tutti__wholes wholes;
    int *file_of; /* by rank: the number of its file, from 1; 0: it writes none */
    int n_files, n_ranks, rank;
    size_t n; /* this rank's tensors */
    tutti__safetensors_source *sources;
    char *values; /* from the device's host_alloc */
    size_t room;
    const tutti__device_ops *ops;
    tutti_device device;
} tutti__part;

/* After the caller has filled part->pieces: gives each tensor a rank (of those that may, load: tutti__wholes_assign), and makes room
 * for those of this one. Collective; all ranks return the same. */
tutti_status tutti__part_plan(tutti__part *part, const char *stem, const tutti_module *m,
                              tutti_group *group, const bool *may, uint64_t *load);
void tutti__part_free(tutti__part *part);
/* Whether rank 0 has all of it anyway, so that nothing is divided. After tutti__wholes_find. */
static inline bool tutti__part_is_whole(const tutti__part *part)
{
    return tutti__wholes_are_of(&part->wholes, 0);
}
/* Copies this rank's tensors, and sends others what they lack. */
tutti_status tutti__part_take(tutti__part *part, tutti__mover *mover);
/* tutti_module_digest of the copies, if they are a module's: on rank 0, through which they pass. All ranks call it. */
tutti_status tutti__part_digest(const tutti__part *part, tutti__mover *mover, char digest[33]);
/* Writes this rank's file, if it has one; *header_p: the digest of its header. metadata: further pairs of it. */
tutti_status tutti__part_write(const tutti__part *part, tutti__draft *draft, uint64_t step,
                               const tutti__safetensors_pair *metadata, size_t n_metadata,
                               uint64_t *header_p);
/* Rank 0 writes the index, and adds its digest to state.json; headers: by rank. */
tutti_status tutti__part_write_index(const tutti__part *part, tutti__draft *draft, uint64_t step,
                                     const uint64_t *headers, json_t *state);
/* Rank 0: NOT_FOUND, with the rank and what to do, if a rank's file is not in the folder that is being written, or is not what
 * it has written. */
tutti_status tutti__part_check(const tutti__part *part, const tutti__draft *draft,
                               const uint64_t *headers);

#endif
