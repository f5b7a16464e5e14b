/* call.c -- collectives and messages become work.   SPDX-License-Identifier: MIT */
#include "standin_nccl.h"

/* Between ncclGroupStart and ncclGroupEnd: of one communicator. */
static _Thread_local struct {
    int depth;
    work *work;
} group;

static ncclResult_t work_new(work **work_p, ncclComm_t comm, cudaStream_t stream)
{
    *work_p = NULL;
    if (!comm || comm->stage != READY || comm->pending)
        return standin_misuse(!comm           ? "a call without a communicator"
                              : comm->pending ? "a call while one is pending"
                                              : "a call on a communicator that is not ready");
    if (group.work) {
        *work_p = group.work;
        return comm == group.work->comm && stream == group.work->stream
                   ? ncclSuccess
                   : standin_misuse("a group of several communicators or streams");
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

    if (standin_fault("launch", comm->rank, call)) {
        snprintf(comm->last, sizeof comm->last, "the stand-in was asked to fail call %llu",
                 (unsigned long long)call);
        standin_drop(w);
        return ncclSystemError;
    }
    w->hangs = standin_fault("async", comm->rank, call) || standin_fault("hang", comm->rank, call);
    comm->broken = standin_fault("async", comm->rank, call);
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
    size_t bytes = count * standin_size_of(type);
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
    return reduce(src, dst, count, count * standin_size_of(type), type, op, -1, comm, stream);
}

ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = count * standin_size_of(type);
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
    size_t bytes = count * standin_size_of(type);
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
    add(w->out, &w->n_out, peer, p, count * standin_size_of(type));
    return end_call(w);
}

ncclResult_t ncclRecv(void *p, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    work *w;
    ncclResult_t result = work_new(&w, comm, stream);

    if (result != ncclSuccess)
        return result;
    add(w->in, &w->n_in, peer, p, count * standin_size_of(type));
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
        return standin_misuse("ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0 || !w)
        return ncclSuccess;
    group.work = NULL;
    return submit(w);
}
