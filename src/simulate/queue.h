/* queue.h -- events in the order of their times.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_SIMULATE_QUEUE_H
#define TUTTI_SIMULATE_QUEUE_H

#include "base/base.h"

/* What is to happen to `index` (a rank, a message); of the same time, first what was added first. */
typedef struct tutti__sim_event {
    double at_us;
    uint64_t order;
    int what, index, other;
} tutti__sim_event;

typedef struct tutti__sim_queue {
    tutti__sim_event *heap;
    size_t n, capacity;
    uint64_t added;
} tutti__sim_queue;

/* Errors: MEMORY. */
tutti_status tutti__sim_add(tutti__sim_queue *queue, double at_us, int what, int index, int other);
/* The next event; false: there is none. */
bool tutti__sim_next(tutti__sim_queue *queue, tutti__sim_event *event);
void tutti__sim_queue_free(tutti__sim_queue *queue);

#endif
