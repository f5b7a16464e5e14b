/* inproc.c -- ranks that are threads: one control block, and plain pointers.   SPDX-License-Identifier: MIT */
#include "comm/transport/local.h"

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

static void drop_control(tutti_group *group, tutti__control *control)
{
    (void)group;
    if (atomic_fetch_sub(&control->users, 1) == 1)
        munmap(control, control->bytes);
}

static const tutti__memory_ops INPROC_MEMORY = {true, make, take, drop_control};

static const tutti__transport INPROC = {.name = "shared memory",
                                        .run = tutti__local_run,
                                        .announce = tutti__local_announce,
                                        .wake = tutti__local_wake,
                                        .look = tutti__local_look,
                                        .see = tutti__local_see,
                                        .release = tutti__local_release,
                                        .close = tutti__local_close};

tutti_status tutti__inproc_open(tutti_group *group, double deadline)
{
    char key[256];
    tutti__control *control = NULL;
    size_t bytes = sizeof control;

    snprintf(key, sizeof key, "%s/control", group->prefix);
    if (group->rank == 0) {
        size_t chunk = tutti__chunk_bytes(group), whole = tutti__control_bytes(group->size, chunk);
        uint64_t handle;
        int error = make(group, whole, (void **)&control, &handle);

        if (error)
            return tutti__fail_errno(error, "cannot map %zu bytes for %d ranks", whole,
                                     group->size);
        control->bytes = whole;
        control->chunk_bytes = chunk;
        atomic_store(&control->users, (uint32_t)group->size);
        TUTTI_TRY(tutti_store_set(group->store, key, &control, sizeof control));
    } else {
        TUTTI_TRY(tutti_store_get(group->store, key, &control, &bytes, tutti__poll_ms(deadline)));
    }
    return tutti__local_open(group, &INPROC, &INPROC_MEMORY, control);
}
