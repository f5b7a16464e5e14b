/* shared.h -- shared by the module's files.   SPDX-License-Identifier: MIT
 *
 * The module uses only headers of Tutti: its files are compiled with the toolkit's headers, by nvcc or the C compiler, and by
 * the tests for the host. */
#ifndef TUTTI_DEVICE_CUDA_MODULE_SHARED_H
#define TUTTI_DEVICE_CUDA_MODULE_SHARED_H

#include "device/cuda/module.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each is in the file of its name. */
extern const tutti__cuda_runtime tutti__cuda_runtime_table;
extern const struct tutti__cuda_flat tutti__cuda_flat_table;
extern const struct tutti__cuda_own tutti__cuda_own_table;
extern const struct tutti__cuda_products tutti__cuda_products_table;

/* pages.c; as in the table. */
tutti_status tutti__cuda_page_bytes(int device, size_t *bytes_p);
tutti_status tutti__cuda_reserve(int device, size_t bytes, void **p);
tutti_status tutti__cuda_unreserve(int device, void *p, size_t bytes);
tutti_status tutti__cuda_page_new(int device, size_t bytes, uint64_t *page_p);
tutti_status tutti__cuda_page_free(int device, uint64_t page);
tutti_status tutti__cuda_map(int device, void *p, size_t bytes, uint64_t page);
tutti_status tutti__cuda_open(int device, void *p, size_t bytes);
tutti_status tutti__cuda_unmap(int device, void *p, size_t bytes);

/* Keeps the message for error(), and returns the status. */
tutti_status tutti__cuda_fail(tutti_status status, const char *format, ...) TUTTI_PRINTF(2, 3);
const char *tutti__cuda_error(void);
/* OK, or MEMORY or DEVICE with "WHAT: what CUDA says"; code: a cudaError_t. */
tutti_status tutti__cuda_result(int code, const char *what);
/* Makes the device the thread's current one. */
tutti_status tutti__cuda_use(int device);

/* TUTTI__CALL(cudaMalloc(p, bytes)) */
#define TUTTI__CALL(call) tutti__cuda_result((int)(call), #call)

#ifdef __cplusplus
}
#endif
#endif
