/* nccl.c -- a stand-in of libnccl for machines without GPUs, behind the real nccl.h.   SPDX-License-Identifier: MIT
 *
 * Ranks are processes or threads of one machine. They meet in a memfd of the process that made the unique id, which identifies
 * both, so that a killed process leaves nothing with a name. Every ordered pair of ranks has a mailbox there, and collectives
 * are messages: each rank receives what it needs and reduces it itself, from the last rank to the first, so that its bits
 * differ from those of Tutti's own sums.
 *
 * It is as late as NCCL may be. Communicators are made, and calls are launched and finalized, some polls of
 * ncclCommGetAsyncError after the call; launched work runs in its stream, on the stand-in of the CUDA run-time; a rank that
 * waits for another waits until its communicator is aborted. What NCCL forbids (a call while one is pending, an event before
 * the launch) is printed on stderr and counted.
 *
 *     STANDIN_NCCL_VERSION  result of ncclGetVersion; default: the header's
 *     STANDIN_NCCL_HOST     simulates another host with its own devices; default 0
 *     STANDIN_NCCL_FAULT    async:RANK:CALL  that rank's collective of this number never ends, and an error is reported
 *                           hang:RANK:CALL   it never ends
 *                           launch:RANK:CALL the call fails at once
 *                           init:RANK        making that rank's communicator fails
 *                           init_hang:RANK   it never completes
 *                           abort_hang:RANK  its ncclCommAbort takes a minute */
#include <nccl.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/half.h"
#include "standin/standin.h"

enum {
    MOST_RANKS = 8,
    MOST_CALLS = 64, /* in a group */
    MAIL_BYTES = 16384,
    LATE_POLLS = 3 /* until a request is complete */
};

typedef struct mailbox {
    _Atomic uint64_t put, taken; /* messages */
    size_t bytes;
    char data[MAIL_BYTES];
} mailbox;

typedef struct meeting {
    uint64_t nonce;
    _Atomic int size, here, finalized;
    _Atomic int devices[MOST_RANKS]; /* 1 + that of each rank */
    mailbox mail[MOST_RANKS][MOST_RANKS];
} meeting;

/* The contents of a unique id. */
typedef struct place {
    uint64_t nonce;
    int64_t pid;
    int32_t fd;
} place;
_Static_assert(sizeof(place) <= sizeof(ncclUniqueId), "a place fits into an id");

typedef enum stage { MAKING, READY, FINALIZING, FINALIZED } stage;

typedef struct message {
    int peer;
    char *p;
    size_t bytes, done;
} message;

/* One or several calls, launched as one. */
typedef struct work {
    struct ncclComm *comm;
    int n_out, n_in;
    message out[MOST_CALLS], in[MOST_CALLS];
    bool reduces, hangs;
    ncclDataType_t type;
    ncclRedOp_t redop;
    size_t count;
    void *dst;   /* NULL: the result is for others */
    char *parts; /* of a reduction: each rank's data, back to back */
    cudaStream_t stream;
} work;

struct ncclComm {
    meeting *at;
    int rank, size, device, polls;
    bool fails, broken;
    stage stage;
    _Atomic ncclResult_t error;
    work *pending;
    uint64_t calls;
    _Atomic bool aborted;
    _Atomic int running, references;
    char last[160];
};

static struct counts {
    _Atomic int comms, memory, registered, windows, misuses;
} counts;

/* ---- Leaks ----------------------------------------------------------------------------------- */

int tutti_standin_nccl_leaks(char *text, size_t capacity)
{
    int n = atomic_load(&counts.comms) + atomic_load(&counts.memory) +
            atomic_load(&counts.registered) + atomic_load(&counts.windows) +
            atomic_load(&counts.misuses);

    snprintf(text, capacity,
             "%d communicators, %d pieces of memory, %d registrations, %d windows; %d misuses",
             atomic_load(&counts.comms), atomic_load(&counts.memory),
             atomic_load(&counts.registered), atomic_load(&counts.windows),
             atomic_load(&counts.misuses));
    return n;
}

