/* launch: when a group fails, `tutti run` prints one table of what every rank was doing, including ranks that cannot report it.
 * SPDX-License-Identifier: MIT
 * timeout: 120   run: waiting
 *
 * The program is its own worker: with arguments it is a rank, without any it launches itself and checks the output. */
#include "base/base.h"
#include "launch/front/launch.h"

#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/group.h>

enum { COUNT = 1000, VICTIM = 2 };

/* ---- Ranks ----------------------------------------------------------------------------------------- */

static tutti_status reduce(tutti_group *group, float *p, size_t n)
{
    return tutti_all_reduce(group, TUTTI_BUF(p, n, TUTTI_F32), TUTTI_SUM, NULL);
}

/* What the victim does in place of its 12th call; the others make theirs. */
static tutti_status misbehave(tutti_group *group, const char *task, float *p)
{
    if (strcmp(task, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(task, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(task, "exit") == 0)
        _exit(7);
    if (strcmp(task, "hang") == 0)
        pause();
    if (strcmp(task, "count") == 0)
        return reduce(group, p, COUNT - 1);
    if (strcmp(task, "abort") == 0)
        tutti_group_abort(group, "the \"loss\" is NaN\n\t\\ \xe2\x82"); /* incomplete UTF-8 */
    return reduce(group, p, COUNT);
}

static tutti_status work(const char *task)
{
    static float p[COUNT];
    const int even[] = {0, 2};
    bool split = strncmp(task, "sub-", 4) == 0;
    tutti_group *world, *sub = NULL;
    tutti_status status = tutti_group_init(&world, NULL);
    bool victim = status == TUTTI_OK && tutti_group_rank(world) == VICTIM;

    if (status == TUTTI_OK && split)
        status = tutti_group_split(world, even, 2, "even", &sub);
    for (int i = 0; i < 30 && status == TUTTI_OK; i++) {
        tutti_group *group = split ? sub : world;

        if (!group)
            status = tutti_barrier(world, NULL);
        else if (i == 11 && victim)
            status = misbehave(group, split ? task + 4 : task, p);
        else
            status = reduce(group, p, COUNT);
    }
    if (status != TUTTI_OK)
        fprintf(stderr, "%s\n", tutti_last_error());
    tutti_group_free(sub);
    tutti_group_free(world);
    return status;
}

/* ---- Launcher --------------------------------------------------------------------------------------- */

static int failures;
static char said[1 << 16];

static void launch(int n, const char *task, int code)
{
    char self[] = "launch_flight", argument[16], *argv[] = {self, argument, NULL};
    int ends[2], status;
    size_t got = 0;
    ssize_t bytes;
    pid_t pid;

    printf("%d ranks, %s\n", n, task);
    fflush(stdout);
    if (pipe(ends) != 0)
        abort();
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        snprintf(argument, sizeof argument, "%s", task);
        _exit(tutti__launch(&(tutti__launch_opts){.argv = argv, .n = n, .title = "test"}));
    }
    close(ends[1]);
    while ((bytes = read(ends[0], said + got, sizeof said - 1 - got)) > 0)
        got += (size_t)bytes;
    said[got] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code) {
        printf("FAILED: %s: status %x, expected exit code %d\n%s\n", task, (unsigned)status, code,
               said);
        failures++;
    }
}

static void expect(const char *task, const char *pattern, bool wanted)
{
    regex_t regex;

    if (regcomp(&regex, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB) != 0)
        abort();
    if ((regexec(&regex, said, 0, NULL, 0) == 0) != wanted) {
        printf("FAILED: %s: %s \"%s\" in:\n%s\n", task, wanted ? "no" : "there is", pattern, said);
        failures++;
    }
    regfree(&regex);
}

static void check_lost(const char *task, int code, const char *state)
{
    char pattern[256];

    launch(4, task, code);
    expect(task,
           "^test: the group \"world\" of 4 ranks died: rank 2 \\(.+, process [0-9]+\\) was lost",
           true);
    expect(task,
           "^test: rank 2 did not complete all_reduce #12 \\(F32 x 1000, sum\\), in which "
           "ranks? [0-9, -]+ waits?$",
           true);
    snprintf(pattern, sizeof pattern, "^  > 2 +%s +all_reduce #11 \\(by its peers\\) +-", state);
    expect(task, pattern, true);
    /* Usually all three; a rank that got the error between calls has its own line. */
    expect(task,
           "^    [0-9, -]+ +waits +all_reduce #11 +all_reduce #12 \\(F32 x 1000, sum\\) "
           "+[0-9]+\\.[0-9]+ s$",
           true);
}

static void check_all(void)
{
    check_lost("kill", 128 + SIGKILL, "killed by SIGKILL");
    check_lost("exit", 7, "exit code 7");

    setenv("TUTTI_TIMEOUT_S", "1", 1);
    launch(4, "hang", 3);
    expect("hang", "died: all_reduce #12 .* timed out after 1 s waiting for rank 2", true);
    expect(
        "hang",
        "^  > 2 +(runs, silent +all_reduce #11 \\(by its peers\\)|in no call +all_reduce #11) +-",
        true);
    expect("hang", "^    0-1, 3 +waits .* [1-9]\\.[0-9]+ s$", true);
    setenv("TUTTI_TIMEOUT_S", "20", 1);

    setenv("TUTTI_HEARTBEAT_S", "1", 1);
    launch(4, "stop", 3);
    expect("stop", "died: rank 2 .* has not been heard from for", true);
    expect("stop", "^  > 2 +stopped \\(SIGSTOP\\) +all_reduce #11 \\(by its peers\\) +-", true);
    unsetenv("TUTTI_HEARTBEAT_S");

    launch(4, "count", 3);
    expect("count", "^  > [0-9]+ +in another call .* all_reduce #12 ", true);
    expect("count", " all_reduce #12 \\(F32 x 999, sum\\) +0", true);
    expect("count", "all_reduce #12 \\(F32 x 1000, sum\\)", true);
    expect("count", "did not come", false);
    launch(4, "abort", 3);
    expect("abort", "died: rank 2 .* said: the \"loss\" is NaN", true);

    launch(4, "sub-kill", 128 + SIGKILL);
    expect("sub-kill", "^test: its ranks 0-1 are the job's ranks 0, 2$", true);
    expect("sub-kill", "^  > 1 +killed by SIGKILL", true);

    launch(16, "kill", 128 + SIGKILL);
    expect("kill 16", "^  > 2 +killed by SIGKILL", true);
    expect("kill 16", "^    [0-9, -]+ +waits ", true);

    setenv("TUTTI_FLIGHT", "0", 1);
    launch(2, "none", 0);
    launch(4, "kill", 128 + SIGKILL);
    expect("off", "of 4 ranks died", false);
    unsetenv("TUTTI_FLIGHT");
    launch(4, "none", 0);
    expect("none", "died", false);
}

int main(int argc, char **argv)
{
    static const char *const transports[] = {"auto", "tcp"};

    if (argc > 2 && strcmp(argv[1], "show") == 0) { /* to look at the table by hand */
        char self[] = "launch_flight", *task[] = {self, argv[2], NULL};

        return tutti__launch(
            &(tutti__launch_opts){.argv = task, .n = argc > 3 ? atoi(argv[3]) : 4});
    }
    if (argc > 1)
        return tutti_status_exit_code(work(argv[1]));
    setenv("TUTTI_TIMEOUT_S", "20", 1); /* a hang is reported before this test times out */
    for (size_t i = 0; i < TUTTI__COUNT_OF(transports); i++) {
        setenv("TUTTI_TRANSPORT", transports[i], 1);
        check_all();
    }
    return failures > 0;
}
