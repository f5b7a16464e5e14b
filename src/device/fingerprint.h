/* fingerprint.h -- a digest of elements, with two numbers that tell how near two tensors are.   SPDX-License-Identifier: MIT
 *
 * Equal digests mean equal bits, and nothing else can be concluded from them: the sum of w(i) k(i), modulo 2^64, where w(i) is the
 * element as an unsigned number, and
 *
 *     k(i) = a(i mod 1024) a'(i div 1024),   a(j) = the low 32 bits of z(j) | 1,   a'(j) = z(1024 + j) | 1
 *
 * z(j) is splitmix64's output number j of seed 0, the mix of (j + 1) 0x9e3779b97f4a7c15. Keys are odd, so that a single element that
 * differs always changes it; several go unnoticed by chance alone, one time in 2^31 at most. Norm and dot change little if elements do:
 * the norm is the root of the sum of squares, the dot the sum of the elements with signs
 *
 *     s(i) = t(i mod 1024) t(1024 + i div 1024),   t(k) = -1 if bit k mod 64 of z(k div 64) is set, else 1
 *
 * so that elements which are exchanged change it too. Both are sums in double. i is the element's place in the whole tensor,
 * row-major: elements may come in any order, and what ranks have of a tensor adds up, digests as the squares of norms and the dots. */
#ifndef TUTTI_DEVICE_FINGERPRINT_H
#define TUTTI_DEVICE_FINGERPRINT_H

#include "device/device.h"
#include "device/fingerprint_run.h"

typedef struct tutti__fingerprint {
    uint64_t digest;
    double norm, dot;
} tutti__fingerprint;

typedef struct tutti__fingerprint_sums {
    tutti_dtype dtype;
    double squares[TUTTI__FINGERPRINT_LANES], dot[TUTTI__FINGERPRINT_LANES];
    uint64_t digest;
} tutti__fingerprint_sums;

/* Of elements in host memory, the first of which is element `first` of the tensor. *sums: the dtype, else zero, before the first. */
void tutti__fingerprint_add(tutti__fingerprint_sums *sums, const void *p, size_t n, size_t first);
tutti__fingerprint tutti__fingerprint_end(const tutti__fingerprint_sums *sums);
/* Of n elements, the first of which is element `first` of its tensor, in memory of the stream. Reads a device's memory in parts.
 * MEMORY, or what the device reports. */
tutti_status tutti__fingerprint_of(tutti__fingerprint *f, tutti_stream *stream, const void *p,
                                   size_t n, tutti_dtype dtype, size_t first);

#endif
