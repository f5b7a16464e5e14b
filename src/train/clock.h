/* clock.h -- every rank's monotonic clock against rank 0's, for traces that lie on one axis.   SPDX-License-Identifier: MIT
 *
 * A rank asks rank 0 for its time, as NTP does: asked at t0, answered at t1, both on its own clock, the answer T. Rank 0's clock
 * shows T somewhere between, so that
 *
 *     offset = T - (t0 + t1) / 2        to  (t1 - t0) / 2        whatever the ways there and back take
 *
 * Of many questions the one that was answered fastest counts. Clocks drift apart by microseconds a second: read before and
 * after, and between the two along a line. */
#ifndef TUTTI_TRAIN_CLOCK_H
#define TUTTI_TRAIN_CLOCK_H

#include "base/base.h"
#include <tutti/group.h>

typedef struct tutti__clock_reading {
    int64_t at_ns;     /* this rank's time, when it was taken */
    int64_t offset_ns; /* rank 0's time less this rank's */
    int64_t error_ns;  /* it is that exact */
} tutti__clock_reading;

typedef struct tutti__clock {
    size_t n; /* readings that have been taken; 0: rank 0's clock is taken for this rank's */
    tutti__clock_reading first, last;
} tutti__clock;

/* Collective: takes a reading. Ranks that share a clock share the best of their readings; those of rank 0's host are exact. */
tutti_status tutti__clock_read(tutti__clock *clock, tutti_group *group);
/* Rank 0's time, in nanoseconds, where this rank's is `ns`. */
int64_t tutti__clock_of_rank0(const tutti__clock *clock, uint64_t ns);
/* The reading from one question that was asked and answered so. */
tutti__clock_reading tutti__clock_estimate(int64_t asked_ns, int64_t theirs_ns,
                                           int64_t answered_ns);

#endif
