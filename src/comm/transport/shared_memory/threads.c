/* threads.c -- ranks that are threads: one block, and ordinary pointers.   SPDX-License-Identifier: MIT */
#include "comm/control/control.h"
#include "comm/core/tree.h"
#include "comm/transport/shared_memory/shm.h"

#include <errno.h>
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

static tutti_status take(tutti__shm *shm, size_t bytes, uint64_t handle, void **mapping_p)
{
    (void)shm;
    (void)bytes;
    *mapping_p = (void *)(uintptr_t)handle;
    return TUTTI_OK;
}

static void drop_block(tutti__shm_block *block)
{
    if (atomic_fetch_sub(&block->users, 1) == 1)
        munmap(block, block->bytes);
}

static const tutti__shm_memory OF_THREADS = {true, make, take, drop_block};

/* On rank 0. 0 or an errno. */
static int make_block(const tutti__comm *comm, struct tutti__control *control,
                      tutti__shm_block **block_p)
{
    size_t bytes = tutti__shm_block_bytes(comm->size, tutti__shm_chunk_bytes(comm));
    uint64_t handle = 0;
    int error = make(NULL, bytes, (void **)block_p, &handle);

    if (!*block_p)
        return error;
    tutti__shm_block_init(*block_p, comm);
    atomic_store(&(*block_p)->users, (uint32_t)comm->size);
    tutti__control_spread_handle(control, comm->outer_ranks, comm->size, -1, handle);
    return 0;
}

tutti_status tutti__shm_open_threads(tutti__shm **shm_p, tutti__comm *comm,
                                     struct tutti__control *control, double deadline)
{
    tutti__shm_block *block = NULL;
    tutti__handed handed = {0};
    int error;

    *shm_p = NULL;
    if (comm->rank == 0)
        error = make_block(comm, control, &block);
    else
        error = tutti__control_take_spread(control, comm->outer_ranks, comm->size, comm->rank,
                                           &handed, deadline);
    if (error == ECONNRESET && comm->rank > 0)
        (void)tutti__comm_fail_lost(comm, tutti__tree_parent(comm->rank));
    if (error)
        return tutti__comm_failed(comm)
                   ? tutti__comm_error(comm, NULL)
                   : tutti__fail_errno(error, "rank %d cannot %s", comm->rank,
                                       comm->rank == 0 ? "map memory for all ranks"
                                                       : "receive rank 0's memory");
    return tutti__shm_new(shm_p, comm, &OF_THREADS,
                          block ? block : (tutti__shm_block *)(uintptr_t)handed.number);
}
