/* inproc.c -- ranks that are threads: one control block, and plain pointers.   SPDX-License-Identifier: MIT */
#include "comm/transport/shared_memory/shm.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

static int make(tutti_group *group, size_t bytes, void **mapping_p, uint64_t *handle_p)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)group;
    if (p == MAP_FAILED)
        return errno;
    *mapping_p = p;
    *handle_p = (uint64_t)(uintptr_t)p;
    return 0;
}

static int take(tutti_group *group, size_t bytes, uint64_t handle, void **mapping_p)
{
    (void)group;
    (void)bytes;
    *mapping_p = (void *)(uintptr_t)handle;
    return 0;
}

static void drop_control(tutti_group *group, tutti__shm_block *control)
{
    (void)group;
    if (atomic_fetch_sub(&control->users, 1) == 1)
        munmap(control, control->bytes);
}

static const tutti__shm_memory_ops INPROC_MEMORY = {true, make, take, drop_control};

static const tutti__transport INPROC = {.name = "shared memory",
                                        .run = tutti__shm_run,
                                        .announce = tutti__shm_announce,
                                        .wake = tutti__shm_wake,
                                        .look = tutti__shm_look,
                                        .see = tutti__shm_see,
                                        .release = tutti__shm_release,
                                        .close = tutti__shm_close};

tutti_status tutti__shm_open_threads(tutti_group *group, double deadline)
{
    char key[256];
    tutti__shm_block *control = NULL;
    size_t bytes = sizeof control;

    snprintf(key, sizeof key, "%s/control", group->prefix);
    if (group->comm.rank == 0) {
        size_t chunk = tutti__shm_chunk_bytes(group),
               whole = tutti__shm_block_bytes(group->comm.size, chunk);
        uint64_t handle;
        int error = make(group, whole, (void **)&control, &handle);

        if (error)
            return tutti__fail_errno(error, "cannot map %zu bytes for %d ranks", whole,
                                     group->comm.size);
        control->bytes = whole;
        control->chunk_bytes = chunk;
        atomic_store(&control->users, (uint32_t)group->comm.size);
        TUTTI_TRY(tutti_store_set(group->store, key, &control, sizeof control));
    } else {
        TUTTI_TRY(tutti_store_get(group->store, key, &control, &bytes, tutti__poll_ms(deadline)));
    }
    return tutti__shm_open(group, &INPROC, &INPROC_MEMORY, control);
}
