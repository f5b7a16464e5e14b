/* pace.h -- which of several methods is the fastest, learnt from how long calls took.   SPDX-License-Identifier: MIT
 *
 * One record is for calls of similar size. Each method is tried a few times, then the fastest is used, and another now and
 * then. Not thread-safe. */
#ifndef TUTTI_COMM_CORE_PACE_H
#define TUTTI_COMM_CORE_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TUTTI__PACE_METHODS = 3, TUTTI__PACE_SIZES = 12 };

typedef struct tutti__pace {
    uint32_t calls;                /* counted by the caller */
    float ns[TUTTI__PACE_METHODS]; /* of a call by each method; 0: not known */
} tutti__pace;

/* Which of TUTTI__PACE_SIZES records a call of so many bytes has; sizes of less than twice `least` have the first. */
size_t tutti__pace_size(size_t bytes, size_t least);
/* The next call's method, one of those whose bit is set in `usable`; method 0 always is. */
int tutti__pace_choose(const tutti__pace *pace, int n_methods, unsigned usable);
/* Whether the next call is worth the two clock reads. */
bool tutti__pace_is_timed(const tutti__pace *pace, int n_methods);
/* A call took so long by the method whose mean this is. */
void tutti__pace_learn(float *mean_ns, float ns);

#endif
