/* ranges.h -- a reducer's ranges as a part of the state.   SPDX-License-Identifier: MIT
 *
 * finish gives the next step's ranges. Where that attempt comes to nothing all the same, since a part after this one fails, they are
 * taken back: the step is done again as it would have been. */
#ifndef TUTTI_ELASTIC_RANGES_H
#define TUTTI_ELASTIC_RANGES_H

#include <tutti/elastic.h>

typedef struct tutti__kept_ranges {
    tutti_elastic *e;
    tutti_reducer *reducer;
    size_t n;
    float *saved;  /* as the attempt began */
    bool finished; /* without again */
    uint64_t step; /* which */
} tutti__kept_ranges;

/* Of a reducer that is made. MEMORY. */
tutti_status tutti__ranges_init(tutti__kept_ranges *ranges, tutti_elastic *e,
                                tutti_reducer *reducer);
void tutti__ranges_destroy(tutti__kept_ranges *ranges);
/* Takes back the last finish, if its step was not committed: true. To be asked before begin and before the group is left. */
bool tutti__ranges_take_back(tutti__kept_ranges *ranges);
/* After the reducer's begin; after its finish. */
void tutti__ranges_begun(tutti__kept_ranges *ranges);
void tutti__ranges_finished(tutti__kept_ranges *ranges, bool again);
tutti_status tutti__ranges_move(const tutti__kept_ranges *ranges,
                                tutti_status (*move)(void *arg, tutti_buf buf), void *arg);

#endif
