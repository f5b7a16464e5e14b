/* cpu.c -- the CPU as a device: plain memory.   SPDX-License-Identifier: MIT */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

static void *cpu_alloc(tutti_device device, size_t bytes)
{
    (void)device;
    return tutti__alloc(bytes);
}

static void cpu_free(tutti_device device, void *p)
{
    (void)device;
    free(p);
}

static tutti_status cpu_copy(tutti_device device, void *dst, const void *src, size_t bytes)
{
    (void)device;
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return TUTTI_OK;
}

static int cpu_count(void)
{
    return 1;
}

const tutti__device_ops tutti__cpu_ops = {"cpu",    cpu_alloc, cpu_free, cpu_copy,
                                          cpu_copy, cpu_copy,  cpu_count};
