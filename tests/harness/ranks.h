/* ranks.h -- runs a test's body on n ranks, as threads or as processes.   SPDX-License-Identifier: MIT
 *
 * A body returns 0 on success; otherwise it has printed what failed. It must not use cmocka's assertions, which belong
 * to the test's own thread: it uses CHECK, and the test asserts that the run returned 0. */
#ifndef TUTTI_TESTS_RANKS_H
#define TUTTI_TESTS_RANKS_H

#include "comm/group.h"

#include <stdio.h>

typedef int tutti_rank_body(tutti_group *group, void *arg);

/* Both return how many ranks failed, and have printed which. */
int tutti_run_ranks_as_threads(int n, tutti_rank_body *body, void *arg);
int tutti_run_ranks_as_processes(int n, tutti_rank_body *body, void *arg,
                                 tutti_transport transport);

/* Threads; processes over shared memory, over TCP, and on two hosts in turn. How many ranks failed, of all. */
int tutti_run_ranks_everywhere(int n, tutti_rank_body *body, void *arg);

/* The same with everything said. Zero means default. */
typedef struct tutti_ranks_opts {
    bool processes;
    tutti_transport transport;
    int timeout_ms; /* of the group; default 30,000 */
    int heartbeat_ms;
    tutti__tuning tuning;
    const int *hosts;         /* of each rank, as if these were several; NULL: this one */
    const char *store_host;   /* address at which processes meet; default 127.0.0.1 */
    void (*before)(int rank); /* called first in each rank that is a process */
    int *results;             /* of each rank: its body's return, or -signal; NULL: not asked for */
} tutti_ranks_opts;
/* For opts.hosts: two, in turn. */
extern const int tutti_two_hosts[16];
int tutti_run_ranks(int n, tutti_rank_body *body, void *arg, const tutti_ranks_opts *opts);

/* For bodies: returns when all ranks have come here, by the store: then each is out of the call before, which a barrier does
 * not say, and a failure that follows is not that call's. `key` is used once in a group's life. */
tutti_status tutti_meet(tutti_group *group, const char *key);

/* For bodies: prints and returns 1 from the function if the condition does not hold. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__,            \
                    #condition, tutti_last_error());                                               \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#endif
