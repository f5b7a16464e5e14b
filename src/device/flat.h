/* flat.h -- arithmetic over flat memory: what optimizers, the scaler, clipping and the reducer do to parameters and
 * gradients. A table per kind of device; cpu/cpu_flat.c defines what each computes.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_FLAT_H
#define TUTTI_DEVICE_FLAT_H

#include "device/device.h"
#include "device/squares.h"

/* A range of F32 memory. */
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

/* d = g + decay * p;  s = alpha * s + fresh * d * d;  mean += fresh * (d - mean);  a = sqrt(s - mean * mean, at least 0) + eps;
 * buffer = momentum * buffer + d / a;  p -= lr * buffer. Without mean it is 0, without a buffer p -= lr * d / a. */
typedef struct tutti__rmsprop {
    float lr, decay, alpha, fresh, momentum, eps;
} tutti__rmsprop;

/* d = g + decay * p;  sum = sum + start + d * d;  p -= rate * d / (sqrt(sum) + eps) */
typedef struct tutti__adagrad {
    float rate, decay, start, eps;
} tutti__adagrad;

/* Fixed-point numbers, whose sums do not depend on the order: integers of 64 or 32 bits, multiples of 2^-exponent. */
typedef struct tutti__fixed {
    int bits;     /* 64, 32 */
    int exponent; /* -900 to 900 */
} tutti__fixed;

/* What is learned of such numbers on the way, in the device's memory. *largest becomes the maximum of itself and the bits of all
 * |floats|: NaN is above infinity, and infinity above all numbers. *total += all terms that were added, or all sums; it wraps, and
 * of 32-bit numbers its low half counts. */
typedef struct tutti__fixed_seen {
    uint32_t *largest;
    uint64_t *total;
} tutti__fixed_seen;

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
    /* mean, buffer: may be NULL */
    tutti_status (*rmsprop)(tutti_stream *stream, float *p, const float *g, float *square,
                            float *mean, float *buffer, size_t n, const tutti__rmsprop *c);
    tutti_status (*adagrad)(tutti_stream *stream, float *p, const float *g, float *sum, size_t n,
                            const tutti__adagrad *c);
    /* Into [-limit, limit]; NaN stays. */
    tutti_status (*clamp)(tutti_stream *stream, float *p, size_t n, float limit);
    /* *sum (on the host) += the squares of all spans. Its bits do not depend on any order: squares.h. */
    tutti_status (*sum_squares)(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                                tutti__squares *sum);
    /* Multiplies all by factor; *finite_p: whether all were finite before. */
    tutti_status (*unscale)(tutti_stream *stream, const tutti__flat_span *spans, size_t n,
                            float factor, bool *finite_p);
    /* *found (memory of the device) = 1 if any of n elements of a real dtype is not finite; else unchanged. */
    tutti_status (*find_nonfinite)(tutti_stream *stream, const void *p, size_t n, tutti_dtype dtype,
                                   int32_t *found);
    /* Converts n floats at p to n numbers of a 16-bit dtype at p, and back. */
    tutti_status (*narrow)(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype);
    tutti_status (*widen)(tutti_stream *stream, void *p, size_t n, tutti_dtype dtype);
    /* sums[i] += rint(g[i] * 2^exponent), or = with `first`. Defined if the product is below 2^51. Sums wrap. */
    tutti_status (*fixed_add)(tutti_stream *stream, void *sums, const float *g, size_t n,
                              const tutti__fixed *f, bool first, const tutti__fixed_seen *seen);
    /* sums[i] += more[i] */
    tutti_status (*fixed_join)(tutti_stream *stream, void *sums, const void *more, size_t n,
                               const tutti__fixed *f);
    /* mean[i] = sums[i] * 2^-exponent / count, computed in double. */
    tutti_status (*fixed_mean)(tutti_stream *stream, float *mean, const void *sums, size_t n,
                               const tutti__fixed *f, int count, const tutti__fixed_seen *seen);
};

extern const tutti__flat_ops tutti__cpu_flat_ops;
extern const tutti__flat_ops tutti__cuda_flat_ops;

#endif
