/* worker.c -- starts one worker: environment, streams, session.   SPDX-License-Identifier: MIT */
#include "base/terminal.h"
#include "launch/process/descendants.h"
#include "launch/process/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- Environment ----------------------------------------------------------------------------------- */

static const char *const variable_names[] = {
#define VARIABLE(name, format, value, help) #name,
#include "launch/process/worker_env.def"
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

typedef struct environment {
    char **list;  /* NULL-terminated; our variables come first, then those of this process */
    size_t n_own; /* the ones to free */
} environment;

static void free_environment(environment *e)
{
    for (size_t i = 0; i < e->n_own; i++)
        free(e->list[i]);
    free(e->list);
}

static bool add(environment *e, const char *format, ...) TUTTI_PRINTF(2, 3);
static bool add(environment *e, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vasprintf(&e->list[e->n_own], format, args);
    va_end(args);
    if (n < 0)
        e->list[e->n_own] = NULL;
    else
        e->n_own++;
    return n >= 0;
}

/* "SIGTERM,SIGINT", as torchrun writes it. */
static void list_signals(const int *signals, char *text, size_t bytes)
{
    size_t n = 0;

    *text = '\0';
    for (int i = 0; signals[i] && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%sSIG%s", n ? "," : "",
                              sigabbrev_np(signals[i]));
}

/* The worker's device among those that this process may use: the one at its place in the list, if there is a list. */
static bool add_device(environment *e, const tutti__worker *worker)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (!visible)
        return add(e, "CUDA_VISIBLE_DEVICES=%d", worker->local_rank);
    for (int i = 0; i < worker->local_rank; i++)
        visible = strchr(visible, ',') ? strchr(visible, ',') + 1 : "";
    return add(e, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(visible, ","), visible);
}

/* False: no memory. */
static bool make_environment(environment *e, const tutti__worker *worker, const char *error_file,
                             int agent_fd)
{
    const tutti__job *job = worker->job;
    const tutti__round *round = &job->round;
    const char *nccl = getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    bool one_device = job->opts.virtual_local_rank, added = true;
    char signals[512];
    size_t n = 0;

    while (environ[n])
        n++;
    *e = (environment){calloc(n + TUTTI__COUNT_OF(variable_names) + 2, sizeof *e->list), 0};
    if (!e->list)
        return false;
    nccl = nccl && *nccl ? nccl : "1";
    list_signals(job->signals, signals, sizeof signals);
#define VARIABLE(name, format, value, help) added = added && add(e, "%s=" format, #name, value);
#include "launch/process/worker_env.def"
#undef VARIABLE
    added = added && (!one_device || add_device(e, worker));
    n = e->n_own;
    for (size_t i = 0; environ[i]; i++)
        if (!is_ours(environ[i]) &&
            !(one_device && strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) == 0))
            e->list[n++] = environ[i];
    return added;
}

void tutti__worker_print_env(FILE *file)
{
#define VARIABLE(name, format, value, help) fprintf(file, "| `%s` | %s |\n", #name, help);
#include "launch/process/worker_env.def"
#undef VARIABLE
}

/* ---- Streams --------------------------------------------------------------------------------------- */

/* Opens a file to append to; -1: errno. Non-blocking, because a pipe without a reader would block the agent. */
static int open_end(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
}

/* Opens NAME.log in the worker's folder for appending; a job with the same id may have written there. */
static tutti_status open_log(const tutti__worker *worker, const char *name, tutti__log_pipe *pipe)
{
    char folder[PATH_MAX];

    TUTTI_TRY(tutti__files_folder(worker, folder, sizeof folder));
    if (asprintf(&pipe->path, "%s/%s.log", folder, name) < 0) {
        pipe->path = NULL;
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a path");
    }
    pipe->file = open_end(pipe->path);
    if (pipe->file < 0)
        return tutti__fail_errno(errno, "cannot write %s", pipe->path);
    pipe->begin = lseek(pipe->file, 0, SEEK_END);
    return TUTTI_OK;
}

