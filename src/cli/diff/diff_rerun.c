/* diff_rerun.c -- runs both again with everything recorded.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "base/terminal.h"
#include "checkpoint/checkpoint_folder.h"
#include "launch/process/error_files.h"
#include "train/output/counter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOG_END = 1500,
    WHY = 2048
}; /* bytes: of a failed run's output that are searched for its last line; of why it failed */

/* ---- From where -------------------------------------------------------------------------------------------------- */

/* The last step before `until` at which both have a whole checkpoint, with equal tensors; 0: none. */
static tutti_status find_start(const tutti__diff_result *result, uint64_t until, uint64_t *step_p)
{
    const tutti__diff_run *a = &result->run[0];

    *step_p = 0;
    for (size_t i = 0; i < a->n_checkpoints; i++) {
        const uint64_t step = a->checkpoints[i];
        tutti__diff_finding found = {.shard = -1};
        uint64_t tensors = 0;
        char gap[1024];

        if (step >= until || !tutti__diff_has_checkpoint(&result->run[1], step))
            continue;
        TUTTI_TRY(tutti__diff_checkpoint(result->run, step, &found, &tensors, gap));
        if (found.source == TUTTI__DIFF_EQUAL && !*gap) {
            *step_p = step;
            return TUTTI_OK;
        }
    }
    return TUTTI_OK;
}

/* ---- A run ------------------------------------------------------------------------------------------------------- */

enum { ARGUMENTS = 32, TEXT = PATH_MAX + 64 };

typedef struct arguments {
    char text[ARGUMENTS][TEXT];
    char *argv[ARGUMENTS + 1];
    int n;
} arguments;

static void add(arguments *a, const char *text)
{
    snprintf(a->text[a->n], TEXT, "%s", text);
    a->argv[a->n] = a->text[a->n];
    a->argv[++a->n] = NULL;
}

static void add_pair(arguments *a, const char *flag, const char *value)
{
    add(a, flag);
    add(a, value);
}

static void add_number(arguments *a, const char *flag, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    add_pair(a, flag, text);
}

static const char *config_text(const tutti__diff_run *run, const char *key)
{
    const char *text = json_string_value(json_object_get(run->config, key));

    return text ? text : "";
}

/* What a run writes for others is left alone. */
static void build(arguments *a, const tutti__diff_run *run, const char *run_dir, uint64_t start,
                  uint64_t until)
{
    const json_int_t ranks = json_integer_value(json_object_get(run->config, "world_size"));
    char path[TEXT];

    add(a, "tutti");
    add(a, "train");
    if (ranks > 1)
        add_number(a, "-n", (uint64_t)ranks);
    snprintf(path, sizeof path, "%s/config.json", run->path);
    add_pair(a, "--config", path);
    add_pair(a, "--run-dir", run_dir);
    snprintf(path, sizeof path, "%s/checkpoints/step-%08llu", run->path, (unsigned long long)start);
    add_pair(a, "--resume", start ? path : "no");
    add_pair(a, "--trace-digests", "1");
    add_number(a, "--stop-after", until);
    add_pair(a, "--keep-checkpoints", "1");
    add_pair(a, "--progress", "plain");
    add_pair(a, "--tensorboard", "false");
    add_pair(a, "--histograms", "0");
    add_pair(a, "--wandb", "off");
    if (*config_text(run, "prometheus")) {
        snprintf(path, sizeof path, "%s.prom", run_dir);
        add_pair(a, "--prometheus", path);
    }
}

/* In the child: the kernels that the record names, if they are not what this machine takes by itself. */
static void choose_kernels(const tutti__diff_run *run)
{
    static const char *const limits[] = {"avx512", "avx2", "sse41"};
    const char *isa = tutti__diff_header(run, "isa");

    if (strcmp(tutti__diff_header(run, "kernels"), "reference") == 0)
        setenv("TUTTI_KERNELS", "reference", 1);
    for (size_t i = 0; i < TUTTI__COUNT_OF(limits); i++)
        if (tutti__ends_in(isa, limits[i]))
            setenv("TUTTI_CPU_ISA", limits[i], 1);
}

