/* progress.h -- what rank 0 shows: a bar on a terminal, plain lines elsewhere.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_PROGRESS_H
#define TUTTI_TRAIN_PROGRESS_H

#include "base/terminal.h"

typedef struct tutti__progress {
    FILE *out; /* NULL: silent (not rank 0) */
    tutti__bar bar;
} tutti__progress;

/* What one line or one bar says. */
typedef struct tutti__progress_state {
    int64_t epoch, epochs; /* from 1 */
    uint64_t step, steps;
    double loss, lr, images_per_s, seconds_left;
} tutti__progress_state;

void tutti__progress_init(tutti__progress *p, FILE *out);
/* A line of its own, above the bar. */
void tutti__progress_say(tutti__progress *p, const char *format, ...) TUTTI_PRINTF(2, 3);
/* After each step: redraws the bar at most 10 times a second; without a terminal a line if `logged`. */
void tutti__progress_step(tutti__progress *p, const tutti__progress_state *state, bool logged);
/* Takes the bar away. */
void tutti__progress_clear(tutti__progress *p);

#endif
