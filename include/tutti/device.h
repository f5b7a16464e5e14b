/* device.h -- where memory lives, and the types of its elements.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, bytes, text); the text is the spelling of tables, JSON and safetensors headers. */
#define TUTTI_DTYPE_TABLE(X)                                                                       \
    X(F32, 0, 4, "F32")                                                                            \
    X(F64, 1, 8, "F64")                                                                            \
    X(F16, 2, 2, "F16")                                                                            \
    X(BF16, 3, 2, "BF16")                                                                          \
    X(I8, 4, 1, "I8")                                                                              \
    X(U8, 5, 1, "U8")                                                                              \
    X(I32, 6, 4, "I32")                                                                            \
    X(I64, 7, 8, "I64")

typedef enum tutti_dtype {
#define X(name, value, bytes, text) TUTTI_##name = value,
    TUTTI_DTYPE_TABLE(X)
#undef X
} tutti_dtype;

TUTTI_API size_t tutti_dtype_size(tutti_dtype dtype);      /* bytes of one element; 0 if unknown */
TUTTI_API const char *tutti_dtype_name(tutti_dtype dtype); /* "F32"; "?" if unknown */

typedef enum tutti_device_kind { TUTTI_CPU, TUTTI_CUDA } tutti_device_kind;

/* A device is a value: which kind, and which one of that kind. */
typedef struct tutti_device {
    tutti_device_kind kind;
    int index;
} tutti_device;

/* Reads "cpu", "cuda", "cuda:1", or "auto" (the fastest present; local_rank chooses among several).
 * Errors: ARG for other text, UNSUPPORTED for a device this machine or build lacks. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_device_parse(tutti_device *device_p, const char *text,
                                                          int local_rank);

#ifdef __cplusplus
}
#endif
#endif
