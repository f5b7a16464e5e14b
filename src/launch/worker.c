/* worker.c -- starts one worker: environment, streams, a session of its own.   SPDX-License-Identifier: MIT */
#include "launch/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- Environment ----------------------------------------------------------------------------------- */

static const char *const variable_names[] = {
#define VARIABLE(name, format, value, help) #name,
#include "launch/worker_env.def"
#undef VARIABLE
};

static bool is_ours(const char *entry)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(variable_names); i++) {
        size_t n = strlen(variable_names[i]);

        if (strncmp(entry, variable_names[i], n) == 0 && entry[n] == '=')
            return true;
    }
    return false;
}

static void free_environment(char **environment)
{
    if (!environment)
        return;
    for (size_t i = 0; i < TUTTI__COUNT_OF(variable_names); i++)
        free(environment[i]);
    free(environment);
}

/* Ours first (owned), then those of this process that we do not set (borrowed). NULL: no memory. */
static char **make_environment(const tutti__job *job, const tutti__worker *worker)
{
    const tutti__round *round = &job->round;
    size_t n = 0, next = 0;
    char **environment;

    while (environ[n])
        n++;
    environment = calloc(n + TUTTI__COUNT_OF(variable_names) + 1, sizeof *environment);
    if (!environment)
        return NULL;
#define VARIABLE(name, format, value, help)                                                        \
    if (asprintf(&environment[next++], "%s=" format, #name, value) < 0) {                          \
        environment[next - 1] = NULL;                                                              \
        free_environment(environment);                                                             \
        return NULL;                                                                               \
    }
#include "launch/worker_env.def"
#undef VARIABLE
    for (size_t i = 0; i < n; i++)
        if (!is_ours(environ[i]))
            environment[next++] = environ[i];
    return environment;
}

void tutti__worker_print_env(FILE *file)
{
#define VARIABLE(name, format, value, help) fprintf(file, "| `%s` | %s |\n", #name, help);
#include "launch/worker_env.def"
#undef VARIABLE
}

/* ---- Streams --------------------------------------------------------------------------------------- */

/* Opens LOG_DIR/ID/attempt_K/LOCAL_RANK/NAME.log to be appended to; a job of the same id may have written there. */
static tutti_status open_log(const tutti__job *job, int local_rank, const char *name,
                             tutti__log_pipe *pipe)
{
    char folder[PATH_MAX];

    if (snprintf(folder, sizeof folder, "%s/%s/attempt_%d/%d", job->opts.log_dir, job->id,
                 job->round.number, local_rank) >= (int)sizeof folder)
        return tutti__fail(TUTTI_ERR_ARG, "log folder %.60s...: the path is too long",
                           job->opts.log_dir);
    TUTTI_TRY(tutti__make_dirs(folder));
    if (asprintf(&pipe->path, "%s/%s.log", folder, name) < 0) {
        pipe->path = NULL;
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a path");
    }
    pipe->file = open(pipe->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (pipe->file < 0)
        return tutti__fail_errno(errno, "cannot write %s", pipe->path);
    return TUTTI_OK;
}

static void name_stream(const tutti__worker *worker, int n, int fd, tutti__log_pipe *pipe)
{
    static const int colors[] = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};

    *pipe = (tutti__log_pipe){.fd = -1, .file = -1, .console_fd = -1};
    if (n > 1 && tutti__wants_color(fd))
        snprintf(pipe->prefix, sizeof pipe->prefix, "\033[%dm[%d]\033[0m ",
                 colors[(size_t)worker->rank % TUTTI__COUNT_OF(colors)], worker->rank);
    else if (n > 1)
        snprintf(pipe->prefix, sizeof pipe->prefix, "[%d] ", worker->rank);
}

/* Prepares one stream. *end_p: what the worker gets; -1: ours, inherited. */
static tutti_status open_stream(tutti__worker *worker, const tutti__job *job, tutti__streams which,
                                tutti__log_pipe *pipe, int *end_p)
{
    const tutti__launch_opts *opts = &job->opts;
    int rank = worker->local_rank, ends[2];
    bool redirect = opts->redirect && (opts->redirect[rank] & which);
    bool tee = opts->tee && (opts->tee[rank] & which);
    bool shown = !opts->shown || opts->shown[rank];

    *end_p = -1;
    name_stream(worker, job->round.world_size, (int)which, pipe);
    if (opts->log_dir && (redirect || tee))
        TUTTI_TRY(open_log(job, rank, which == TUTTI__STREAM_OUT ? "stdout" : "stderr", pipe));
    if (redirect && !tee) { /* the worker writes the file itself */
        *end_p = pipe->file;
        pipe->file = -1;
        return TUTTI_OK;
    }
    if (shown && pipe->file < 0 &&
        (job->round.world_size == 1 || (worker->rank == 0 && opts->rank0_direct)))
        return TUTTI_OK;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no pipe for the output of rank %d (see ulimit -n): %s", worker->rank,
                           strerror(errno));
    pipe->fd = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *end_p = ends[1];
    pipe->console_fd = shown ? (int)which : -1;
    return TUTTI_OK;
}

