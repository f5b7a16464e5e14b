/* shm.c -- opening and closing the block; where a rank's contribution is.   SPDX-License-Identifier: MIT */
#include "comm/transport/shared_memory/shm.h"

#include <stdlib.h>
#include <string.h>

bool tutti__shm_declare(tutti__shm *shm, const tutti__operation *op, const void *p, size_t bytes)
{
    tutti__shm_call *ours = tutti__shm_publish(shm, op);
    const tutti__shm_segment *s;
    /* Not within another group: there a rank may learn of a failure, and free its memory, while others still read it. */
    bool anywhere = shm->memory->one_process && !shm->comm->outer;

    if (shm->comm->tuning.stage_all || bytes == 0)
        return false;
    if (anywhere) {
        shm->exposed = p;
        shm->exposed_bytes = bytes;
        ours->segment = TUTTI__SHM_HERE;
        ours->at = (uint64_t)(uintptr_t)p;
        return true;
    }
    s = tutti__shm_segment_of(shm, p, bytes);
    if (!s)
        return false;
    shm->exposed = p;
    shm->exposed_bytes = bytes;
    ours->segment = s->number;
    ours->at = (uint64_t)((const char *)p - s->base) - (size_t)shm->comm->rank * s->stride;
    return true;
}

static size_t pointers_bytes(const tutti__comm *comm)
{
    return 3 * (size_t)comm->size * sizeof(void *);
}

void **tutti__shm_pointers(tutti__shm *shm)
{
    return memset(shm->pointers, 0, pointers_bytes(shm->comm));
}

tutti_status tutti__shm_new(tutti__shm **shm_p, tutti__comm *comm, const tutti__shm_memory *memory,
                            tutti__shm_block *block)
{
    tutti__shm *shm = tutti__alloc(sizeof *shm + pointers_bytes(comm));

    *shm_p = shm;
    if (!shm) {
        memory->drop_block(block);
        return TUTTI_ERR_MEMORY;
    }
    shm->comm = comm;
    shm->block = block;
    shm->nodes = (tutti__shm_node *)(void *)&block->slots[comm->size];
    shm->counts = (uint64_t *)(void *)&shm->nodes[tutti__shm_n_nodes(comm->size)];
    shm->counts_row = tutti__shm_counts_row(comm->size);
    shm->result = (char *)block + tutti__shm_block_bytes(comm->size, 0);
    shm->staging = shm->result + block->chunk_bytes;
    shm->pointers = (void **)(shm + 1);
    shm->memory = memory;
    pthread_mutex_init(&shm->segments_lock, NULL);
    tutti__shm_tree_open(shm);
    tutti__shm_barrier_open(shm);
    return TUTTI_OK;
}

void tutti__shm_close(tutti__shm *shm)
{
    if (!shm)
        return;
    tutti__shm_release_all(shm);
    shm->memory->drop_block(shm->block);
    pthread_mutex_destroy(&shm->segments_lock);
    free(shm);
}
