/* cuda.h -- shared by the files that call the CUDA module.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_CUDA_CUDA_H
#define TUTTI_DEVICE_CUDA_CUDA_H

#include "device/cuda/module.h"
#include "device/device.h"

#include <pthread.h>

/* ---- For the users of CUDA: cuda_flat.c, tensor/kernel/cuda, the backend of NCCL ------------------------------------- */

/* The module, loaded by the first call and never unloaded. UNSUPPORTED: there is none; DEVICE: it cannot be loaded on this
 * machine. Later calls return the same result. Any thread. */
tutti_status tutti__cuda_load(const tutti__cuda **cuda_p);
/* The same, after a successful tutti__cuda_load, which every CUDA stream implies. */
const tutti__cuda *tutti__cuda_module(void);

/* The cudaStream_t. */
void *tutti__cuda_native(const tutti_stream *stream);
/* Forwards what a function of the module returned; on failure sets the message
 * "cuda:0 (NVIDIA H200): WHAT: what the module says; what to do". */
tutti_status tutti__cuda_done(tutti_device device, tutti_status status, const char *what);

/* Bytes of a device's memory that this process holds, or of host memory pinned for it. */
typedef struct tutti__cuda_usage {
    size_t used;     /* in use */
    size_t kept;     /* freed, and cached */
    size_t peak;     /* the largest `used` so far */
    uint64_t grown;  /* allocations from CUDA */
    uint64_t waited; /* how often the host waited for the device because memory was exhausted */
} tutti__cuda_usage;
void tutti__cuda_usage_of(tutti_device device, tutti__cuda_usage *memory_p,
                          tutti__cuda_usage *pinned_p);

/* ---- Between cuda.c, allocator.c and cuda_pages.c; all require the device's lock ------------------------------------------ */

typedef struct tutti__cuda_stream tutti__cuda_stream;
typedef struct tutti__cuda_device tutti__cuda_device;
typedef struct tutti__cuda_block tutti__cuda_block;
typedef struct tutti__cuda_pages tutti__cuda_pages;

/* A moment on all of a device's streams: events that have not passed yet. */
typedef struct tutti__cuda_fence {
    void **events;
    size_t n, capacity;
} tutti__cuda_fence;
/* After all work submitted so far. */
void tutti__cuda_fence_set(tutti__cuda_device *device, tutti__cuda_fence *fence);
tutti_status tutti__cuda_fence_passed(tutti__cuda_device *device, tutti__cuda_fence *fence,
                                      bool *passed_p);
void tutti__cuda_fence_drop(tutti__cuda_device *device, tutti__cuda_fence *fence);
/* The host waits for all work submitted so far. */
tutti_status tutti__cuda_wait_for_all(tutti__cuda_device *device);

/* A device's memory, or host memory pinned for it. */
typedef struct tutti__cuda_pool {
    bool pinned; /* host memory */
    tutti__cuda_block *blocks;
    size_t n, capacity;
    tutti__cuda_usage usage;
} tutti__cuda_pool;

/* `kept` bytes are in use. */
static inline void tutti__cuda_use_kept(tutti__cuda_usage *usage, size_t bytes)
{
    usage->kept -= bytes;
    usage->used += bytes;
    usage->peak = usage->used > usage->peak ? usage->used : usage->peak;
}

/* NULL with the message set; for MEMORY it says what holds the device's memory. */
void *tutti__cuda_pool_alloc(tutti__cuda_device *device, tutti__cuda_pool *pool, size_t bytes);
/* Can be allocated again when all work submitted to any stream so far is done. */
void tutti__cuda_pool_free(tutti__cuda_device *device, tutti__cuda_pool *pool, void *p);
/* Returns free blocks to CUDA. */
void tutti__cuda_pool_shrink(tutti__cuda_device *device, tutti__cuda_pool *pool);
void tutti__cuda_out_of_memory(tutti__cuda_device *device, const tutti__cuda_pool *pool,
                               size_t bytes);

/* Memory that need not be there all the time: device.h. */
void *tutti__cuda_pages_reserve(tutti__cuda_device *device, size_t bytes);
void tutti__cuda_pages_unreserve(tutti__cuda_device *device, void *p);
tutti_status tutti__cuda_pages_back(tutti__cuda_device *device, void *p, size_t bytes);
void tutti__cuda_pages_give_back(tutti__cuda_device *device, void *p, size_t bytes);
/* Returns to CUDA what is not in use. */
void tutti__cuda_pages_shrink(tutti__cuda_device *device);

struct tutti__cuda_stream {
    tutti_stream base;
    void *native;
    bool ours; /* else the program's */
    tutti__cuda_stream *next;
};

struct tutti__cuda_device {
    int index;
    char name[128];
    pthread_mutex_t lock;
    tutti__cuda_stream *streams; /* all that were made or wrapped */
    void **spare;                /* events for fences */
    size_t n_spare, spare_capacity;
    tutti__cuda_pool memory, host;
    tutti__cuda_pages *pages; /* NULL: nothing was reserved yet */
    /* The stream that zeroes memory, and an event after its last work; NULL: none yet. */
    void *zero_stream, *zeroed;
};

#endif
