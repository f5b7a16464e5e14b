/* waiting.h -- during a long wait for other ranks, decides when to log which are missing, long before the time limit.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_WAITING_H
#define TUTTI_COMM_BOOTSTRAP_WAITING_H

#include "base/base.h"

typedef struct tutti__waiting {
    double begin_ms;
    int said; /* lines logged */
} tutti__waiting;

tutti__waiting tutti__waiting_begin(void);
/* When to check again: after 5 s, 30 s, 2 min, then every 2 min. A time of tutti__now_ms(). */
double tutti__waiting_next(const tutti__waiting *waiting);
/* True if that time has come: now one line may be logged. */
bool tutti__waiting_due(tutti__waiting *waiting);
double tutti__waiting_seconds(const tutti__waiting *waiting);

/* ", which is stopped (SIGSTOP, a debugger)", if that process of this host is; else "". */
const char *tutti__waiting_state(const char *host, int64_t pid);

#endif
