/* agent.c -- starts the workers, watches them, and decides how the job ends.   SPDX-License-Identifier: MIT
 *
 * One loop over signals, the front's control pipe and the workers' streams. A job goes through its phases in one
 * direction only; each has a deadline after which the next begins, and the loop ends when no descendant is left and
 * all output is out. */
#include "launch/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000u /* nanoseconds */

enum {
    GRACE_MS = 300,    /* after the first failure, for the others to see it and end by themselves */
    LEFTOVER_MS = 300, /* for what workers have left behind, between SIGTERM and SIGKILL */
    KILL_EVERY_MS = 20,   /* until nobody is left */
    GIVE_UP_MS = 10000,   /* on processes that even SIGKILL does not end */
    REPEAT_MS = 250,      /* the same signal sooner is the same wish: timeout(1) sends it twice */
    QUEUE_BYTES = 1 << 20 /* of output; above, workers wait */
};

typedef enum phase {
    RUNNING,
    FAILING,  /* a worker has failed, the others have GRACE_MS */
    STOPPING, /* workers were told to end, they have the shutdown timeout */
    SWEEPING, /* no worker runs, descendants of theirs do; they were told to end */
    KILLING
} phase;

typedef struct agent {
    tutti__job *job;
    int control, signals; /* descriptors */
    tutti__console console;
    tutti__worker *workers;
    struct pollfd *polled;
    int n_running;
    phase phase;
    uint64_t deadline_ns, started_ns, killing_ns;
    bool childless;              /* no descendant is left */
    bool abandoned;              /* output that waits is given up */
    int stop_signal;             /* that came first; 0: none */
    uint64_t stop_ns;            /* when */
    const tutti__worker *blamed; /* the first failure */
    long oom_kills;
    int code; /* of our own failure; 0: none */
} agent;

#define SAY(a, format, ...)                                                                        \
    tutti__console_print(&(a)->console, "%s: " format "\n", (a)->job->opts.title, __VA_ARGS__)

static void enter(agent *a, phase next, double ms)
{
    a->phase = next;
    a->deadline_ns = tutti__now_ns() + (uint64_t)(ms * MS);
    if (next == KILLING && !a->killing_ns)
        a->killing_ns = tutti__now_ns();
}

static void signal_workers(agent *a, int sig)
{
    for (int i = 0; i < a->job->opts.n; i++)
        tutti__worker_signal(&a->workers[i], sig);
}

/* ---- Events ----------------------------------------------------------------------------------------- */

/* Once, when it is known who was first. */
static void report(agent *a)
{
    const tutti__report r = {a->job, a->workers, &a->console, a->oom_kills};
    const tutti__worker *first = tutti__first_failed(a->workers, a->job->opts.n);

    if (!first || a->blamed)
        return;
    a->blamed = first;
    tutti__report_failure(&r, first);
}

static void stop(agent *a, int sig)
{
    report(a);
    signal_workers(a, sig);
    signal_workers(a, SIGCONT); /* a stopped one cannot hear */
    enter(a, STOPPING,
          a->job->opts.shutdown_timeout_s < 0 ? 0 : a->job->opts.shutdown_timeout_s * 1e3);
}

static void on_signal(agent *a, int sig)
{
    uint64_t now = tutti__now_ns();

    if (sig == SIGTSTP || sig == SIGCONT) {
        signal_workers(a, sig == SIGTSTP ? SIGSTOP : SIGCONT);
    } else if (!a->stop_signal) {
        a->stop_signal = sig;
        a->stop_ns = now;
        if (a->phase < STOPPING && sig != SIGPIPE)
            SAY(a, "SIG%s: stopping %d worker%s%s", sigabbrev_np(sig), a->n_running,
                a->n_running == 1 ? "" : "s", sig == SIGINT ? " (once more: kill)" : "");
        if (a->phase < STOPPING)
            stop(a, sig == SIGPIPE ? SIGTERM : sig);
        else
            signal_workers(a, sig);
    } else if (now - a->stop_ns < REPEAT_MS * (uint64_t)MS) {
        return;
    } else if (sig == SIGINT) {
        a->abandoned = a->childless;
        enter(a, KILLING, 0);
    } else {
        signal_workers(a, sig);
    }
}

