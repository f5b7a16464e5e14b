/* cuda.h -- what Tutti's side of CUDA shares.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_CUDA_CUDA_H
#define TUTTI_DEVICE_CUDA_CUDA_H

#include "device/cuda/module.h"
#include "device/device.h"

#include <pthread.h>

/* ---- For all that is above CUDA: flat.c, tensor/kernel/cuda, the backend of NCCL ------------------------------------- */

/* The module, loaded by the first call; never unloaded. UNSUPPORTED: there is none; DEVICE: it cannot be loaded here. The
 * same answer ever after. Threads: any. */
tutti_status tutti__cuda_load(const tutti__cuda **cuda_p);
/* The same after a tutti__cuda_load that went well, as it has wherever there is a stream of CUDA's. */
const tutti__cuda *tutti__cuda_module(void);

/* The cudaStream_t. */
void *tutti__cuda_native(const tutti_stream *stream);
/* What a function of the module returned: OK, or the failure, of which the message becomes
 * "cuda:0 (NVIDIA H200): WHAT: what the module says; what to do". */
tutti_status tutti__cuda_done(tutti_device device, tutti_status status, const char *what);

/* Bytes of a device's memory that this process has, or of the host's that is pinned for it. */
typedef struct tutti__cuda_usage {
    size_t used;     /* handed out */
    size_t kept;     /* freed, and kept for the next who asks */
    size_t peak;     /* the largest `used` so far */
    uint64_t grown;  /* how often CUDA was asked for memory */
    uint64_t waited; /* how often the host waited for the device to get some back */
} tutti__cuda_usage;
void tutti__cuda_usage_of(tutti_device device, tutti__cuda_usage *memory_p,
                          tutti__cuda_usage *pinned_p);

/* ---- Between cuda.c and allocator.c -------------------------------------------------------------------------------- */

typedef struct tutti__cuda_stream tutti__cuda_stream;
typedef struct tutti__cuda_device tutti__cuda_device;
typedef struct tutti__cuda_block tutti__cuda_block;

/* Memory of one kind, of one device. */
typedef struct tutti__cuda_pool {
    bool pinned; /* the host's */
    tutti__cuda_block *blocks;
    size_t n, capacity;
    tutti__cuda_usage usage;
} tutti__cuda_pool;

/* NULL with the message made: MEMORY says what holds the device's. The device's lock is held. */
void *tutti__cuda_pool_alloc(tutti__cuda_device *device, tutti__cuda_pool *pool, size_t bytes);
/* Back for others, once what was given to any stream before is done. */
void tutti__cuda_pool_free(tutti__cuda_device *device, tutti__cuda_pool *pool, void *p);

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
    tutti__cuda_stream *streams; /* all that Tutti has been told of */
    void **spare;                /* events for fences */
    size_t n_spare, spare_capacity;
    tutti__cuda_pool memory, host;
    /* Where memory is zeroed, and an event behind the last of it; NULL: none yet. */
    void *zero_stream, *zeroed;
};

#endif