__attribute__((destructor)) static void tell_leaks(void)
{
    char text[160];

    if (tutti_standin_nccl_leaks(text, sizeof text) > 0)
        fprintf(stderr, "standin nccl: left behind: %s\n", text);
}

static ncclResult_t misuse(const char *what)
{
    atomic_fetch_add(&counts.misuses, 1);
    fprintf(stderr, "standin nccl: misuse: %s\n", what);
    return ncclInvalidUsage;
}

/* The real one switches to its device and back: a thread without a device would get a context on the first GPU, another rank's. */
static void check_device(const struct ncclComm *comm, const char *what)
{
    int device;

    if (cudaGetDevice(&device) == cudaSuccess && device != comm->device)
        (void)misuse(what);
}

/* Whether the environment requests this fault on this rank, and at this call (0: at any). */
static bool fault(const char *kind, int rank, uint64_t call)
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

static void nap(void)
{
    nanosleep(&(struct timespec){0, 50000}, NULL);
}

static size_t size_of(ncclDataType_t type)
{
    static const size_t sizes[] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,   [ncclInt32] = 4,   [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,  [ncclFloat16] = 2, [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2};

    return sizes[type];
}

/* ---- Arithmetic ------------------------------------------------------------------------------------------------ */

#define SAME(x) (x)
#define COMBINE(T, WIDE, LOAD, STORE)                                                              \
    for (size_t i = 0; i < n; i++) {                                                               \
        WIDE a = (WIDE)LOAD(((T *)sum)[i]), b = (WIDE)LOAD(((const T *)part)[i]);                  \
                                                                                                   \
        switch (op) {                                                                              \
        case ncclProd:                                                                             \
            a = (WIDE)(a * b);                                                                     \
            break;                                                                                 \
        case ncclMax:                                                                              \
            a = a > b ? a : b;                                                                     \
            break;                                                                                 \
        case ncclMin:                                                                              \
            a = a < b ? a : b;                                                                     \
            break;                                                                                 \
        default:                                                                                   \
            a = (WIDE)(a + b);                                                                     \
            break;                                                                                 \
        }                                                                                          \
        ((T *)sum)[i] = (T)STORE(a);                                                               \
    }                                                                                              \
    break

static void combine(void *sum, const void *part, size_t n, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclInt8:
        COMBINE(int8_t, int32_t, SAME, SAME);
    case ncclUint8:
        COMBINE(uint8_t, uint32_t, SAME, SAME);
    case ncclInt32:
        COMBINE(int32_t, int64_t, SAME, SAME);
    case ncclUint32:
        COMBINE(uint32_t, uint64_t, SAME, SAME);
    case ncclInt64:
        COMBINE(int64_t, __int128, SAME, SAME);
    case ncclUint64:
        COMBINE(uint64_t, uint64_t, SAME, SAME);
    case ncclFloat16:
        COMBINE(uint16_t, float, tutti__f32_of_f16, tutti__f16_of_f32);
    case ncclFloat32:
        COMBINE(float, float, SAME, SAME);
    case ncclFloat64:
        COMBINE(double, double, SAME, SAME);
    case ncclBfloat16:
        COMBINE(uint16_t, float, tutti__f32_of_bf16, tutti__bf16_of_f32);
    default:
        break;
    }
}

/* As NCCL averages floats: each rank's are multiplied by 1 / size in their own type, then added. */
static void divide(void *part, size_t n, ncclDataType_t type, int size)
{
    const float by = 1.0F / (float)size;

    for (size_t i = 0; i < n; i++)
        switch (type) {
        case ncclFloat16:
            ((uint16_t *)part)[i] = tutti__f16_of_f32(tutti__f32_of_f16(((uint16_t *)part)[i]) *
                                                      tutti__f32_of_f16(tutti__f16_of_f32(by)));
            break;
        case ncclFloat32:
            ((float *)part)[i] *= by;
            break;
        case ncclFloat64:
            ((double *)part)[i] *= 1.0 / size;
            break;
        case ncclBfloat16:
            ((uint16_t *)part)[i] = tutti__bf16_of_f32(tutti__f32_of_bf16(((uint16_t *)part)[i]) *
                                                       tutti__f32_of_bf16(tutti__bf16_of_f32(by)));
            break;
        default:
            break;
        }
}

