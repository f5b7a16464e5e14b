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
    X(I64, 7, 8, "I64")                                                                            \
    X(I16, 8, 2, "I16")                                                                            \
    X(U16, 9, 2, "U16")                                                                            \
    X(U32, 10, 4, "U32")                                                                           \
    X(U64, 11, 8, "U64")

typedef enum tutti_dtype {
#define X(name, value, bytes, text) TUTTI_##name = value,
    TUTTI_DTYPE_TABLE(X)
#undef X
} tutti_dtype;

TUTTI_API size_t tutti_dtype_size(tutti_dtype dtype);      /* bytes of one element; 0 if unknown */
TUTTI_API const char *tutti_dtype_name(tutti_dtype dtype); /* "F32"; "?" if unknown */

typedef enum tutti_device_kind {
    TUTTI_CPU,
    TUTTI_CUDA,
    TUTTI_STRICT /* for tests: the CPU's kernels, on memory that only kernels and copies can access */
} tutti_device_kind;

/* A device is a value: which kind, and which one of that kind. */
typedef struct tutti_device {
    tutti_device_kind kind;
    int index;
} tutti_device;

/* Reads "cpu", "cuda", "cuda:1", "strict", or "auto" (the fastest present; local_rank chooses among several).
 * "cuda" without a number is the device of local_rank; if there are more ranks than devices, they share.
 * Errors: ARG for other text, UNSUPPORTED for a kind that this build lacks, DEVICE for one that this machine lacks. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_device_parse(tutti_device *device_p, const char *text,
                                                          int local_rank);

/* ---- Streams -------------------------------------------------------------------------------------
 * Work on a device, done in the order of submission. On the CPU it is done when the submitting call returns; on a GPU
 * some time later. Threads: any, one at a time. */
typedef struct tutti_stream tutti_stream;

/* Errors: UNSUPPORTED or DEVICE if there is no such device; MEMORY, DEVICE. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_stream_new(tutti_stream **stream_p,
                                                        tutti_device device);
/* Wraps a stream of the program, which keeps its ownership and frees it after this one. CUDA: a cudaStream_t; for the default
 * stream pass cudaStreamLegacy, not NULL; cudaStreamPerThread is not supported. Errors: ARG, and as above. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_stream_wrap(tutti_stream **stream_p,
                                                         tutti_device device, void *native);
/* Waits until all submitted work is done. DEVICE: some of it failed. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_stream_wait(tutti_stream *stream);
TUTTI_API tutti_device tutti_stream_device(const tutti_stream *stream); /* of NULL: the CPU */
/* Waits likewise. No call on a buffer with this stream may be in progress, and no reducer may still use it. NULL is fine. */
TUTTI_API void tutti_stream_free(tutti_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
