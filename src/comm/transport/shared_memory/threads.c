/* threads.c -- ranks that are threads: one block, and ordinary pointers.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/socket.h"
#include "comm/transport/shared_memory/shm.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

static int make(tutti__shm *shm, size_t bytes, void **mapping_p, uint64_t *handle_p)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)shm;
    if (p == MAP_FAILED)
        return errno;
    *mapping_p = p;
    *handle_p = (uint64_t)(uintptr_t)p;
    return 0;
}

static int take(tutti__shm *shm, size_t bytes, uint64_t handle, void **mapping_p)
{
    (void)shm;
    (void)bytes;
    *mapping_p = (void *)(uintptr_t)handle;
    return 0;
}

static void drop_block(tutti__shm_block *block)
{
    if (atomic_fetch_sub(&block->users, 1) == 1)
        munmap(block, block->bytes);
}

static const tutti__shm_memory OF_THREADS = {true, make, take, drop_block};

tutti_status tutti__shm_open_threads(tutti__shm **shm_p, tutti__comm *comm, tutti_store *store,
                                     const char *prefix, double deadline)
{
    char key[256];
    tutti__shm_block *block = NULL;
    size_t bytes = sizeof block;

    *shm_p = NULL;
    snprintf(key, sizeof key, "%s/block", prefix);
    if (comm->rank == 0) {
        size_t chunk = tutti__shm_chunk_bytes(comm),
               whole = tutti__shm_block_bytes(comm->size, chunk);
        uint64_t handle;
        int error = make(NULL, whole, (void **)&block, &handle);

        if (error)
            return tutti__fail_errno(error, "cannot map %zu bytes for %d ranks", whole, comm->size);
        block->bytes = whole;
        block->chunk_bytes = chunk;
        atomic_store(&block->users, (uint32_t)comm->size);
        TUTTI_TRY(tutti_store_set(store, key, &block, sizeof block));
    } else {
        TUTTI_TRY(tutti_store_get(store, key, &block, &bytes, tutti__poll_ms(deadline)));
    }
    return tutti__shm_new(shm_p, comm, &OF_THREADS, block);
}
