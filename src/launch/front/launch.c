/* launch.c -- the front: the process that the user sees.   SPDX-License-Identifier: MIT
 *
 * It only forwards signals and waits, so that it cannot fail; all work is done by the agent, its child in another session. If
 * the agent is killed, the front inherits its remaining processes (it is a subreaper) and ends them. */
#include "launch/front/launch.h"
#include "launch/agent/agent.h"
#include "launch/process/descendants.h"
#include "launch/process/job_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Whether this process may use so little stack, or so few descriptors, that the agent could not even report it. */
static bool is_too_limited(const char *title)
{
    enum { STACK_KIB = 128, DESCRIPTORS = 16, AGENTS_DESCRIPTORS = 28 };
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK_KIB * 1024) {
        fprintf(stderr,
                "%s: the stack may have %llu KiB here (ulimit -s), expected at least %d: "
                "raise the limit (ulimit -s 8192)\n",
                title, (unsigned long long)limit.rlim_cur / 1024, STACK_KIB);
        return true;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < DESCRIPTORS) {
        fprintf(stderr,
                "%s: %llu files may be open at once (ulimit -n), expected at least %d, and 3 "
                "for each worker: raise the limit (ulimit -n 1024)\n",
                title, (unsigned long long)limit.rlim_max, AGENTS_DESCRIPTORS);
        return true;
    }
    return false;
}

typedef struct front {
    const char *title;
    /* children from before the start, as in `exec tutti run ... > >(tee log)` */
    pid_t agent, spared[256];
    size_t n_spared;
    int control; /* signals written here are forwarded by the agent */
    sigset_t waited;
} front;

/* Ctrl-Z: the workers have no controlling terminal, so the front stops and continues them. */
static void stop_with_workers(const front *f)
{
    const char stop = SIGTSTP, go_on = SIGCONT;

    if (write(f->control, &stop, 1) == 1)
        raise(SIGSTOP);
    if (write(f->control, &go_on, 1) != 1)
        return; /* the agent has ended: waitpid will report it */
}

/* A stopped agent could not forward it, so it is continued first. */
static void pass_on(const front *f, int sig)
{
    const char byte = (char)sig;

    kill(f->agent, SIGCONT);
    (void)!write(f->control, &byte, 1); /* if the agent has ended, waitpid will report it */
}

static int wait_for_agent(const front *f)
{
    int status;

    for (;;) {
        pid_t pid = waitpid(f->agent, &status, WNOHANG);
        int sig;

        if (pid == f->agent)
            return status;
        if (pid < 0 && errno != EINTR)
            return W_EXITCODE(4, 0);
        sig = sigwaitinfo(&f->waited, NULL);
        if (sig == SIGTSTP) {
            stop_with_workers(f);
        } else if (sig > 0 && sig != SIGCHLD) {
            pass_on(f, sig);
        }
    }
}

/* The agent was killed: its workers died with it, and their descendants were inherited by this process. */
static void end_orphans(const front *f)
{
    const struct timespec tick = {0, 10000000};
    uint64_t give_up = tutti__now_ns() + 5000000000u;
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (tutti__signal_descendants(SIGKILL, f->spared, f->n_spared) > 0 &&
           tutti__now_ns() < give_up)
        sigtimedwait(&child, NULL, &tick);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

static int finish(const front *f, int status)
{
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    end_orphans(f);
    fprintf(
        stderr,
        "%s: the launcher's agent (process %d) was killed by SIG%s; all workers are being ended\n",
        f->title, (int)f->agent, sigabbrev_np(WTERMSIG(status)));
    return 128 + WTERMSIG(status);
}

/* Warns of more workers than cores: that is more often a mistake than intended. */
static void warn_of_many(const tutti__job *job)
{
    int cores = tutti__cores();

    if (job->opts.n > cores)
        tutti_log(TUTTI_LOG_WARN, "launch",
                  "%d workers share %d core%s: they take turns, which is slower; -n %d gives every "
                  "worker a core",
                  job->opts.n, cores, cores == 1 ? "" : "s", cores);
}

static void block_signals(front *f, tutti__job *job)
{
    struct sigaction stop, standard = {.sa_handler = SIG_DFL};

    sigemptyset(&f->waited);
    sigaddset(&f->waited, SIGCHLD);
    for (int i = 0; job->signals[i]; i++)
        sigaddset(&f->waited, job->signals[i]);
    if (sigaction(SIGTSTP, NULL, &stop) == 0 && stop.sa_handler != SIG_IGN)
        sigaddset(&f->waited, SIGTSTP);
    sigaction(SIGCHLD, &standard, NULL); /* if ignored, the exit status of children would be lost */
    sigprocmask(SIG_BLOCK, &f->waited, &job->mask);
}

int tutti__launch(const tutti__launch_opts *opts)
{
    front f = {.title = opts->title ? opts->title : "tutti run"};
    tutti__job job;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, sigpipe;
    tutti_status opened;
    int control[2], subreaper = 0, status, code;

    if (is_too_limited(f.title))
        return 4;
    code = tutti__job_init(&job, opts);
    if (code != 0) {
        fprintf(stderr, "%s: %s\n", f.title, tutti_last_error());
        return code;
    }
    warn_of_many(&job);
    fflush(NULL); /* else the agent would write buffered output again */
    if (pipe2(control, O_CLOEXEC) != 0) {
        fprintf(stderr, "%s: no pipe to the agent: %s (see ulimit -n)\n", f.title, strerror(errno));
        return 4;
    }
    f.n_spared = tutti__list_children(f.spared, TUTTI__COUNT_OF(f.spared));
    block_signals(&f, &job);
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    f.control = control[1];
    opened = tutti__files_open(&job);
    f.agent = opened == TUTTI_OK ? fork() : -1;
    if (f.agent == 0) {
        prctl(PR_SET_PDEATHSIG,
              SIGCONT); /* if it is stopped then, nobody else lets it end the job */
        close(control[1]);
        _exit(tutti__agent_run(&job, control[0]));
    }
    close(control[0]);
    sigaction(SIGPIPE, &ignore, &sigpipe); /* the agent may have ended when a signal is forwarded */
    if (opened != TUTTI_OK) {
        fprintf(stderr, "%s: %s\n", f.title, tutti_last_error());
        code = tutti_status_exit_code(opened);
    } else if (f.agent < 0) {
        fprintf(stderr, "%s: cannot start the agent: %s (see ulimit -u)\n", f.title,
                strerror(errno));
        code = 4;
    } else {
        status = wait_for_agent(&f);
        code = finish(&f, status);
    }
    close(f.control);
    tutti__files_close(&job);
    prctl(PR_SET_CHILD_SUBREAPER, (unsigned long)subreaper);
    sigaction(SIGPIPE, &sigpipe, NULL);
    sigprocmask(SIG_SETMASK, &job.mask, NULL);
    return code;
}
