/* comm_kills.h -- a rank killed at a random moment, many times; shared by the short and the long test.
 * SPDX-License-Identifier: MIT
 *
 * Four processes run a mix of collectives, synchronous and not, on group memory and other memory, with allocations and
 * splits between, until a timer of the kernel's kills one of them. The other three must say which, soon, and nothing may
 * remain: no process, and no descriptor in the process that hosts the store. */
#ifndef TUTTI_TESTS_COMM_KILLS_H
#define TUTTI_TESTS_COMM_KILLS_H

#include "harness/ranks.h"
#include "harness/resources.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { KILL_RANKS = 4, KILL_COUNT = 50000, KILL_WITHIN_US = 25000 };

typedef struct kill_round {
    int number, victim;
    uint32_t after_us;
    _Atomic uint64_t killed_ns, known_ns[KILL_RANKS];
    _Atomic int where[4]; /* in which kind of call the survivors were: counted over all rounds */
} kill_round;

enum { IN_COLLECTIVE, IN_ALLOC, IN_SPLIT, IN_WAIT };

static void arm(kill_round *k)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec at = {0};
    uint64_t when = tutti__now_ns() + (uint64_t)k->after_us * 1000;
    timer_t timer;

    at.it_value.tv_sec = (time_t)(when / 1000000000u);
    at.it_value.tv_nsec = (long)(when % 1000000000u);
    atomic_store(&k->killed_ns, when);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, TIMER_ABSTIME, &at, NULL) != 0)
        abort();
}

static tutti_status plain_calls(tutti_group *group, float *p, uint32_t dice)
{
    int n = tutti_group_size(group);
    tutti_buf all = {p, KILL_COUNT, TUTTI_F32, NULL};
    tutti_buf part = {p, KILL_COUNT / 4 / (size_t)n, TUTTI_F32, NULL};
    tutti_buf whole = {p + KILL_COUNT / 2, part.count * (size_t)n, TUTTI_F32, NULL};

    switch (dice % 5) {
    case 0:
        return tutti_all_reduce(group, all, TUTTI_MAX, NULL);
    case 1:
        return tutti_broadcast(group, all, (int)(dice / 5) % n, NULL);
    case 2:
        return tutti_all_gather(group, tutti_buf_const(part), whole, NULL);
    case 3:
        return tutti_reduce_scatter(group, tutti_buf_const(whole), part, TUTTI_MIN, NULL);
    default:
        return tutti_barrier(group, NULL);
    }
}

static tutti_status several_at_once(tutti_group *group, float *p)
{
    tutti_work *work[6] = {NULL};
    tutti_status status = TUTTI_OK, one;

    for (int i = 0; i < 6 && status == TUTTI_OK; i++)
        status =
            tutti_all_reduce(group, TUTTI_BUF(p + 1000 * i, 1000, TUTTI_F32), TUTTI_MAX, &work[i]);
    for (int i = 0; i < 6; i++)
        if (work[i]) {
            one = tutti_work_wait(work[i]);
            status = status == TUTTI_OK ? one : status;
        }
    return status;
}

static tutti_status in_a_part(tutti_group *group, float *p)
{
    const int ranks[KILL_RANKS] = {3, 1, 0, 2};
    tutti_group *sub;
    tutti_status status = tutti_group_split(group, ranks, KILL_RANKS, "part", &sub);

    if (status == TUTTI_OK)
        status = tutti_all_reduce(sub, TUTTI_BUF(p, 100, TUTTI_F32), TUTTI_MAX, NULL);
    tutti_group_free(sub);
    return status;
}

/* The same on every rank: `dice` is a function of the round and the step. */
static tutti_status one_step(tutti_group *group, uint32_t dice, float *plain, float **shared,
                             int *where)
{
    tutti_status status;

    switch (dice % 8) {
    case 0:
        *where = IN_ALLOC;
        status = TUTTI_OK;
        if (*shared)
            tutti_group_release(group, *shared);
        *shared = NULL;
        return tutti_group_alloc(group, KILL_COUNT * sizeof(float), (void **)shared);
    case 1:
        *where = IN_SPLIT;
        return in_a_part(group, plain);
    case 2:
        *where = IN_WAIT;
        return several_at_once(group, *shared && (dice & 256) ? *shared : plain);
    default:
        *where = IN_COLLECTIVE;
        status = plain_calls(group, *shared && (dice & 256) ? *shared : plain, dice / 8);
        return status;
    }
}

