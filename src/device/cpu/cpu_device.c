/* cpu_device.c -- the CPU as a device: plain memory, and work that is done when the call returns.   SPDX-License-Identifier: MIT */
#include "device/flat.h"

#include <stdlib.h>
#include <string.h>

static int cpu_count(void)
{
    return 1;
}

static tutti_status cpu_why(void)
{
    return TUTTI_OK;
}

static void *cpu_alloc(tutti_device device, size_t bytes, bool zeroed)
{
    void *p = zeroed ? tutti__alloc(bytes) : tutti__alloc_unset(bytes);

    (void)device;
    if (!p)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    return p;
}

static void cpu_free(tutti_device device, void *p)
{
    (void)device;
    free(p);
}

static void *cpu_reserve(tutti_device device, size_t bytes)
{
    (void)device;
    return tutti__memory_reserve(bytes);
}

static void cpu_unreserve(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    tutti__memory_unreserve(p, bytes);
}

static tutti_status cpu_back(tutti_device device, void *p, size_t bytes, bool stays)
{
    (void)device;
    return tutti__memory_back(p, bytes, stays);
}

static void cpu_give_back(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    tutti__memory_give_back(p, bytes);
}

static void cpu_together(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    tutti__memory_together(p, bytes);
}

static void *cpu_host_alloc(tutti_device device, size_t bytes)
{
    return cpu_alloc(device, bytes, false);
}

static tutti_status cpu_stream_new(tutti_stream **stream_p, tutti_device device, void *native)
{
    (void)native;
    *stream_p = tutti__alloc(sizeof **stream_p);
    if (!*stream_p)
        return TUTTI_ERR_MEMORY;
    **stream_p = (tutti_stream){&tutti__cpu_ops, device};
    return TUTTI_OK;
}

static void cpu_stream_free(tutti_stream *stream)
{
    free(stream);
}

static tutti_status cpu_stream_wait(tutti_stream *stream)
{
    (void)stream;
    return TUTTI_OK;
}

static tutti_status cpu_event_new(tutti_device device, tutti__event **event_p)
{
    (void)device;
    *event_p = NULL;
    return TUTTI_OK;
}

static void cpu_event_free(tutti_device device, tutti__event *event)
{
    (void)device;
    (void)event;
}

static tutti_status cpu_event_record(tutti__event *event, tutti_stream *stream)
{
    (void)event;
    (void)stream;
    return TUTTI_OK;
}

static tutti_status cpu_event_passed(tutti__event *event, bool *passed_p)
{
    (void)event;
    *passed_p = true;
    return TUTTI_OK;
}

static tutti_status cpu_copy(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    (void)stream;
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return TUTTI_OK;
}

static tutti_status cpu_zero(tutti_stream *stream, void *p, size_t bytes)
{
    (void)stream;
    if (bytes > 0)
        memset(p, 0, bytes);
    return TUTTI_OK;
}

const tutti__device_ops tutti__cpu_ops = {
    .name = "cpu",
    .is_host = true,
    .count = cpu_count,
    .why = cpu_why,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .reserve = cpu_reserve,
    .unreserve = cpu_unreserve,
    .back = cpu_back,
    .give_back = cpu_give_back,
    .together = cpu_together,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_free,
    .stream_new = cpu_stream_new,
    .stream_free = cpu_stream_free,
    .stream_wait = cpu_stream_wait,
    .event_new = cpu_event_new,
    .event_free = cpu_event_free,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_record,
    .event_passed = cpu_event_passed,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .flat = &tutti__cpu_flat_ops,
};

tutti_stream tutti__cpu_stream = {&tutti__cpu_ops, {TUTTI_CPU, 0}};
