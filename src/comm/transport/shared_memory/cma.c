/* cma.c -- reading memory of a peer's process by cross-memory attach (process_vm_readv), if the kernel allows it.
 * SPDX-License-Identifier: MIT
 *
 * Large pieces outside group memory are copied once this way, instead of in and out of staging. Whether ranks may (the
 * same user, one PID namespace, no ptrace restriction, no seccomp filter) is tested first: each rank publishes the address
 * of a random number, and reads every other rank's. They use it only if all can. */
#include "comm/transport/shared_memory/cma.h"

#include "comm/bootstrap/process.h"
#include "comm/transport/shared_memory/copy_method.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

void tutti__cma_open(tutti__shm *shm)
{
    tutti__shm_slot *slot = &shm->block->slots[shm->comm->rank];
    const uint64_t unique[] = {tutti__now_ns(), (uint64_t)getpid(), (uint64_t)(uintptr_t)shm};

    if (shm->memory->one_process || shm->comm->tuning.stage_all ||
        shm->comm->size > TUTTI__SHM_MANY)
        shm->cma = TUTTI__CMA_NEVER;
    shm->token = tutti__hash64(unique, sizeof unique);
    slot->pid = (int64_t)getpid();
    slot->token = shm->token;
    slot->token_at = (uint64_t)(uintptr_t)&shm->token;
}

static bool reads_all(tutti__shm *shm)
{
    const tutti__shm_slot *slots = shm->block->slots;
    uint64_t token = 0;

    for (int r = 0; r < shm->comm->size; r++)
        if (r != shm->comm->rank &&
            (tutti__process_read(slots[r].pid, &token, slots[r].token_at, sizeof token) != 0 ||
             token != slots[r].token))
            return false;
    return true;
}

/* Called by all ranks at the same operations: after the first, all have published; in the second each tests; from the
 * third on they know the results of all. */
void tutti__cma_agree(tutti__shm *shm)
{
    tutti__shm_slot *slots = shm->block->slots;
    bool all = true;

    switch (shm->cma) {
    case TUTTI__CMA_NEW:
        shm->cma = TUTTI__CMA_PUBLISHED;
        break;
    case TUTTI__CMA_PUBLISHED:
        atomic_store(&slots[shm->comm->rank].reads_all, reads_all(shm));
        shm->cma = TUTTI__CMA_TRIED;
        break;
    case TUTTI__CMA_TRIED:
        for (int r = 0; r < shm->comm->size; r++)
            all = all && atomic_load(&slots[r].reads_all);
        shm->cma = all ? TUTTI__CMA_ALWAYS : TUTTI__CMA_NEVER;
        tutti_log(TUTTI_LOG_DEBUG, "comm", "ranks %s read each other's memory through the kernel",
                  all ? "can" : "cannot");
        break;
    default:
        break;
    }
}

void tutti__cma_offer(tutti__shm *shm, const void *p, size_t bytes)
{
    tutti__shm_call *ours = tutti__shm_call_of(shm, shm->comm->rank);

    if (shm->copy_method != TUTTI__COPY_BY_KERNEL || bytes < tutti__copy_method_least_read(shm))
        return;
    ours->segment = TUTTI__CMA;
    ours->at = (uint64_t)(uintptr_t)p;
}

tutti_status tutti__cma_read(tutti__shm *shm, int rank, void *to, const void *at, size_t bytes)
{
    int error =
        tutti__process_read(shm->block->slots[rank].pid, to, (uint64_t)(uintptr_t)at, bytes);

    if (error == 0)
        return TUTTI_OK;
    /* Its process has ended, or it has left the call and freed its memory. */
    if (tutti__shm_await_cause(shm) || error == ESRCH)
        return tutti__comm_fail_lost(shm->comm, rank); /* or the earlier cause */
    return tutti__comm_fail(shm->comm, TUTTI_ERR_INTERNAL, rank,
                            "rank %d cannot read %zu bytes of rank %d's memory: %s",
                            shm->comm->rank, bytes, rank, strerror(error));
}
