/* device.h -- what a kind of device can do: memory, copies, streams, events.   SPDX-License-Identifier: MIT
 *
 *     cpu/        plain memory: work is complete when the call returns
 *     strict/     the same, on memory that the host cannot access outside of calls; for tests
 *     planned/    addresses without memory, and no arithmetic: what a step of a model would take
 *     cuda/       through a module that is loaded if there is a driver
 *
 * The host never accesses device memory: kernels compute (tensor/kernel.h), flat.h does what optimizers and the
 * reducer need, and the copies here move data to the host and back. docs/design/device.md */
#ifndef TUTTI_DEVICE_DEVICE_H
#define TUTTI_DEVICE_DEVICE_H

#include "base/base.h"
#include <tutti/device.h>

typedef struct tutti__device_ops tutti__device_ops;
typedef struct tutti__flat_ops tutti__flat_ops; /* flat.h */
typedef struct tutti__event tutti__event;       /* defined by each kind */

/* What a device is called, and where it is. */
typedef struct tutti__device_info {
    char name[128];      /* "NVIDIA H200"; "CPU" */
    char bus[32];        /* its PCI address, "0000:65:00.0"; "": none */
    size_t memory_bytes; /* its own memory; 0: it uses the host's */
} tutti__device_info;

/* The first member of each kind's stream. */
struct tutti_stream {
    const tutti__device_ops *ops;
    tutti_device device;
};

struct tutti__device_ops {
    const char *name;
    bool is_host;       /* the host may read and write its memory, and inputs need no copy */
    bool plans;         /* planned/: nothing may be computed, and memory not be touched */
    int (*count)(void); /* devices of this kind that are usable now */
    /* OK, or UNSUPPORTED (the build) or DEVICE (the machine) with a message that says why, and what to do */
    tutti_status (*why)(void);
    /* NULL: there is only the kind's name. */
    tutti_status (*describe)(tutti_device device, tutti__device_info *info_p);

    /* 64-byte aligned. With `zeroed` all streams see zeros. NULL with the message set. May wait for the device:
     * only for set-up and warm-up. */
    void *(*alloc)(tutti_device device, size_t bytes, bool zeroed);
    /* Work submitted to any stream before may still use it. NULL is fine. */
    void (*free)(tutti_device device, void *p);
    /* Pinned host memory, for asynchronous copies; not zeroed. NULL with the message set. */
    void *(*host_alloc)(tutti_device device, size_t bytes);
    void (*host_free)(tutti_device device, void *p);

    /* Memory that need not be there all the time, in pages. reserve: addresses, without memory; NULL with the message set. back: memory
     * for the pages in which these bytes are, with any contents, for work that is submitted later; `stays`: it will not be given back
     * soon; MEMORY. give_back, of a range that was backed: the memory of the pages that are wholly in the bytes, when work submitted to
     * any stream before is done; other access, until they are backed again, ends the process. unreserve may wait for the device. */
    void *(*reserve)(tutti_device device, size_t bytes);
    void (*unreserve)(tutti_device device, void *p, size_t bytes);
    tutti_status (*back)(tutti_device device, void *p, size_t bytes, bool stays);
    void (*give_back)(tutti_device device, void *p, size_t bytes);
    /* These bytes will be backed, and given back, together. */
    void (*together)(tutti_device device, void *p, size_t bytes);

    /* native NULL: a new one. */
    tutti_status (*stream_new)(tutti_stream **stream_p, tutti_device device, void *native);
    void (*stream_free)(tutti_stream *stream);
    tutti_status (*stream_wait)(tutti_stream *stream); /* the caller waits */
    /* A position in a stream. The CPU's are NULL, and always passed. */
    tutti_status (*event_new)(tutti_device device, tutti__event **event_p);
    void (*event_free)(tutti_device device, tutti__event *event);
    tutti_status (*event_record)(tutti__event *event, tutti_stream *stream);
    /* Work submitted to the stream from now on waits for it; the caller does not. */
    tutti_status (*event_wait)(tutti__event *event, tutti_stream *stream);
    tutti_status (*event_passed)(tutti__event *event, bool *passed_p); /* never waits */

