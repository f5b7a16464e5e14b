/* fingerprint.h -- a digest of elements, with two numbers that tell how near two tensors are.   SPDX-License-Identifier: MIT
 *
 * Equal digests mean equal bits, and nothing else can be concluded from them. Norm and dot change little if elements do: the
 * norm is the root of the sum of squares, the dot the sum of the elements with signs
 *
 *     s(i) = t(i mod 1024) t(1024 + i div 1024),   t(k) = -1 if bit k mod 64 of splitmix64's output number k div 64 is set, else 1
 *
 * (seed 0, so that number j is the mix of (j + 1) 0x9e3779b97f4a7c15), so that elements which are exchanged change it too. Both are sums
 * in double, in 16 parts by i mod 16. i is the element's place in the whole tensor, row-major: what ranks have of it adds up, the
 * squares of norms as the dots. */
#ifndef TUTTI_DEVICE_FINGERPRINT_H
#define TUTTI_DEVICE_FINGERPRINT_H

#include "device/device.h"

typedef struct tutti__fingerprint {
    uint64_t digest; /* XXH3-64 of the bytes */
    double norm, dot;
} tutti__fingerprint;

/* Of n elements, the first of which is element `first` of its tensor, in memory of the stream. Reads a device's memory in parts.
 * MEMORY, or what the device reports. */
tutti_status tutti__fingerprint_of(tutti__fingerprint *f, tutti_stream *stream, const void *p,
                                   size_t n, tutti_dtype dtype, size_t first);

#endif
