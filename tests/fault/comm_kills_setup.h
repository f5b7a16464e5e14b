/* comm_kills_setup.h -- one of many ranks is killed at a random moment while they make a group, many times; shared by the short and the
 * long test.   SPDX-License-Identifier: MIT
 *
 * Few of the ranks are connected with each other, and each is at another step. Whoever misses a neighbour, which gave up because it missed
 * one itself, must still name the rank that was killed, as must each rank's report for the launcher. */
#ifndef TUTTI_TESTS_COMM_KILLS_SETUP_H
#define TUTTI_TESTS_COMM_KILLS_SETUP_H

#include "harness/ranks.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { SETUP_MOST = 64, SETUP_TIMEOUT_MS = 20000 };

/* HOSTED: rank 0 hosts the store, as without a launcher. */
typedef enum setup_kind { SETUP_SHARED, SETUP_TCP, SETUP_HOSTED } setup_kind;

typedef struct setup_round {
    int size, victim; /* victim -1: none, to measure how long it takes */
    int taker; /* kills the victim when that has published its address, and has its port; 0: no rank does */
    setup_kind kind;
    _Atomic int port, taken; /* taken: the taker's, which the victim gives as its own */
    uint32_t after_us;
    _Atomic uint64_t published_ns, made_ns;
    _Atomic int pid, n_named, n_unmade; /* unmade: of survivors, for which there was no group yet */
} setup_round;

static setup_round *setup_now;
static tutti_store *setup_world;

static int setup_take(int port)
{
    char key[64];

    atomic_store(&setup_now->taken, port);
    snprintf(key, sizeof key, "/second/%d/1/rank/%d", setup_now->size, setup_now->victim);
    if (tutti_store_wait(setup_world, key, SETUP_TIMEOUT_MS) != TUTTI_OK ||
        kill(atomic_load(&setup_now->pid), SIGKILL) != 0)
        abort();
    return port;
}

static int setup_give(void)
{
    atomic_store(&setup_now->pid, (int)getpid());
    while (atomic_load(&setup_now->taken) == 0)
        poll(NULL, 0, 1);
    return atomic_load(&setup_now->taken);
}

/* Called by each rank when it listens, and is about to publish where. */
static int setup_arm(int rank, int port)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    const uint32_t us = 1 + setup_now->after_us;
    const struct itimerspec at = {.it_value = {us / 1000000, us % 1000000 * 1000}};
    uint64_t none = 0;
    timer_t timer;

    (void)atomic_compare_exchange_strong(&setup_now->published_ns, &none, tutti__now_ns());
    if (setup_now->taker > 0 && rank == setup_now->taker)
        return setup_take(port);
    if (setup_now->taker > 0 && rank == setup_now->victim)
        return setup_give();
    if (rank != setup_now->victim)
        return port;
    atomic_store(&setup_now->pid, (int)getpid());
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &at, NULL) != 0)
        abort();
    return port;
}

/* Where they meet. */
static tutti_status setup_store(tutti_group *world, setup_round *k, tutti_store **store_p)
{
    if (k->kind != SETUP_HOSTED)
        return tutti_store_clone(store_p, world->boot.store);
    if (tutti_group_rank(world) > 0) {
        TUTTI_TRY(tutti_store_wait(world->boot.store, "port", SETUP_TIMEOUT_MS));
        return tutti_store_tcp_connect(store_p, "127.0.0.1", atomic_load(&k->port),
                                       SETUP_TIMEOUT_MS);
    }
    TUTTI_TRY(tutti_store_tcp_serve(store_p, "127.0.0.1", 0));
    atomic_store(&k->port, tutti_store_port(*store_p));
    return tutti_store_set(world->boot.store, "port", "", 0);
}

