/* counter.h -- a bar on a terminal for what is counted, and Ctrl-C between two of them.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_COUNTER_H
#define TUTTI_TRAIN_COUNTER_H

#include "base/terminal.h"
#include "data/dataset.h"

typedef struct tutti__counter {
    const char *doing, *what; /* "packing", "images" */
    tutti__bar bar;
} tutti__counter;

/* The tick that shows it on standard error, where that is a terminal, and stops the work once a signal has come. */
tutti__tick tutti__counter_begin(tutti__counter *counter, const char *doing, const char *what);
void tutti__counter_clear(tutti__counter *counter);

/* From now on the first SIGINT, SIGTERM or SIGHUP stops the work between two things, so that nothing is left behind. */
void tutti__counter_catch_signals(void);
int tutti__counter_stopped(void); /* by which; 0: none */

#endif
