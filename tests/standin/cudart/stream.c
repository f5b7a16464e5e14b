/* stream.c -- streams: queues, each with a thread.   SPDX-License-Identifier: MIT */
#include "standin/cudart/cudart.h"

enum { HOLD_NS = 2000000 };

/* ---- Streams: all with the lock held, except while work runs -------------------------------------------------- */

void standin_release(mark *m)
{
    if (m && --m->holders == 0)
        free(m);
}

void standin_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void standin_wake_all(void)
{
    for (struct CUstream_st *stream = s.streams; stream; stream = stream->next)
        pthread_cond_signal(&stream->changed);
    pthread_cond_broadcast(&s.done);
}

/* Wakes streams that wait for it. */
static void wake_waiting(const mark *m)
{
    for (struct CUstream_st *stream = s.streams; stream; stream = stream->next)
        if (stream->first && stream->first->wait && stream->first->mark == m)
            pthread_cond_signal(&stream->changed);
}

static void demand(struct CUstream_st *stream, uint64_t position)
{
    if (stream->demanded >= position)
        return;
    stream->demanded = position;
    pthread_cond_signal(&stream->changed);
}

void standin_wait_for(struct CUstream_st *stream, uint64_t position)
{
    demand(stream, position);
    while (!s.ending && !s.forked && stream->done < position)
        pthread_cond_wait(&s.done, &s.lock);
}

void standin_wait_for_device(int index)
{
    for (struct CUstream_st *stream = s.streams; stream; stream = stream->next)
        if (stream->device == index)
            standin_wait_for(stream, stream->given);
}

/* xorshift64* */
static uint64_t draw(struct CUstream_st *stream)
{
    stream->random ^= stream->random >> 12;
    stream->random ^= stream->random << 25;
    stream->random ^= stream->random >> 27;
    return stream->random * 0x2545f4914f6cdd1dull;
}

/* Releases the next few items, half of the time only after some time without a waiting thread. */
static void hold(struct CUstream_st *stream)
{
    uint64_t chance = draw(stream) >> 32, next = stream->done + 1;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += HOLD_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (chance & 1)
        while (stream->demanded < next && !s.ending &&
               pthread_cond_timedwait(&stream->changed, &s.lock, &until) == 0)
            ;
    stream->released = next + (chance >> 1) % 16;
}

static void do_work(struct CUstream_st *stream, item *x)
{
    device *d = &s.device[stream->device];

    if (!stream->open)
        standin_open_memory();
    stream->open = true;
    pthread_mutex_unlock(&s.lock);
    x->run(x->arg);
    pthread_mutex_lock(&s.lock);
    if (++d->work == s.fault_at && stream->device == s.fault_device)
        d->error = cudaErrorIllegalAddress;
}

/* Runs the first item, if it is released or demanded. */
static bool do_first(struct CUstream_st *stream)
{
    item *x = stream->first;

    if (x->wait && !x->mark->passed) {
        if (stream->demanded > stream->done)
            demand(x->mark->stream, x->mark->position);
        return false;
    }
    if (x->run)
        do_work(stream, x);
    else if (!x->wait) {
        x->mark->passed = true;
        clock_gettime(CLOCK_MONOTONIC, &x->mark->at);
        wake_waiting(x->mark);
    }
    stream->first = x->next;
    if (!stream->first)
        stream->last = &stream->first;
    stream->done++;
    standin_release(x->mark);
    free(x);
    if (stream->done <= stream->demanded)
        pthread_cond_broadcast(&s.done);
    return true;
}

/* Before the stream waits: too slow to be done after each piece of work. */
static void close_stream(struct CUstream_st *stream)
{
    if (stream->open)
        standin_close_memory();
    stream->open = false;
}

static void *stream_main(void *arg)
{
    struct CUstream_st *stream = arg;

    pthread_mutex_lock(&s.lock);
    while (!s.ending && (stream->first || !stream->closing)) {
        uint64_t next = stream->done + 1;

        if (stream->first && stream->demanded < next && stream->released < next) {
            close_stream(stream);
            hold(stream);
        } else if (!stream->first || !do_first(stream)) {
            close_stream(stream);
            pthread_cond_wait(&stream->changed, &s.lock);
        }
    }
    close_stream(stream);
    pthread_mutex_unlock(&s.lock);
    return NULL;
}

static struct CUstream_st *make_stream(int index)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->device = index;
    stream->last = &stream->first;
    standin_cond_init(&stream->changed);
    stream->random = (s.seed + ++s.n_streams) * 0x9e3779b97f4a7c15ull | 1;
    if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
        free(stream);
        return NULL;
    }
    stream->next = s.streams;
    s.streams = stream;
    return stream;
}

/* NULL is the default stream of the current device. */
struct CUstream_st *standin_stream_of(cudaStream_t stream)
{
    if (stream)
        return stream;
    if (!s.device[standin_current].default_stream)
        s.device[standin_current].default_stream = make_stream(standin_current);
    return s.device[standin_current].default_stream;
}

cudaError_t standin_give(struct CUstream_st *stream, item content)
{
    item *x = malloc(sizeof *x);

    if (!stream || !x) {
        free(x);
        return cudaErrorMemoryAllocation;
    }
    *x = content;
    *stream->last = x;
    stream->last = &x->next;
    stream->given++;
    pthread_cond_signal(&stream->changed);
    return cudaSuccess;
}

int tutti_standin_enqueue(void *native, void (*run)(void *arg), void *arg)
{
    struct CUstream_st *stream;
    cudaError_t error;

    standin_enter();
    stream = standin_stream_of(native);
    error = standin_broken(stream ? stream->device : standin_current);
    if (error == cudaSuccess)
        error = standin_give(stream, (item){.run = run, .arg = arg});
    return (int)standin_leave(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream_p, unsigned flags)
{
    cudaError_t error;

    (void)flags;
    standin_enter();
    error = standin_broken(standin_current);
    *stream_p = error == cudaSuccess ? make_stream(standin_current) : NULL;
    return standin_leave(error == cudaSuccess && !*stream_p ? cudaErrorMemoryAllocation : error);
}

/* Its queued work is done anyway. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    pthread_t thread = stream->thread;

    standin_enter();
    if (s.ending) /* the process is ending, and the thread with it */
        return standin_leave(cudaSuccess);
    stream->closing = true;
    demand(stream, stream->given);
    pthread_cond_signal(&stream->changed);
    standin_leave(cudaSuccess);
    if (!s.forked)
        pthread_join(thread, NULL);
    standin_enter();
    for (struct CUstream_st **link = &s.streams; *link; link = &(*link)->next)
        if (*link == stream) {
            *link = stream->next;
            break;
        }
    standin_leave(cudaSuccess);
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t native)
{
    struct CUstream_st *stream;

    standin_enter();
    standin_count_wait("cudaStreamSynchronize");
    stream = standin_stream_of(native);
    standin_wait_for(stream, stream->given);
    return standin_leave(standin_broken(stream->device));
}

cudaError_t cudaStreamQuery(cudaStream_t native)
{
    struct CUstream_st *stream;
    cudaError_t error;

    standin_enter();
    stream = standin_stream_of(native);
    error = standin_broken(stream->device);
    return standin_leave(error == cudaSuccess && stream->done < stream->given ? cudaErrorNotReady
                                                                              : error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    standin_enter();
    standin_count_wait("cudaDeviceSynchronize");
    standin_wait_for_device(standin_current);
    return standin_leave(standin_broken(standin_current));
}