/* ---- Start ----------------------------------------------------------------------------------------- */

/* Between fork and exec: only what is safe beside other threads. */
static _Noreturn void become_worker(const tutti__job *job, char **environment, const int *ends,
                                    bool reads_input, pid_t agent)
{
    int null, n = 0;

    for (int i = 0; job->signals[i]; i++) /* what we pass on is heard */
        signal(job->signals[i], SIG_DFL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(128 + SIGKILL);
    setrlimit(RLIMIT_NOFILE, &job->descriptors);
    if (!reads_input && (null = open("/dev/null", O_RDONLY)) >= 0)
        dup2(null, STDIN_FILENO); /* `null` is above 2: the launcher keeps 0, 1 and 2 open */
    if (!reads_input && null > 2)
        close(null);
    if (ends[0] >= 0)
        dup2(ends[0], STDOUT_FILENO);
    if (ends[1] >= 0)
        dup2(ends[1], STDERR_FILENO);
    execve(job->program, job->opts.argv, environment);
    while (job->opts.argv[n])
        n++;
    if (errno == ENOEXEC) { /* a script without #!: the shell runs it */
        char *shell[n + 2], name[] = "/bin/sh";

        shell[0] = name;
        shell[1] = (char *)(uintptr_t)job->program;
        memcpy(shell + 2, job->opts.argv + 1, (size_t)n * sizeof *shell); /* and its NULL */
        execve(name, shell, environment);
    }
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", job->program, strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

static tutti_status fork_worker(tutti__worker *worker, const tutti__job *job, const int *ends,
                                const sigset_t *mask, const struct sigaction *sigpipe)
{
    char **environment = make_environment(job, worker);
    pid_t agent = getpid(), pid;

    if (!environment)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the environment of rank %d",
                           worker->rank);
    worker->started_ns = tutti__now_ns();
    pid = fork();
    if (pid == 0) {
        sigaction(SIGPIPE, sigpipe, NULL);
        sigprocmask(SIG_SETMASK, mask, NULL);
        become_worker(job, environment, ends, worker->rank == 0, agent);
    }
    free_environment(environment);
    if (pid < 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "cannot start rank %d of %d: %s (see ulimit -u)",
                           worker->rank, job->round.world_size, strerror(errno));
    worker->pid = pid;
    worker->running = true;
    return TUTTI_OK;
}

tutti_status tutti__worker_start(tutti__worker *worker, const tutti__job *job, const sigset_t *mask,
                                 const struct sigaction *sigpipe)
{
    int ends[2] = {-1, -1};
    tutti_status status = open_stream(worker, job, TUTTI__STREAM_OUT, &worker->out, &ends[0]);

    if (status == TUTTI_OK)
        status = open_stream(worker, job, TUTTI__STREAM_ERR, &worker->err, &ends[1]);
    if (status == TUTTI_OK)
        status = fork_worker(worker, job, ends, mask, sigpipe);
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return status;
}

void tutti__worker_signal(const tutti__worker *worker, int sig)
{
    if (!worker->running)
        return;
    if (kill(-worker->pid, sig) != 0) /* before its setsid */
        kill(worker->pid, sig);
}

/* ---- How it ended ---------------------------------------------------------------------------------- */

bool tutti__worker_failed(const tutti__worker *worker)
{
    return worker->pid && !worker->running && worker->status != 0;
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
