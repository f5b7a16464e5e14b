/* greet.h -- authenticates on a connected socket, for tests that connect by hand.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_GREET_H
#define TUTTI_TESTS_GREET_H

#include "comm/bootstrap/authentication.h"

/* Blocks; TIMEOUT after `ms`. */
static inline tutti_status test_greet(int fd, const tutti__secret *secret,
                                      const tutti__claim *claim, const char *who, int ms)
{
    double deadline = tutti__now_ms() + ms;
    tutti__client_handshake h = {0};
    int state;

    while ((state = tutti__client_handshake_step(&h, fd, secret, claim, NULL, who)) == 0)
        if (poll(&(struct pollfd){fd, POLLIN, 0}, 1, tutti__poll_ms(deadline)) == 0)
            return TUTTI_ERR_TIMEOUT;
    return state > 0 ? TUTTI_OK : h.status;
}

#endif
