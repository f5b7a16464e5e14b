/* elastic: shards are assigned and stolen: each is taken once, a late rank's by others, a rank in step with the others is told
 * which is its last, and a death ends all waits.
 * SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "elastic/shard_queue.h"
#include "harness/ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static uint64_t next_draw(uint64_t *draws)
{
    *draws ^= *draws << 13;
    *draws ^= *draws >> 7;
    *draws ^= *draws << 17;
    return *draws;
}

/* Does nothing, yields, or works or sleeps for some microseconds. */
static void dawdle(uint64_t *draws)
{
    uint64_t d = next_draw(draws), until;

    if (d % 4 == 1)
        sched_yield();
    else if (d % 4 == 2)
        for (until = tutti__now_ns() + d / 4 % 20000; tutti__now_ns() < until;)
            ;
    else if (d % 64 == 3)
        usleep((useconds_t)(d / 64 % 200));
}

/* ---- Each once ---------------------------------------------------------------------------------------------------- */

typedef struct queue_case {
    int shards, attempts;
} queue_case;

/* Takes until nothing is left, counting in `taken`. */
static int take_all(tutti__shard_queue *queue, const int *first, int32_t *taken, uint64_t *draws)
{
    int shard, owner;
    bool last;

    for (;;) {
        CHECK(tutti__shard_queue_take(queue, &shard, &last, &owner) == TUTTI_OK);
        if (shard < 0)
            break;
        taken[shard]++;
        CHECK(first[owner] <= shard && shard < first[owner + 1]);
        CHECK(!last || tutti__shard_queue_left(queue) == 0);
        dawdle(draws);
    }
    CHECK(tutti__shard_queue_left(queue) == 0);
    return 0;
}

static int each_once(tutti_group *group, void *arg)
{
    const queue_case *c = arg;
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    size_t n = (size_t)c->shards;
    int32_t *taken = calloc(n, sizeof *taken);
    int *first = calloc((size_t)size + 1, sizeof *first);
    uint64_t same = 4711, draws = 99991 + (uint64_t)rank * 7919;
    tutti__shard_queue *queue;

    CHECK(taken && first);
    for (int again = 0; again < 2; again++) { /* a second one in the same group */
        CHECK(tutti__shard_queue_new(&queue, group, c->shards) == TUTTI_OK);
        for (int a = 1; a <= c->attempts; a++) {
            int64_t ns[16];

            for (int r = 0; r < size; r++)
                ns[r] = 1 + (int64_t)(next_draw(&same) % 10);
            tutti__shard_ranges(c->shards, size, ns, first);
            memset(taken, 0, n * sizeof *taken);
            dawdle(&draws);
            tutti__shard_queue_begin(queue, (uint64_t)a, first);
            CHECK(take_all(queue, first, taken, &draws) == 0);
            CHECK(tutti_all_reduce(group, TUTTI_BUF(taken, n, TUTTI_I32), TUTTI_SUM, NULL) ==
                  TUTTI_OK);
            for (size_t i = 0; i < n; i++)
                CHECK(taken[i] == 1);
        }
        tutti__shard_queue_free(queue);
    }
    free(taken);
    free(first);
    return 0;
}

static void every_shard_is_taken_once(void **state)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8}, more[] = {0, 1, 3, 13, 56};

    (void)state;
    for (int s = 0; s < 7; s++)
        for (int m = 0; m < 5; m++) {
            queue_case c = {.shards = sizes[s] + more[m], .attempts = 30};

            assert_int_equal(tutti_run_ranks_as_threads(sizes[s], each_once, &c), 0);
        }
}

static void threads_on_several_hosts_too(void **state)
{
    static const int hosts[][8] = {{0, 1, 0, 1, 0, 1, 0, 1}, {0, 1, 2, 3, 4, 5, 6, 7}};

    (void)state;
    for (int h = 0; h < 2; h++)
        for (int size = 2; size <= 8; size += 3) {
            queue_case c = {.shards = 5 * size + h, .attempts = 20};

            assert_int_equal(
                tutti_run_ranks(size, each_once, &c, &(tutti_ranks_opts){.hosts = hosts[h]}), 0);
        }
}

static void processes_too(void **state)
{
    (void)state;
    for (int size = 1; size <= 7; size += 3) {
        queue_case c = {.shards = 4 * size + 1, .attempts = 20};

        assert_int_equal(tutti_run_ranks_everywhere(size, each_once, &c), 0);
    }
}