static void read_signals(agent *a)
{
    struct signalfd_siginfo info;

    while (read(a->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            on_signal(a, (int)info.ssi_signo);
}

static void read_control(agent *a)
{
    char bytes[64];
    ssize_t n = read(a->control, bytes, sizeof bytes);

    for (ssize_t i = 0; i < n; i++)
        on_signal(a, bytes[i]);
    if (n != 0)
        return;
    close(a->control); /* the front was killed: nobody waits for us */
    a->control = -1;
    a->abandoned = true;
    a->code = 128 + SIGKILL;
    enter(a, KILLING, 0);
}

static void reap(agent *a)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < a->job->opts.n; i++)
            if (a->workers[i].pid == pid && a->workers[i].running) {
                a->workers[i].running = false;
                a->workers[i].status = status;
                a->workers[i].ended_ns = tutti__now_ns();
                a->n_running--;
            }
    a->childless = pid < 0 && errno == ECHILD;
}

/* ---- Phases ----------------------------------------------------------------------------------------- */

static void sweep(agent *a)
{
    tutti__signal_descendants(SIGTERM, NULL, 0);
    tutti__signal_descendants(SIGCONT, NULL, 0);
    enter(a, SWEEPING, LEFTOVER_MS);
}

static void kill_all(agent *a)
{
    signal_workers(a, SIGKILL);
    tutti__signal_descendants(SIGKILL, NULL, 0);
    enter(a, KILLING, KILL_EVERY_MS);
    if (tutti__now_ns() - a->killing_ns < GIVE_UP_MS * (uint64_t)MS)
        return;
    SAY(a, "%d processes do not end, not even by SIGKILL; they are left behind",
        tutti__signal_descendants(0, NULL, 0));
    a->childless = a->abandoned = true;
}

static void advance(agent *a)
{
    if (a->console.error && !a->stop_signal) {
        a->code = a->console.error == EPIPE ? 128 + SIGPIPE : 4;
        if (a->console.error != EPIPE) /* a reader that has gone knows it */
            dprintf(STDERR_FILENO, "%s: cannot write to standard output or error: %s; stopping\n",
                    a->job->opts.title, strerror(a->console.error));
        on_signal(a, SIGPIPE);
    }
    if (a->phase == RUNNING && tutti__first_failed(a->workers, a->job->opts.n))
        enter(a, FAILING, GRACE_MS);
    if (a->n_running == 0 && a->phase == FAILING)
        report(a);
    if (a->n_running == 0 && a->phase < SWEEPING && !a->childless)
        sweep(a);
    if (a->phase == RUNNING || tutti__now_ns() < a->deadline_ns)
        return;
    if (a->childless) {
        a->abandoned = a->stop_signal != 0; /* only output is left, and nobody takes it */
    } else if (a->phase == FAILING) {
        stop(a, SIGTERM);
    } else {
        if (a->phase == STOPPING && a->job->opts.shutdown_timeout_s > 0)
            SAY(a, "%d still there %g s after being told to end: killing", a->n_running,
                a->job->opts.shutdown_timeout_s);
        kill_all(a);
    }
}

/* ---- Loop ------------------------------------------------------------------------------------------- */

