/* comm: the communication thread: functions that queue functions, and when it is left asleep; calls that take turns with it; work
 * that is held.
 * SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "harness/emulator.h"
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct errand {
    tutti_group *group;
    int32_t sum;
    pid_t thread;
} errand;

static tutti_status inner(void *arg)
{
    errand *e = arg;

    return tutti_all_reduce(e->group, TUTTI_BUF(&e->sum, 1, TUTTI_I32), TUTTI_SUM, NULL);
}

/* Queues another function, then makes calls itself, which still come first. */
static tutti_status outer(void *arg)
{
    errand *e = arg;
    tutti_work *work;

    e->thread = (pid_t)syscall(SYS_gettid);
    TUTTI_TRY(tutti_group_submit(e->group, inner, NULL, e, &work));
    TUTTI_TRY(tutti_work_wait(work));
    return tutti_all_reduce(e->group, TUTTI_BUF(&e->sum, 1, TUTTI_I32), TUTTI_SUM, NULL);
}

static int functions_queue_functions(tutti_group *group, void *arg)
{
    errand e = {.group = group, .sum = 1};
    int32_t size = tutti_group_size(group), value = 1;
    tutti_work *works[2];

    (void)arg;
    CHECK(tutti_group_submit(group, outer, NULL, &e, &works[0]) == TUTTI_OK);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&value, 1, TUTTI_I32), TUTTI_SUM, &works[1]) ==
          TUTTI_OK);
    CHECK(tutti_work_wait(works[0]) == TUTTI_OK && tutti_work_wait(works[1]) == TUTTI_OK);
    CHECK(e.sum == size * size && value == size);
    return 0;
}

static void a_queued_function_may_queue_another(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, functions_queue_functions, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(3, functions_queue_functions, NULL), 0);
}

/* How often the thread has slept. -1: unknown. */
static long sleeps_of(pid_t thread)
{
    char path[64], line[128];
    long n = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

static int the_thread_sleeps_on(tutti_group *group, void *arg)
{
    enum { CALLS = 200 };
    errand e = {.group = group, .sum = 1};
    tutti_work *work;
    long before;

    (void)arg;
    CHECK(tutti_group_submit(group, outer, NULL, &e, &work) == TUTTI_OK);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    before = sleeps_of(e.thread);
    CHECK(before >= 0);
    for (int i = 0; i < CALLS; i++) {
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        usleep(100); /* in which it would run and sleep again, if it were woken */
    }
    CHECK(sleeps_of(e.thread) - before < CALLS / 4);
    return 0;
}

static void synchronous_calls_do_not_wake_the_thread(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, the_thread_sleeps_on, NULL), 0);
    assert_int_equal(
        tutti_run_ranks_as_processes(2, the_thread_sleeps_on, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

/* The thread and the caller pass the turn to each other without a lock. Out of order, counts would not match, or one would wait
 * for the other. */
static int both_kinds_keep_their_order(tutti_group *group, void *arg)
{
    enum { CALLS = 3000, AHEAD = 3 };
    const int32_t size = tutti_group_size(group);
    int32_t asynchronous[AHEAD][2], value;
    tutti_work *works[AHEAD] = {NULL};

    (void)arg;
    for (int i = 0; i < CALLS; i++) {
        int k = i % AHEAD;

        if (works[k]) {
            CHECK(tutti_work_wait(works[k]) == TUTTI_OK);
            CHECK(asynchronous[k][0] == size && asynchronous[k][1] == (i - AHEAD) * size);
        }
        asynchronous[k][0] = 1;
        asynchronous[k][1] = i;
        CHECK(tutti_all_reduce(group, TUTTI_BUF(asynchronous[k], 2, TUTTI_I32), TUTTI_SUM,
                               &works[k]) == TUTTI_OK);
        value = i;
        for (int n = 0; n < i % 4; n++) {
            CHECK(tutti_all_reduce(group, TUTTI_BUF(&value, 1, TUTTI_I32), TUTTI_MAX, NULL) ==
                  TUTTI_OK);
            CHECK(value == i);
        }
    }
    for (int k = 0; k < AHEAD; k++)
        CHECK(tutti_work_wait(works[k]) == TUTTI_OK);
    return 0;
}

static void calls_and_the_thread_take_turns(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, both_kinds_keep_their_order, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, both_kinds_keep_their_order, NULL), 0);
}

