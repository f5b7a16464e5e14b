/* cuda.c -- CUDA's GPUs as devices.   SPDX-License-Identifier: MIT */
#include "device/cuda/cuda.h"
#include "device/flat.h"

#include <stdlib.h>
#include <string.h>

struct tutti__event {
    tutti_device device;
    void *native;
};

/* ---- Devices ----------------------------------------------------------------------------------------------- */

static struct devices {
    pthread_once_t once;
    tutti__cuda_device *all;
    int n;
    tutti_status status;
    char message[1024];
} devices = {.once = PTHREAD_ONCE_INIT};

/* CUDA numbers the fastest first, unless CUDA_DEVICE_ORDER says otherwise: uses those before the first that is too old. */
static tutti_status too_old(const tutti__cuda_device *d, const tutti__cuda_properties *p)
{
    if (d->index > 0) {
        tutti_log(TUTTI_LOG_INFO, "device",
                  "cuda:%d (%s), of compute capability %d.%d, and those after it are not used",
                  d->index, d->name, p->major, p->minor);
        return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_DEVICE,
                       "device cuda:0: %s has compute capability %d.%d, Tutti's module needs %d.0 "
                       "(A100) or newer: name another in CUDA_VISIBLE_DEVICES, or use --device cpu "
                       "(auto chooses it by itself)",
                       d->name, p->major, p->minor, TUTTI__CUDA_OLDEST_MAJOR);
}

static tutti_status find_devices(void)
{
    const tutti__cuda *cuda;
    int n = 0;

    TUTTI_TRY(tutti__cuda_load(&cuda));
    if (cuda->runtime->count(&n) != TUTTI_OK)
        return tutti__fail(TUTTI_ERR_DEVICE,
                           "device cuda: %s, or use --device cpu (auto chooses it by itself)",
                           cuda->error());
    devices.all = tutti__alloc((size_t)n * sizeof *devices.all);
    if (!devices.all)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        tutti__cuda_device *d = &devices.all[i];
        tutti__cuda_properties properties;

        d->index = i;
        d->host.pinned = true;
        pthread_mutex_init(&d->lock, NULL);
        if (cuda->runtime->properties(i, &properties) != TUTTI_OK)
            return tutti__fail(TUTTI_ERR_DEVICE, "device cuda:%d: %s", i, cuda->error());
        snprintf(d->name, sizeof d->name, "%s", properties.name);
        if (properties.major < TUTTI__CUDA_OLDEST_MAJOR)
            return too_old(d, &properties);
        devices.n = i + 1;
    }
    return TUTTI_OK;
}

static void find_devices_once(void)
{
    devices.status = find_devices();
    if (devices.status != TUTTI_OK) {
        devices.n = 0;
        snprintf(devices.message, sizeof devices.message, "%s", tutti_last_error());
    }
}

static tutti_status cuda_why(void)
{
    pthread_once(&devices.once, find_devices_once);
    return devices.status == TUTTI_OK ? TUTTI_OK
                                      : tutti__fail_again(devices.status, devices.message);
}

static int cuda_count(void)
{
    pthread_once(&devices.once, find_devices_once);
    return devices.n;
}

/* A caller that has a device has called cuda_count before. */
static tutti__cuda_device *device_of(tutti_device device)
{
    return &devices.all[device.index];
}

tutti_status tutti__cuda_done(tutti_device device, tutti_status status, const char *what)
{
    if (status == TUTTI_OK)
        return TUTTI_OK;
    return tutti__fail(status, "cuda:%d (%s): %s: %s%s", device.index, device_of(device)->name,
                       what, tutti__cuda_module()->error(),
                       status == TUTTI_ERR_DEVICE
                           ? "; this process can no longer use the device: restart it from its "
                             "last checkpoint, and look for NVRM: Xid in the kernel's log (dmesg)"
                           : "");
}

static tutti_status cuda_describe(tutti_device device, tutti__device_info *info_p)
{
    tutti__cuda_properties p;

    TUTTI_TRY(tutti__cuda_done(device, tutti__cuda_module()->runtime->properties(device.index, &p),
                               "asking for its properties"));
    snprintf(info_p->name, sizeof info_p->name, "%s", p.name);
    snprintf(info_p->bus, sizeof info_p->bus, "%s", p.bus);
    info_p->memory_bytes = p.memory_bytes;
    return TUTTI_OK;
}

