/* module.h -- the table through which Tutti calls CUDA, which it is not linked with.   SPDX-License-Identifier: MIT
 *
 * libtutti_cuda.so is built from the folders called cuda/module/, and only it uses the CUDA toolkit. It is loaded when a device
 * is first needed, and calls no function of Tutti. Code in this folder and in tensor/kernel/cuda/ is always compiled, so that
 * one build runs with and without a GPU.
 *
 * Functions return OK, MEMORY (of the device), UNSUPPORTED or DEVICE; error() then says what failed. Work is submitted to the
 * given stream (a cudaStream_t); nothing waits unless noted. Sizes are elements, unless they are called bytes. */
#ifndef TUTTI_DEVICE_CUDA_MODULE_H
#define TUTTI_DEVICE_CUDA_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The oldest compute capability that the module is compiled for (cmake/Cuda.cmake). */
enum { TUTTI__CUDA_OLDEST_MAJOR = 8 };

typedef struct tutti__cuda_properties {
    char name[128];
    char bus[32];     /* its PCI address, "0000:65:00.0", whatever CUDA_VISIBLE_DEVICES says */
    int major, minor; /* compute capability */
    int processors;   /* streaming multiprocessors */
    size_t memory_bytes;
} tutti__cuda_properties;

/* module/runtime.c: devices, memory, streams, events; NVTX. */
typedef struct tutti__cuda_runtime {
    /* DEVICE: no driver, one that is too old, or one that sees no device. */
    tutti_status (*count)(int *count_p);
    /* Makes it the thread's current device, for libraries that use that. */
    tutti_status (*use)(int device);
    tutti_status (*properties)(int device, tutti__cuda_properties *properties_p);
    tutti_status (*memory)(int device, size_t *free_bytes_p, size_t *total_bytes_p);

    tutti_status (*alloc)(int device, size_t bytes, void **p);
    tutti_status (*free)(int device, void *p); /* waits for the device */
    tutti_status (*host_alloc)(int device, size_t bytes, void **p);
    tutti_status (*host_free)(void *p);

    /* module/pages.c: addresses and memory apart. Sizes and addresses are multiples of page_bytes. UNSUPPORTED: the device cannot. */
    tutti_status (*page_bytes)(int device, size_t *bytes_p);
    tutti_status (*reserve)(int device, size_t bytes, void **p);
    tutti_status (*unreserve)(int device, void *p, size_t bytes); /* nothing is mapped there */
    tutti_status (*page_new)(int device, size_t bytes, uint64_t *page_p);
    tutti_status (*page_free)(int device, uint64_t page);
    tutti_status (*map)(int device, void *p, size_t bytes, uint64_t page);
    /* Of what was mapped, one page or several: makes it accessible; takes it away. No work may use it any more then. */
    tutti_status (*open)(int device, void *p, size_t bytes);
    tutti_status (*unmap)(int device, void *p, size_t bytes);

    /* not ordered with the default stream */
    tutti_status (*stream_new)(int device, void **stream_p);
    tutti_status (*stream_free)(void *stream);
    tutti_status (*stream_wait)(int device, void *stream);
    tutti_status (*event_new)(int device, void **event_p);
    tutti_status (*event_free)(void *event);
    tutti_status (*event_record)(int device, void *event, void *stream);
    tutti_status (*event_wait)(int device, void *event, void *stream);
    tutti_status (*event_passed)(int device, void *event, bool *passed_p);

    tutti_status (*copy_in)(int device, void *stream, void *dst, const void *host_src,
                            size_t bytes);
    tutti_status (*copy_out)(int device, void *stream, void *host_dst, const void *src,
                             size_t bytes);
    tutti_status (*copy)(int device, void *stream, void *dst, const void *src, size_t bytes);
    tutti_status (*zero)(int device, void *stream, void *p, size_t bytes);

    /* NVTX ranges of the calling thread, which Nsight shows. Without such a tool they cost a branch. */
    void (*range_push)(const char *name);
    void (*range_pop)(void);
} tutti__cuda_runtime;

struct tutti__cuda_flat; /* cuda/cuda_flat.h: the kernels behind device/flat.h; module/flat.cu */
struct tutti__cuda_own;  /* tensor/kernel/cuda/own.h: kernels of our own, behind most operations */
/* tensor/kernel/cuda/products.h: convolutions and matrix products, by cuDNN and cuBLASLt */
struct tutti__cuda_products;

enum { TUTTI__CUDA_TABLE = 6 }; /* incremented when a table changes */

typedef struct tutti__cuda {
    int table;           /* TUTTI__CUDA_TABLE */
    const char *version; /* TUTTI_VERSION */
    /* "CUDA 13.0, cuDNN 9.19, cuBLAS 13.0": versions of the loaded libraries */
    const char *(*describe)(void);
    const char *(*error)(void); /* of this thread's last failure */
    const tutti__cuda_runtime *runtime;
    const struct tutti__cuda_flat *flat;
    const struct tutti__cuda_own *own;
    const struct tutti__cuda_products *products;
} tutti__cuda;

/* The table's name in the module. */
#define TUTTI__CUDA_SYMBOL "tutti_cuda_table"

#ifdef __cplusplus
}
#endif
#endif
