/* comm: a rank that dies or is stopped is named in each group that contains it, and in no other.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { SIZE = 4, VICTIM = 2, GROUPS = 12, HEARTBEAT_MS = 500 };

typedef struct board {
    _Atomic uint64_t hit_ns, latest_ns;
    _Atomic int pid, told;
    bool stops;        /* instead of dying */
    bool without_root; /* the first group is freed before */
} board;

static bool wait_for(const _Atomic int *value, int least)
{
    double deadline = tutti__now_ms() + 20000;

    while (atomic_load(value) < least && tutti__now_ms() < deadline)
        usleep(500);
    return atomic_load(value) >= least;
}

/* Odd groups are without the victim; in the others the ranks are numbered backwards. */
static int make_groups(tutti_group *group, tutti_group **subs)
{
    static const int backwards[] = {3, 2, 1, 0}, others[] = {0, 3, 1};
    int rank = tutti_group_rank(group);

    for (int i = 0; i < GROUPS; i++) {
        subs[i] = NULL;
        if (i % 2 == 0)
            CHECK(tutti_group_split_members(group, backwards, SIZE, "with", &subs[i]) == TUTTI_OK);
        else if (rank != VICTIM)
            CHECK(tutti_group_split_members(group, others, SIZE - 1, "without", &subs[i]) ==
                  TUTTI_OK);
    }
    return 0;
}

static int check_survivor(const board *b, tutti_group *const *subs)
{
    const char *what = b->stops ? "has not been heard from for " : "was lost";

    for (int i = 0; i < GROUPS; i += 2) {
        CHECK(tutti_barrier(subs[i], NULL) == TUTTI_ERR_PEER);
        CHECK(strstr(tutti_last_error(), "group \"with\"") &&
              strstr(tutti_last_error(), "rank 1 (") && strstr(tutti_last_error(), what));
    }
    for (int i = 1; i < GROUPS; i += 2) {
        int32_t sum = 1;

        CHECK(tutti_all_reduce(subs[i], TUTTI_BUF(&sum, 1, TUTTI_I32), TUTTI_SUM, NULL) ==
              TUTTI_OK);
        CHECK(sum == SIZE - 1);
    }
    return 0;
}

static int one_is_hit(tutti_group *world, void *arg)
{
    board *b = arg;
    int rank = tutti_group_rank(world);
    tutti_group *group, *subs[GROUPS];
    uint64_t now, old;

    CHECK(tutti_group_init(&group,
                           &(tutti_group_opts){.store = world->boot.store,
                                               .rank = rank,
                                               .world_size = SIZE,
                                               .name = "first",
                                               .transport = world->boot.tcp ? TUTTI_TRANSPORT_TCP
                                                                            : TUTTI_TRANSPORT_AUTO,
                                               .heartbeat_ms = HEARTBEAT_MS}) == TUTTI_OK);
    CHECK(make_groups(group, subs) == 0);
    CHECK(tutti_meet(world, "made") == TUTTI_OK);
    if (b->without_root)
        tutti_group_free(group);
    CHECK(tutti_meet(world, "ready") == TUTTI_OK);
    if (rank == VICTIM) {
        atomic_store(&b->hit_ns, tutti__now_ns());
        atomic_store(&b->pid, (int)getpid());
        if (!b->stops)
            raise(SIGKILL);
        raise(SIGSTOP);
        for (int i = 0; i < GROUPS; i += 2) {
            tutti_status status = TUTTI_OK;

            while (status == TUTTI_OK) /* what its peers sent before may complete a call */
                status = tutti_barrier(subs[i], NULL);
            CHECK(status == TUTTI_ERR_PEER);
        }
    } else {
        CHECK(check_survivor(b, subs) == 0);
        now = tutti__now_ns();
        old = atomic_load(&b->latest_ns);
        while (old < now && !atomic_compare_exchange_weak(&b->latest_ns, &old, now))
            ;
        if (!b->without_root) {
            CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_PEER);
            CHECK(strstr(tutti_last_error(), "rank 2 (") != NULL);
        }
        atomic_fetch_add(&b->told, 1);
    }
    for (int i = 0; i < GROUPS; i++)
        tutti_group_free(subs[i]);
    if (!b->without_root)
        tutti_group_free(group);
    return 0;
}

/* Resumes the victim when the others know. */
static pid_t start_resumer(board *b)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (!wait_for(&b->pid, 1) || !wait_for(&b->told, SIZE - 1))
        _exit(1);
    kill(atomic_load(&b->pid), SIGCONT);
    _exit(0);
}

static void run_hit(bool stops, bool without_root, tutti_transport transport, const int *hosts)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int results[SIZE], status = 0;
    pid_t resumer = 0;

    assert_true(b != MAP_FAILED);
    b->stops = stops;
    b->without_root = without_root;
    if (stops)
        resumer = start_resumer(b);
    tutti_run_ranks(
        SIZE, one_is_hit, b,
        &(tutti_ranks_opts){
            .processes = true, .transport = transport, .hosts = hosts, .results = results});
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(results[r], r == VICTIM && !stops ? -SIGKILL : 0);
    if (resumer)
        assert_int_equal(waitpid(resumer, &status, 0), resumer);
    assert_int_equal(status, 0);
    print_message("%d groups know after %.2f ms\n", GROUPS / 2,
                  (double)(atomic_load(&b->latest_ns) - atomic_load(&b->hit_ns)) * 1e-6);
    assert_true((double)(atomic_load(&b->latest_ns) - atomic_load(&b->hit_ns)) * 1e-6 <
                TUTTI_LATE_MS);
    munmap(b, sizeof *b);
}

static void a_death_is_told_in_all_groups_of_the_dead(void **state)
{
    (void)state;
    for (int freed = 0; freed < 2; freed++) {
        run_hit(false, freed, TUTTI_TRANSPORT_AUTO, NULL);
        run_hit(false, freed, TUTTI_TRANSPORT_TCP, NULL);
        run_hit(false, freed, TUTTI_TRANSPORT_AUTO, tutti_two_hosts);
    }
}

static void a_stopped_rank_is_told_in_all_its_groups(void **state)
{
    (void)state;
    run_hit(true, false, TUTTI_TRANSPORT_AUTO, NULL);
    run_hit(true, true, TUTTI_TRANSPORT_TCP, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_told_in_all_groups_of_the_dead),
        cmocka_unit_test(a_stopped_rank_is_told_in_all_its_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
