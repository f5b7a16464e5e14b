/* memory.h -- reads a tensor's elements on any device, for tests.   SPDX-License-Identifier: MIT
 *
 * The copies stay until the process ends. Any thread. A failure ends the process. */
#ifndef TUTTI_TESTS_MEMORY_H
#define TUTTI_TESTS_MEMORY_H

#include "tensor/tensor.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static inline void test_must(tutti_status status)
{
    if (status == TUTTI_OK)
        return;
    fprintf(stderr, "%s\n", tutti_last_error());
    abort();
}

static inline void *test_keep(size_t bytes)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static tutti__arena kept; /* reachable at exit, so that LeakSanitizer does not report it */
    void *p;

    pthread_mutex_lock(&mutex);
    p = tutti__arena_alloc(&kept, bytes);
    pthread_mutex_unlock(&mutex);
    test_must(p ? TUTTI_OK : TUTTI_ERR_MEMORY);
    return p;
}

/* Bytes of the context's device, as they are now. */
static inline void *test_look(const tutti_ctx *cx, const void *p, size_t bytes)
{
    void *copy = test_keep(bytes);

    test_must(tutti__read(cx->stream, copy, p, bytes));
    return copy;
}

static inline void test_put(const tutti_ctx *cx, void *p, const void *src, size_t bytes)
{
    test_must(tutti__copy_in(cx->stream, p, src, bytes));
    test_must(tutti_stream_wait(cx->stream));
}

/* Bytes of the range's pages that have memory now. */
static inline size_t test_resident(const void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)p / page * page, end = (uintptr_t)p + bytes;
    const size_t pages = (end - begin + page - 1) / page;
    unsigned char *in = test_keep(pages);
    size_t n = 0;

    if (mincore((void *)begin, pages * page, in) != 0)
        abort();
    for (size_t i = 0; i < pages; i++)
        n += in[i] & 1;
    return n * page;
}

/* A parameter's or buffer's elements. */
static inline float *test_values(const tutti_tensor *t)
{
    return test_look(t->cx, t->data, tutti__tensor_bytes(t));
}

/* NULL: none has arrived. */
static inline float *test_grad(tutti_tensor *t)
{
    const void *p = tutti_tensor_grad(t);

    return p ? test_look(t->cx, p, tutti__tensor_bytes(t)) : NULL;
}

/* Writes the gradient of a laid-out parameter, whether it has one or not. */
static inline void test_grad_put(tutti_tensor *t, const float *values)
{
    test_put(t->cx, t->parameter->grad, values, tutti__tensor_bytes(t));
}

#endif
