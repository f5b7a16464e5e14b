/* launch: Tutti programs under the launcher find each other, and a lost peer ends the job at once.
 * SPDX-License-Identifier: MIT
 *
 * With an argument the program is a rank; without, it launches itself. */
#include "launch/front/launch.h"
#include "base/base.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/group.h>

static int check(bool ok, const char *what)
{
    if (!ok)
        printf("FAILED: %s\n", what);
    return !ok;
}

/* ---- Ranks ----------------------------------------------------------------------------------------- */

static tutti_status reduce_once(tutti_group *group)
{
    float sum = (float)(tutti_group_rank(group) + 1);
    int n = tutti_group_size(group);

    TUTTI_TRY(tutti_all_reduce(group, TUTTI_BUF(&sum, 1, TUTTI_F32), TUTTI_SUM, NULL));
    if ((int)sum != n * (n + 1) / 2)
        return tutti__fail(TUTTI_ERR_INTERNAL, "the sum over %d ranks is %g", n, (double)sum);
    return tutti_barrier(group, NULL);
}

static int be_rank(const char *task)
{
    tutti_group *group;
    tutti_status status = tutti_group_init(&group, NULL);

    if (status == TUTTI_OK)
        status = reduce_once(group);
    if (status == TUTTI_OK && strcmp(task, "die") == 0 && tutti_group_rank(group) == 1)
        raise(SIGKILL);
    for (int i = 0; i < 1000000 && status == TUTTI_OK && strcmp(task, "die") == 0; i++)
        status = reduce_once(group);
    if (status != TUTTI_OK)
        fprintf(stderr, "%s\n", tutti_last_error());
    tutti_group_free(group);
    return tutti_status_exit_code(status);
}

/* ---- Launcher --------------------------------------------------------------------------------------- */

static int launch(int n, const char *task, double *seconds_p)
{
    char self[] = "launch_group", argument[16], *argv[] = {self, argument, NULL};
    uint64_t begin = tutti__now_ns();
    int code;

    snprintf(argument, sizeof argument, "%s", task);
    code = tutti__launch(
        &(tutti__launch_opts){.argv = argv, .n = n, .rank0_direct = n == 3, .title = "test"});
    *seconds_p = (double)(tutti__now_ns() - begin) * 1e-9;
    return code;
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 2, 3, 4, 7};
    double seconds;
    int failures = 0;
    pid_t stranger;

    if (argc > 1)
        return be_rank(argv[1]);
    for (size_t i = 0; i < TUTTI__COUNT_OF(sizes); i++) {
        failures += check(launch(sizes[i], "reduce", &seconds) == 0, "ranks find each other");
        printf("%d ranks: started, reduced and ended in %.1f ms\n", sizes[i], seconds * 1e3);
    }
    stranger = fork(); /* the caller's own child outlives the job */
    if (stranger == 0) {
        pause();
        _exit(0);
    }
    failures +=
        check(launch(3, "die", &seconds) == 128 + SIGKILL, "the killed rank is the first failure");
    failures += check(seconds < 12, "a lost peer ends the job before a heartbeat of 20 s does");
    printf("a killed rank: all over after %.3f s\n", seconds);
    failures += check(waitpid(stranger, NULL, WNOHANG) == 0, "the caller's own child lives on");
    kill(stranger, SIGKILL);
    failures += check(waitpid(stranger, NULL, 0) == stranger, "it can be waited for");
    failures += check(waitpid(-1, NULL, WNOHANG) < 0, "no other child is left");
    return failures > 0;
}
