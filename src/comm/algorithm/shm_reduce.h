/* shm_reduce.h -- what the algorithms that reduce in shared memory have in common.   SPDX-License-Identifier: MIT
 *
 *     shm_reduce.c          which one it is
 *     shm_reduce_direct.c   over everybody's own memory
 *     shm_reduce_staged.c   in chunks through staging buffers */
#ifndef TUTTI_COMM_ALGORITHM_SHM_REDUCE_H
#define TUTTI_COMM_ALGORITHM_SHM_REDUCE_H

#include "comm/core/reduce.h"
#include "comm/transport/shared_memory/shm.h"

typedef struct tutti__shm_reduction {
    tutti__shm *shm;
    const tutti__op *op;
    tutti_dtype dtype;
    tutti_redop redop;
    size_t element, count; /* bytes of one; elements a rank contributes (reduce_scatter: to each) */
    bool scatters;
    char **at; /* of each rank's contribution; NULL: staged */
    const void **src;
    void **dst; /* room for as many as there are ranks */
    /* Staged: elements of a chunk; and whether each rank stages all that it gives, and who takes the result reduces all. */
    size_t chunk, n_chunks,
        ahead; /* ahead: chunks that are copied in before the first is reduced */
    bool whole;
    /* all_reduce: each stages what others reduce, reduces its share of the whole in place, and fetches their shares from there. */
    bool fetched;
} tutti__shm_reduction;

/* Entered for access; all contributions can be read where they lie. */
tutti_status tutti__shm_reduce_direct(const tutti__shm_reduction *r);
/* Before the operation is entered: puts the first chunk of this rank's contribution where peers find it, if they need it. */
void tutti__shm_reduce_stage(tutti__shm_reduction *r);
/* Entered; some contributions are staged. */
tutti_status tutti__shm_reduce_staged(tutti__shm_reduction *r);

/* This rank takes the result. */
static inline bool tutti__shm_takes(const tutti__shm_reduction *r)
{
    return !tutti__op_traits_of(r->op)->to_root ||
           r->op->signature.root == (uint32_t)r->shm->comm->rank;
}

/* The part of n elements that a rank reduces, cut at pages: prefetchers do not stop at the end of a share, but they do at
 * the end of a page, and would pull at lines that a neighbour is just writing. (Chunks that tests make small: at lines.) */
static inline tutti__piece tutti__shm_share(const tutti__shm_reduction *r, size_t n, int rank)
{
    size_t page = r->shm->block->chunk_bytes / 64, grain = (page > 64 ? page : 64) / r->element;

    return tutti__part(n, (size_t)r->shm->comm->size, (size_t)rank, grain);
}

#endif
