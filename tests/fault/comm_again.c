/* comm: after a death the survivors repeatedly make a new group in the same process, alone and with a restarted rank,
 * and neither descriptors nor memory use grow.   SPDX-License-Identifier: MIT */
#include "harness/ranks.h"
#include "harness/resources.h"

#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* SETTLED: by this round every thread has filled the allocator's caches, which count as in use. */
enum { ROUNDS = 70, SETTLED = 40, SIZE = 3, VICTIM = 2, COUNT = 5000 };

static tutti_group_opts round_opts(tutti_store *store, int rank, int size, int round)
{
    return (tutti_group_opts){.store = store,
                              .rank = rank,
                              .world_size = size,
                              .timeout_ms = 20000,
                              .name = size == SIZE ? "all" : "rest",
                              .transport = round % 2 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO};
}

/* Runs all-reduces until one fails; frees the group. */
static int with_the_victim(tutti_store *store, int rank, int round)
{
    const tutti_group_opts opts = round_opts(store, rank, SIZE, round);
    tutti_status status = TUTTI_OK;
    tutti_group *group;
    tutti_work *work;
    float *p;

    CHECK(tutti_group_init(&group, &opts) == TUTTI_OK);
    CHECK(tutti_group_alloc(group, COUNT * sizeof *p, (void **)&p) == TUTTI_OK);
    for (int i = 0; status == TUTTI_OK; i++) {
        const tutti_buf buf = {p, COUNT, TUTTI_F32, NULL};

        if (rank == VICTIM && i == 5)
            raise(SIGKILL);
        status = tutti_all_reduce(group, buf, TUTTI_MAX, i % 2 ? &work : NULL);
        if (status == TUTTI_OK && i % 2)
            status = tutti_work_wait(work);
    }
    CHECK(status == TUTTI_ERR_PEER && strstr(tutti_last_error(), "rank 2 ("));
    tutti_group_free(group);
    return 0;
}

static int without_it(tutti_store *store, int rank, int round)
{
    const tutti_group_opts opts = round_opts(store, rank, SIZE - 1, round);
    tutti_group *group;
    float x = 1;

    CHECK(tutti_group_init(&group, &opts) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(x == SIZE - 1);
    tutti_group_free(group);
    return 0;
}

static int survive(int rank, int port)
{
    int fds = 0, maps = 0;
    size_t bytes = 0, now;
    tutti_store *store;

    CHECK(tutti_store_tcp_connect(&store, "127.0.0.1", port, 5000) == TUTTI_OK);
    for (int round = 0; round < ROUNDS; round++) {
        if (round == SETTLED) {
            fds = count_descriptors();
            maps = count_mappings();
            bytes = mallinfo2().uordblks;
        }
        CHECK(with_the_victim(store, rank, round) == 0);
        CHECK(without_it(store, rank, round) == 0);
    }
    now = mallinfo2().uordblks;
    printf("rank %d, rounds %d to %d: descriptors %d -> %d, mappings %d -> %d, heap %zu -> %zu\n",
           rank, SETTLED, ROUNDS, fds, count_descriptors(), maps, count_mappings(), bytes, now);
    CHECK(count_descriptors() == fds);
#ifndef TUTTI__SANITIZED /* whose allocator maps as it likes */
    CHECK(count_mappings() <= maps + 4);
    CHECK(now <= bytes + 16384);
#endif
    tutti_store_free(store);
    return 0;
}

/* Restarts the victim each time that it dies. */
static int restart_it(int port)
{
    for (int round = 0; round < ROUNDS; round++) {
        int status;
        pid_t pid = fork();

        if (pid == 0) {
            tutti_store *store;

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (tutti_store_tcp_connect(&store, "127.0.0.1", port, 5000) == TUTTI_OK)
                (void)with_the_victim(store, VICTIM, round);
            _exit(1);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    }
    return 0;
}

static void again_and_again(void **state)
{
    tutti_store *store;
    int status, port, ends[2];
    pid_t pids[3];

    (void)state;
    fflush(NULL);
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < 3; i++) { /* before the store has its thread */
        pids[i] = fork();
        if (pids[i] == 0) {
            int result;

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(ends[1]);
            if (read(ends[0], &port, sizeof port) != sizeof port)
                _exit(96);
            close(ends[0]);
            result = i < 2 ? survive(i, port) : restart_it(port);
            exit(result); /* sanitizers look for leaks */
        }
    }
    close(ends[0]);
    assert_int_equal(tutti_store_tcp_serve(&store, "127.0.0.1", 0), TUTTI_OK);
    port = tutti_store_port(store);
    for (int i = 0; i < 3; i++)
        assert_int_equal(write(ends[1], &port, sizeof port), sizeof port);
    close(ends[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(again_and_again)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
