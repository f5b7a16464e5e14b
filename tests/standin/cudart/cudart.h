/* cudart.h -- shared by the files of the CUDA run-time's stand-in.   SPDX-License-Identifier: MIT
 *
 * Every stream is a thread with a queue. Queued work is delayed: it runs at once, some time later, or only when a thread waits
 * for it, as a generator seeded by STANDIN_CUDA_SEED decides for each stream. Waiting for a stream advances that stream, and
 * those whose events it waits for, but no other. So a missing wait or event gives a wrong result.
 *
 * The memory of all devices is one region, which is readable only while work runs. New memory is filled with NaNs, and followed
 * by a guard that must not be overwritten. Copies from and to pageable host memory behave as in CUDA: the source may be reused
 * on return, and the destination is valid on return.
 *
 *     device.c   devices, errors, start and end
 *     memory.c   of devices and pinned
 *     pages.c    addresses, and memory that is mapped there
 *     stream.c   queues, and which streams may advance
 *     event.c    events and copies */
#ifndef TUTTI_TESTS_STANDIN_CUDART_H
#define TUTTI_TESTS_STANDIN_CUDART_H

#include "standin/standin.h"

#include <cuda_runtime_api.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_DEVICES = 8, MOST_NAMES = 16 };

/* A position in a stream, passed or not; reference-counted. */
typedef struct mark {
    int holders;
    bool passed;
    struct CUstream_st *stream;
    uint64_t position;
    struct timespec at;
} mark;

/* Work (run), a mark to pass (run NULL, wait false), or one to wait for. */
typedef struct item {
    struct item *next;
    void (*run)(void *arg);
    void *arg;
    mark *mark;
    bool wait;
} item;

struct CUstream_st {
    struct CUstream_st *next;
    int device;
    pthread_t thread;
    pthread_cond_t changed; /* there is something for its thread */
    item *first, **last;
    uint64_t given, done; /* items */
    uint64_t demanded;    /* up to where a thread waits for it */
    uint64_t released;    /* up to where it may run without that */
    uint64_t random;
    bool closing;
    bool open; /* its memory is open */
};

struct CUevent_st {
    int device;
    mark *mark; /* of its last record; NULL: none yet */
};

/* Memory of a device, in the order of addresses, or of the host. */
typedef struct piece {
    struct piece *next;
    unsigned char *p;
    size_t bytes, room; /* requested; allocated */
    int device;         /* -1: free */
} piece;

typedef struct device {
    size_t used;
    uint64_t work;
    cudaError_t error; /* sticky error */
    struct CUstream_st *default_stream;
} device;

#pragma GCC visibility push(hidden)

extern struct standin {
    pthread_mutex_t lock;
    pthread_cond_t done; /* work is done, for waiting host threads */
    pthread_once_t once;
    int devices, old, driver, fault_device;
    uint64_t seed, fault_at;
    size_t memory;
    bool report, ending, forked;
    device device[MOST_DEVICES];
    struct CUstream_st *streams;
    uint64_t n_streams;
    unsigned char *region;
    size_t top;
    unsigned open; /* running pieces of work */
    piece *pieces, *pinned;
    struct {
        const char *function;
        uint64_t n;
    } waits[MOST_NAMES];
} s;

extern _Thread_local int standin_current; /* device */

/* Takes the lock, and initialises the first time; the functions below require the lock. */
void standin_enter(void);
/* Releases it; the error becomes the thread's last. */
cudaError_t standin_leave(cudaError_t error);
/* Before a call on a device: its sticky error. */
cudaError_t standin_broken(int index);
void standin_count_wait(const char *function);

/* ---- memory.c ---- */

void standin_reserve(void);
/* Called around work. */
void standin_open_memory(void);
void standin_close_memory(void);
/* The piece of `list` that contains p; whether it contains this many bytes from p on. */
piece *standin_holder_of(piece *list, const void *p);
bool standin_holds(piece *list, const void *p, size_t bytes);

/* pages.c: of mapped memory; whether all of it is there. */
void standin_protect_pages(int protection);
bool standin_holds_pages(const void *p, size_t bytes);

/* ---- stream.c ---- */

/* NULL is the default stream of the current device. */
struct CUstream_st *standin_stream_of(cudaStream_t stream);
cudaError_t standin_give(struct CUstream_st *stream, item content);
void standin_wait_for(struct CUstream_st *stream, uint64_t position);
void standin_wait_for_device(int index);
void standin_release(mark *m);
/* At the end. */
void standin_wake_all(void);
void standin_cond_init(pthread_cond_t *cond);

#pragma GCC visibility pop

#endif
