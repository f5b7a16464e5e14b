/* flat.h -- arithmetic over flat memory: what optimizers, the scaler, clipping and the reducer do to parameters and
 * gradients. A table a kind of device; the CPU's, cpu/flat.c, says what each computes.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_FLAT_H
#define TUTTI_DEVICE_FLAT_H

#include "device/device.h"

/* A stretch of F32 memory. */
typedef struct tutti__flat_span {
    float *p;
    size_t n;
} tutti__flat_span;

/* d = g + decay * p;  buffer = momentum * buffer + fresh * d;  p -= lr * (nesterov ? d + momentum * buffer : buffer) */
typedef struct tutti__sgd {
    float lr, decay, momentum, fresh;
    bool nesterov;
} tutti__sgd;

/* d = g + decay * p;  m += fresh1 * (d - m);  v = beta2 * v + fresh2 * d * d;
 * p = keep * p - rate * m / (sqrt(v) / root + eps) */
typedef struct tutti__adam {
    float keep, decay;
    float fresh1, beta2, fresh2;
    float rate, root, eps;
} tutti__adam;

/* All in the stream's order. Those with a result on the host wait for it. */
struct tutti__flat_ops {
    tutti_status (*fill)(tutti_stream *stream, float *p, size_t n, float value);
    tutti_status (*scale)(tutti_stream *stream, float *p, size_t n, float factor);
    tutti_status (*count)(tutti_stream *stream, int64_t *p); /* *p += 1 */
    /* buffer NULL: p -= lr * d */
    tutti_status (*sgd)(tutti_stream *stream, float *p, const float *g, float *buffer, size_t n,
                        const tutti__sgd *c);
    tutti_status (*adam)(tutti_stream *stream, float *p, const float *g, float *m, float *v,
                         size_t n, const tutti__adam *c);
    /* The sum of squares of all spans, in double, in an order that depends on their lengths only. */
    tutti_status (*sum_squares)(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                double *sum_p);
    /* Everything times factor; *finite_p: whether all of it was finite before. */
    tutti_status (*unscale)(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                            float factor, bool *finite_p);
    /* *found (memory of the device) = 1 if any of n elements of a real dtype is not finite; else it stays. */
    tutti_status (*find_nonfinite)(tutti_stream *stream, const void *p, size_t n, tutti_dtype dtype,
                                   int32_t *found);
    /* n floats at p as n numbers of a 16-bit dtype at p, and back. */
    tutti_status (*narrow)(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype);
    tutti_status (*widen)(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype);
};

extern const tutti__flat_ops tutti__cpu_flat_ops;
extern const tutti__flat_ops tutti__cuda_flat_ops;

#endif