static tutti_status done(const tutti_stream *stream, tutti_status status, const char *what)
{
    return tutti__cuda_done(stream->device, status, what);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

/* In a separate stream, for which all other streams wait, and the host does not. */
static tutti_status zero_for_all(tutti__cuda_device *d, void *p, size_t bytes)
{
    const tutti__cuda_runtime *r = tutti__cuda_module()->runtime;

    if (!d->zero_stream)
        TUTTI_TRY(r->stream_new(d->index, &d->zero_stream));
    if (!d->zeroed)
        TUTTI_TRY(r->event_new(d->index, &d->zeroed));
    TUTTI_TRY(r->zero(d->index, d->zero_stream, p, bytes));
    TUTTI_TRY(r->event_record(d->index, d->zeroed, d->zero_stream));
    for (tutti__cuda_stream *s = d->streams; s; s = s->next)
        TUTTI_TRY(r->event_wait(d->index, d->zeroed, s->native));
    return TUTTI_OK;
}

static void *cuda_alloc(tutti_device device, size_t bytes, bool zeroed)
{
    tutti__cuda_device *d = device_of(device);
    void *p;

    pthread_mutex_lock(&d->lock);
    p = tutti__cuda_pool_alloc(d, &d->memory, bytes);
    if (p && zeroed && bytes > 0 &&
        tutti__cuda_done(device, zero_for_all(d, p, bytes), "zeroing memory") != TUTTI_OK) {
        tutti__cuda_pool_free(d, &d->memory, p);
        p = NULL;
    }
    pthread_mutex_unlock(&d->lock);
    return p;
}

static void cuda_free(tutti_device device, void *p)
{
    tutti__cuda_device *d = device_of(device);

    pthread_mutex_lock(&d->lock);
    tutti__cuda_pool_free(d, &d->memory, p);
    pthread_mutex_unlock(&d->lock);
}

static void *cuda_reserve(tutti_device device, size_t bytes)
{
    tutti__cuda_device *d = device_of(device);
    void *p;

    pthread_mutex_lock(&d->lock);
    p = tutti__cuda_pages_reserve(d, bytes);
    pthread_mutex_unlock(&d->lock);
    return p;
}

static void cuda_unreserve(tutti_device device, void *p, size_t bytes)
{
    tutti__cuda_device *d = device_of(device);

    (void)bytes;
    pthread_mutex_lock(&d->lock);
    tutti__cuda_pages_unreserve(d, p);
    pthread_mutex_unlock(&d->lock);
}

static tutti_status cuda_back(tutti_device device, void *p, size_t bytes, bool stays)
{
    tutti__cuda_device *d = device_of(device);
    tutti_status status;

    (void)stays;
    pthread_mutex_lock(&d->lock);
    status = tutti__cuda_pages_back(d, p, bytes);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static void cuda_give_back(tutti_device device, void *p, size_t bytes)
{
    tutti__cuda_device *d = device_of(device);

    pthread_mutex_lock(&d->lock);
    tutti__cuda_pages_give_back(d, p, bytes);
    pthread_mutex_unlock(&d->lock);
}

/* The driver has pages of one size. */
static void cuda_together(tutti_device device, void *p, size_t bytes)
{
    (void)device;
    (void)p;
    (void)bytes;
}

static void *cuda_host_alloc(tutti_device device, size_t bytes)
{
    tutti__cuda_device *d = device_of(device);
    void *p;

    pthread_mutex_lock(&d->lock);
    p = tutti__cuda_pool_alloc(d, &d->host, bytes);
    pthread_mutex_unlock(&d->lock);
    return p;
}

static void cuda_host_free(tutti_device device, void *p)
{
    tutti__cuda_device *d = device_of(device);

    pthread_mutex_lock(&d->lock);
    tutti__cuda_pool_free(d, &d->host, p);
    pthread_mutex_unlock(&d->lock);
}

void tutti__cuda_usage_of(tutti_device device, tutti__cuda_usage *memory_p,
                          tutti__cuda_usage *pinned_p)
{
    tutti__cuda_device *d = device_of(device);

    pthread_mutex_lock(&d->lock);
    *memory_p = d->memory.usage;
    *pinned_p = d->host.usage;
    pthread_mutex_unlock(&d->lock);
}

/* ---- Streams and events -------------------------------------------------------------------------------------- */

static tutti__cuda_stream *stream_of(const tutti_stream *stream)
{
    return (tutti__cuda_stream *)(uintptr_t)stream;
}

void *tutti__cuda_native(const tutti_stream *stream)
{
    return stream_of(stream)->native;
}

static tutti_status cuda_stream_new(tutti_stream **stream_p, tutti_device device, void *native)
{
    const tutti__cuda_runtime *r = tutti__cuda_module()->runtime;
    tutti__cuda_device *d = device_of(device);
    tutti__cuda_stream *s = tutti__alloc(sizeof *s);
    tutti_status status = TUTTI_OK;

    if (!s)
        return TUTTI_ERR_MEMORY;
    *s = (tutti__cuda_stream){.native = native, .ours = !native};
    s->base = (tutti_stream){&tutti__cuda_device_ops, device};
    if (!native)
        status = r->stream_new(device.index, &s->native);
    pthread_mutex_lock(&d->lock);
    if (status == TUTTI_OK && d->zeroed)
        status = r->event_wait(device.index, d->zeroed, s->native);
    if (status == TUTTI_OK) {
        s->next = d->streams;
        d->streams = s;
        *stream_p = &s->base;
    }
    pthread_mutex_unlock(&d->lock);
    if (status != TUTTI_OK) {
        status = tutti__cuda_done(device, status, "making a stream");
        if (s->ours && s->native)
            (void)r->stream_free(s->native);
        free(s);
    }
    return status;
}

/* Waits, because fences of later frees no longer include this stream. */
static void cuda_stream_free(tutti_stream *stream)
{
    const tutti__cuda_runtime *r = tutti__cuda_module()->runtime;
    tutti__cuda_device *d = device_of(stream->device);
    tutti__cuda_stream *s = stream_of(stream);

    (void)r->stream_wait(d->index, s->native);
    pthread_mutex_lock(&d->lock);
    for (tutti__cuda_stream **p = &d->streams; *p; p = &(*p)->next)
        if (*p == s) {
            *p = s->next;
            break;
        }
    pthread_mutex_unlock(&d->lock);
    if (s->ours)
        (void)r->stream_free(s->native);
    free(s);
}

static tutti_status cuda_stream_wait(tutti_stream *stream)
{
    return done(
        stream,
        tutti__cuda_module()->runtime->stream_wait(stream->device.index, stream_of(stream)->native),
        "waiting for a stream");
}

static tutti_status cuda_event_new(tutti_device device, tutti__event **event_p)
{
    tutti__event *event = tutti__alloc(sizeof *event);
    tutti_status status;

    *event_p = NULL;
    if (!event)
        return TUTTI_ERR_MEMORY;
    event->device = device;
    status = tutti__cuda_module()->runtime->event_new(device.index, &event->native);
    if (status != TUTTI_OK) {
        free(event);
        return tutti__cuda_done(device, status, "making an event");
    }
    *event_p = event;
    return TUTTI_OK;
}

static void cuda_event_free(tutti_device device, tutti__event *event)
{
    (void)device;
    if (event)
        (void)tutti__cuda_module()->runtime->event_free(event->native);
    free(event);
}

static tutti_status cuda_event_record(tutti__event *event, tutti_stream *stream)
{
    return done(stream,
                tutti__cuda_module()->runtime->event_record(stream->device.index, event->native,
                                                            stream_of(stream)->native),
                "recording an event");
}

static tutti_status cuda_event_wait(tutti__event *event, tutti_stream *stream)
{
    return done(stream,
                tutti__cuda_module()->runtime->event_wait(stream->device.index, event->native,
                                                          stream_of(stream)->native),
                "waiting for an event");
}

static tutti_status cuda_event_passed(tutti__event *event, bool *passed_p)
{
    return tutti__cuda_done(
        event->device,
        tutti__cuda_module()->runtime->event_passed(event->device.index, event->native, passed_p),
        "asking for an event");
}

/* ---- Copies -------------------------------------------------------------------------------------------------- */

static tutti_status cuda_copy_in(tutti_stream *stream, void *dst, const void *host_src,
                                 size_t bytes)
{
    return done(stream,
                tutti__cuda_module()->runtime->copy_in(
                    stream->device.index, stream_of(stream)->native, dst, host_src, bytes),
                "copying to the device");
}

static tutti_status cuda_copy_out(tutti_stream *stream, void *host_dst, const void *src,
                                  size_t bytes)
{
    return done(stream,
                tutti__cuda_module()->runtime->copy_out(
                    stream->device.index, stream_of(stream)->native, host_dst, src, bytes),
                "copying to the host");
}

static tutti_status cuda_copy(tutti_stream *stream, void *dst, const void *src, size_t bytes)
{
    return done(stream,
                tutti__cuda_module()->runtime->copy(stream->device.index, stream_of(stream)->native,
                                                    dst, src, bytes),
                "copying");
}

static tutti_status cuda_zero(tutti_stream *stream, void *p, size_t bytes)
{
    return done(stream,
                tutti__cuda_module()->runtime->zero(stream->device.index, stream_of(stream)->native,
                                                    p, bytes),
                "zeroing");
}

/* ---- For profilers ------------------------------------------------------------------------------------------- */

static void cuda_range_begin(const char *name)
{
    tutti__cuda_module()->runtime->range_push(name);
}

static void cuda_range_end(void)
{
    tutti__cuda_module()->runtime->range_pop();
}

const tutti__device_ops tutti__cuda_device_ops = {
    .name = "cuda",
    .count = cuda_count,
    .why = cuda_why,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .reserve = cuda_reserve,
    .unreserve = cuda_unreserve,
    .back = cuda_back,
    .give_back = cuda_give_back,
    .together = cuda_together,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .stream_wait = cuda_stream_wait,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_passed = cuda_event_passed,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .flat = &tutti__cuda_flat_ops,
    .range_begin = cuda_range_begin,
    .range_end = cuda_range_end,
};

tutti_status tutti__cuda_ops(const tutti__device_ops **ops_p)
{
    const tutti__cuda *cuda;

    *ops_p = &tutti__cuda_device_ops;
    return tutti__cuda_load(&cuda);
}
