/* wire.c -- links: measured on this machine, and what calls take on them.   SPDX-License-Identifier: MIT */
#include "train/forecast/wire.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/group.h>
#include <tutti/store.h>

enum { ROUNDS = 3, SMALL_CALLS = 50, LARGE_CALLS = 5 };
#define LARGE ((size_t)16 << 20) /* of which two do not stay in the caches */

/* Two ranks of this process. */
typedef struct pair {
    tutti_store *store;
    tutti_transport transport;
    double us, gbps; /* rank 0's */
} pair;

typedef struct end {
    pair *both;
    int rank;
    tutti_status status;
    char message[1024];
} end;

/* Of n calls in a row, the fastest of some rounds: what other programs do to the machine only delays. */
static tutti_status time_calls(tutti_group *group, tutti_buf buf, int n, double *seconds_p)
{
    *seconds_p = INFINITY;
    for (int round = 0; round <= ROUNDS; round++) {
        uint64_t begin_ns;
        double seconds;

        TUTTI_TRY(tutti_barrier(group, NULL));
        begin_ns = tutti__now_ns();
        for (int i = 0; i < n; i++)
            TUTTI_TRY(tutti_all_reduce(group, buf, TUTTI_SUM, NULL));
        seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9 / n;
        if (round > 0 && seconds < *seconds_p) /* the first meets new pages and connections */
            *seconds_p = seconds;
    }
    return TUTTI_OK;
}

/* Of two ranks each sends as many bytes as the message has: half to be summed, and half of the sums. */
static tutti_status measure(const end *e, tutti_group *group)
{
    double small, large;
    void *p = NULL;
    tutti_status status;

    TUTTI_TRY(tutti_group_alloc(group, LARGE, &p));
    memset(p, 0, LARGE);
    status = time_calls(group, (tutti_buf){p, 1, TUTTI_F32, NULL}, SMALL_CALLS, &small);
    if (status == TUTTI_OK)
        status = time_calls(group, (tutti_buf){p, LARGE / 4, TUTTI_F32, NULL}, LARGE_CALLS, &large);
    tutti_group_release(group, p);
    TUTTI_TRY(status);
    if (e->rank == 0) {
        e->both->us = small * 1e6;
        e->both->gbps = (double)LARGE / (large > small ? large - small : large) * 1e-9;
    }
    return TUTTI_OK;
}

static void *run(void *arg)
{
    end *e = arg;
    tutti_group *group = NULL;
    const tutti_group_opts opts = {.store = e->both->store,
                                   .rank = e->rank,
                                   .world_size = 2,
                                   .timeout_ms = 10000,
                                   .transport = e->both->transport};

    e->status = tutti_group_init(&group, &opts);
    if (e->status == TUTTI_OK)
        e->status = measure(e, group);
    if (e->status != TUTTI_OK)
        snprintf(e->message, sizeof e->message, "%s", tutti_last_error());
    tutti_group_free(group);
    return NULL;
}

static tutti_status measure_pair(tutti_transport transport, tutti__link_speed *speed)
{
    pair both = {.transport = transport};
    end ends[2] = {{.both = &both, .rank = 0}, {.both = &both, .rank = 1}};
    pthread_t thread;

    TUTTI_TRY(tutti_store_memory_new(&both.store));
    if (pthread_create(&thread, NULL, run, &ends[1]) != 0) {
        tutti_store_free(both.store);
        return tutti__fail(TUTTI_ERR_MEMORY, "no thread for measuring a link");
    }
    run(&ends[0]);
    pthread_join(thread, NULL);
    tutti_store_free(both.store);
    for (int r = 0; r < 2; r++)
        if (ends[r].status != TUTTI_OK)
            return tutti__fail(ends[r].status, "measuring a link: %s", ends[r].message);
    if (speed->gbps == 0)
        speed->gbps = both.gbps;
    if (speed->us == 0)
        speed->us = both.us;
    return TUTTI_OK;
}

static tutti_status find(tutti_transport transport, const char *from, tutti__link_speed *speed)
{
    speed->from = "given";
    if (speed->gbps > 0 && speed->us > 0)
        return TUTTI_OK;
    speed->from = from;
    return measure_pair(transport, speed);
}

tutti_status tutti__wire_measure(tutti__wire *wire, const tutti__layout_of_ranks *layout)
{
    if (layout->local_ranks > 1)
        TUTTI_TRY(
            find(TUTTI_TRANSPORT_AUTO, "measured: two threads of this process", &wire->within));
    if (layout->local_ranks < layout->ranks)
        TUTTI_TRY(find(TUTTI_TRANSPORT_TCP, "measured: this machine's loopback, not your network",
                       &wire->between));
    return TUTTI_OK;
}

/* Of a message of 1 byte, sent by each of n. */
static double share(const char *name, int n)
{
    const double most = (double)(n - 1) / n;

    if (n < 2)
        return 0;
    if (strcmp(name, "all_reduce") == 0)
        return 2 * most;
    if (strcmp(name, "broadcast") == 0 || strcmp(name, "reduce") == 0)
        return 1;
    if (strcmp(name, "send") == 0)
        return 1;
    return strcmp(name, "barrier") == 0 || strcmp(name, "recv") == 0 ? 0 : most;
}

static double parts(const tutti__planned_call *call, const tutti__layout_of_ranks *layout)
{
    return strncmp(call->name, "all_to_all", 10) == 0 ? layout->local_ranks : 1;
}

double tutti__wire_sent(const tutti__planned_call *call, int ranks)
{
    return (double)call->bytes * share(call->name, ranks);
}

/* Within a host each rank sends its part; between hosts a host sends one, but of all_to_all each of its ranks sends its own. */
double tutti__wire_seconds(const tutti__wire *wire, const tutti__planned_call *call,
                           const tutti__layout_of_ranks *layout)
{
    const int hosts = (layout->ranks + layout->local_ranks - 1) / layout->local_ranks;
    double seconds = 0;

    if (call->n == 0 || layout->ranks < 2)
        return 0;
    if (wire->seconds)
        return wire->seconds(wire->of, call, layout);
    if (layout->local_ranks > 1 && wire->within.gbps > 0)
        seconds += (double)call->n * wire->within.us * 1e-6 +
                   tutti__wire_sent(call, layout->local_ranks) / (wire->within.gbps * 1e9);
    if (hosts > 1 && wire->between.gbps > 0)
        seconds += (double)call->n * wire->between.us * 1e-6 +
                   tutti__wire_sent(call, hosts) * parts(call, layout) / (wire->between.gbps * 1e9);
    return seconds;
}