/* ---- A late rank ------------------------------------------------------------------------------------------- */

static tutti_status tell(tutti_group *group, const char *key)
{
    return tutti_store_set(group->boot.store, key, "1", 1);
}

static tutti_status await(tutti_group *group, const char *key)
{
    return tutti_store_wait(group->boot.store, key, 20000);
}

/* Rank 0 has taken one shard, or has not even begun, when the others have taken all others. */
static int late(tutti_group *group, void *arg)
{
    enum { SHARDS = 12 };
    int rank = tutti_group_rank(group), size = tutti_group_size(group), begun = *(const int *)arg;
    int32_t mine = 0, others_shards = 0;
    int first[9] = {0}, shard, owner;
    const int64_t ns[8] = {0};
    tutti__shard_queue *queue;
    char key[32];
    bool last;

    tutti__shard_ranges(SHARDS, size, ns, first);
    CHECK(tutti__shard_queue_new(&queue, group, SHARDS) == TUTTI_OK);
    if (rank == 0 && begun) {
        tutti__shard_queue_begin(queue, 1, first);
        CHECK(tutti__shard_queue_take(queue, &shard, &last, &owner) == TUTTI_OK);
        CHECK(shard == 0 && owner == 0 && !last);
    }
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    for (int r = 1; r < size && rank == 0; r++) {
        snprintf(key, sizeof key, "rank %d is done", r);
        CHECK(await(group, key) == TUTTI_OK);
    }
    if (rank > 0 || !begun)
        tutti__shard_queue_begin(queue, 1, first);
    for (;;) {
        CHECK(tutti__shard_queue_take(queue, &shard, &last, &owner) == TUTTI_OK);
        if (shard < 0)
            break;
        CHECK(rank > 0);
        mine++;
        CHECK(size > 2 || last == (mine == SHARDS - begun));
        others_shards += owner == 0;
    }
    snprintf(key, sizeof key, "rank %d is done", rank);
    CHECK(rank == 0 || tell(group, key) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&mine, 1, TUTTI_I32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&others_shards, 1, TUTTI_I32), TUTTI_SUM, NULL) ==
          TUTTI_OK);
    CHECK(mine == SHARDS - begun && others_shards == first[1] - begun);
    tutti__shard_queue_free(queue);
    return 0;
}

static void a_late_rank_is_relieved(void **state)
{
    (void)state;
    for (int begun = 0; begun < 2; begun++)
        for (int size = 2; size <= 4; size += 2)
            assert_int_equal(tutti_run_ranks_everywhere(size, late, &begun), 0);
}

/* ---- The last one -------------------------------------------------------------------------------------------------- */

/* All proceed together: each takes one, whose buckets are sent early if it is the last of its range. */
static int in_step(tutti_group *group, void *arg)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group), each = *(const int *)arg;
    int first[9] = {0}, shard, owner;
    const int64_t ns[8] = {0};
    tutti__shard_queue *queue;
    bool last;

    tutti__shard_ranges(each * size, size, ns, first);
    CHECK(tutti__shard_queue_new(&queue, group, each * size) == TUTTI_OK);
    for (int attempt = 1; attempt <= 3; attempt++) {
        tutti__shard_queue_begin(queue, (uint64_t)attempt, first);
        for (int i = 0; i < each; i++) {
            CHECK(tutti__shard_queue_take(queue, &shard, &last, &owner) == TUTTI_OK);
            CHECK(shard == first[rank] + i && owner == rank && last == (i == each - 1));
            CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        }
        CHECK(tutti__shard_queue_take(queue, &shard, &last, &owner) == TUTTI_OK && shard == -1);
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    }
    tutti__shard_queue_free(queue);
    return 0;
}

static void who_goes_with_the_others_hears_the_last(void **state)
{
    (void)state;
    for (int each = 1; each <= 3; each++)
        assert_int_equal(tutti_run_ranks_everywhere(4, in_step, &each), 0);
}

/* ---- The end of a rank --------------------------------------------------------------------------------------------- */

enum { KILLED, SILENT, LATE, LEFT, ABORTED, N_ENDS };

