/* comm: ranks on two hosts, over a network with delay, limited bandwidth, or cut.   SPDX-License-Identifier: MIT */
#include "harness/ranks.h"
#include "harness/relay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { HEARTBEAT_MS = 800 };

/* In memory that all processes see. */
typedef struct board {
    _Atomic uint64_t cut_ns, latest_ns;
    _Atomic int done; /* ranks that have all their results */
} board;

static board *b;

/* Of the relay between each rank and those of the other host that connect to it. */
static double delay_ms, bytes_per_s;
static tutti_relay *relay; /* of this process */

static int through_relay(int rank, int port)
{
    (void)rank;
    relay = tutti_relay_new(port, delay_ms, bytes_per_s);
    return tutti_relay_port(relay);
}

static tutti_ranks_opts opts_for(const int *hosts)
{
    return (tutti_ranks_opts){.processes = true,
                              .heartbeat_ms = HEARTBEAT_MS,
                              .hosts = hosts,
                              .tuning = {.advertise = through_relay}};
}

static void run_two_and_four(tutti_rank_body *body)
{
    tutti_ranks_opts opts = opts_for(tutti_two_hosts);

    for (int n = 2; n <= 4; n += 2) {
        atomic_store(&b->done, 0);
        assert_int_equal(tutti_run_ranks(n, body, NULL, &opts), 0);
    }
}

/* ---- Slow networks ---------------------------------------------------------------------------------------- */

/* A relay ends with its rank's process, and loses bytes that are not forwarded yet. */
static void leave_together(const tutti_group *group)
{
    atomic_fetch_add(&b->done, 1);
    while (atomic_load(&b->done) < tutti_group_size(group))
        usleep(200);
}

static int sums(tutti_group *group, size_t count, int times)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group);
    float *p = malloc(count * sizeof *p);

    for (int t = 0; t < times; t++) {
        for (size_t i = 0; i < count; i++)
            p[i] = (float)(i % 97 + (size_t)(rank * (t + 1)));
        CHECK(tutti_all_reduce(group, TUTTI_BUF(p, count, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
        for (size_t i = 0; i < count; i++)
            CHECK(p[i] ==
                  (float)((i % 97) * (size_t)size + (size_t)((t + 1) * size * (size - 1) / 2)));
        CHECK(tutti_broadcast(group, TUTTI_BUF(p, count, TUTTI_F32), t % size, NULL) == TUTTI_OK);
    }
    free(p);
    return 0;
}

static int delayed(tutti_group *group, void *arg)
{
    double start = tutti__now_ms();

    (void)arg;
    CHECK(sums(group, 1, 3) == 0);
    CHECK(sums(group, 1000, 3) == 0);
    CHECK(tutti__now_ms() - start >= 6 * delay_ms); /* it did go through the relay */
    CHECK(sums(group, 300000, 2) == 0);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    leave_together(group);
    return 0;
}

static void results_are_exact_over_a_long_cable(void **state)
{
    (void)state;
    delay_ms = 10;
    bytes_per_s = 0;
    run_two_and_four(delayed);
}

static int narrow(tutti_group *group, void *arg)
{
    (void)arg;
    CHECK(sums(group, 500000, 2) == 0);
    leave_together(group);
    return 0;
}

static void results_are_exact_over_a_narrow_cable(void **state)
{
    (void)state;
    delay_ms = 1;
    bytes_per_s = 20e6;
    run_two_and_four(narrow);
}

/* ---- A cut network ------------------------------------------------------------------------------------------ */

/* All messages to and from rank 0 go through its relay. */
static int rank_0_is_cut_off(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group);
    static float x[5000];
    tutti_status status = TUTTI_OK;
    uint64_t now, old;

    (void)arg;
    for (int step = 0; status == TUTTI_OK && step < 10000000; step++) {
        if (rank == 0 && step == 50) {
            atomic_store(&b->cut_ns, tutti__now_ns());
            tutti_relay_cut(relay);
        }
        status = tutti_all_reduce(group, TUTTI_BUF(x, 5000, TUTTI_F32), TUTTI_AVG, NULL);
    }
    now = tutti__now_ns();
    old = atomic_load(&b->latest_ns);
    while (old < now && !atomic_compare_exchange_weak(&b->latest_ns, &old, now))
        ;
    /* the relay ends with its process, which would be visible to the others */
    leave_together(group);
    CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "not been heard from for"));
    /* Of two, whose last heartbeats came at different times, one may be found first. */
    CHECK(rank == 0
              ? strstr(tutti_last_error(), ": rank 1 (") || strstr(tutti_last_error(), ": rank 2 (")
              : strstr(tutti_last_error(), ": rank 0 (") != NULL);
    CHECK(strstr(tutti_last_error(), "all_reduce #") && strstr(tutti_last_error(), "F32 x 5000"));
    return 0;
}

static void who_is_cut_off_is_named_on_every_rank_within_the_heartbeat(void **state)
{
    static const int APART[] = {0, 1, 1};
    tutti_ranks_opts opts = opts_for(APART);
    double ms;

    (void)state;
    delay_ms = 0;
    bytes_per_s = 0;
    for (int n = 2; n <= 3; n++) { /* by TCP alone; a host of one and a host of two */
        atomic_store(&b->latest_ns, 0);
        atomic_store(&b->done, 0);
        assert_int_equal(tutti_run_ranks(n, rank_0_is_cut_off, NULL, &opts), 0);
        ms = (double)(atomic_load(&b->latest_ns) - atomic_load(&b->cut_ns)) * 1e-6;
        print_message("%d ranks: all know after %.0f ms\n", n, ms);
        assert_true(ms < HEARTBEAT_MS + TUTTI_LATE_MS); /* once is the aim */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_exact_over_a_long_cable),
        cmocka_unit_test(results_are_exact_over_a_narrow_cable),
        cmocka_unit_test(who_is_cut_off_is_named_on_every_rank_within_the_heartbeat),
    };

    b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests_name("comm_relay", tests, NULL, NULL);
}