static void reduce_parts(work *w)
{
    size_t bytes = w->count * size_of(w->type);

    for (int r = w->comm->size - 1; r >= 0; r--) {
        char *part = w->parts + (size_t)r * bytes;

        if (w->redop == ncclAvg)
            divide(part, w->count, w->type, w->comm->size);
        if (r == w->comm->size - 1)
            memcpy(w->dst, part, bytes);
        else
            combine(w->dst, part, w->count, w->type, w->redop);
    }
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

/* Sends a part of a message, if there is room. */
static bool put_some(work *w, message *m)
{
    mailbox *box = &w->comm->at->mail[w->comm->rank][m->peer];
    size_t n = m->bytes - m->done;
    uint64_t put = atomic_load(&box->put);

    if (n == 0 || put != atomic_load(&box->taken))
        return false;
    n = n < MAIL_BYTES ? n : MAIL_BYTES;
    memcpy(box->data, m->p + m->done, n);
    box->bytes = n;
    m->done += n;
    atomic_store(&box->put, put + 1);
    return true;
}

static bool take_some(work *w, message *m)
{
    mailbox *box = &w->comm->at->mail[m->peer][w->comm->rank];
    uint64_t taken = atomic_load(&box->taken);
    size_t n = m->bytes - m->done;

    if (n == 0 || atomic_load(&box->put) == taken)
        return false;
    n = box->bytes < n ? box->bytes : n;
    memcpy(m->p + m->done, box->data, n);
    m->done += n;
    atomic_store(&box->taken, taken + 1);
    return true;
}

/* Only the first incomplete message of a peer may advance. True if all are done. */
static bool progress(work *w, message *messages, int n, bool (*some)(work *, message *),
                     bool *moved)
{
    bool busy[MOST_RANKS] = {false}, done = true;

    for (int i = 0; i < n; i++) {
        message *m = &messages[i];

        if (!busy[m->peer])
            *moved = some(w, m) || *moved;
        busy[m->peer] = busy[m->peer] || m->done < m->bytes;
        done = done && m->done == m->bytes;
    }
    return done;
}

static void release(struct ncclComm *comm)
{
    if (atomic_fetch_sub(&comm->references, 1) > 1)
        return;
    if (comm->at)
        munmap(comm->at, sizeof *comm->at);
    free(comm);
}

static void drop(work *w)
{
    free(w->parts);
    free(w);
}

static void run_work(void *arg)
{
    work *w = arg;
    struct ncclComm *comm = w->comm;
    bool done = false;

    atomic_fetch_add(&comm->running, 1);
    while (!done && !atomic_load(&comm->aborted)) {
        bool moved = false;

        if (!w->hangs) {
            done = progress(w, w->out, w->n_out, put_some, &moved);
            done = progress(w, w->in, w->n_in, take_some, &moved) && done;
        }
        if (!moved && !done)
            nap();
    }
    if (done && w->reduces && w->dst)
        reduce_parts(w);
    atomic_fetch_sub(&comm->running, 1);
    release(comm);
    drop(w);
}

static ncclResult_t launch(struct ncclComm *comm)
{
    work *w = comm->pending;

    comm->pending = NULL;
    atomic_fetch_add(&comm->references, 1);
    if (tutti_standin_enqueue(w->stream, run_work, w) == 0)
        return ncclSuccess;
    atomic_fetch_sub(&comm->references, 1);
    drop(w);
    return ncclUnhandledCudaError;
}

/* ---- Calls --------------------------------------------------------------------------------------------------- */

/* Between ncclGroupStart and ncclGroupEnd: of one communicator. */
static _Thread_local struct {
    int depth;
    work *work;
} group;

static ncclResult_t work_new(work **work_p, ncclComm_t comm, cudaStream_t stream)
{
    if (!comm || comm->stage != READY || comm->pending)
        return misuse(!comm           ? "a call without a communicator"
                      : comm->pending ? "a call while one is pending"
                                      : "a call on a communicator that is not ready");
    if (group.work) {
        *work_p = group.work;
        return comm == group.work->comm && stream == group.work->stream
                   ? ncclSuccess
                   : misuse("a group of several communicators or streams");
    }
    *work_p = calloc(1, sizeof **work_p);
    if (!*work_p)
        return ncclSystemError;
    (*work_p)->comm = comm;
    (*work_p)->stream = stream;
    if (group.depth > 0)
        group.work = *work_p;
    return ncclSuccess;
}

static ncclResult_t submit(work *w)
{
    struct ncclComm *comm = w->comm;
    uint64_t call = ++comm->calls;

    if (fault("launch", comm->rank, call)) {
        snprintf(comm->last, sizeof comm->last, "the stand-in was asked to fail call %llu",
                 (unsigned long long)call);
        drop(w);
        return ncclSystemError;
    }
    w->hangs = fault("async", comm->rank, call) || fault("hang", comm->rank, call);
    comm->broken = fault("async", comm->rank, call);
    comm->pending = w;
    comm->polls = 0;
    return ncclInProgress;
}

static ncclResult_t end_call(work *w)
{
    return group.depth > 0 ? ncclSuccess : submit(w);
}

static void add(message *messages, int *n, int peer, const void *p, size_t bytes)
{
    if (bytes > 0)
        messages[(*n)++] = (message){peer, (char *)(uintptr_t)p, bytes, 0};
}

/* `takers`: -1: all; each gets data `step` bytes after the previous one. */
static ncclResult_t reduce(const void *src, void *dst, size_t count, size_t step,
                           ncclDataType_t type, ncclRedOp_t redop, int taker, ncclComm_t comm,
                           cudaStream_t stream)
{
    size_t bytes = count * size_of(type);
    work *w;
    ncclResult_t result = work_new(&w, comm, stream);

    if (result != ncclSuccess)
        return result;
    w->reduces = true;
    w->type = type;
    w->redop = redop;
    w->count = count;
    for (int r = 0; r < comm->size; r++)
        if (taker < 0 || r == taker)
            add(w->out, &w->n_out, r, (const char *)src + (size_t)r * step, bytes);
    if (taker < 0 || taker == comm->rank) {
        w->dst = dst;
        w->parts = malloc((size_t)comm->size * bytes + 1);
        for (int r = 0; r < comm->size && w->parts; r++)
            add(w->in, &w->n_in, r, w->parts + (size_t)r * bytes, bytes);
    }
    return end_call(w);
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return reduce(src, dst, count, 0, type, op, -1, comm, stream);
}

ncclResult_t ncclReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return reduce(src, dst, count, 0, type, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return reduce(src, dst, count, count * size_of(type), type, op, -1, comm, stream);
}

ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * size_of(type);
    work *w;
    ncclResult_t result = work_new(&w, comm, stream);

    if (result != ncclSuccess)
        return result;
    for (int r = 0; r < comm->size && comm->rank == root; r++)
        if (r != root || src != dst)
            add(w->out, &w->n_out, r, src, bytes);
    if (comm->rank != root || src != dst)
        add(w->in, &w->n_in, root, dst, bytes);
    return end_call(w);
}

