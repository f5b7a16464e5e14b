/* stream.h -- memory of the device that a test runs on, for tests without tensors.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_STREAM_H
#define TUTTI_TESTS_STREAM_H

#include "device/device.h"
#include "harness/device.h"

#include <pthread.h>
#include <string.h>

/* This thread's stream, until the process ends; NULL if the test's device is the host. A failure ends the process. */
static inline tutti_stream *test_stream(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct kept {
        struct kept *next;
        tutti_stream *stream;
    } * streams; /* reachable at exit, so that LeakSanitizer does not report them */
    static _Thread_local tutti_stream *mine;
    const tutti_device device = test_device();
    struct kept *kept;

    if (mine || device.kind == TUTTI_CPU)
        return mine;
    kept = malloc(sizeof *kept);
    if (!kept || tutti_stream_new(&mine, device) != TUTTI_OK) {
        fprintf(stderr, "%s\n", tutti_last_error());
        abort();
    }
    pthread_mutex_lock(&mutex);
    *kept = (struct kept){streams, mine};
    streams = kept;
    pthread_mutex_unlock(&mutex);
    return mine;
}

/* From the device in stream's order, and to it. */
static inline void test_get_in(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    if (tutti__read(tutti__stream_or_cpu(stream), dst, src, bytes) != TUTTI_OK)
        abort();
}

static inline void test_set_in(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    if (tutti__copy_in(tutti__stream_or_cpu(stream), dst, src, bytes) != TUTTI_OK)
        abort();
}

static inline void test_get(void *dst, const void *src, size_t bytes)
{
    test_get_in(test_stream(), dst, src, bytes);
}

static inline void test_set(void *dst, const void *src, size_t bytes)
{
    test_set_in(test_stream(), dst, src, bytes);
}

#endif