static int poll_timeout(const agent *a)
{
    uint64_t now = tutti__now_ns(), ms = (a->deadline_ns - now + MS - 1) / MS;

    if (a->phase == RUNNING || (a->childless && !a->stop_signal))
        return -1;
    return a->deadline_ns <= now ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

static tutti__log_pipe *stream(const agent *a, int i)
{
    return i % 2 ? &a->workers[i / 2].err : &a->workers[i / 2].out;
}

/* Fills a->polled: signals, control, console, then every open stream in order. Returns how many streams. */
static int fill_polled(const agent *a, bool reads)
{
    int n = 0;

    a->polled[0] = (struct pollfd){a->signals, POLLIN, 0};
    a->polled[1] = (struct pollfd){a->control, POLLIN, 0};
    a->polled[2] = (struct pollfd){tutti__console_fd(&a->console), POLLOUT, 0};
    for (int i = 0; reads && i < 2 * a->job->opts.n; i++)
        if (stream(a, i)->fd >= 0)
            a->polled[3 + n++] = (struct pollfd){stream(a, i)->fd, POLLIN, 0};
    return n;
}

/* Waits, and serves what has come. After the last descendant has gone, streams are read until they are dry: nobody
 * writes to them any more, whoever holds them open. */
static void serve(agent *a)
{
    bool reads = a->console.end - a->console.begin < QUEUE_BYTES;
    int n = fill_polled(a, reads);
    const struct pollfd *p = a->polled;

    if (poll(a->polled, 3 + (nfds_t)n, a->childless && n > 0 ? 0 : poll_timeout(a)) < 0)
        return;
    if (p[0].revents)
        read_signals(a);
    if (p[1].revents)
        read_control(a);
    if (p[2].revents)
        tutti__console_write(&a->console);
    for (int i = 0, next = 3; i < 2 * a->job->opts.n && next < 3 + n; i++) {
        if (stream(a, i)->fd != p[next].fd)
            continue; /* it was not polled */
        if (p[next++].revents)
            tutti__log_pipe_read(stream(a, i), &a->console);
        else if (a->childless)
            tutti__log_pipe_close(stream(a, i), &a->console);
    }
}

static bool is_done(const agent *a)
{
    if (!a->childless)
        return false;
    if (a->abandoned)
        return true;
    for (int i = 0; i < a->job->opts.n; i++)
        if (a->workers[i].out.fd >= 0 || a->workers[i].err.fd >= 0)
            return false;
    return tutti__console_empty(&a->console);
}

static void loop(agent *a)
{
    do {
        reap(a);
        advance(a);
        if (!is_done(a))
            serve(a);
    } while (!is_done(a));
}

/* ---- Start and end ---------------------------------------------------------------------------------- */

static tutti_status prepare(agent *a)
{
    int n = a->job->opts.n;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (int i = 0; a->job->signals[i]; i++)
        sigaddset(&signals, a->job->signals[i]);
    a->workers = calloc((size_t)n, sizeof *a->workers);
    a->polled = calloc(3 + 2 * (size_t)n, sizeof *a->polled);
    if (!a->workers || !a->polled) {
        a->job->opts.n = 0;
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d workers", n);
    }
    for (int i = 0; i < n; i++) {
        a->workers[i].rank = a->workers[i].local_rank = i;
        a->workers[i].out = a->workers[i].err =
            (tutti__log_pipe){.fd = -1, .file = -1, .console_fd = -1};
    }
    a->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signals < 0)
        return tutti__fail_errno(errno, "no descriptor for signals");
    return tutti__job_open(a->job);
}

/* Two pipes a worker may be more than the usual 1,024 descriptors. Workers get the limit back. */
static void allow_descriptors(agent *a)
{
    struct rlimit limit;
    rlim_t wanted = 64 + 4 * (rlim_t)a->job->opts.n;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    a->job->descriptors = limit;
    if (limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static tutti_status start(agent *a, const sigset_t *mask)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, sigpipe;
    int n = a->job->opts.n;

    sigaction(SIGPIPE, &ignore, &sigpipe);
    a->childless = true;
    allow_descriptors(a);
    TUTTI_TRY(prepare(a));
    for (int i = 0; i < n; i++) {
        TUTTI_TRY(tutti__worker_start(&a->workers[i], a->job, mask, &sigpipe));
        a->n_running++;
        a->childless = false;
    }
    return TUTTI_OK;
}

/* Stopped by a signal: the code that a worker chose, if one did. */
static int stopped_code(const agent *a)
{
    bool clean = true;

    for (int i = 0; i < a->job->opts.n; i++) {
        const tutti__worker *w = &a->workers[i];

        if (tutti__worker_failed(w) && WIFEXITED(w->status) && WEXITSTATUS(w->status) != 3)
            return WEXITSTATUS(w->status);
        clean = clean && !tutti__worker_failed(w);
    }
    return clean ? 0 : 128 + a->stop_signal;
}

static int exit_code(const agent *a)
{
    if (a->code)
        return a->code;
    if (a->blamed)
        return tutti__worker_exit_code(a->blamed);
    return a->stop_signal ? stopped_code(a) : 0;
}

static void release(agent *a)
{
    for (int i = 0; i < a->job->opts.n; i++) {
        tutti__log_pipe_close(&a->workers[i].out, &a->console);
        tutti__log_pipe_close(&a->workers[i].err, &a->console);
    }
    tutti__files_close(a->job);
    tutti_store_free(a->job->store);
    tutti__console_free(&a->console);
    free(a->workers);
    free(a->polled);
}

int tutti__agent(tutti__job *job, int control, const sigset_t *mask)
{
    agent a = {.job = job, .control = control, .signals = -1, .oom_kills = tutti__oom_kills()};
    tutti_status status;
    int code;

    setsid(); /* Ctrl-C comes by way of the front, a `kill` of the front's group does not end us */
    prctl(PR_SET_NAME, "run-agent"); /* nor does `pkill tutti` */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    tutti__console_open(&a.console);
    status = start(&a, mask);
    if (status != TUTTI_OK) {
        SAY(&a, "%s", tutti_last_error());
        a.code = tutti_status_exit_code(status);
        enter(&a, KILLING, 0);
    }
    loop(&a);
    code = exit_code(&a);
    release(&a);
    return code;
}
