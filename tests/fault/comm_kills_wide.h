/* comm_kills_wide.h -- of many ranks, few of which are connected with each other, one is killed at a random moment, many times; shared
 * by the short and the long test.   SPDX-License-Identifier: MIT
 *
 * On one host, on several, and over TCP. All others must name it, with its process and their call, and soon. */
#ifndef TUTTI_TESTS_COMM_KILLS_WIDE_H
#define TUTTI_TESTS_COMM_KILLS_WIDE_H

#include "harness/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { WIDE_MOST = 256, WIDE_COUNT = 3000, WIDE_WITHIN_US = 30000, WIDE_HOSTS = 8 };

typedef struct wide_round {
    int number, size, victim;
    uint32_t after_us;
    _Atomic uint64_t killed_ns, known_ns[WIDE_MOST];
    _Atomic int pid, n_named;
} wide_round;

static void wide_arm(wide_round *k)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec at = {0};
    uint64_t when = tutti__now_ns() + (uint64_t)k->after_us * 1000;
    timer_t timer;

    at.it_value.tv_sec = (time_t)(when / 1000000000u);
    at.it_value.tv_nsec = (long)(when % 1000000000u);
    atomic_store(&k->pid, (int)getpid());
    atomic_store(&k->killed_ns, when);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, TIMER_ABSTIME, &at, NULL) != 0)
        abort();
}

static int wide_until_killed(tutti_group *group, void *arg)
{
    wide_round *k = arg;
    float *p = calloc(WIDE_COUNT, sizeof *p);
    tutti_status status = tutti_barrier(group, NULL);
    const int rank = tutti_group_rank(group);
    char named[128], call[16] = "";
    uint32_t out[4] = {0};

    CHECK(p);
    if (rank == k->victim)
        wide_arm(k);
    for (uint32_t step = 0; status == TUTTI_OK; step++) {
        tutti__philox((uint64_t)k->number, (tutti__philox_counter){{step, 0, 0, 1}}, out);
        if (out[0] % 3 == 0)
            status = tutti_barrier(group, NULL);
        else
            status = tutti_all_reduce(group, TUTTI_BUF(p, out[0] % 2 ? 1 : WIDE_COUNT, TUTTI_F32),
                                      TUTTI_MAX, NULL);
    }
    atomic_store(&k->known_ns[rank], tutti__now_ns());
    snprintf(named, sizeof named, "rank %d (%s, process %d) was lost", k->victim,
             group->comm.peers[k->victim].host, atomic_load(&k->pid));
    snprintf(call, sizeof call, "%s #", out[0] % 3 == 0 ? "barrier" : "all_reduce");
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), named) != NULL);
    CHECK(strstr(tutti_last_error(), call) != NULL);
    atomic_fetch_add(&k->n_named, 1);
    free(p);
    return 0;
}

static int wide_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The most that a survivor took to know; -1: a survivor named another, or the round failed otherwise. */
static double wide_run(wide_round *k, bool tcp, const int *hosts)
{
    int results[WIDE_MOST];
    uint64_t last = 0;
    bool good = true;

    (void)tutti_run_ranks(
        k->size, wide_until_killed, k,
        &(tutti_ranks_opts){.processes = true,
                            .timeout_ms = 60000,
                            .transport = tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                            .hosts = hosts,
                            .results = results});
    for (int r = 0; r < k->size; r++) {
        good = good && results[r] == (r == k->victim ? -SIGKILL : 0);
        if (r != k->victim && atomic_load(&k->known_ns[r]) > last)
            last = atomic_load(&k->known_ns[r]);
    }
    return good && atomic_load(&k->n_named) == k->size - 1
               ? ((double)last - (double)atomic_load(&k->killed_ns)) * 1e-6
               : -1;
}

static void wide_kills(int size, int rounds, bool tcp, int n_hosts)
{
    wide_round *k =
        mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *ms = calloc((size_t)rounds, sizeof *ms);
    int hosts[WIDE_MOST], good = 0;

    assert_true(k != MAP_FAILED && ms && size <= WIDE_MOST);
    for (int r = 0; r < size; r++)
        hosts[r] = r * n_hosts / size;
    for (int i = 0; i < rounds; i++) {
        uint32_t out[4];

        memset(k, 0, sizeof *k);
        tutti__philox(4711, (tutti__philox_counter){{(uint32_t)i, (uint32_t)size, 0, 0}}, out);
        k->number = i;
        k->size = size;
        k->victim = (int)(out[0] % (uint32_t)size);
        k->after_us = out[1] % WIDE_WITHIN_US;
        ms[good] = wide_run(k, tcp, n_hosts > 1 ? hosts : NULL);
        if (ms[good] < 0)
            print_message("round %d: of %d ranks %d was killed after %u us: %d name it\n", i, size,
                          k->victim, k->after_us, atomic_load(&k->n_named));
        else
            good++;
    }
    qsort(ms, (size_t)good, sizeof *ms, wide_by_value);
    print_message(
        "%d ranks (%s, %d host%s): %d of %d named right; all know after (ms): median %.2f, "
        "worst %.2f\n",
        size, tcp ? "TCP" : "shared memory", n_hosts, n_hosts > 1 ? "s" : "", good, rounds,
        good ? ms[good / 2] : 0, good ? ms[good - 1] : 0);
    assert_int_equal(good, rounds);
    assert_true(ms[rounds - 1] < 2 * TUTTI_LATE_MS);
    munmap(k, sizeof *k);
    free(ms);
}

#endif
