/* device.h -- what a kind of device can do: memory and copies.   SPDX-License-Identifier: MIT
 *
 * The CPU implements it in cpu/cpu.c; CUDA in a loadable module, for which no_cuda.c stands in where it was not built.
 * Streams and events join the table with the first device that has them. */
#ifndef TUTTI_DEVICE_DEVICE_H
#define TUTTI_DEVICE_DEVICE_H

#include "base/base.h"
#include <tutti/device.h>

typedef struct tutti__device_ops {
    const char *name;
    /* 64-byte aligned, zeroed. NULL with the message made. */
    void *(*alloc)(tutti_device device, size_t bytes);
    void (*free)(tutti_device device, void *p);
    tutti_status (*copy_in)(tutti_device device, void *dst, const void *host_src, size_t bytes);
    tutti_status (*copy_out)(tutti_device device, void *host_dst, const void *src, size_t bytes);
    tutti_status (*copy)(tutti_device device, void *dst, const void *src,
                         size_t bytes); /* within it */
    int (*count)(void);                 /* devices of this kind that are usable now */
} tutti__device_ops;

/* The table of a kind. UNSUPPORTED, with the reason and the remedy, where build or machine lacks it. */
tutti_status tutti__device_ops_of(tutti_device_kind kind, const tutti__device_ops **ops_p);

extern const tutti__device_ops tutti__cpu_ops;
tutti_status tutti__cuda_ops(const tutti__device_ops **ops_p);

/* n elements of dtype BF16 or F16 to F32 and back, rounded to nearest even. */
void tutti__half_to_f32(float *to, const uint16_t *from, size_t n, tutti_dtype dtype);
void tutti__half_from_f32(uint16_t *to, const float *from, size_t n, tutti_dtype dtype);

#endif
