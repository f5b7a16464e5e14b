/* cuda_flat.h -- CUDA's arithmetic over flat memory, in the module.   SPDX-License-Identifier: MIT
 *
 * The functions of device/flat.h over raw device pointers; results stay on the device. Nothing waits; 0 elements are fine.
 * Pointers need only the alignment of their elements. Elementwise results have the CPU's bits. */
#ifndef TUTTI_DEVICE_CUDA_CUDA_FLAT_H
#define TUTTI_DEVICE_CUDA_CUDA_FLAT_H

#include "device/cuda/module.h"
#include "device/flat.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti__cuda_flat {
    tutti_status (*fill)(int device, void *stream, float *p, size_t n, float value);
    tutti_status (*scale)(int device, void *stream, float *p, size_t n, float factor);
    tutti_status (*count)(int device, void *stream, int64_t *p); /* *p += 1 */
    tutti_status (*sgd)(int device, void *stream, float *p, const float *g, float *buffer, size_t n,
                        const tutti__sgd *c);
    tutti_status (*adam)(int device, void *stream, float *p, const float *g, float *m, float *v,
                         size_t n, const tutti__adam *c);
    tutti_status (*rmsprop)(int device, void *stream, float *p, const float *g, float *square,
                            float *mean, float *buffer, size_t n, const tutti__rmsprop *c);
    tutti_status (*adagrad)(int device, void *stream, float *p, const float *g, float *sum,
                            size_t n, const tutti__adagrad *c);
    tutti_status (*clamp)(int device, void *stream, float *p, size_t n, float limit);
    /* How many elements `partial` of sum_squares has. */
    size_t (*sum_squares_partial)(const tutti__flat_span *spans, size_t n);
    /* *sum = the sum of squares. The spans are read before it returns. */
    tutti_status (*sum_squares)(int device, void *stream, const tutti__flat_span *spans, size_t n,
                                tutti__squares *partial, tutti__squares *sum);
    /* Multiplies all by factor; *found = 1 if any was not finite before, else unchanged. */
    tutti_status (*unscale)(int device, void *stream, const tutti__flat_span *spans, size_t n,
                            float factor, int32_t *found);
    tutti_status (*find_nonfinite)(int device, void *stream, const void *p, size_t n,
                                   tutti_dtype dtype, int32_t *found);
    /* n numbers between F32 and a 16-bit dtype, rounded to nearest even; the two do not overlap. */
    tutti_status (*narrow)(int device, void *stream, void *to, const float *from, size_t n,
                           tutti_dtype dtype);
    tutti_status (*widen)(int device, void *stream, float *to, const void *from, size_t n,
                          tutti_dtype dtype);
    tutti_status (*fixed_add)(int device, void *stream, void *sums, const float *g, size_t n,
                              const tutti__fixed *f, bool first, const tutti__fixed_seen *seen);
    tutti_status (*fixed_join)(int device, void *stream, void *sums, const void *more, size_t n,
                               const tutti__fixed *f);
    tutti_status (*fixed_mean)(int device, void *stream, float *mean, const void *sums, size_t n,
                               const tutti__fixed *f, int count, const tutti__fixed_seen *seen);
} tutti__cuda_flat;

/* module/flat.cu */
extern const tutti__cuda_flat tutti__cuda_flat_table;

#ifdef __cplusplus
}
#endif
#endif
