/* node_workers.c -- all workers of this node, from their start to the end of their last descendant.   SPDX-License-Identifier: MIT
 *
 * A round goes through its phases in one direction only; each has a deadline, after which the next one begins, and the round is
 * over when no descendant is left and all output has been read. */
#include "launch/process/node_workers.h"
#include "launch/process/descendants.h"
#include "launch/process/first_failure.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000u /* nanoseconds */

enum {
    GRACE_MS = 300, /* after the first failure, for the others to notice it and end by themselves */
    CAUSE_MS = 3000,    /* for the cause to end, while all that have failed are its effects */
    LEFTOVER_MS = 300,  /* for remaining descendants, between SIGTERM and SIGKILL */
    KILL_EVERY_MS = 20, /* until none is left */
    GIVE_UP_MS = 10000, /* after which processes that survive SIGKILL are abandoned */
    STOPPED_MS = 5000   /* after which a stopped worker is reported */
};

static void enter(tutti__workers *w, tutti__workers_phase next, double ms)
{
    w->phase = next;
    w->deadline_ns = tutti__now_ns() + (uint64_t)(ms * MS);
    if (next == TUTTI__KILLING && !w->killing_ns)
        w->killing_ns = tutti__now_ns();
}

void tutti__workers_signal(tutti__workers *w, int sig)
{
    if (sig == SIGSTOP || sig == SIGCONT)
        w->suspended = sig == SIGSTOP;
    for (int i = 0; i < w->job->opts.n; i++)
        tutti__worker_signal(&w->list[i], sig);
}

/* Reports the failure once per round, when the first failed worker is known. */
static void report(tutti__workers *w)
{
    const tutti__worker *first = tutti__first_failed(w->list, w->job->opts.n);
    tutti__console *console = w->console;

    if (!first || w->blamed)
        return;
    w->blamed = first;
    w->console = w->held ? w->held : console;
    w->cause = w->report_failure(w, first);
    w->console = console;
}

void tutti__workers_stop(tutti__workers *w, int sig)
{
    if (w->phase == TUTTI__IDLE || w->phase >= TUTTI__STOPPING)
        return;
    report(w);
    tutti__workers_signal(w, sig);
    tutti__workers_signal(w, SIGCONT); /* a stopped process does not handle signals */
    enter(w, TUTTI__STOPPING,
          w->job->opts.shutdown_timeout_s < 0 ? 0 : w->job->opts.shutdown_timeout_s * 1e3);
}

void tutti__workers_kill(tutti__workers *w)
{
    if (w->phase != TUTTI__IDLE)
        enter(w, TUTTI__KILLING, 0);
}

/* ---- Events from the kernel ---------------------------------------------------------------------------- */

static void note_status(tutti__workers *w, tutti__worker *worker, int status)
{
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        worker->stopped_ns = WIFSTOPPED(status) ? tutti__now_ns() : 0;
        return;
    }
    worker->running = false;
    worker->stopped_ns = 0;
    worker->status = status;
    worker->ended_ns = tutti__now_ns();
    w->n_running--;
}

/* NULL: it is not a worker, or one that has ended. */
static tutti__worker *running_worker(const tutti__workers *w, pid_t pid)
{
    for (int i = 0; i < w->job->opts.n; i++)
        if (w->list[i].pid == pid && w->list[i].running)
            return &w->list[i];
    return NULL;
}

/* Kills what an elastic worker has left, as long as its number, also its group's, is its own: it is not reaped yet. Without /proc
 * this is the only way to find it, in any round. */
static void sweep_group(const tutti__workers *w, const tutti__worker *worker)
{
    if (w->elastic || access("/proc/self", F_OK) != 0)
        kill(-worker->pid, SIGKILL);
}

