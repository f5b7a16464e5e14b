/* communicator.c -- making and ending communicators, and errors.   SPDX-License-Identifier: MIT */
#include "standin_nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

ncclResult_t standin_misuse(const char *what)
{
    atomic_fetch_add(&standin_counts.misuses, 1);
    fprintf(stderr, "standin nccl: misuse: %s\n", what);
    return ncclInvalidUsage;
}

/* The real one switches to its device and back: a thread without a device would get a context on the first GPU, another rank's. */
void standin_check_device(const struct ncclComm *comm, const char *what)
{
    int device;

    if (cudaGetDevice(&device) == cudaSuccess && device != comm->device)
        (void)standin_misuse(what);
}

bool standin_fault(const char *kind, int rank, uint64_t call)
{
    const char *text = getenv("STANDIN_NCCL_FAULT");
    size_t n = strlen(kind);
    unsigned long long at = 0;
    int of = -1;

    if (!text || strncmp(text, kind, n) != 0 || text[n] != ':')
        return false;
    return sscanf(text + n + 1, "%d:%llu", &of, &at) >= 1 && of == rank &&
           (call == 0 || call == at);
}

void standin_nap(void)
{
    nanosleep(&(struct timespec){0, 50000}, NULL);
}

void standin_release_comm(struct ncclComm *comm)
{
    if (atomic_fetch_sub(&comm->references, 1) > 1)
        return;
    if (comm->at)
        munmap(comm->at, sizeof *comm->at);
    free(comm);
}

ncclResult_t ncclGetVersion(int *version)
{
    const char *text = getenv("STANDIN_NCCL_VERSION");

    *version = text && *text ? atoi(text) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};

    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm ? comm->last : "";
}

static void describe(const meeting *at, int fd, ncclUniqueId *id)
{
    const place here = {at->nonce, getpid(), fd};

    memset(id, 0, sizeof *id);
    memcpy(id, &here, sizeof here);
}

/* The descriptor stays open until the process ends, because a peer may be late. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int fd = memfd_create("standin-nccl", MFD_CLOEXEC);
    struct timespec now;
    meeting *at;

    if (fd < 0 || ftruncate(fd, sizeof *at) != 0)
        return ncclSystemError;
    at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return ncclSystemError;
    clock_gettime(CLOCK_MONOTONIC, &now);
    at->nonce = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
    describe(at, fd, id);
    munmap(at, sizeof *at);
    return ncclSuccess;
}

static int host(void)
{
    const char *text = getenv("STANDIN_NCCL_HOST");

    return text ? atoi(text) : 0;
}

static meeting *go_to(const ncclUniqueId *id)
{
    char path[64];
    meeting *at;
    place there;
    int fd;

    memcpy(&there, id, sizeof there);
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)there.pid, there.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return NULL;
    if (at->nonce == there.nonce)
        return at;
    munmap(at, sizeof *at);
    return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_p, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);

    *comm_p = NULL;
    if (!comm || size > MOST_RANKS || config->magic != 0xcafebeef) {
        free(comm);
        return ncclInvalidArgument;
    }
    comm->rank = rank;
    comm->size = size;
    comm->fails = standin_fault("init", rank, 0);
    atomic_init(&comm->references, 1);
    comm->at = go_to(&id);
    if (cudaGetDevice(&comm->device) != cudaSuccess || !comm->at || config->blocking != 0) {
        standin_release_comm(comm);
        return standin_misuse(config->blocking != 0 ? "a communicator that blocks"
                                                    : "an id that leads nowhere");
    }
    atomic_fetch_add(&standin_counts.comms, 1);
    if (!comm->fails && !standin_fault("init_hang", rank, 0)) {
        atomic_store(&comm->at->devices[rank], 1 + comm->device + 100 * host());
        atomic_fetch_add(&comm->at->here, 1);
    }
    *comm_p = comm;
    return ncclInProgress;
}

static ncclResult_t look_for_all(struct ncclComm *comm)
{
    if (comm->fails) {
        snprintf(comm->last, sizeof comm->last, "the stand-in was asked to fail");
        return ncclSystemError;
    }
    if (atomic_load(&comm->at->here) < comm->size)
        return ncclInProgress;
    for (int r = 0; r < comm->size; r++)
        for (int q = 0; q < r; q++)
            if (atomic_load(&comm->at->devices[r]) == atomic_load(&comm->at->devices[q])) {
                snprintf(comm->last, sizeof comm->last,
                         "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", q,
                         r, comm->device);
                return ncclInvalidUsage;
            }
    comm->stage = READY;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result)
{
    *result = atomic_load(&comm->error);
    if (*result != ncclSuccess || comm->polls++ < LATE_POLLS) {
        if (*result == ncclSuccess &&
            (comm->stage == MAKING || comm->stage == FINALIZING || comm->pending))
            *result = ncclInProgress;
        return ncclSuccess;
    }
    if (comm->stage == MAKING) {
        *result = look_for_all(comm);
    } else if (comm->stage == FINALIZING) {
        *result = atomic_load(&comm->at->finalized) < comm->size ? ncclInProgress : ncclSuccess;
        if (*result == ncclSuccess)
            comm->stage = FINALIZED;
    } else if (comm->pending) {
        *result = standin_launch(comm);
    } else if (comm->broken) {
        snprintf(comm->last, sizeof comm->last, "the stand-in was asked to break the connection");
        *result = ncclRemoteError;
    }
    if (*result != ncclSuccess && *result != ncclInProgress)
        atomic_store(&comm->error, *result);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    standin_check_device(comm, "ncclCommFinalize by a thread on another device");
    if (comm->stage != READY || comm->pending)
        return standin_misuse("ncclCommFinalize of a communicator that is not ready");
    comm->stage = FINALIZING;
    comm->polls = 0;
    atomic_fetch_add(&comm->at->finalized, 1);
    return ncclInProgress;
}

static void forget(struct ncclComm *comm)
{
    atomic_fetch_sub(&standin_counts.comms, 1);
    standin_release_comm(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    standin_check_device(comm, "ncclCommDestroy by a thread on another device");
    if (comm->stage != FINALIZED)
        return standin_misuse("ncclCommDestroy of a communicator that was not finalized");
    forget(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    standin_check_device(comm, "ncclCommAbort by a thread on another device");
    atomic_store(&comm->aborted, true);
    for (int i = 0; i < 60 && standin_fault("abort_hang", comm->rank, 0); i++)
        sleep(1);
    while (atomic_load(&comm->running) > 0)
        standin_nap();
    if (comm->pending)
        standin_drop(comm->pending);
    forget(comm);
    return ncclSuccess;
}
