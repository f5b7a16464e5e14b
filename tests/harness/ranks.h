/* ranks.h -- runs a test's body on n ranks, as threads or as processes.   SPDX-License-Identifier: MIT
 *
 * A body returns 0 on success; otherwise it has printed what failed. It must not use cmocka's assertions, which belong
 * to the test's own thread: it uses CHECK, and the test asserts that the run returned 0. */
#ifndef TUTTI_TESTS_RANKS_H
#define TUTTI_TESTS_RANKS_H

#include "comm/group.h"

#include <stdio.h>

typedef int tutti_rank_body(tutti_group *group, void *arg);

/* Both print which ranks failed, and return how many. */
int tutti_run_ranks_as_threads(int n, tutti_rank_body *body, void *arg);
int tutti_run_ranks_as_processes(int n, tutti_rank_body *body, void *arg,
                                 tutti_transport transport);

/* Threads; processes over shared memory, by a tree too, over TCP, and on two hosts in turn. Returns how many ranks failed in total. */
int tutti_run_ranks_everywhere(int n, tutti_rank_body *body, void *arg);

/* The same with all options. Zero means default. */
typedef struct tutti_ranks_opts {
    bool processes;
    tutti_transport transport;
    int timeout_ms;   /* of the group; default 30,000 */
    int heartbeat_ms; /* default 20,000 */
    tutti__tuning tuning;
    const int *hosts;         /* by rank, to simulate several; NULL: this one */
    const char *store_host;   /* address at which processes meet; default 127.0.0.1 */
    void (*before)(int rank); /* called first in each rank that is a process */
    int *results;             /* by rank: its body's return value, or -signal; NULL: not needed */
} tutti_ranks_opts;
/* For opts.hosts: two, in turn. */
extern const int tutti_two_hosts[16];
int tutti_run_ranks(int n, tutti_rank_body *body, void *arg, const tutti_ranks_opts *opts);

/* For bodies: returns when all ranks have called it, by the store. Then each has returned from its previous call, which a
 * barrier does not guarantee, and a failure that follows is not that call's. `key` must be unique in the group's life. */
tutti_status tutti_meet(tutti_group *group, const char *key);

/* A limit for what takes milliseconds, and must not take until a time limit or a heartbeat of the group (both are longer): a
 * loaded machine may be late by seconds. */
enum { TUTTI_LATE_MS = 8000 };

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