/* Of a group of which all are there: its number in the first; so groups are told apart in the reports. */
static int setup_body(tutti_group *world, void *arg)
{
    setup_round *k = arg;
    tutti_group_opts opts = {.rank = tutti_group_rank(world),
                             .world_size = k->size,
                             .name = "second",
                             .timeout_ms = SETUP_TIMEOUT_MS,
                             .transport =
                                 k->kind == SETUP_TCP ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO};
    const tutti__tuning tuning = {.advertise = setup_arm};
    tutti_group *group = NULL;
    tutti_status status;
    char named[128], never[64];

    setup_world = world->boot.store;
    CHECK(setup_store(world, k, &opts.store) == TUTTI_OK);
    CHECK(tutti_meet(world, "all are there") == TUTTI_OK);
    status = tutti__group_init(&group, &opts, &tuning);
    tutti_store_free(opts.store);
    if (!group)
        atomic_fetch_add(&k->n_unmade, 1);
    while (status == TUTTI_OK && k->victim >= 0)
        status = tutti_barrier(group, NULL);
    if (k->victim < 0) {
        atomic_store(&k->made_ns, tutti__now_ns());
        CHECK(status == TUTTI_OK && tutti_barrier(group, NULL) == TUTTI_OK);
        tutti_group_free(group);
        return 0;
    }
    snprintf(named, sizeof named, "rank %d (%s, process %d) was lost", k->victim,
             world->comm.peers[k->victim].host, atomic_load(&k->pid));
    snprintf(never, sizeof never, "1 of %d ranks never came: rank %d;", k->size, k->victim);
    if (k->kind == SETUP_HOSTED && k->victim == 0 && strstr(tutti_last_error(), " is gone"))
        snprintf(named, sizeof named, "the process that hosts it");
    else
        CHECK(status == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), named) || strstr(tutti_last_error(), never));
    atomic_fetch_add(&k->n_named, 1);
    tutti_group_free(group);
    return 0;
}

/* Whether the rank's report, if it has made one, names the victim. */
static bool setup_report_is_right(const char *folder, int rank, int victim)
{
    char path[256], text[16384] = "", named[48];
    FILE *file;

    snprintf(path, sizeof path, "%s/flight-second-rank-%d.json", folder, rank);
    file = fopen(path, "r");
    if (!file)
        return true;
    (void)!fread(text, 1, sizeof text - 1, file);
    fclose(file);
    unlink(path);
    snprintf(named, sizeof named, "\"culprit\": %d,", victim);
    if (strstr(text, named))
        return true;
    print_message("the report of rank %d: %.600s\n", rank, text);
    return false;
}

static bool setup_run(setup_round *k, const char *folder)
{
    int results[SETUP_MOST];
    char path[256];
    bool good = true;

    (void)tutti_run_ranks(
        k->size, setup_body, k,
        &(tutti_ranks_opts){.processes = true, .timeout_ms = 60000, .results = results});
    for (int r = 0; r < k->size; r++) {
        good = good && results[r] == (r == k->victim ? -SIGKILL : 0);
        good = setup_report_is_right(folder, r, k->victim) && good;
        snprintf(path, sizeof path, "%s/flight-world-rank-%d.json", folder, r);
        unlink(path);
    }
    return good;
}

static setup_round *setup_round_new(char folder[])
{
    setup_round *k =
        mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(k != MAP_FAILED && mkdtemp(folder));
    setenv("TUTTI_FLIGHT_DIR", folder, 1);
    setup_now = k;
    return k;
}

static void setup_round_free(setup_round *k, const char *folder)
{
    unsetenv("TUTTI_FLIGHT_DIR");
    rmdir(folder);
    munmap(k, sizeof *k);
}

static void setup_kills(int size, int rounds, setup_kind kind, uint64_t seed)
{
    char folder[] = "/tmp/tutti-kills-XXXXXX";
    setup_round *k = setup_round_new(folder);
    int good = 0, unmade = 0;
    uint32_t usual_us = UINT32_MAX, us;

    assert_true(size <= SETUP_MOST);
    for (int i = 0; i < 3; i++) { /* the shortest: a busy machine may be late */
        *k = (setup_round){.size = size, .victim = -1, .kind = kind};
        assert_true(setup_run(k, folder));
        us = (uint32_t)((k->made_ns - k->published_ns) / 1000);
        usual_us = us < usual_us ? us : usual_us;
    }
    for (int i = 0; i < rounds; i++) {
        uint32_t out[4];

        tutti__philox(seed, (tutti__philox_counter){{(uint32_t)i, (uint32_t)size, kind, 0}}, out);
        *k = (setup_round){.size = size,
                           .victim = (int)(out[0] % (uint32_t)size),
                           .kind = kind,
                           .after_us = out[1] % (usual_us + usual_us / 4)};
        if (setup_run(k, folder))
            good++;
        else
            print_message("round %d: of %d ranks %d was killed after %u us: %d name it\n", i, size,
                          k->victim, k->after_us, atomic_load(&k->n_named));
        unmade += atomic_load(&k->n_unmade) > 0;
    }
    print_message("%d ranks (%s), set up in %u us: %d of %d named right, %d of them before the "
                  "group was made\n",
                  size, (const char *[]){"shared memory", "TCP", "store of rank 0"}[kind], usual_us,
                  good, rounds, unmade);
    assert_int_equal(good, rounds);
    setup_round_free(k, folder);
}

#endif
