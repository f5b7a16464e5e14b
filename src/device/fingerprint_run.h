/* fingerprint_run.h -- the loop of fingerprints.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_FINGERPRINT_RUN_H
#define TUTTI_DEVICE_FINGERPRINT_RUN_H

#include <stddef.h>
#include <stdint.h>

/* Parts of each sum of doubles, whatever the instruction set, so that the bits are the same with all of them. */
enum { TUTTI__FINGERPRINT_LANES = 16 };

typedef struct tutti__fingerprint_parts {
    double squares[TUTTI__FINGERPRINT_LANES], dot[TUTTI__FINGERPRINT_LANES];
    uint64_t digest;
} tutti__fingerprint_parts;

/* Adds those of n elements, a multiple of the lanes: values x with signs, words w (may be the same memory) with keys. */
typedef void tutti__fingerprint_run(tutti__fingerprint_parts *parts, const float *x,
                                    const double *signs, const uint32_t *w, const uint32_t *keys,
                                    size_t n);

/* Number i of those that this CPU can run, the fastest first; NULL: there are fewer. */
tutti__fingerprint_run *tutti__fingerprint_run_at(int i);

#endif
