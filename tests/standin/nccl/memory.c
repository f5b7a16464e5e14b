/* memory.c -- memory and its registration; what is left behind.   SPDX-License-Identifier: MIT */
#include "standin_nccl.h"

ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
    if (cudaMalloc(p, bytes) != cudaSuccess)
        return ncclUnhandledCudaError;
    atomic_fetch_add(&standin_counts.memory, 1);
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
    atomic_fetch_sub(&standin_counts.memory, 1);
    return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t bytes, void **handle)
{
    (void)bytes;
    standin_check_device(comm, "ncclCommRegister by a thread on another device");
    if (comm->stage != READY || comm->pending)
        return standin_misuse("ncclCommRegister on a communicator that is not ready");
    atomic_fetch_add(&standin_counts.registered, 1);
    *handle = p;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    standin_check_device(comm, "ncclCommDeregister by a thread on another device");
    atomic_fetch_sub(&standin_counts.registered, 1);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *p, size_t bytes, ncclWindow_t *window,
                                    int flags)
{
    (void)bytes;
    (void)flags;
    standin_check_device(comm, "ncclCommWindowRegister by a thread on another device");
    if (comm->stage != READY || comm->pending)
        return standin_misuse("ncclCommWindowRegister on a communicator that is not ready");
    atomic_fetch_add(&standin_counts.windows, 1);
    *window = p;
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    (void)window;
    standin_check_device(comm, "ncclCommWindowDeregister by a thread on another device");
    atomic_fetch_sub(&standin_counts.windows, 1);
    return ncclSuccess;
}

/* ---- Leaks ----------------------------------------------------------------------------------- */

struct standin_counts standin_counts;

int tutti_standin_nccl_leaks(char *text, size_t capacity)
{
    int n = atomic_load(&standin_counts.comms) + atomic_load(&standin_counts.memory) +
            atomic_load(&standin_counts.registered) + atomic_load(&standin_counts.windows) +
            atomic_load(&standin_counts.misuses);

    snprintf(text, capacity,
             "%d communicators, %d pieces of memory, %d registrations, %d windows; %d misuses",
             atomic_load(&standin_counts.comms), atomic_load(&standin_counts.memory),
             atomic_load(&standin_counts.registered), atomic_load(&standin_counts.windows),
             atomic_load(&standin_counts.misuses));
    return n;
}

__attribute__((destructor)) static void tell_leaks(void)
{
    char text[160];

    if (tutti_standin_nccl_leaks(text, sizeof text) > 0)
        fprintf(stderr, "standin nccl: left behind: %s\n", text);
}
