/* divided_load.h -- reads whole tensors from a checkpoint's files, of which each rank takes its pieces.   SPDX-License-Identifier: MIT
 *
 * Each tensor is read once, by one of the ranks that see the files, which compares its digest and sends each rank what it holds. */
#ifndef TUTTI_CHECKPOINT_DIVIDED_LOAD_H
#define TUTTI_CHECKPOINT_DIVIDED_LOAD_H

#include "checkpoint/weights_parts.h"
#include "ddp/pieces.h"

typedef struct tutti__divided_source {
    tutti_group *group;
    tutti__tensor_files file; /* open, on the ranks that have it */
    bool *may;                /* by rank: whether it has */
    char *room;               /* of the largest tensor so far */
    size_t room_bytes;
    /* In place of `file`: whether a whole tensor is read, the same on all ranks, and (on those that may) its elements; NULL: file. */
    bool (*has)(const void *arg, const char *name);
    tutti_status (*read)(const void *arg, const char *name, void *room);
    const void *arg;
} tutti__divided_source;

/* Opens FOLDER/STEM.safetensors, or its parts, on rank 0 and on those that have the same folder there: digest is that of its state.json.
 * folder, digest: the same on all ranks. Collective; close it after a failure too. */
tutti_status tutti__divided_open(tutti__divided_source *source, tutti_group *group,
                                 const char *folder, const char *stem, const char *digest);
void tutti__divided_close(tutti__divided_source *source);
/* Reads those tensors of which ranks hold pieces, and whose names begin with `prefix` (NULL: all), or with anything else (others), into the
 * pieces. may_lack: a tensor that is not there is zeros. Collective; all ranks return the same. */
tutti_status tutti__divided_read(tutti__divided_source *source, const tutti__pieces *mine,
                                 tutti_stream *stream, const char *prefix, bool others,
                                 bool may_lack);
/* Makes *room_p, of *bytes_p, at least as large; what was in it is lost. */
tutti_status tutti__room_grow(char **room_p, size_t *bytes_p, size_t bytes);
/* This rank's pieces of the module, or of its averages, whose values are about to be replaced. */
tutti_status tutti__divided_pieces(tutti__pieces *mine, const tutti_module *m,
                                   const tutti_ema *average);
/* Loads the model, or its averages, of the folder, whatever the layout. Collective. */
tutti_status tutti__divided_load(tutti_module *m, const tutti_ema *average, tutti_group *group,
                                 const char *folder, const char *stem, const char *digest);

#endif
