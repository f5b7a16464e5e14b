/* comm: tutti_group_status, without other calls.   SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "harness/ranks.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* Polls, and does nothing else, until the group has failed. */
static tutti_status watch(tutti_group *group)
{
    double deadline = tutti__now_ms() + 10000;
    tutti_status status;

    while ((status = tutti_group_status(group)) == TUTTI_OK && tutti__now_ms() < deadline)
        sched_yield();
    return status;
}

static int an_abort_shows(tutti_group *group, void *arg)
{
    uint64_t calls;
    char why[1500];

    (void)arg;
    CHECK(tutti_group_status(group) == TUTTI_OK);
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    CHECK(tutti_meet(group, "here") == TUTTI_OK);
    calls = tutti_group_sequence(group);
    if (tutti_group_rank(group) == tutti_group_size(group) - 1)
        tutti_group_abort(group, "out of %s", "paper");
    CHECK(watch(group) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "said: out of paper") != NULL);
    CHECK(tutti_group_sequence(group) == calls);
    snprintf(why, sizeof why, "%s", strstr(tutti_last_error(), ": "));
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), why) != NULL); /* as the next call returns */
    return 0;
}

static void an_abort_is_seen_without_a_call(void **state)
{
    (void)state;
    assert_int_equal(tutti_run_ranks_as_threads(1, an_abort_shows, NULL), 0);
    assert_int_equal(tutti_run_ranks_everywhere(3, an_abort_shows, NULL), 0);
}

static int a_death_shows(tutti_group *group, void *arg)
{
    int gone = *(const int *)arg;
    char who[16];

    CHECK(tutti_meet(group, "here") == TUTTI_OK);
    if (tutti_group_rank(group) == gone)
        _exit(0);
    CHECK(watch(group) == TUTTI_ERR_PEER);
    snprintf(who, sizeof who, ": rank %d (", gone);
    CHECK(strstr(tutti_last_error(), who) && strstr(tutti_last_error(), "was lost"));
    return 0;
}

static void a_death_is_seen_without_a_call(void **state)
{
    (void)state;
    assert_int_equal(
        tutti_run_ranks_as_processes(3, a_death_shows, &(int){1}, TUTTI_TRANSPORT_AUTO), 0);
    assert_int_equal(tutti_run_ranks_as_processes(3, a_death_shows, &(int){0}, TUTTI_TRANSPORT_TCP),
                     0);
    assert_int_equal(
        tutti_run_ranks(3, a_death_shows, &(int){2},
                        &(tutti_ranks_opts){.processes = true, .hosts = tutti_two_hosts}),
        0);
}

static void no_group_has_no_health(void **state)
{
    (void)state;
    assert_int_equal(tutti_group_status(NULL), TUTTI_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_is_seen_without_a_call),
        cmocka_unit_test(a_death_is_seen_without_a_call),
        cmocka_unit_test(no_group_has_no_health),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
