/* clock.h -- every rank's monotonic clock relative to rank 0's, for traces on one time axis.   SPDX-License-Identifier: MIT
 *
 * A rank asks rank 0 for its time, as in NTP: sent at t0, answered at t1 by its own clock, with rank 0's time T. Rank 0's clock
 * showed T at some time in between, so
 *
 *     offset = T - (t0 + t1) / 2        error at most (t1 - t0) / 2, whatever the latencies of the two messages
 *
 * Of many requests the one answered fastest is used. Clocks drift by microseconds per second: readings are taken before and
 * after, and interpolated. */
#ifndef TUTTI_TRAIN_CLOCK_H
#define TUTTI_TRAIN_CLOCK_H

#include "base/base.h"
#include <tutti/group.h>

typedef struct tutti__clock_reading {
    int64_t at_ns;     /* this rank's time of the reading */
    int64_t offset_ns; /* rank 0's time minus this rank's */
    int64_t error_ns;  /* its error at most */
} tutti__clock_reading;

typedef struct tutti__clock {
    size_t n; /* readings so far; 0: the offset is taken as 0 */
    tutti__clock_reading first, last;
} tutti__clock;

/* Collective: takes a reading. Ranks that share a clock use the best of their readings; on rank 0's host the offset is exact. */
tutti_status tutti__clock_read(tutti__clock *clock, tutti_group *group);
/* Rank 0's time, in nanoseconds, when this rank's is `ns`. */
int64_t tutti__clock_of_rank0(const tutti__clock *clock, uint64_t ns);
/* The reading from one request with these times. */
tutti__clock_reading tutti__clock_estimate(int64_t asked_ns, int64_t theirs_ns,
                                           int64_t answered_ns);

#endif