ncclResult_t ncclAllGather(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * size_of(type);
    work *w;
    ncclResult_t result = work_new(&w, comm, stream);

    if (result != ncclSuccess)
        return result;
    for (int r = 0; r < comm->size; r++) {
        char *in = (char *)dst + (size_t)r * bytes;

        if (r == comm->rank && in == src)
            continue;
        add(w->out, &w->n_out, r, src, bytes);
        add(w->in, &w->n_in, r, in, bytes);
    }
    return end_call(w);
}

ncclResult_t ncclSend(const void *p, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    work *w;
    ncclResult_t result = work_new(&w, comm, stream);

    if (result != ncclSuccess)
        return result;
    add(w->out, &w->n_out, peer, p, count * size_of(type));
    return end_call(w);
}

ncclResult_t ncclRecv(void *p, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    work *w;
    ncclResult_t result = work_new(&w, comm, stream);

    if (result != ncclSuccess)
        return result;
    add(w->in, &w->n_in, peer, p, count * size_of(type));
    return end_call(w);
}

ncclResult_t ncclGroupStart(void); /* the header's is no prototype in C */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    work *w = group.work;

    if (group.depth == 0)
        return misuse("ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0 || !w)
        return ncclSuccess;
    group.work = NULL;
    return submit(w);
}