/* ROOT/ID/attempt_K/filtered_NAME.log, of all workers. */
static tutti_status open_filtered(const tutti__worker *worker, const char *name,
                                  tutti__log_pipe *pipe)
{
    char folder[PATH_MAX], path[PATH_MAX];
    int fd = -1;

    TUTTI_TRY(tutti__files_folder(worker, folder, sizeof folder));
    *strrchr(folder, '/') = '\0';
    if (snprintf(path, sizeof path, "%s/filtered_%s.log", folder, name) < (int)sizeof path)
        fd = open_end(path);
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot write %s", path);
    pipe->filtered = fd; /* above 2: the launcher keeps 0, 1 and 2 open */
    return TUTTI_OK;
}

/* The prefix by its template, as Python's string.Template: ${name}, $name, $$; unknown names stay. */
static void fill_template(const tutti__worker *worker, const char *p, char *text, size_t bytes)
{
    char rank[16], local_rank[16];
    const struct {
        const char *name, *value;
    } known[] = {{"role_name", worker->job->opts.role},
                 {"local_rank", local_rank},
                 {"rank", rank},
                 {"hostname", worker->job->host}};
    size_t n = 0;

    snprintf(rank, sizeof rank, "%d", worker->rank);
    snprintf(local_rank, sizeof local_rank, "%d", worker->local_rank);
    *text = '\0';
    while (*p && n + 1 < bytes) {
        bool braces = p[0] == '$' && p[1] == '{';
        const char *name = p + 1 + braces, *value = NULL;
        size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz_");

        for (size_t i = 0; *p == '$' && i < TUTTI__COUNT_OF(known); i++)
            if (strlen(known[i].name) == length && strncmp(known[i].name, name, length) == 0 &&
                (!braces || name[length] == '}'))
                value = known[i].value;
        if (value)
            n += (size_t)snprintf(text + n, bytes - n, "%s", value);
        else
            text[n++] = *p;
        if (value)
            p += length + (braces ? 3 : 1);
        else
            p += p[0] == '$' && p[1] == '$' ? 2 : 1;
        text[n < bytes ? n : bytes - 1] = '\0';
    }
}

static void name_stream(const tutti__worker *worker, int fd, tutti__log_pipe *pipe)
{
    static const int colors[] = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
    const tutti__round *round = &worker->job->round;
    char host[80] = "";

    *pipe = (tutti__log_pipe){.fd = -1, .file = -1, .console_fd = -1, .rank = worker->rank};
    pipe->filters = worker->job->opts.filters[fd - 1];
    if (worker->job->opts.prefix) {
        fill_template(worker, worker->job->opts.prefix, pipe->prefix, sizeof pipe->prefix);
        return;
    }
    if (round->n_nodes > 1)
        snprintf(host, sizeof host, "%.64s ", worker->job->host);
    if (round->world_size > 1 && tutti__wants_colour(fd))
        snprintf(pipe->prefix, sizeof pipe->prefix, "\033[%dm[%s%d]\033[0m ",
                 colors[(size_t)worker->rank % TUTTI__COUNT_OF(colors)], host, worker->rank);
    else if (round->world_size > 1)
        snprintf(pipe->prefix, sizeof pipe->prefix, "[%s%d] ", host, worker->rank);
}

/* Whether the stream need not be read: the worker inherits ours. */
static bool is_direct(const tutti__worker *worker, const tutti__log_pipe *pipe)
{
    const tutti__job *job = worker->job;

    if (pipe->file >= 0 || pipe->filters)
        return false;
    return (job->round.world_size == 1 && !*pipe->prefix) ||
           (worker->rank == 0 && job->opts.rank0_direct);
}

static tutti_status no_descriptors(const tutti__worker *worker)
{
    return tutti__fail(TUTTI_ERR_MEMORY,
                       "no descriptors for the pipes and sockets of rank %d (see ulimit -n): %s",
                       worker->rank, strerror(errno));
}

