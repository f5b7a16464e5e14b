/* comm: functions that are called when a work is done: of collectives and messages, for which nobody waits.
 * SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "harness/ranks.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { MUCH = 300000 };

typedef struct note {
    sem_t called;
    _Atomic int calls;
    tutti_work *work; /* of which the function gives this reference back; NULL: none */
    tutti_status status;
    int source;
} note;

static void note_init(note *n)
{
    memset(n, 0, sizeof *n);
    sem_init(&n->called, 0, 0);
}

static void count_call(void *arg)
{
    note *n = arg;

    n->calls++;
    if (n->work) {
        n->source = tutti_work_source(n->work);
        n->status = tutti_work_wait(n->work);
    }
    sem_post(&n->called);
}

/* Without a call of the library's. */
static bool was_called(note *n)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += TUTTI_LATE_MS / 1000;
    return sem_timedwait(&n->called, &end) == 0 && n->calls == 1;
}

static tutti_status wait_for_semaphore(void *arg)
{
    while (sem_wait(arg) != 0)
        ;
    return TUTTI_OK;
}

static int collectives(tutti_group *group, void *arg)
{
    const int size = tutti_group_size(group);
    float x = 1;
    sem_t gate;
    note n;
    tutti_work *first, *work;

    (void)arg;
    note_init(&n);
    sem_init(&gate, 0, 0);
    CHECK(tutti_group_submit(group, wait_for_semaphore, NULL, &gate, &first) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, &work) == TUTTI_OK);
    n.work = tutti_work_retain(work);
    CHECK(tutti_work_on_done(work, count_call, &n) == TUTTI_OK);
    CHECK(tutti_work_on_done(work, count_call, &n) == TUTTI_ERR_STATE);
    CHECK(tutti_work_on_done(first, NULL, &n) == TUTTI_ERR_ARG);
    CHECK(n.calls == 0);
    tutti_work_release(work);
    sem_post(&gate);
    CHECK(was_called(&n) && n.status == TUTTI_OK && x == (float)size);
    CHECK(tutti_work_wait(first) == TUTTI_OK);
    /* What is done already is said at once. */
    CHECK(tutti_barrier(group, &work) == TUTTI_OK);
    while (!tutti_work_done(work))
        usleep(100);
    n.calls = 0;
    n.work = NULL;
    CHECK(tutti_work_on_done(work, count_call, &n) == TUTTI_OK && n.calls == 1);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    return 0;
}

/* Held work has no thread until somebody looks at it. */
static int held(tutti_group *group, void *arg)
{
    note n;
    tutti_work *work;

    (void)arg;
    note_init(&n);
    tutti__group_hold(group, true);
    CHECK(tutti_barrier(group, &work) == TUTTI_OK);
    tutti__group_hold(group, false);
    CHECK(tutti_work_on_done(work, count_call, &n) == TUTTI_OK);
    CHECK(was_called(&n));
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    return 0;
}

static void collectives_say_when_they_are_done(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, collectives, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, collectives, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, held, NULL), 0);
}

/* A small message and a large one to the next rank, from the one before. No thread of the program waits in the library. */
static int messages(tutti_group *group, void *arg)
{
    static const size_t counts[] = {1, MUCH};
    const int rank = tutti_group_rank(group), size = tutti_group_size(group),
              before = (rank + size - 1) % size;
    float *sent = calloc(MUCH, sizeof *sent), *got = calloc(MUCH, sizeof *got);
    tutti_work *work;

    (void)arg;
    CHECK(sent && got);
    for (size_t i = 0; i < TUTTI__COUNT_OF(counts); i++) {
        note received, done;

        note_init(&received);
        note_init(&done);
        sent[counts[i] - 1] = (float)(rank + 1);
        CHECK(tutti_recv(group, TUTTI_BUF(got, counts[i], TUTTI_F32), TUTTI_ANY_RANK, 1,
                         &received.work) == TUTTI_OK);
        CHECK(tutti_work_on_done(received.work, count_call, &received) == TUTTI_OK);
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        CHECK(tutti_send(group, TUTTI_CONST_BUF(sent, counts[i], TUTTI_F32), (rank + 1) % size, 1,
                         &work) == TUTTI_OK);
        CHECK(tutti_work_on_done(work, count_call, &done) == TUTTI_OK);
        tutti_work_release(work);
        CHECK(was_called(&received) && received.status == TUTTI_OK && received.source == before);
        CHECK(got[counts[i] - 1] == (float)(before + 1));
        CHECK(was_called(&done));
    }
    free(sent);
    free(got);
    return 0;
}

static void messages_say_when_they_are_done(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, messages, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, messages, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(3, messages, NULL), 0);
}

static int aborted(tutti_group *group, void *arg)
{
    float never;
    note received, queued;

    (void)arg;
    note_init(&received);
    note_init(&queued);
    CHECK(tutti_recv(group, TUTTI_BUF(&never, 1, TUTTI_F32), 1 - tutti_group_rank(group), 1,
                     &received.work) == TUTTI_OK);
    CHECK(tutti_work_on_done(received.work, count_call, &received) == TUTTI_OK);
    CHECK(tutti_meet(group, "posted") == TUTTI_OK);
    if (tutti_group_rank(group) == 0) {
        tutti_group_abort(group, "the test says so");
    } else if (tutti_barrier(group, &queued.work) == TUTTI_OK) { /* unless it was the slower */
        CHECK(tutti_work_on_done(queued.work, count_call, &queued) == TUTTI_OK);
        CHECK(was_called(&queued) && queued.status == TUTTI_ERR_ABORTED);
    }
    CHECK(was_called(&received) && received.status == TUTTI_ERR_ABORTED);
    return 0;
}

static int too_late(tutti_group *group, void *arg)
{
    float never;
    note received;

    (void)arg;
    note_init(&received);
    if (tutti_group_rank(group) == 0) {
        const tutti_call call = {.kind = TUTTI_CALL_RECV,
                                 .rank = 1,
                                 .timeout_ms = 100,
                                 .dst = TUTTI_BUF(&never, 1, TUTTI_F32)};

        CHECK(tutti_group_call(group, &call, &received.work) == TUTTI_OK);
        CHECK(tutti_work_on_done(received.work, count_call, &received) == TUTTI_OK);
        CHECK(was_called(&received) && received.status == TUTTI_ERR_TIMEOUT);
    } else {
        while (tutti_group_status(group) == TUTTI_OK)
            usleep(1000);
    }
    return 0;
}

static void failures_and_limits_are_ends_too(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(2, aborted, NULL), 0);
    assert_int_equal(tutti_run_ranks(2, too_late, NULL,
                                     &(tutti_ranks_opts){.heartbeat_ms = 2000, .processes = true}),
                     0);
    assert_int_equal(tutti_run_ranks(2, too_late, NULL, &(tutti_ranks_opts){.heartbeat_ms = 2000}),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_say_when_they_are_done),
        cmocka_unit_test(messages_say_when_they_are_done),
        cmocka_unit_test(failures_and_limits_are_ends_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
