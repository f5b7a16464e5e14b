/* device_gpu.h -- shared by the tests of CUDA devices over the stand-in of its run-time.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DEVICE_GPU_H
#define TUTTI_TESTS_DEVICE_GPU_H

#include "device/cuda/cuda.h"
#include "harness/standin.h"

#include <setjmp.h>
#include <cmocka.h>

enum { MB = 1 << 20 };

static const tutti_device gpu = {TUTTI_CUDA, 0};
static const tutti__device_ops *ops;

static inline tutti_stream *begin(void)
{
    tutti_device device;
    tutti_stream *stream;

    CHECK_OK(tutti_device_parse(&device, "cuda", 0));
    CHECK(device.kind == TUTTI_CUDA && device.index == 0);
    CHECK_OK(tutti__device_ops_of(TUTTI_CUDA, &ops));
    CHECK_OK(tutti_stream_new(&stream, gpu));
    return stream;
}

static inline tutti__cuda_usage memory_usage(void)
{
    tutti__cuda_usage memory, pinned;

    tutti__cuda_usage_of(gpu, &memory, &pinned);
    return memory;
}

/* A gate in the stream. */
static inline void close_gate(gate *g, tutti_stream *stream)
{
    g->open = false;
    standin_enqueue(tutti__cuda_native(stream), gate_run, g);
}

/* test_NAME: the case in a process of its own, with these NAME=VALUE in its environment. */
#define CASE(name, ...)                                                                            \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        static const char *const environment[] = {__VA_ARGS__ NULL};                               \
                                                                                                   \
        (void)state;                                                                               \
        assert_true(in_process(name, environment));                                                \
    }

#endif
