/* shared_memory.c -- processes of one host that map the same anonymous files.   SPDX-License-Identifier: MIT
 *
 * A mapping is a memfd: it has no name, so it appears in no folder, needs no room in /dev/shm and is gone with its last
 * user however that one ends. Rank 0 makes it and posts the descriptor to the others. */
#include "comm/transport/shared_memory/shm.h"

#include "comm/control/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int map(int fd, size_t bytes, void **mapping_p)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return errno;
    *mapping_p = p;
    return 0;
}

/* A memfd may be made larger than the machine's memory; who then writes to it is killed. */
static bool fits_memory(size_t bytes)
{
    return bytes / (size_t)sysconf(_SC_PAGESIZE) < (size_t)sysconf(_SC_PHYS_PAGES);
}

/* For rank 0: makes, maps and sends. The mapping begins with `head`, there before anyone sees it. */
static int make_with(tutti_group *group, size_t bytes, const tutti__shm_block *head,
                     void **mapping_p)
{
    int fd, error;

    if (!fits_memory(bytes))
        return ENOMEM;
    fd = memfd_create("tutti", MFD_CLOEXEC);
    if (fd < 0)
        return errno;
    error = ftruncate(fd, (off_t)bytes) != 0 ? errno : map(fd, bytes, mapping_p);
    if (!error && head)
        memcpy(*mapping_p, head, sizeof *head);
    for (int r = 1; r < group->comm.size && !error; r++)
        error = tutti__control_send_fd(group, r, fd);
    if (error && *mapping_p) {
        munmap(*mapping_p, bytes);
        *mapping_p = NULL;
    }
    close(fd);
    return error;
}

static int make(tutti_group *group, size_t bytes, void **mapping_p, uint64_t *handle_p)
{
    (void)handle_p;
    return make_with(group, bytes, NULL, mapping_p);
}

static int take(tutti_group *group, size_t bytes, uint64_t handle, void **mapping_p)
{
    int fd, error = tutti__control_take_fd(group, 0, &fd, tutti__now_ms() + group->comm.timeout_ms);

    (void)handle;
    if (error)
        return error;
    error = map(fd, bytes, mapping_p);
    close(fd);
    return error;
}

static void drop_control(tutti_group *group, tutti__shm_block *control)
{
    (void)group;
    munmap(control, control->bytes);
}

static const tutti__shm_memory_ops SHARED_MEMORY = {false, make, take, drop_control};

static const tutti__transport SHARED = {.name = "shared memory",
                                        .run = tutti__shm_run,
                                        .announce = tutti__shm_announce,
                                        .wake = tutti__shm_wake,
                                        .look = tutti__shm_look,
                                        .see = tutti__shm_see,
                                        .release = tutti__shm_release,
                                        .close = tutti__shm_close};

/* The first page tells the size of the whole; everyone but rank 0 maps twice. */
static int take_control(tutti_group *group, double deadline, tutti__shm_block **control_p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
    void *mapping = NULL;
    int fd, error = tutti__control_take_fd(group, 0, &fd, deadline);

    if (error)
        return error;
    error = map(fd, page, &mapping);
    if (!error) {
        bytes = ((const tutti__shm_block *)mapping)->bytes;
        munmap(mapping, page);
        error = map(fd, bytes, (void **)control_p);
    }
    close(fd);
    return error;
}

tutti_status tutti__shm_open_processes(tutti_group *group, double deadline)
{
    size_t chunk = tutti__shm_chunk_bytes(group),
           bytes = tutti__shm_block_bytes(group->comm.size, chunk);
    const tutti__shm_block head = {.bytes = bytes, .chunk_bytes = chunk};
    tutti__shm_block *control = NULL;
    int error;

    if (group->comm.rank == 0)
        error = make_with(group, bytes, &head, (void **)&control);
    else
        error = take_control(group, deadline, &control);
    if (error) {
        tutti_status status =
            tutti__comm_failed(&group->comm)
                ? tutti__comm_error(&group->comm, NULL)
                : tutti__fail_errno(error, "rank %d cannot %s shared memory (%zu bytes)",
                                    group->comm.rank,
                                    group->comm.rank == 0 ? "make" : "receive rank 0's", bytes);

        tutti__note_cause(group, status, NULL); /* before the others miss this rank */
        return status;
    }
    return tutti__shm_open(group, &SHARED, &SHARED_MEMORY, control);
}
