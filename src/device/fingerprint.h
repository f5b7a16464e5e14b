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

/* Which elements of a tensor are read where all of them would take too long: at most TUTTI__SAMPLE, in runs of neighbours, row-major. */
enum { TUTTI__SAMPLE_RUNS = 4, TUTTI__SAMPLE_RUN = 256 };
#define TUTTI__SAMPLE ((size_t)TUTTI__SAMPLE_RUNS * TUTTI__SAMPLE_RUN)

typedef struct tutti__sample {
    bool partial; /* not all of the tensor */
    int n_runs;
    struct {
        size_t first, n;
    } runs[TUTTI__SAMPLE_RUNS]; /* ascending */
} tutti__sample;

/* The sample that step `step` takes of any tensor of n elements. Of at most TUTTI__SAMPLE elements all, in one run. Else a run of each
 * quarter: the elements are cells of 256, the last of which may be shorter; quarter q has those from q cells / 4 on to before
 * (q + 1) cells / 4, and the run is cell number r mod (how many these are) of them, where r is splitmix64's output number 4 step + q. */
void tutti__sample_of(tutti__sample *sample, size_t n, uint64_t step);
/* Leaves those of elements first, ..., first + n - 1. */
void tutti__sample_clip(tutti__sample *sample, size_t first, size_t n);
/* Of a sample whose elements are one behind the other in host memory. */
void tutti__fingerprint_gathered(tutti__fingerprint *f, const tutti__sample *sample, const void *p,
                                 tutti_dtype dtype);
/* The same, reading the elements of the sample from memory of the stream in which `p` has element `first` of the tensor. What the device
 * reports. */
tutti_status tutti__fingerprint_sampled(tutti__fingerprint *f, tutti_stream *stream, const void *p,
                                        tutti_dtype dtype, size_t first,
                                        const tutti__sample *sample);
/* Of n elements, the first of which is element `first` of its tensor, in memory of the stream. Reads a device's memory in parts.
 * MEMORY, or what the device reports. */
tutti_status tutti__fingerprint_of(tutti__fingerprint *f, tutti_stream *stream, const void *p,
                                   size_t n, tutti_dtype dtype, size_t first);

#endif
