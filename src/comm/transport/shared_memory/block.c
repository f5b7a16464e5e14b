/* block.c -- the block of memory that all ranks see: their calls, and the first failure.   SPDX-License-Identifier: MIT */
#include "comm/transport/shared_memory/shm.h"

/* A chunk of staging, of which each rank has six: smaller if there are many, so that all together have no more than six times
 * TOGETHER. */
enum { CHUNK_BYTES = 256 << 10, TOGETHER = 64 << 20, PAGE = 4096 };

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t tutti__shm_chunk_bytes(const tutti__comm *comm)
{
    size_t share = TOGETHER / (size_t)comm->size / PAGE * PAGE,
           bytes = tutti__comm_chunk_bytes(comm, share < CHUNK_BYTES ? share : CHUNK_BYTES);
    size_t least = 64 * (size_t)comm->size; /* one element for each rank, of any type */

    return bytes > least ? bytes : least;
}

size_t tutti__shm_block_bytes(int size, size_t chunk_bytes)
{
    size_t n = (size_t)size, counts = 2 * n * tutti__shm_counts_row(size) * sizeof(uint64_t);

    return round_up(sizeof(tutti__shm_block) + n * sizeof(tutti__shm_slot) +
                        tutti__shm_n_nodes(size) * sizeof(tutti__shm_node) + counts,
                    4096) +
           (1 + n * TUTTI__SHM_STAGES) * chunk_bytes;
}

void tutti__shm_block_init(tutti__shm_block *block, const tutti__comm *comm)
{
    block->chunk_bytes = tutti__shm_chunk_bytes(comm);
    block->bytes = tutti__shm_block_bytes(comm->size, block->chunk_bytes);
    block->fan = (uint32_t)tutti__shm_fan(comm);
}

void tutti__shm_announce(tutti__shm *shm, tutti__cause *cause)
{
    tutti__shm_slot *slots = shm->block->slots;
    uint32_t first = 0;

    /* Two threads of a rank may reach this; the first to fill the slot counts. */
    pthread_mutex_lock(&shm->comm->failure_lock);
    if (slots[shm->comm->rank].cause.status == TUTTI_OK)
        slots[shm->comm->rank].cause = *cause;
    atomic_compare_exchange_strong(&shm->block->first_failed, &first,
                                   (uint32_t)shm->comm->rank + 1);
    pthread_mutex_unlock(&shm->comm->failure_lock);
    *cause = slots[first ? first - 1 : (uint32_t)shm->comm->rank].cause;
    tutti__shm_wake_all(shm);
}

void tutti__shm_look(tutti__shm *shm)
{
    uint32_t first = atomic_load(&shm->block->first_failed);

    if (first != 0 && first <= (uint32_t)shm->comm->size)
        tutti__comm_adopt(shm->comm, &shm->block->slots[first - 1].cause);
}

void tutti__shm_see(tutti__shm *shm)
{
    for (int r = 0; r < shm->comm->size; r++)
        atomic_store(&shm->comm->peers[r].seen, atomic_load(&shm->block->slots[r].called));
}

tutti__shm_call *tutti__shm_publish(tutti__shm *shm, const tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    tutti__shm_call *ours;

    shm->calls++;
    shm->swaps = !traits->from_root && !traits->to_root;
    atomic_store_explicit(&shm->block->slots[shm->comm->rank].called, op->signature.sequence + 1,
                          memory_order_relaxed);
    ours = tutti__shm_call_of(shm, shm->comm->rank);
    ours->signature = op->signature;
    ours->segment = TUTTI__SHM_STAGED;
    ours->error = 0;
    shm->exposed = NULL;
    return ours;
}
