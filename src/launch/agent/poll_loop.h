/* poll_loop.h -- one wait for many descriptors and deadlines, which are registered anew before each wait.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_POLL_LOOP_H
#define TUTTI_LAUNCH_POLL_LOOP_H

#include "base/base.h"

#include <poll.h>

typedef struct tutti__poll_entry {
    void (*call)(void *owner, void *part); /* NULL: only ends the wait */
    void *owner, *part;
} tutti__poll_entry;

typedef struct tutti__poll_loop {
    struct pollfd *polled;      /* [most] */
    tutti__poll_entry *entries; /* [most], in the same order */
    size_t n, most;
    uint64_t deadline_ns;
} tutti__poll_loop;

/* For up to `most` descriptors. */
tutti_status tutti__poll_loop_new(tutti__poll_loop *loop, size_t most);
void tutti__poll_loop_free(tutti__poll_loop *loop);
/* The next wait ends with one of these events, and calls call(owner, part). fd -1: none. */
void tutti__poll_loop_watch(tutti__poll_loop *loop, int fd, short events,
                            void (*call)(void *owner, void *part), void *owner, void *part);
/* It ends at this time at the latest; UINT64_MAX: at none. */
void tutti__poll_loop_wake_at(tutti__poll_loop *loop, uint64_t ns);
/* The same, by tutti__now_ms. */
void tutti__poll_loop_wake_at_ms(tutti__poll_loop *loop, double ms);
/* Waits, calls the callbacks of events, and forgets all that was registered. IO: poll failed. */
tutti_status tutti__poll_loop_wait(tutti__poll_loop *loop);

#endif