void tutti__workers_reap(tutti__workers *w)
{
    const int events = WEXITED | WSTOPPED | WCONTINUED;
    siginfo_t info = {0};
    int status, result;

    while ((result = waitid(P_ALL, 0, &info, events | WNOHANG | WNOWAIT)) == 0 && info.si_pid > 0) {
        tutti__worker *worker = running_worker(w, info.si_pid);

        if (worker && info.si_code != CLD_STOPPED && info.si_code != CLD_CONTINUED)
            sweep_group(w, worker);
        if (waitpid(info.si_pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0 && worker)
            note_status(w, worker, status);
        info.si_pid = 0;
    }
    w->childless = w->abandoned || (result < 0 && errno == ECHILD);
}

/* Reports stopped workers, for which all others wait. */
static void report_stopped(tutti__workers *w)
{
    uint64_t now = tutti__now_ns();

    for (int i = 0; i < w->job->opts.n && !w->suspended; i++) {
        tutti__worker *worker = &w->list[i];

        if (!worker->stopped_ns || worker->reported_stopped ||
            now - worker->stopped_ns < STOPPED_MS * (uint64_t)MS)
            continue;
        tutti__console_say(
            w->console,
            "rank %d (process %d) has been stopped for %d s (SIGSTOP, a debugger); `kill -CONT %d` "
            "resumes it",
            worker->rank, (int)worker->pid, STOPPED_MS / 1000, (int)worker->pid);
        worker->reported_stopped = true;
    }
}

/* ---- Phases ------------------------------------------------------------------------------------------- */

/* Returns how many there are. Without /proc they cannot be found: then signals the process groups of running workers, and misses
 * processes that have left these. */
static int signal_descendants(tutti__workers *w, int sig)
{
    int found = tutti__signal_descendants(sig, NULL, 0);

    if (found >= 0)
        return found;
    if (!w->blind)
        tutti__console_say(
            w->console,
            "/proc cannot be read: processes that workers have started in sessions of their own "
            "may be left behind; mount it (mount -t proc proc /proc)");
    w->blind = true;
    tutti__workers_signal(w, sig);
    return w->n_running;
}

static void sweep(tutti__workers *w)
{
    signal_descendants(w, SIGTERM);
    signal_descendants(w, SIGCONT);
    enter(w, TUTTI__SWEEPING, LEFTOVER_MS);
}

/* Ends what workers have left that ended since the last time, while others run. */
static void sweep_after_ended(tutti__workers *w)
{
    pid_t *spared = calloc((size_t)w->job->opts.n, sizeof *spared);
    size_t n = 0;

    w->sweeps = false;
    for (int i = 0; spared && i < w->job->opts.n; i++)
        if (w->list[i].running)
            spared[n++] = w->list[i].pid;
    tutti__sort_pids(spared, n);
    if (spared)
        tutti__signal_descendants(SIGKILL, spared, n);
    free(spared);
}

static void kill_all(tutti__workers *w)
{
    int left;

    tutti__workers_signal(w, SIGKILL);
    left = signal_descendants(w, SIGKILL);
    enter(w, TUTTI__KILLING, KILL_EVERY_MS);
    if (tutti__now_ns() - w->killing_ns < GIVE_UP_MS * (uint64_t)MS &&
        !(w->blind && left == 0 && w->n_running == 0))
        return;
    if (!w->blind)
        tutti__console_say(w->console, "%d process%s, left behind: not even SIGKILL ends %s", left,
                           left == 1 ? "" : "es", left == 1 ? "it" : "them");
    w->childless = w->abandoned = true;
}

/* Whether all failures so far are effects of another, which a busy machine may delay: SIGTERM would hide it. */
static bool awaits_cause(const tutti__workers *w)
{
    return tutti__now_ns() - w->failing_ns < CAUSE_MS * (uint64_t)MS &&
           !tutti__cause_is_known(w->list, w->job->opts.n);
}

static void next_phase(tutti__workers *w)
{
    if (w->phase == TUTTI__FAILING) {
        if (awaits_cause(w))
            enter(w, TUTTI__FAILING, GRACE_MS);
        else
            tutti__workers_stop(w, SIGTERM);
        return;
    }
    if (w->phase == TUTTI__STOPPING && w->job->opts.shutdown_timeout_s > 0)
        tutti__console_say(w->console, "%d still there %g s after being told to end: killing",
                           w->n_running, w->job->opts.shutdown_timeout_s);
    kill_all(w);
}

/* Whether a worker has ended that may have to be replaced. */
static bool awaits_verdict(const tutti__workers *w)
{
    for (int i = 0; w->phase == TUTTI__RUNNING && i < w->job->opts.n; i++)
        if (w->list[i].awaits_verdict)
            return true;
    return false;
}

void tutti__workers_advance(tutti__workers *w)
{
    if (w->phase == TUTTI__IDLE)
        return;
    report_stopped(w);
    if (w->sweeps)
        sweep_after_ended(w);
    if (w->phase == TUTTI__RUNNING && tutti__first_failed(w->list, w->job->opts.n)) {
        enter(w, TUTTI__FAILING, GRACE_MS);
        w->failing_ns = tutti__now_ns();
    }
    if (w->n_running == 0 && w->phase == TUTTI__FAILING)
        report(w);
    if (w->n_running == 0 && w->phase < TUTTI__SWEEPING && !w->childless && !awaits_verdict(w))
        sweep(w);
    if (!w->childless && w->phase > TUTTI__RUNNING && tutti__now_ns() >= w->deadline_ns)
        next_phase(w);
}

uint64_t tutti__workers_deadline(const tutti__workers *w)
{
    uint64_t next = UINT64_MAX;

    for (int i = 0; i < w->job->opts.n && w->phase == TUTTI__RUNNING; i++)
        if (w->list[i].stopped_ns && !w->list[i].reported_stopped && !w->suspended &&
            w->list[i].stopped_ns + STOPPED_MS * (uint64_t)MS < next)
            next = w->list[i].stopped_ns + STOPPED_MS * (uint64_t)MS;
    if (!w->childless && w->phase > TUTTI__RUNNING)
        next = w->deadline_ns;
    return next;
}

bool tutti__workers_over(const tutti__workers *w)
{
    if (w->phase == TUTTI__IDLE || w->abandoned)
        return true;
    if (awaits_verdict(w))
        return false;
    for (int i = 0; i < w->job->opts.n; i++)
        if (w->list[i].out.fd >= 0 || w->list[i].err.fd >= 0)
            return false;
    return w->childless;
}

int tutti__workers_chosen_code(const tutti__workers *w)
{
    bool clean = true;

    for (int i = 0; i < w->job->opts.n; i++) {
        const tutti__worker *worker = &w->list[i];

        if (tutti__worker_failed(worker) && WIFEXITED(worker->status) &&
            WEXITSTATUS(worker->status) != 3)
            return WEXITSTATUS(worker->status);
        clean = clean && !tutti__worker_failed(worker);
    }
    return clean ? 0 : -1;
}

/* ---- Beginning and end -------------------------------------------------------------------------------- */

/* Two pipes and a socket per worker may exceed the usual limit of 1,024 descriptors; so may a connection to each node, and of each
 * worker to the store, on the node that hosts the rendezvous, which any may become. Workers get the original limit. */
static void allow_descriptors(tutti__job *job)
{
    const rlim_t workers = (rlim_t)job->opts.n, nodes = (rlim_t)job->opts.nodes.max;
    struct rlimit limit;
    rlim_t wanted = 64 + 5 * workers + (nodes > 1 ? 2 * nodes * (1 + workers) : 0);

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    job->descriptors = limit;
    if (limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static tutti__worker unstarted(const tutti__workers *w, int i)
{
    return (tutti__worker){.local_rank = i,
                           .rank = w->job->round.first_rank + i,
                           .channel = {.fd = -1},
                           .out = {.fd = -1, .file = -1, .console_fd = -1},
                           .err = {.fd = -1, .file = -1, .console_fd = -1}};
}

/* Closes its streams, and the socket to it. */
static void end_streams(tutti__workers *w, tutti__worker *worker)
{
    tutti__log_pipe_close(&worker->out, w->console);
    tutti__log_pipe_close(&worker->err, w->console);
    if (worker->channel.fd >= 0)
        close(worker->channel.fd);
    worker->channel.fd = -1;
}

tutti_status tutti__workers_new(tutti__workers *w, tutti__job *job, tutti__console *console,
                                tutti__report_function *report_failure)
{
    *w = (tutti__workers){
        .job = job, .console = console, .report_failure = report_failure, .childless = true};
    w->list = calloc((size_t)job->opts.n, sizeof *w->list);
    if (!w->list)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d workers", job->opts.n);
    allow_descriptors(job);
    for (int i = 0; i < job->opts.n; i++)
        w->list[i] = unstarted(w, i);
    return TUTTI_OK;
}

static tutti_status start_one(tutti__workers *w, tutti__worker *worker)
{
    TUTTI_TRY(tutti__worker_start(worker, w->job));
    w->n_running++;
    w->childless = false;
    return TUTTI_OK;
}

tutti_status tutti__workers_start(tutti__workers *w)
{
    w->blamed = w->cause = NULL;
    w->killing_ns = 0;
    w->suspended = w->elastic = w->finished = w->sweeps = false;
    w->oom_kills = tutti__oom_kills();
    for (int i = 0; i < w->job->opts.n; i++)
        w->list[i] = unstarted(w, i);
    enter(w, TUTTI__RUNNING, 0);
    for (int i = 0; i < w->job->opts.n; i++)
        TUTTI_TRY(start_one(w, &w->list[i]));
    return TUTTI_OK;
}

void tutti__workers_sweep_after(tutti__workers *w, tutti__worker *worker)
{
    tutti__log_pipe_drain(&worker->out, w->console);
    tutti__log_pipe_drain(&worker->err, w->console);
    w->sweeps = true;
}

tutti_status tutti__workers_replace(tutti__workers *w, tutti__worker *worker)
{
    tutti__worker before = *worker;
    tutti_status status;

    *worker = unstarted(w, before.local_rank);
    worker->start = before.start + 1;
    w->finished = false;
    status = start_one(w, worker); /* first, without delay */
    tutti__workers_sweep_after(w, &before);
    end_streams(w, &before);
    return status;
}

void tutti__workers_close(tutti__workers *w)
{
    for (int i = 0; w->list && i < w->job->opts.n; i++)
        end_streams(w, &w->list[i]);
}

void tutti__workers_free(tutti__workers *w)
{
    tutti__workers_close(w);
    free(w->list);
    w->list = NULL;
}
