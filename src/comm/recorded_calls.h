/* recorded_calls.h -- collectives between tutti_coalesce_begin and tutti_coalesce_end, of one thread and group.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_RECORDED_CALLS_H
#define TUTTI_COMM_RECORDED_CALLS_H

#include "comm/group.h"

typedef struct tutti__recorded_call {
    tutti__operation op;
    size_t *counts;             /* its own copy; NULL: none */
    tutti__pooled_event *event; /* of op, if it is the first on its stream */
    bool done;
} tutti__recorded_call;

typedef struct tutti__recorded_calls {
    struct tutti__recorded_calls *next;
    tutti_group *group;
    uint64_t id; /* of the group: another may later have the same address */
    tutti__recorded_call *list;
    size_t n, capacity;
} tutti__recorded_calls;

/* The thread's calls on the group are recorded from now on; `capacity`: as many as are expected. Errors: MEMORY. */
tutti_status tutti__record_calls(tutti_group *group, size_t capacity);
/* What was recorded since the last beginning, for which it is the end; NULL: there was none. Free it. */
tutti__recorded_calls *tutti__take_recorded_calls(const tutti_group *group);
void tutti__recorded_calls_free(void *calls);

#endif
