/* lookup.h -- the address of a host's name, without blocking: a name server may take seconds.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_LOOKUP_H
#define TUTTI_LAUNCH_LOOKUP_H

#include "comm/bootstrap/socket.h"

enum { TUTTI__LOOKUP_MS = 10 }; /* how often to ask whether it has ended */

typedef struct tutti__lookup tutti__lookup;

/* In a thread of its own; NULL, with a message: there is none. */
tutti__lookup *tutti__lookup_begin(const char *host, int port);
/* TIMEOUT: there is no answer yet; else it is freed, and *lookup_p NULL. */
tutti_status tutti__lookup_end(tutti__lookup **lookup_p, tutti__address *address);
/* Frees it, now or when its thread ends; NULL is ignored. */
void tutti__lookup_abandon(tutti__lookup *lookup);

#endif
