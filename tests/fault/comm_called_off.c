/* comm: group setup is cancelled at once when the thread's cancellation descriptor becomes readable, wherever it waits.
 * SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"
#include "harness/ranks.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <cmocka.h>

enum { SOON_MS = TUTTI_LATE_MS };

static int silent_port; /* a listener that never replies */
static _Atomic int n_waiting;

typedef struct joiner {
    tutti_store *store;
    int rank, heeded;
    pthread_t thread;
    tutti_status status;
    double called_ms, returned_ms;
} joiner;

static int at_silent_port(int rank, int port)
{
    atomic_fetch_add(&n_waiting, 1);
    return rank == 0 ? silent_port : port;
}

static void *join_main(void *arg)
{
    joiner *j = arg;
    const tutti_group_opts opts = {.store = j->store,
                                   .rank = j->rank,
                                   .world_size = 2,
                                   .transport = TUTTI_TRANSPORT_TCP,
                                   .timeout_ms = 20000};
    tutti_group *group;

    tutti__sockets_heed(j->heeded);
    j->status = tutti__group_init(&group, &opts, &(tutti__tuning){.advertise = at_silent_port});
    j->returned_ms = tutti__now_ms();
    if (j->status == TUTTI_OK)
        tutti_group_free(group);
    return NULL;
}

static tutti_store *serve(void)
{
    tutti_store *store;

    assert_int_equal(tutti_store_tcp_serve(&store, "127.0.0.1", 0), TUTTI_OK);
    return store;
}

/* Starts n ranks of a group of two, then cancels them. */
static void call_off(int n)
{
    joiner joiners[2];
    tutti_store *store = serve();
    double called_ms;
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    atomic_store(&n_waiting, 0);
    for (int r = 0; r < n; r++) {
        joiners[r] = (joiner){.store = store, .rank = r, .heeded = ends[0]};
        assert_int_equal(pthread_create(&joiners[r].thread, NULL, join_main, &joiners[r]), 0);
    }
    while (atomic_load(&n_waiting) < n)
        poll(NULL, 0, 1);
    poll(NULL, 0, 50); /* so that they are usually waiting; the outcome does not depend on it */
    called_ms = tutti__now_ms();
    assert_int_equal(write(ends[1], "x", 1), 1);
    for (int r = 0; r < n; r++) {
        pthread_join(joiners[r].thread, NULL);
        assert_true(joiners[r].status == TUTTI_ERR_PEER || joiners[r].status == TUTTI_ERR_IO);
        assert_true(joiners[r].returned_ms - called_ms < SOON_MS);
    }
    tutti_store_free(store);
    close(ends[0]);
    close(ends[1]);
}

static void while_a_rank_is_missing(void **state)
{
    (void)state;
    call_off(1);
}

/* Rank 1 waits for rank 0's reply, and rank 0 for rank 1's connection. */
static void while_ranks_connect(void **state)
{
    (void)state;
    call_off(2);
}

/* No process replies at the store's address. */
static void while_the_store_is_missing(void **state)
{
    double begin_ms = tutti__now_ms();
    tutti_store *store;
    char at[32];
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    snprintf(at, sizeof at, "127.0.0.1:%d", silent_port);
    tutti__sockets_heed(ends[0]);
    assert_int_not_equal(tutti__store_connect(&store, at, 0, 20000), TUTTI_OK);
    tutti__sockets_heed(-1);
    assert_null(store);
    assert_true(tutti__now_ms() - begin_ms < SOON_MS);
    close(ends[0]);
    close(ends[1]);
}

/* An attempt number passed explicitly overrides the environment; ranks of an older attempt are rejected. */
static void attempts(void **state)
{
    tutti_store *store = serve(), *old, *new;
    char at[32];

    (void)state;
    snprintf(at, sizeof at, "127.0.0.1:%d", tutti_store_port(store));
    assert_int_equal(tutti__store_connect(&new, at, 7, 5000), TUTTI_OK);
    assert_int_equal(new->secret->attempt, 7);
    assert_int_equal(tutti__store_connect(&old, "127.0.0.1", 7, 5000), TUTTI_ERR_ARG);
    assert_int_equal(tutti__store_connect(&old, "127.0.0.1:x", 7, 5000), TUTTI_ERR_ARG);
    assert_int_equal(tutti_store_set(new, "key", "value", 5), TUTTI_OK);
    tutti_store_free(new);
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_a_rank_is_missing), cmocka_unit_test(while_ranks_connect),
        cmocka_unit_test(while_the_store_is_missing), cmocka_unit_test(attempts)};
    tutti__address address;
    int fd;

    if (tutti__resolve(&address, "127.0.0.1", 0) != TUTTI_OK ||
        tutti__listen(&address, &fd) != TUTTI_OK)
        return 1;
    silent_port = tutti__address_port(&address);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