/* Prepares one stream. *end_p: the worker's end; -1: it inherits ours. */
static tutti_status open_stream(tutti__worker *worker, tutti__streams which, tutti__log_pipe *pipe,
                                int *end_p)
{
    const tutti__launch_opts *opts = &worker->job->opts;
    const char *name = which == TUTTI__STREAM_OUT ? "stdout" : "stderr";
    int rank = worker->local_rank, ends[2];
    bool redirect = opts->redirect && (opts->redirect[rank] & which);
    bool tee = opts->tee && (opts->tee[rank] & which);
    bool shown = (!opts->shown || opts->shown[rank]) && (!redirect || tee);

    *end_p = -1;
    name_stream(worker, (int)which, pipe);
    if (redirect || (tee && opts->log_dir))
        TUTTI_TRY(open_log(worker, name, pipe));
    if (redirect && !tee && !pipe->filters) { /* the worker writes to the file itself */
        *end_p = pipe->file;
        pipe->file = -1;
        return TUTTI_OK;
    }
    if (pipe->filters)
        TUTTI_TRY(open_filtered(worker, name, pipe));
    if (shown && is_direct(worker, pipe))
        return TUTTI_OK;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return no_descriptors(worker);
    pipe->fd = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *end_p = ends[1];
    pipe->console_fd = shown ? (int)which : -1;
    return TUTTI_OK;
}

/* ---- Start ----------------------------------------------------------------------------------------- */

/* Between fork and exec: only functions that are safe if the process had other threads. */
static _Noreturn void become_worker(const tutti__worker *worker, char **variables, const int *ends,
                                    pid_t agent)
{
    const tutti__job *job = worker->job;
    const cpu_set_t *binding = job->opts.binding ? &job->opts.binding[worker->local_rank] : NULL;
    bool reads_input = worker->rank == 0;
    int null, n = 0;

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

static tutti_status fork_worker(tutti__worker *worker, const int *ends, const sigset_t *mask,
                                const struct sigaction *sigpipe)
{
    char error_file[PATH_MAX];
    pid_t agent = getpid(), pid;
    environment e;

    TUTTI_TRY(tutti__error_file_prepare(worker, error_file, sizeof error_file));
    if (!make_environment(&e, worker, error_file, ends[2])) {
        free_environment(&e);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the environment of rank %d",
                           worker->rank);
    }
    worker->started_ns = tutti__now_ns();
    pid = fork();
    if (pid == 0) {
        sigaction(SIGPIPE, sigpipe, NULL);
        sigprocmask(SIG_SETMASK, mask, NULL);
        become_worker(worker, e.list, ends, agent);
    }
    free_environment(&e);
    if (pid < 0)
        return tutti__fail(TUTTI_ERR_MEMORY, "cannot start rank %d of %d: %s (see ulimit -u)",
                           worker->rank, worker->job->round.world_size, strerror(errno));
    worker->pid = pid;
    worker->running = true;
    return TUTTI_OK;
}

tutti_status tutti__worker_start(tutti__worker *worker, const tutti__job *job, const sigset_t *mask,
                                 const struct sigaction *sigpipe)
{
    int ends[3] = {-1, -1, -1}, sockets[2];
    tutti_status status;

    worker->job = job;
    worker->voice = (tutti__voice){.fd = -1, .step = -1, .told_step = -1};
    status = open_stream(worker, TUTTI__STREAM_OUT, &worker->out, &ends[0]);
    if (status == TUTTI_OK)
        status = open_stream(worker, TUTTI__STREAM_ERR, &worker->err, &ends[1]);
    if (status == TUTTI_OK && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        status = no_descriptors(worker);
    else if (status == TUTTI_OK) {
        worker->voice.fd = sockets[0];
        ends[2] = sockets[1];
    }
    if (status == TUTTI_OK)
        status = fork_worker(worker, ends, mask, sigpipe);
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