/* ---- Communicators -------------------------------------------------------------------------------------------- */

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
    comm->fails = fault("init", rank, 0);
    atomic_init(&comm->references, 1);
    comm->at = go_to(&id);
    if (cudaGetDevice(&comm->device) != cudaSuccess || !comm->at || config->blocking != 0) {
        release(comm);
        return misuse(config->blocking != 0 ? "a communicator that blocks"
                                            : "an id that leads nowhere");
    }
    atomic_fetch_add(&counts.comms, 1);
    if (!comm->fails && !fault("init_hang", rank, 0)) {
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
        *result = launch(comm);
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
    check_device(comm, "ncclCommFinalize by a thread on another device");
    if (comm->stage != READY || comm->pending)
        return misuse("ncclCommFinalize of a communicator that is not ready");
    comm->stage = FINALIZING;
    comm->polls = 0;
    atomic_fetch_add(&comm->at->finalized, 1);
    return ncclInProgress;
}

static void forget(struct ncclComm *comm)
{
    atomic_fetch_sub(&counts.comms, 1);
    release(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    check_device(comm, "ncclCommDestroy by a thread on another device");
    if (comm->stage != FINALIZED)
        return misuse("ncclCommDestroy of a communicator that was not finalized");
    forget(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    check_device(comm, "ncclCommAbort by a thread on another device");
    atomic_store(&comm->aborted, true);
    for (int i = 0; i < 60 && fault("abort_hang", comm->rank, 0); i++)
        sleep(1);
    while (atomic_load(&comm->running) > 0)
        nap();
    if (comm->pending)
        drop(comm->pending);
    forget(comm);
    return ncclSuccess;
}

/* ---- Memory --------------------------------------------------------------------------------------------------- */

ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
    if (cudaMalloc(p, bytes) != cudaSuccess)
        return ncclUnhandledCudaError;
    atomic_fetch_add(&counts.memory, 1);
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
    atomic_fetch_sub(&counts.memory, 1);
    return cudaFree(p) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *p, size_t bytes, void **handle)
{
    (void)bytes;
    check_device(comm, "ncclCommRegister by a thread on another device");
    if (comm->stage != READY || comm->pending)
        return misuse("ncclCommRegister on a communicator that is not ready");
    atomic_fetch_add(&counts.registered, 1);
    *handle = p;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    (void)handle;
    check_device(comm, "ncclCommDeregister by a thread on another device");
    atomic_fetch_sub(&counts.registered, 1);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *p, size_t bytes, ncclWindow_t *window,
                                    int flags)
{
    (void)bytes;
    (void)flags;
    check_device(comm, "ncclCommWindowRegister by a thread on another device");
    if (comm->stage != READY || comm->pending)
        return misuse("ncclCommWindowRegister on a communicator that is not ready");
    atomic_fetch_add(&counts.windows, 1);
    *window = p;
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    (void)window;
    check_device(comm, "ncclCommWindowDeregister by a thread on another device");
    atomic_fetch_sub(&counts.windows, 1);
    return ncclSuccess;
}