/* Held operations do not wake the thread: the waiting thread runs them, in the order of the calls. */
static int held_work_is_the_waiters(tutti_group *group, void *arg)
{
    enum { CALLS = 200 };
    errand e = {.group = group, .sum = 1};
    tutti_work *works[2];
    long before;

    (void)arg;
    CHECK(tutti_group_submit(group, outer, NULL, &e, &works[0]) == TUTTI_OK);
    CHECK(tutti_work_wait(works[0]) == TUTTI_OK);
    before = sleeps_of(e.thread);
    CHECK(before >= 0);
    for (int i = 0; i < CALLS; i++) {
        int32_t value[2] = {1, 2}, size = tutti_group_size(group);

        tutti__group_hold(group, true);
        for (int k = 0; k < 2; k++)
            CHECK(tutti_all_reduce(group, TUTTI_BUF(&value[k], 1, TUTTI_I32), TUTTI_SUM,
                                   &works[k]) == TUTTI_OK);
        tutti__group_hold(group, false);
        usleep(100);
        CHECK(tutti_work_wait(works[1]) == TUTTI_OK && tutti_work_wait(works[0]) == TUTTI_OK);
        CHECK(value[0] == size && value[1] == 2 * size);
    }
    CHECK(sleeps_of(e.thread) - before < CALLS / 4);
    return 0;
}

static void held_work_does_not_wake_the_thread(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, held_work_is_the_waiters, NULL), 0);
    assert_int_equal(
        tutti_run_ranks_as_processes(2, held_work_is_the_waiters, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

/* In whichever way it is waited for, and whatever follows: ranks wait in different ways. */
static int held_work_gets_done(tutti_group *group, void *arg)
{
    const int32_t size = tutti_group_size(group);

    (void)arg;
    for (int i = 0; i < 60; i++) {
        const int way = (i + tutti_group_rank(group)) % 4;
        int32_t value = 1;
        errand e = {.group = group, .sum = 1};
        tutti_work *work, *behind;
        tutti_status status;

        tutti__group_hold(group, true);
        CHECK(tutti_all_reduce(group, TUTTI_BUF(&value, 1, TUTTI_I32), TUTTI_SUM, &work) ==
              TUTTI_OK);
        tutti__group_hold(group, false);
        while (way == 0 && !tutti_work_done(work))
            usleep(10);
        if (way == 1) {
            while ((status = tutti_work_wait_for(work, 1)) == TUTTI_ERR_TIMEOUT)
                continue;
            CHECK(status == TUTTI_OK);
        }
        if (way == 2)
            CHECK(tutti_work_wait(work) == TUTTI_OK);
        CHECK(tutti_group_submit(group, inner, NULL, &e, &behind) == TUTTI_OK);
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        CHECK(tutti_work_wait(behind) == TUTTI_OK);
        if (way == 0 || way == 3)
            CHECK(tutti_work_wait(work) == TUTTI_OK);
        CHECK(value == size && e.sum == size);
    }
    return 0;
}

static void held_work_gets_done_whoever_asks(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, held_work_gets_done, NULL), 0);
}

static void *taken; /* each piece holds the next one's address */

/* Takes what memory there is, by a limit of the address space; returns the limit before. */
static struct rlimit take_all(void)
{
    struct rlimit limit, none;

    getrlimit(RLIMIT_AS, &limit);
    none = limit;
    none.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &none);
    for (size_t bytes = 1 << 20; bytes >= 16; bytes /= 2)
        for (void **p; (p = malloc(bytes));) {
            *p = taken;
            taken = p;
        }
    return limit;
}

/* Rank 1 has no memory to queue a collective: the others are told, in the collective in which they wait for it. */
static int no_memory_to_begin_with(tutti_group *group, void *arg)
{
    const bool poor = tutti_group_rank(group) == 1;
    int32_t value = 1;
    tutti_work *work;
    tutti_status status;
    const char *text;
    int culprit;

    (void)arg;
    if (poor) {
        struct rlimit limit = take_all();

        status = tutti_all_reduce(group, TUTTI_BUF(&value, 1, TUTTI_I32), TUTTI_SUM, &work);
        setrlimit(RLIMIT_AS, &limit);
        while (taken) {
            void *next = *(void **)taken;

            free(taken);
            taken = next;
        }
        CHECK(status == TUTTI_ERR_MEMORY && work == NULL);
        CHECK(strncmp(tutti_last_error(), "no memory for ", 14) == 0);
        return 0;
    }
    status = tutti_all_reduce(group, TUTTI_BUF(&value, 1, TUTTI_I32), TUTTI_SUM, NULL);
    CHECK(status == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), ") failed: no memory for "));
    CHECK(tutti__group_cause(group, &culprit, &text) == TUTTI_ERR_MEMORY && culprit == 1);
    return 0;
}

