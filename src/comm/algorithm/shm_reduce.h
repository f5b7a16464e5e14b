/* shm_reduce.h -- shared parts of the reductions in shared memory.   SPDX-License-Identifier: MIT
 *
 *     shm_reduce.c          chooses the algorithm
 *     shm_reduce_direct.c   reads all ranks' memory directly
 *     shm_reduce_staged.c   in chunks through staging buffers */
#ifndef TUTTI_COMM_ALGORITHM_SHM_REDUCE_H
#define TUTTI_COMM_ALGORITHM_SHM_REDUCE_H

#include "comm/core/reduce.h"
#include "comm/transport/shared_memory/shm.h"

/* What each rank stages and reduces if contributions are staged. */
typedef enum tutti__shm_plan {
    /* Stages all but its own share of each chunk, and reduces that share, which the others copy out. */
    TUTTI__REDUCE_SHARES,
    /* reduce_scatter: stages for each other rank what that rank takes, and reduces what it takes itself. */
    TUTTI__REDUCE_PIECES,
    /* Stages all that it gives, and reduces everything if it takes the result. */
    TUTTI__REDUCE_WHOLE,
    /* all_reduce by cross-memory attach: stages for each other rank the share that that rank reduces, reduces its own share
     * in place, and then fetches the others' shares from their dst. */
    TUTTI__REDUCE_FETCH
} tutti__shm_plan;

typedef struct tutti__shm_reduction {
    tutti__shm *shm;
    const tutti__operation *op;
    tutti_dtype dtype;
    tutti_redop redop;
    /* bytes of one; elements that a rank contributes (reduce_scatter: to each) */
    size_t element, count;
    bool scatters;
    char **at; /* each rank's contribution; NULL: staged */
    const void **src;
    void **dst; /* room for a pointer a rank */
    tutti__shm_plan plan;
    size_t chunk, n_chunks; /* staged: elements of a chunk */
    size_t ahead;           /* chunks that are copied in before the first is reduced */
} tutti__shm_reduction;

/* Entered for access; all contributions can be read directly. */
tutti_status tutti__shm_reduce_direct(const tutti__shm_reduction *r);
/* Before the operation is entered: copies the first chunks of this rank's contribution to staging, if peers need them. */
void tutti__shm_reduce_stage(tutti__shm_reduction *r);
/* Entered; some contributions are staged. */
tutti_status tutti__shm_reduce_staged(tutti__shm_reduction *r);

/* Whether this rank takes the result. */
static inline bool tutti__shm_takes(const tutti__shm_reduction *r)
{
    return !tutti__op_traits_of(r->op)->to_root ||
           r->op->signature.root == (uint32_t)r->shm->comm->rank;
}

/* The part of n elements that a rank reduces, cut at pages: hardware prefetchers cross the end of a share but not of a
 * page, and would fetch lines that another rank is just writing. (For the small chunks of tests: at lines.) */
static inline tutti__piece tutti__shm_share(const tutti__shm_reduction *r, size_t n, int rank)
{
    size_t page = r->shm->block->chunk_bytes / 64, grain = (page > 64 ? page : 64) / r->element;

    return tutti__part(n, (size_t)r->shm->comm->size, (size_t)rank, grain);
}

#endif
