/* comm: in a forked child a group is the parent's: every call says so, and the parent goes on.   SPDX-License-Identifier: MIT */
#include "harness/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int be_the_child(tutti_group *group)
{
    float x = 1;
    tutti_buf one = {&x, 1, TUTTI_F32, NULL};
    tutti_group *sub;
    int peer = (tutti_group_rank(group) + 1) % tutti_group_size(group);

    CHECK(tutti_all_reduce(group, one, TUTTI_SUM, NULL) == TUTTI_ERR_STATE && x == 1);
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_STATE);
    CHECK(tutti_send(group, tutti_buf_const(one), peer, 0, NULL) == TUTTI_ERR_STATE);
    CHECK(tutti_group_split(group, &peer, 1, "sub", &sub) == TUTTI_ERR_STATE && !sub);
    tutti_group_abort(group, "of the child's");
    tutti_group_free(group);
    return 0;
}

static int fork_in_the_middle(tutti_group *group, void *arg)
{
    float x = 1;
    int status;
    pid_t pid;

    (void)arg;
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    pid = fork();
    if (pid == 0)
        _exit(be_the_child(group));
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK);
    CHECK(x == (float)tutti_group_size(group));
    return 0;
}

static void children_have_no_group(void **state)
{
    (void)state;
    assert_int_equal(
        tutti_run_ranks_as_processes(2, fork_in_the_middle, NULL, TUTTI_TRANSPORT_AUTO), 0);
    assert_int_equal(tutti_run_ranks_as_processes(3, fork_in_the_middle, NULL, TUTTI_TRANSPORT_TCP),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(children_have_no_group)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
