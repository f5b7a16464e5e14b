/* device_stream.h -- a stream of the device that a test runs on, from set_up to tear_down.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_DEVICE_STREAM_H
#define TUTTI_TESTS_DEVICE_STREAM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "harness/device.h"

static tutti_device device;
static tutti_stream *stream;
static const tutti__device_ops *ops;

static void ok(tutti_status status)
{
    if (status != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
}

static int set_up(void **state)
{
    (void)state;
    device = test_device();
    ok(tutti_stream_new(&stream, device));
    ops = stream->ops;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tutti_stream_free(stream);
    return 0;
}

#endif