static int until_killed(tutti_group *group, void *arg)
{
    kill_round *k = arg;
    int rank = tutti_group_rank(group), where = IN_COLLECTIVE;
    float *plain = calloc(KILL_COUNT, sizeof *plain), *shared = NULL;
    tutti_status status = tutti_barrier(group, NULL);
    char named[32];

    if (rank == k->victim)
        arm(k);
    for (uint32_t step = 0; status == TUTTI_OK; step++) {
        uint32_t out[4];

        tutti__philox((uint64_t)k->number, (tutti__philox_counter){{step, 0, 0, 1}}, out);
        status = one_step(group, out[0], plain, &shared, &where);
    }
    atomic_store(&k->known_ns[rank], tutti__now_ns());
    atomic_fetch_add(&k->where[where], 1);
    snprintf(named, sizeof named, "rank %d (", k->victim);
    if (!strstr(tutti_last_error(), "\"world\"")) /* the part has its own numbers */
        snprintf(named, sizeof named, "rank %d (", (const int[]){2, 1, 3, 0}[k->victim]);
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), named) != NULL);
    CHECK(strstr(tutti_last_error(), "was lost") != NULL);
    CHECK(strstr(tutti_last_error(), "\"world\"") || strstr(tutti_last_error(), "\"part\""));
    free(plain);
    return 0;
}

/* ---- Leftovers ------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void run_kills(int rounds, uint64_t seed)
{
    kill_round *k =
        mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *ms = calloc((size_t)rounds, sizeof *ms);
    int fds, failed = 0;

    assert_true(k != MAP_FAILED && ms);
    fds = count_descriptors();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < rounds; i++) {
        int results[KILL_RANKS];
        uint32_t out[4];
        uint64_t last = 0;

        tutti__philox(seed, (tutti__philox_counter){{(uint32_t)i, 0, 0, 0}}, out);
        k->number = i;
        k->victim = (int)(out[0] % KILL_RANKS);
        k->after_us = out[1] % KILL_WITHIN_US;
        tutti_run_ranks(
            KILL_RANKS, until_killed, k,
            &(tutti_ranks_opts){.processes = true,
                                .transport = i % 2 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                                .tuning.fan = i % 4 == 2 ? 2 : 0, /* by a tree */
                                .results = results});
        for (int r = 0; r < KILL_RANKS; r++) {
            if (results[r] != (r == k->victim ? -SIGKILL : 0)) {
                print_message("round %d (%s), rank %d of which %d was killed after %u us: %d\n", i,
                              i % 2 ? "TCP" : "shared memory", r, k->victim, k->after_us,
                              results[r]);
                failed++;
            }
            if (r != k->victim && atomic_load(&k->known_ns[r]) > last)
                last = atomic_load(&k->known_ns[r]);
        }
        ms[i] = ((double)last - (double)atomic_load(&k->killed_ns)) * 1e-6;
    }
    qsort(ms, (size_t)rounds, sizeof *ms, by_value);
    print_message("%d kills, all survivors know after (ms): median %.2f, 95 %% %.2f, worst %.2f\n",
                  rounds, ms[rounds / 2], ms[rounds * 95 / 100], ms[rounds - 1]);
    print_message("survivors were in a collective %d, alloc %d, split %d, waiting for several %d\n",
                  k->where[IN_COLLECTIVE], k->where[IN_ALLOC], k->where[IN_SPLIT],
                  k->where[IN_WAIT]);
    assert_int_equal(failed, 0);
    assert_true(ms[0] < 1000); /* a loaded machine may be late in most rounds, but not in all */
    assert_true(ms[rounds - 1] < TUTTI_LATE_MS);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(count_descriptors(), fds);
    munmap(k, sizeof *k);
    free(ms);
}

#endif
