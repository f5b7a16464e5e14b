/* worker.c -- starts one worker in a session of its own, and says how it ended.   SPDX-License-Identifier: MIT */
#include "launch/process/worker.h"
#include "launch/process/descendants.h"
#include "launch/process/job_files.h"
#include "launch/process/worker_environment.h"
#include "launch/process/worker_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Start ----------------------------------------------------------------------------------------- */

/* Between fork and exec: only functions that are safe if the process had other threads. */
static _Noreturn void become_worker(const tutti__worker *worker, char **variables, const int *ends,
                                    pid_t agent)
{
    const tutti__job *job = worker->job;
    const cpu_set_t *binding = job->opts.binding ? &job->opts.binding[worker->local_rank] : NULL;
    bool reads_input = worker->rank == 0;
    int null, n = 0;

    sigaction(SIGPIPE, &job->sigpipe, NULL);
    sigprocmask(SIG_SETMASK, &job->mask, NULL);
    for (int i = 0; job->signals[i]; i++) /* forwarded signals must not be ignored */
        signal(job->signals[i], SIG_DFL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(128 + SIGKILL);
    setrlimit(RLIMIT_NOFILE, &job->descriptors);
    if (binding)
        sched_setaffinity(0, sizeof *binding, binding);
    if (!reads_input && (null = open("/dev/null", O_RDONLY)) >= 0)
        dup2(null, STDIN_FILENO); /* `null` is above 2: the launcher keeps 0, 1 and 2 open */
    if (!reads_input && null > 2)
        close(null);
    if (ends[0] >= 0)
        dup2(ends[0], STDOUT_FILENO);
    if (ends[1] >= 0)
        dup2(ends[1], STDERR_FILENO);
    fcntl(ends[2], F_SETFD, 0);
    if (job->flip_counter > 0)
        fcntl(job->flip_counter, F_SETFD, 0);
    execve(job->program, job->opts.argv, variables);
    while (job->opts.argv[n])
        n++;
    if (errno == ENOEXEC) { /* a script without #!: the shell runs it */
        char *shell[n + 2], name[] = "/bin/sh";

        shell[0] = name;
        shell[1] = (char *)(uintptr_t)job->program;
        memcpy(shell + 2, job->opts.argv + 1, (size_t)n * sizeof *shell); /* and its NULL */
        execve(name, shell, variables);
    }
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", job->program, strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static tutti_status fork_worker(tutti__worker *worker, const int *ends)
{
    char error_file[PATH_MAX];
    pid_t agent = getpid(), pid;
    tutti__worker_environment e;

    TUTTI_TRY(tutti__error_file_prepare(worker->job, worker->rank, error_file, sizeof error_file));
    if (!tutti__worker_environment_make(&e, worker->job, worker->rank, worker->start, error_file,
                                        ends[2])) {
        tutti__worker_environment_free(&e);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the environment of rank %d",
                           worker->rank);
    }
    worker->started_ns = tutti__now_ns();
    pid = fork();
    if (pid == 0)
        become_worker(worker, e.list, ends, agent);
    tutti__worker_environment_free(&e);
    if (pid < 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "cannot start rank %d of %d: %s (see ulimit -u)",
                           worker->rank, worker->job->round.world_size, strerror(errno));
    worker->pid = pid;
    worker->running = true;
    return TUTTI_OK;
}

tutti_status tutti__worker_start(tutti__worker *worker, const tutti__job *job)
{
    int ends[3] = {-1, -1, -1}, sockets[2];
    tutti_status status;

    worker->job = job;
    worker->channel = (tutti__worker_channel){.fd = -1, .step = -1, .reported_step = -1};
    status =
        tutti__worker_stream_open(job, worker->rank, TUTTI__STREAM_OUT, &worker->out, &ends[0]);
    if (status == TUTTI_OK)
        status =
            tutti__worker_stream_open(job, worker->rank, TUTTI__STREAM_ERR, &worker->err, &ends[1]);
    if (status == TUTTI_OK && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        status = tutti__no_descriptors(worker->rank);
    else if (status == TUTTI_OK) {
        worker->channel.fd = sockets[0];
        ends[2] = sockets[1];
    }
    if (status == TUTTI_OK)
        status = fork_worker(worker, ends);
    for (int i = 0; i < 3; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return status;
}

void tutti__worker_signal(const tutti__worker *worker, int sig)
{
    if (!worker->running)
        return;
    if (kill(-worker->pid, sig) != 0) /* it may not have called setsid yet */
        kill(worker->pid, sig);
}

/* ---- How it ended ---------------------------------------------------------------------------------- */

bool tutti__worker_is_stopped(const tutti__worker *worker)
{
    return worker->running && tutti__process_is_stopped(worker->pid);
}

bool tutti__worker_failed(const tutti__worker *worker)
{
    return worker->pid && !worker->running && worker->status != 0 && !worker->excused;
}

int tutti__worker_exit_code(const tutti__worker *worker)
{
    return WIFSIGNALED(worker->status) ? 128 + WTERMSIG(worker->status)
                                       : WEXITSTATUS(worker->status);
}

void tutti__worker_describe(const tutti__worker *worker, char *text, size_t bytes)
{
    int sig = WTERMSIG(worker->status);

    if (!WIFSIGNALED(worker->status))
        snprintf(text, bytes, "exit code %d", WEXITSTATUS(worker->status));
    else if (sigabbrev_np(sig))
        snprintf(text, bytes, "killed by SIG%s (%s%s)", sigabbrev_np(sig), sigdescr_np(sig),
                 WCOREDUMP(worker->status) ? ", core dumped" : "");
    else
        snprintf(text, bytes, "killed by signal %d", sig);
}