static void a_call_that_cannot_begin_ends_the_group(void **state)
{
    (void)state;
#ifdef TUTTI__SANITIZED /* sanitizers need room for themselves */
    skip();
#endif
    if (test_emulated("it takes no limit of address space"))
        skip();
    assert_int_equal(
        tutti_run_ranks_as_processes(2, no_memory_to_begin_with, NULL, TUTTI_TRANSPORT_AUTO), 0);
}

/* ---- References to handles ------------------------------------------------------------------------------------ */

static void *wait_for(void *work)
{
    return (void *)(intptr_t)tutti_work_wait(work);
}

static void count_drop(void *arg)
{
    ++*(_Atomic int *)arg;
}

static tutti_status do_nothing(void *arg)
{
    (void)arg;
    return TUTTI_OK;
}

/* Two threads wait for a collective, and for a receive; a send and a collective are released at once. */
static int handles_have_references(tutti_group *group, void *arg)
{
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    int32_t value = 1, released = 1, sent = rank, got = -1;
    _Atomic int drops = 0;
    tutti_work *work, *other;
    pthread_t thread;
    void *status;

    (void)arg;
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            CHECK(tutti_all_reduce(group, TUTTI_BUF(&value, 1, TUTTI_I32), TUTTI_SUM, &work) ==
                  TUTTI_OK);
        else
            CHECK(tutti_recv(group, TUTTI_BUF(&got, 1, TUTTI_I32), (rank + size - 1) % size, 3,
                             &work) == TUTTI_OK);
        CHECK(pthread_create(&thread, NULL, wait_for, tutti_work_retain(work)) == 0);
        if (i == 1) {
            CHECK(tutti_send(group, TUTTI_CONST_BUF(&sent, 1, TUTTI_I32), (rank + 1) % size, 3,
                             &other) == TUTTI_OK);
            tutti_work_release(other);
        }
        CHECK(tutti_work_wait(work) == TUTTI_OK);
        CHECK(pthread_join(thread, &status) == 0 && status == NULL);
    }
    CHECK(value == size && got == (rank + size - 1) % size);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&released, 1, TUTTI_I32), TUTTI_SUM, &work) ==
          TUTTI_OK);
    tutti_work_release(work);
    tutti_work_release(NULL);
    CHECK(tutti_work_retain(NULL) == NULL);
    CHECK(tutti_group_submit(group, do_nothing, count_drop, &drops, NULL) == TUTTI_OK);
    CHECK(released == size && drops == 1);
    CHECK(tutti_group_submit(group, NULL, count_drop, &drops, &work) == TUTTI_ERR_ARG);
    CHECK(drops == 2 && !work);
    return 0;
}

/* A receive that nobody waits for ends with the group, and is freed by it; what is submitted to a dead group is dropped. */
static int requests_end_with_the_group(tutti_group *group, void *arg)
{
    static int32_t never[16];
    _Atomic int drops = 0;
    tutti_work *work;

    (void)arg;
    CHECK(tutti_recv(group, TUTTI_BUF(&never[tutti_group_rank(group)], 1, TUTTI_I32),
                     TUTTI_ANY_RANK, 7, &work) == TUTTI_OK);
    tutti_work_release(work);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    tutti_group_abort(group, "the test is over");
    CHECK(tutti_group_submit(group, do_nothing, count_drop, &drops, &work) == TUTTI_ERR_ABORTED);
    CHECK(drops == 1 && !work);
    return 0;
}

static void several_threads_share_a_handle(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_everywhere(3, handles_have_references, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(2, requests_end_with_the_group, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queued_function_may_queue_another),
        cmocka_unit_test(synchronous_calls_do_not_wake_the_thread),
        cmocka_unit_test(calls_and_the_thread_take_turns),
        cmocka_unit_test(held_work_does_not_wake_the_thread),
        cmocka_unit_test(held_work_gets_done_whoever_asks),
        cmocka_unit_test(several_threads_share_a_handle),
        cmocka_unit_test(a_call_that_cannot_begin_ends_the_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
