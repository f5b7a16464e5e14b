/* poll_loop.c -- one wait for many descriptors and deadlines.   SPDX-License-Identifier: MIT */
#include "launch/agent/poll_loop.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

tutti_status tutti__poll_loop_new(tutti__poll_loop *loop, size_t most)
{
    *loop = (tutti__poll_loop){.most = most, .deadline_ns = UINT64_MAX};
    loop->polled = calloc(most, sizeof *loop->polled);
    loop->entries = calloc(most, sizeof *loop->entries);
    if (!loop->polled || !loop->entries)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to wait for %zu descriptors", most);
    return TUTTI_OK;
}

void tutti__poll_loop_free(tutti__poll_loop *loop)
{
    free(loop->polled);
    free(loop->entries);
    *loop = (tutti__poll_loop){0};
}

void tutti__poll_loop_watch(tutti__poll_loop *loop, int fd, short events,
                            void (*call)(void *owner, void *part), void *owner, void *part)
{
    if (fd < 0)
        return; /* poll counts it against the limit of descriptors all the same */
    assert(loop->n < loop->most);
    loop->polled[loop->n] = (struct pollfd){.fd = fd, .events = events};
    loop->entries[loop->n++] = (tutti__poll_entry){call, owner, part};
}

void tutti__poll_loop_wake_at(tutti__poll_loop *loop, uint64_t ns)
{
    loop->deadline_ns = ns < loop->deadline_ns ? ns : loop->deadline_ns;
}

void tutti__poll_loop_wake_at_ms(tutti__poll_loop *loop, double ms)
{
    if (ms < 1e12)
        tutti__poll_loop_wake_at(loop, ms <= 0 ? 0 : (uint64_t)(ms * 1e6) + 1);
}

tutti_status tutti__poll_loop_wait(tutti__poll_loop *loop)
{
    const uint64_t now = tutti__now_ns(), at = loop->deadline_ns;
    const uint64_t left = at <= now ? 0 : at - now;
    const struct timespec timeout = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    const size_t n = loop->n;
    int n_ready = ppoll(loop->polled, n, at == UINT64_MAX ? NULL : &timeout, NULL);

    loop->n = 0;
    loop->deadline_ns = UINT64_MAX;
    if (n_ready < 0 && errno != EINTR)
        return tutti__fail_errno(errno, "cannot wait for %zu descriptors", n);
    for (size_t i = 0; i < n && n_ready > 0; i++) {
        if (!loop->polled[i].revents)
            continue;
        n_ready--;
        if (loop->entries[i].call)
            loop->entries[i].call(loop->entries[i].owner, loop->entries[i].part);
    }
    return TUTTI_OK;
}
