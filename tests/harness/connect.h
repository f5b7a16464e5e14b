/* connect.h -- a connection of a test.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_HARNESS_CONNECT_H
#define TUTTI_TESTS_HARNESS_CONNECT_H

#include "comm/bootstrap/socket.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

/* One attempt; returns a connected socket, or -1 with errno. */
static inline int tutti_connect(const tutti__address *address, int timeout_ms)
{
    struct pollfd p = {.fd = tutti__connect_begin(address), .events = POLLOUT};
    int error;

    if (p.fd < 0)
        return -1;
    error = poll(&p, 1, timeout_ms) > 0 ? tutti__connect_end(p.fd) : ETIMEDOUT;
    if (!error)
        return p.fd;
    close(p.fd);
    errno = error;
    return -1;
}

#endif