static const struct {
    tutti_status status;
    const char *text;
    bool stops, asked; /* asked: only ranks that send it a request notice */
} ENDS[N_ENDS] = {
    [KILLED] = {TUTTI_ERR_PEER, "rank 1 (", true, false},
    [SILENT] = {TUTTI_ERR_PEER, "has not been heard", true, false},
    [LATE] = {TUTTI_ERR_TIMEOUT, "waiting for rank 1 (", true, true},
    [LEFT] = {TUTTI_ERR_PEER, "has left the group", false, true},
    [ABORTED] = {TUTTI_ERR_ABORTED, "said: enough", false, false},
};

/* All but rank 1 take from it, forever, until it ends: while some of them wait for its answer. */
static int taken_from_who_ends(tutti_group *group, void *arg)
{
    enum { SHARDS = 9 };
    int rank = tutti_group_rank(group), size = tutti_group_size(group), way = *(const int *)arg;
    const int64_t ns[8] = {0};
    int first[9] = {0}, shard, owner;
    pid_t victim = (pid_t)group->comm.peers[1].pid;
    tutti_status status = TUTTI_OK;
    tutti__shard_queue *queue;
    bool last;

    tutti__shard_ranges(SHARDS, size, ns, first);
    CHECK(tutti__shard_queue_new(&queue, group, SHARDS) == TUTTI_OK);
    CHECK(tutti_meet(group, "begin") == TUTTI_OK);
    if (rank == 1) {
        tutti__shard_queue_free(queue);
        if (way == ABORTED)
            tutti_group_abort(group, "enough");
        if (ENDS[way].stops)
            raise(SIGSTOP); /* including its control thread */
        return 0;
    }
    if (way == LATE)
        CHECK(tutti_group_set_timeout(group, 300) == TUTTI_OK);
    if (rank == 2 && way == KILLED) {
        CHECK(await(group, "asking") == TUTTI_OK);
        kill(victim, SIGKILL);
    }
    if (rank == 0)
        CHECK(tell(group, "asking") == TUTTI_OK);
    for (uint64_t a = 1; status == TUTTI_OK; a++) { /* without agreement about attempts */
        tutti__shard_queue_begin(queue, a, first);
        do
            status = tutti__shard_queue_take(queue, &shard, &last, &owner);
        while (status == TUTTI_OK && shard >= 0);
    }
    CHECK(status == ENDS[way].status && strstr(tutti_last_error(), ENDS[way].text));
    if (ENDS[way].stops)
        kill(victim, SIGKILL);
    tutti__shard_queue_free(queue);
    return 0;
}

static void the_end_of_a_rank_ends_all_waits(void **state)
{
    static const int hosts[] = {0, 1, 0, 1};
    int results[4];

    (void)state;
    for (int way = 0; way < N_ENDS; way++)
        for (int i = 0; i < 3; i++) {
            const tutti_ranks_opts opts = {.processes = true,
                                           .heartbeat_ms = way == SILENT ? 500 : 0,
                                           .transport =
                                               i == 1 ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                                           .hosts = i == 2 ? hosts : NULL,
                                           .results = results};

            if (ENDS[way].asked && i == 0)
                continue;
            tutti_run_ranks(4, taken_from_who_ends, &way, &opts);
            for (int r = 0; r < 4; r++)
                assert_int_equal(results[r], r == 1 && ENDS[way].stops ? -SIGKILL : 0);
        }
}

/* ---- Misuse --------------------------------------------------------------------------------------------------------- */

static int too_few_shards(tutti_group *group, void *arg)
{
    tutti__shard_queue *queue;

    (void)arg;
    CHECK(tutti__shard_queue_new(&queue, group, 2) == TUTTI_ERR_ARG && !queue);
    CHECK(strstr(tutti_last_error(), "2 shards for 3 ranks, expected 3 to 4096"));
    CHECK(tutti__shard_queue_new(&queue, group, tutti_group_rank(group) == 1 ? 4097 : 3) ==
              TUTTI_ERR_ARG &&
          !queue);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK); /* it stays usable */
    return 0;
}

static void numbers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(3, too_few_shards, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shard_is_taken_once),
        cmocka_unit_test(threads_on_several_hosts_too),
        cmocka_unit_test(processes_too),
        cmocka_unit_test(a_late_rank_is_relieved),
        cmocka_unit_test(who_goes_with_the_others_hears_the_last),
        cmocka_unit_test(the_end_of_a_rank_ends_all_waits),
        cmocka_unit_test(numbers_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
