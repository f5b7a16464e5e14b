/* reducer_ranges.h -- a reducer's ranges as a part of the state.   SPDX-License-Identifier: MIT
 *
 * finish computes the next step's ranges. If the try fails after that, in a later part, they are restored, so that the
 * step is repeated with the same ranges. */
#ifndef TUTTI_ELASTIC_REDUCER_RANGES_H
#define TUTTI_ELASTIC_REDUCER_RANGES_H

#include <tutti/elastic.h>

typedef struct tutti__kept_ranges {
    tutti_elastic *e;
    tutti_reducer *reducer;
    size_t n;
    float *saved;    /* at the beginning of the try */
    bool finished;   /* without again */
    uint64_t step;   /* the finished one */
    uint64_t digest; /* of the last shard that was digested */
} tutti__kept_ranges;

/* For a reducer that is complete. Errors: MEMORY. */
tutti_status tutti__ranges_init(tutti__kept_ranges *ranges, tutti_elastic *e,
                                tutti_reducer *reducer);
void tutti__ranges_destroy(tutti__kept_ranges *ranges);
/* Undoes the last finish if its step was not committed, and returns true. Call it before begin and before leaving the group. */
bool tutti__ranges_take_back(tutti__kept_ranges *ranges);
/* Call these after the reducer's begin, begin_shard and finish. */
void tutti__ranges_begun(tutti__kept_ranges *ranges);
void tutti__ranges_digest(tutti__kept_ranges *ranges); /* after its begin_shard */
void tutti__ranges_finished(tutti__kept_ranges *ranges, bool again);
tutti_status tutti__ranges_move(const tutti__kept_ranges *ranges,
                                tutti_status (*move)(void *arg, tutti_buf buf), void *arg);

#endif
