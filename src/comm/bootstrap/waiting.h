/* waiting.h -- a wait for other ranks that lasts: who is missing is said now and then, long before the time limit.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_WAITING_H
#define TUTTI_COMM_BOOTSTRAP_WAITING_H

#include "base/base.h"

typedef struct tutti__waiting {
    double begin_ms;
    int said; /* times */
} tutti__waiting;

tutti__waiting tutti__waiting_begin(void);
/* When to look again: after 5 s, 30 s, 2 min, then every 2 min. A time of tutti__now_ms(). */
double tutti__waiting_next(const tutti__waiting *waiting);
/* True if that time has come: now something may be said, once. */
bool tutti__waiting_due(tutti__waiting *waiting);
double tutti__waiting_seconds(const tutti__waiting *waiting);

/* ", which is stopped (SIGSTOP, a debugger)", if this host's process is; else "". */
const char *tutti__waiting_state(const char *host, int64_t pid);

#endif