/* What this process does at a signal is not the child's, which would lose one that comes before it is tutti train. */
static void reset_signals(const sigset_t *mask)
{
    struct sigaction action;

    for (int i = 1; i < NSIG; i++)
        if (sigaction(i, NULL, &action) == 0 && (action.sa_handler != SIG_IGN || i == SIGPIPE))
            signal(i, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

static void become(char **argv, const char *program, const char *log, const char *errors,
                   pid_t parent)
{
    const int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (fd < 0 || getppid() != parent)
        _exit(127);
    setenv("TORCHELASTIC_ERROR_FILE", errors, 1);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execv(program, argv);
    _exit(127);
}

/* Its exit code, or 128 + a signal's number; a signal that asks this process to end is passed on. */
static int wait_for(pid_t child)
{
    bool told = false;
    int status = 0;
    pid_t got;

    while ((got = waitpid(child, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (tutti__counter_stopped() && !told) {
            told = true;
            kill(child, SIGTERM);
        }
        poll(NULL, 0, 20);
    }
    if (got < 0) /* whoever started this process ignores SIGCHLD */
        return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Why a run has failed: what the rank that failed first says of it, or else the last line of the run's output. */
static void read_why(const char *errors, const char *log, char *text, size_t size)
{
    const int fd = open(log, O_RDONLY | O_CLOEXEC);
    const off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    char end[LOG_END + 1], *line;
    tutti__reason reason;
    ssize_t n;

    n = fd < 0 ? 0 : pread(fd, end, LOG_END, bytes > LOG_END ? bytes - LOG_END : 0);
    if (fd >= 0)
        close(fd);
    if (tutti__reason_read(errors, &reason)) {
        snprintf(text, size, ": %.*s", (int)strcspn(reason.text, "\n"), reason.text);
        return;
    }
    while (n > 0 && end[n - 1] == '\n')
        n--;
    end[n > 0 ? n : 0] = '\0';
    line = strrchr(end, '\n');
    line = line ? line + 1 : end;
    snprintf(text, size, "%s%s", *line ? "; its last line: " : "", line);
}

static void say(const tutti__diff_run *run, uint64_t start, uint64_t until)
{
    char from[64] = "the start", to[32] = "its end";

    if (start > 0)
        snprintf(from, sizeof from, "the checkpoint of step %llu", (unsigned long long)start);
    if (until > 0)
        snprintf(to, sizeof to, "step %llu", (unsigned long long)until);
    tutti__print_line(stderr, "tutti diff: running %s again, from %s to %s", run->path, from, to);
}

static tutti_status run_again(const tutti__diff_run *run, const char *folder, const char *name,
                              uint64_t start, uint64_t until)
{
    char program[PATH_MAX], run_dir[PATH_MAX], log[PATH_MAX + 8], errors[PATH_MAX + 16];
    char record[PATH_MAX + 16], why[WHY];
    arguments *a = tutti__alloc(sizeof *a);
    const pid_t parent = getpid();
    sigset_t all, mask;
    pid_t child;
    int code;

    if (!a)
        return TUTTI_ERR_MEMORY;
    snprintf(run_dir, sizeof run_dir, "%s/%s", folder, name);
    snprintf(log, sizeof log, "%s.log", run_dir);
    snprintf(errors, sizeof errors, "%s.error.json", run_dir);
    snprintf(record, sizeof record, "%s/digests", run_dir);
    build(a, run, run_dir, start, until);
    say(run, start, until);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask);
    child = tutti__executable(program, sizeof program) ? fork() : -1;
    if (child == 0) {
        reset_signals(&mask);
        choose_kernels(run);
        become(a->argv, program, log, errors, parent);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    free(a);
    if (child < 0)
        return tutti__fail_errno(errno, "cannot start tutti train");
    code = wait_for(child);
    read_why(errors, log, why, sizeof why);
    (void)unlink(errors);
    if (tutti__counter_stopped())
        return tutti__fail(TUTTI_ERR_STATE, "stopped by a signal");
    if (code == 0 || (code == 1 && tutti__is_folder(record))) /* it fails again: in which step? */
        return TUTTI_OK;
    return tutti__fail(code == 4 ? TUTTI_ERR_MEMORY : TUTTI_ERR_STATE,
                       "%s could not be run again (tutti train ended with %d)%s%s", run->path, code,
                       why,
                       code == 4 ? "; --keep FOLDER, or TMPDIR, makes the reruns elsewhere" : "");
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

static tutti_status check(const tutti__diff_run *run)
{
    if (strcmp(tutti__diff_header(run, "framework"), "torch") == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--rerun: %s is a run of a PyTorch program, which only you can run "
                           "again; compare without --rerun",
                           run->path);
    if (!run->config)
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "--rerun: %s has no config.json that can be read, by which to run it "
                           "again",
                           run->path);
    return TUTTI_OK;
}

static bool has_failed(const tutti__diff_result *result)
{
    return tutti__diff_has_failed(&result->run[0]) || tutti__diff_has_failed(&result->run[1]);
}

/* The step in which they differ, between or within them, or, where only their ends are known to differ, in which one has failed; 0: not
 * known. */
static uint64_t known_until(const tutti__diff_result *result)
{
    const tutti__diff_finding *found[] = {&result->first, &result->ranks[0], &result->ranks[1]};

    for (size_t i = 0; i < TUTTI__COUNT_OF(found); i++)
        if (found[i]->source != TUTTI__DIFF_EQUAL)
            return found[i]->step +
                   (found[i]->phase == TUTTI__DIFF_INITIAL ||
                    (found[i]->source == TUTTI__DIFF_SUMMARY && has_failed(result)));
    return 0;
}

tutti_status tutti__diff_rerun(const tutti__diff_result *result, const char *folder)
{
    const uint64_t until = known_until(result);
    uint64_t start = 0;

    TUTTI_TRY(check(&result->run[0]));
    TUTTI_TRY(check(&result->run[1]));
    if (until > 0) /* a run that fails in its first step leaves no record */
        TUTTI_TRY(find_start(result, until - has_failed(result), &start));
    TUTTI_TRY(run_again(&result->run[0], folder, "a", start, until));
    return run_again(&result->run[1], folder, "b", start, until);
}
