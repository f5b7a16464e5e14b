/* event.c -- events and copies.   SPDX-License-Identifier: MIT */
#include "standin/cudart/cudart.h"

/* ---- Events ---------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_p, unsigned flags)
{
    cudaError_t error;

    (void)flags;
    standin_enter();
    error = standin_broken(standin_current);
    *event_p = error == cudaSuccess ? calloc(1, sizeof **event_p) : NULL;
    if (*event_p)
        (*event_p)->device = standin_current;
    return standin_leave(error == cudaSuccess && !*event_p ? cudaErrorMemoryAllocation : error);
}

cudaError_t cudaEventCreate(cudaEvent_t *event_p)
{
    return cudaEventCreateWithFlags(event_p, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    standin_enter();
    standin_release(event->mark);
    free(event);
    return standin_leave(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t native)
{
    struct CUstream_st *stream;
    mark *m = calloc(1, sizeof *m);
    cudaError_t error;

    standin_enter();
    stream = standin_stream_of(native);
    error = standin_broken(event->device);
    if (error == cudaSuccess && stream->device != event->device)
        error = cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && m)
        error = standin_give(stream, (item){.mark = m});
    if (error != cudaSuccess || !m) {
        free(m);
        return standin_leave(m ? error : cudaErrorMemoryAllocation);
    }
    *m = (mark){.holders = 2, .stream = stream, .position = stream->given};
    standin_release(event->mark);
    event->mark = m;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t native, cudaEvent_t event, unsigned flags)
{
    struct CUstream_st *stream;
    cudaError_t error;

    (void)flags;
    standin_enter();
    stream = standin_stream_of(native);
    error = standin_broken(stream->device);
    if (error == cudaSuccess && event->mark && !event->mark->passed) {
        error = standin_give(stream, (item){.mark = event->mark, .wait = true});
        event->mark->holders += error == cudaSuccess;
    }
    return standin_leave(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error;

    standin_enter();
    error = standin_broken(event->device);
    if (error == cudaSuccess && event->mark && !event->mark->passed)
        error = cudaErrorNotReady;
    return standin_leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    standin_enter();
    standin_count_wait("cudaEventSynchronize");
    if (event->mark && !event->mark->passed)
        standin_wait_for(event->mark->stream, event->mark->position);
    return standin_leave(standin_broken(event->device));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    cudaError_t error;

    standin_enter();
    error = standin_broken(from->device);
    if (!from->mark || !to->mark)
        error = cudaErrorInvalidResourceHandle;
    else if (error == cudaSuccess && !(from->mark->passed && to->mark->passed))
        error = cudaErrorNotReady;
    else
        *ms = (float)((double)(to->mark->at.tv_sec - from->mark->at.tv_sec) * 1e3 +
                      (double)(to->mark->at.tv_nsec - from->mark->at.tv_nsec) / 1e6);
    return standin_leave(error);
}

/* ---- Copies ---------------------------------------------------------------------------------------------- */

typedef struct copy {
    void *dst;
    const void *src;
    size_t bytes;
    int value;          /* of memset */
    unsigned char by[]; /* copy of pageable memory */
} copy;

static void run_copy(void *arg)
{
    copy *c = arg;

    if (c->src)
        memmove(c->dst, c->src, c->bytes);
    else
        memset(c->dst, c->value, c->bytes);
    free(c);
}

static bool on_device(const void *p, size_t bytes)
{
    return standin_holds(s.pieces, p, bytes) || standin_holds_pages(p, bytes);
}

/* Whether the pointers match `kind`. */
static bool fits(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    bool to = on_device(dst, bytes), from = on_device(src, bytes);

    return kind == cudaMemcpyHostToDevice     ? to && !on_device(src, 1)
           : kind == cudaMemcpyDeviceToHost   ? from && !on_device(dst, 1)
           : kind == cudaMemcpyDeviceToDevice ? to && from
                                              : false;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t native)
{
    bool staged, waited;
    struct CUstream_st *stream;
    cudaError_t error;
    copy *c;

    standin_enter();
    stream = standin_stream_of(native);
    error = standin_broken(stream->device);
    if (error == cudaSuccess && !fits(dst, src, bytes, kind))
        error = cudaErrorInvalidValue;
    staged = kind == cudaMemcpyHostToDevice && !standin_holds(s.pinned, src, bytes);
    waited = kind == cudaMemcpyDeviceToHost && !standin_holds(s.pinned, dst, bytes);
    c = error == cudaSuccess ? malloc(sizeof *c + (staged ? bytes : 0)) : NULL;
    if (!c)
        return standin_leave(error == cudaSuccess ? cudaErrorMemoryAllocation : error);
    *c = (copy){.dst = dst, .src = staged ? c->by : src, .bytes = bytes};
    if (staged)
        memcpy(c->by, src, bytes);
    if (staged || waited)
        standin_count_wait("pageable copy");
    error = standin_give(stream, (item){.run = run_copy, .arg = c});
    if (error != cudaSuccess)
        free(c);
    else if (waited) {
        standin_wait_for(stream, stream->given);
        error = standin_broken(stream->device);
    }
    return standin_leave(error);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t native)
{
    struct CUstream_st *stream;
    cudaError_t error;
    copy *c = malloc(sizeof *c);

    standin_enter();
    stream = standin_stream_of(native);
    error = standin_broken(stream->device);
    if (error == cudaSuccess && !on_device(p, bytes))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && c) {
        *c = (copy){.dst = p, .bytes = bytes, .value = value};
        error = standin_give(stream, (item){.run = run_copy, .arg = c});
    }
    if (error != cudaSuccess)
        free(c);
    return standin_leave(c ? error : cudaErrorMemoryAllocation);
}