    /* In the stream's order. Memory of host_alloc is read or written asynchronously: wait by event_passed or stream_wait. Other
         * host_src may be reused on return; other host_dst is valid after stream_wait. */
    tutti_status (*copy_in)(tutti_stream *stream, void *dst, const void *host_src, size_t bytes);
    tutti_status (*copy_out)(tutti_stream *stream, void *host_dst, const void *src, size_t bytes);
    tutti_status (*copy)(tutti_stream *stream, void *dst, const void *src, size_t bytes);
    tutti_status (*zero)(tutti_stream *stream, void *p, size_t bytes);
    const tutti__flat_ops *flat;
    /* A named range of this thread for the device's own profiler; they nest. NULL: it has none. */
    void (*range_begin)(const char *name);
    void (*range_end)(void);
};

/* The table of a kind. UNSUPPORTED if the build lacks it, DEVICE if the machine does; the message has the remedy. */
tutti_status tutti__device_ops_of(tutti_device_kind kind, const tutti__device_ops **ops_p);

/* The device must exist. */
tutti_status tutti__device_describe(tutti_device device, tutti__device_info *info_p);

extern const tutti__device_ops tutti__cpu_ops, tutti__strict_ops, tutti__planned_ops;
/* cuda/cuda.c; usable after tutti__cuda_ops has returned OK */
extern const tutti__device_ops tutti__cuda_device_ops;
tutti_status tutti__cuda_ops(const tutti__device_ops **ops_p);

/* The stream of host memory. */
extern tutti_stream tutti__cpu_stream;
static inline tutti_stream *tutti__stream_or_cpu(tutti_stream *stream)
{
    return stream ? stream : &tutti__cpu_stream;
}
static inline bool tutti__on_host(const tutti_stream *stream)
{
    return !stream || stream->ops->is_host;
}

static inline tutti_status tutti__copy_in(tutti_stream *stream, void *dst, const void *host_src,
                                          size_t bytes)
{
    return stream->ops->copy_in(stream, dst, host_src, bytes);
}
static inline tutti_status tutti__copy_out(tutti_stream *stream, void *host_dst, const void *src,
                                           size_t bytes)
{
    return stream->ops->copy_out(stream, host_dst, src, bytes);
}
static inline tutti_status tutti__copy(tutti_stream *stream, void *dst, const void *src,
                                       size_t bytes)
{
    return stream->ops->copy(stream, dst, src, bytes);
}
/* Around work submitted to the stream. NULL: the host's. */
static inline void tutti__range_begin(const tutti_stream *stream, const char *name)
{
    if (stream && stream->ops->range_begin)
        stream->ops->range_begin(name);
}
static inline void tutti__range_end(const tutti_stream *stream)
{
    if (stream && stream->ops->range_end)
        stream->ops->range_end();
}

/* Waits: host_dst is valid on return. */
tutti_status tutti__read(tutti_stream *stream, void *host_dst, const void *src, size_t bytes);
/* Calls `take` for one part of the memory after the other, in host memory: all of it, if that is where it is, else copies of
 * TUTTI__READ_PART bytes (the last: of the rest). MEMORY, or what the device reports. */
enum { TUTTI__READ_PART = 1 << 20 };
tutti_status tutti__read_parts(tutti_stream *stream, const void *src, size_t bytes,
                               void (*take)(void *arg, const void *part, size_t bytes), void *arg);
/* XXH3-64 of the memory; errors as above. */
tutti_status tutti__hash_memory(tutti_stream *stream, const void *src, size_t bytes,
                                uint64_t *hash_p);

/* n elements of dtype BF16 or F16 to F32 and back, rounded to nearest even; host memory. */
void tutti__half_to_f32(float *to, const uint16_t *from, size_t n, tutti_dtype dtype);
void tutti__half_from_f32(uint16_t *to, const float *from, size_t n, tutti_dtype dtype);

#endif
