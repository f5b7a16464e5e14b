/* processes.c -- processes of one host that map the same anonymous files.   SPDX-License-Identifier: MIT
 *
 * Rank 0 makes a mapping; its descriptor reaches the others along a tree of the control channel's connections. */
#include "comm/control/control.h"
#include "comm/core/shared_mapping.h"
#include "comm/core/tree.h"
#include "comm/transport/shared_memory/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const WHAT = "the ranks' shared memory";

/* On rank 0: makes, maps and sends it. The mapping begins with `head`, written before others see it. */
static int make_for(const tutti__comm *comm, struct tutti__control *control, size_t bytes,
                    const tutti__shm_block *head, void **mapping_p)
{
    int fd, error = tutti__shared_mapping_make(bytes, bytes, &fd, mapping_p, NULL);

    if (error)
        return error;
    if (head)
        memcpy(*mapping_p, head, sizeof *head);
    tutti__control_spread_handle(control, comm->outer_ranks, comm->size, fd, 0);
    close(fd);
    return 0;
}

static int make(tutti__shm *shm, size_t bytes, void **mapping_p, uint64_t *handle_p)
{
    (void)handle_p;
    return make_for(shm->comm, shm->control, bytes, NULL, mapping_p);
}

static tutti_status take(tutti__shm *shm, size_t bytes, uint64_t handle, void **mapping_p)
{
    tutti__handed handed;
    int error = tutti__control_take_spread(shm->control, shm->comm->outer_ranks, shm->comm->size,
                                           shm->comm->rank, &handed,
                                           tutti__now_ms() + shm->comm->timeout_ms);

    (void)handle;
    if (error && error == handed.error)
        return tutti__control_fail_handed(shm->control, &handed, WHAT);
    if (!error) {
        error = tutti__shared_mapping_take(handed.fd, bytes, mapping_p);
        close(handed.fd);
    }
    return error ? tutti__fail_errno(error, "cannot map %zu shared bytes", bytes) : TUTTI_OK;
}

static void drop_block(tutti__shm_block *block)
{
    munmap(block, block->bytes);
}

static const tutti__shm_memory OF_PROCESSES = {false, make, take, drop_block};

/* The first page contains the total size; all ranks but 0 map twice. */
static int take_block(tutti__comm *comm, struct tutti__control *control, double deadline,
                      tutti__shm_block **block_p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes;
    void *mapping = NULL;
    tutti__handed handed;
    int error = tutti__control_take_spread(control, comm->outer_ranks, comm->size, comm->rank,
                                           &handed, deadline);

    if (error && error == handed.error)
        (void)tutti__control_fail_without(control, &handed, WHAT);
    if (error)
        return error;
    error = tutti__shared_mapping_take(handed.fd, page, &mapping);
    if (!error) {
        bytes = ((const tutti__shm_block *)mapping)->bytes;
        munmap(mapping, page);
        error = tutti__shared_mapping_take(handed.fd, bytes, (void **)block_p);
    }
    close(handed.fd);
    return error;
}

tutti_status tutti__shm_open_processes(tutti__shm **shm_p, tutti__comm *comm,
                                       struct tutti__control *control, double deadline)
{
    size_t bytes = tutti__shm_block_bytes(comm->size, tutti__shm_chunk_bytes(comm));
    tutti__shm_block head = {0}, *block = NULL;
    int error;

    *shm_p = NULL;
    tutti__shm_block_init(&head, comm);
    if (comm->rank == 0)
        error = make_for(comm, control, bytes, &head, (void **)&block);
    else
        error = take_block(comm, control, deadline, &block);
    if (error == ECONNRESET && comm->rank > 0)
        (void)tutti__comm_fail_lost(comm, tutti__tree_parent(comm->rank));
    if (error)
        return tutti__comm_failed(comm)
                   ? tutti__comm_error(comm, NULL)
                   : tutti__fail_errno(error, "cannot %s shared memory (%zu bytes)",
                                       comm->rank == 0 ? "make" : "receive rank 0's", bytes);
    TUTTI_TRY(tutti__shm_new(shm_p, comm, &OF_PROCESSES, block));
    (*shm_p)->control = control;
    return TUTTI_OK;
}
