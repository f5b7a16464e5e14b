/* progress.h -- what rank 0 shows: a bar on a terminal, plain lines elsewhere.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_PROGRESS_H
#define TUTTI_TRAIN_PROGRESS_H

#include "base/terminal.h"

typedef struct tutti__progress {
    FILE *out;              /* NULL: silent */
    tutti__bar bar;         /* if its out is NULL: lines instead */
    double images, seconds; /* of steps, exponentially weighted */
} tutti__progress;

/* The contents of a line or bar. */
typedef struct tutti__progress_state {
    int64_t epoch, epochs; /* from 1 */
    uint64_t step, steps;
    double loss, lr, seconds_left;
    const char *noun;                 /* unit of images_per_s: tutti__dataset_noun */
    double images_per_s;              /* of the last log line */
    double step_images, step_seconds; /* of this step, over all ranks */
} tutti__progress_state;

/* mode: the key `progress`. */
void tutti__progress_init(tutti__progress *p, FILE *out, const char *mode);
/* Prints a line above the bar. */
void tutti__progress_say(tutti__progress *p, const char *format, ...) TUTTI_PRINTF(2, 3);
/* After each step: redraws the bar at most 10 times a second, with the throughput of about the last five seconds. Without a
 * bar prints a line if `logged`. */
void tutti__progress_step(tutti__progress *p, const tutti__progress_state *state, bool logged);
/* Clears the bar. */
void tutti__progress_clear(tutti__progress *p);

#endif
