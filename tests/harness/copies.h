/* copies.h -- counts copies from a device to the host.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_COPIES_H
#define TUTTI_TESTS_COPIES_H

#include "tensor/tensor.h"

static int test_copies;
static tutti__device_ops test_counting;
static const tutti__device_ops *test_counted;

static inline tutti_status test_counted_copy_out(tutti_stream *stream, void *host_dst,
                                                 const void *src, size_t bytes)
{
    test_copies++;
    return test_counted->copy_out(stream, host_dst, src, bytes);
}

/* From now on test_copies grows by one for each copy in cx's stream, until test_count_end. One context at a time. */
static inline void test_count_begin(tutti_ctx *cx)
{
    test_counted = cx->stream->ops;
    test_counting = *test_counted;
    test_counting.copy_out = test_counted_copy_out;
    cx->stream->ops = &test_counting;
    test_copies = 0;
}

static inline void test_count_end(tutti_ctx *cx)
{
    cx->stream->ops = test_counted;
}

#endif
