/* comm: the communication thread: functions that queue functions, and when it is left asleep.
 * SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
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

/* Queues another, then calls on: its place in the order is still its own. */
static tutti_status outer(void *arg)
{
    errand *e = arg;
    tutti_work *work;

    e->thread = (pid_t)syscall(SYS_gettid);
    TUTTI_TRY(tutti__group_submit(e->group, inner, e, &work));
    TUTTI_TRY(tutti_work_wait(work));
    return tutti_all_reduce(e->group, TUTTI_BUF(&e->sum, 1, TUTTI_I32), TUTTI_SUM, NULL);
}

static int functions_queue_functions(tutti_group *group, void *arg)
{
    errand e = {.group = group, .sum = 1};
    int32_t size = tutti_group_size(group), value = 1;
    tutti_work *works[2];

    (void)arg;
    CHECK(tutti__group_submit(group, outer, &e, &works[0]) == TUTTI_OK);
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

/* How often the thread has gone to sleep. -1: unknown. */
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
    CHECK(tutti__group_submit(group, outer, &e, &work) == TUTTI_OK);
    CHECK(tutti_work_wait(work) == TUTTI_OK);
    before = sleeps_of(e.thread);
    CHECK(before >= 0);
    for (int i = 0; i < CALLS; i++) {
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        usleep(100); /* in which it would come and go, if it were woken */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queued_function_may_queue_another),
        cmocka_unit_test(synchronous_calls_do_not_wake_the_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
