/* access.c -- after a call has returned, with any status, no peer accesses its buffer any more.
 * SPDX-License-Identifier: MIT
 *
 * A successful call ends with a barrier after the last access. A failing one must not wait for a barrier; instead a rank
 * marks in its slot that it accesses peers' buffers, and a rank that leaves with an error marks that in the block. Each
 * writes its own flag first and then reads the other's, so at least one of the two sees the other: either the peer sees
 * that the call is abandoned and does not access the buffer, or the leaving rank sees the access. Then,
 *
 *     among threads     it waits: a thread cannot be stopped alone, so that this takes no longer than a copy
 *     among processes   it does not wait, since the peer may have been stopped or killed at that point: it replaces its buffer
 *                       by private memory with the same contents, and late writes go to the old pages
 *
 * A process reads private memory of another only by cross-memory attach (cma.c), which can harm only the reader: it passes
 * a barrier afterwards, which fails if a call has been abandoned. */
#include "comm/transport/shared_memory/shm.h"
#include "comm/transport/take_back.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

enum { HEAR_MS = 5000 }; /* the control thread may be starved of CPU */

bool tutti__shm_await_cause(tutti__shm *shm)
{
    for (int ms = 0; ms < HEAR_MS && !tutti__comm_failed(shm->comm); ms++)
        usleep(1000);
    return tutti__comm_failed(shm->comm);
}

tutti_status tutti__shm_check_abandoned(tutti__shm *shm)
{
    uint32_t abandoned = atomic_load(&shm->block->abandoned);

    if (!abandoned)
        return TUTTI_OK;
    (void)tutti__shm_await_cause(shm);
    return tutti__comm_fail_lost(shm->comm, (int)abandoned - 1); /* or the earlier cause */
}

tutti_status tutti__shm_access_begin(tutti__shm *shm)
{
    tutti_status status;

    atomic_store(&shm->block->slots[shm->comm->rank].accessing, 1);
    status = tutti__shm_check_abandoned(shm);
    if (status != TUTTI_OK)
        tutti__shm_access_end(shm);
    return status;
}

void tutti__shm_access_end(tutti__shm *shm)
{
    atomic_store_explicit(&shm->block->slots[shm->comm->rank].accessing, 0, memory_order_release);
}

void tutti__shm_leave(tutti__shm *shm)
{
    tutti__shm_slot *slots = shm->block->slots;
    uint32_t nobody = 0;

    tutti__shm_access_end(shm);
    if (!tutti__comm_failed(shm->comm))
        return;
    atomic_compare_exchange_strong(&shm->block->abandoned, &nobody, (uint32_t)shm->comm->rank + 1);
    atomic_thread_fence(memory_order_seq_cst); /* before the program writes to its buffer */
    for (int r = 0; r < shm->comm->size; r++) {
        if (r == shm->comm->rank)
            continue;
        while (shm->memory->one_process && atomic_load(&slots[r].accessing))
            sched_yield();
        if (shm->exposed && atomic_load(&slots[r].accessing)) {
            tutti__take_back(shm->comm, shm->exposed, shm->exposed_bytes);
            shm->exposed = NULL;
        }
    }
    shm->exposed = NULL;
}
