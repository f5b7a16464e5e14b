/* counter.h -- a progress bar for counted work, which Ctrl-C stops between two items.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_COUNTER_H
#define TUTTI_TRAIN_COUNTER_H

#include "base/terminal.h"
#include "data/dataset.h"

typedef struct tutti__counter {
    const char *doing, *what; /* "packing", "images" */
    tutti__bar bar;
} tutti__counter;

/* A tick that shows progress on standard error, if that is a terminal, and stops the work after a signal. */
tutti__tick tutti__counter_begin(tutti__counter *counter, const char *doing, const char *what);
void tutti__counter_clear(tutti__counter *counter);

/* From now on the first signal that would end the process, Ctrl-C or another, stops the work between two items, so that it can clean
 * up; a file that gets larger than its limit is a failed write. Signals that were
 * ignored stay so, but for Ctrl-C's and Ctrl-\'s. */
void tutti__counter_catch_signals(void);
int tutti__counter_stopped(void); /* the signal; 0: none */

#endif
