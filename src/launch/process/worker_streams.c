/* worker_streams.c -- where a worker's standard output and error go: the terminal, a pipe to the agent, files.
 * SPDX-License-Identifier: MIT */
#include "launch/process/worker_streams.h"

#include "base/terminal.h"
#include "launch/process/job_files.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

tutti_status tutti__no_descriptors(int rank)
{
    return tutti__fail(TUTTI_ERR_MEMORY,
                       "no descriptors for the pipes and sockets of rank %d (see ulimit -n): %s",
                       rank, strerror(errno));
}

/* Opens a file to append to; -1: errno. Non-blocking, because a pipe without a reader would block the agent. */
static int open_end(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
}

/* Opens NAME.log in the worker's folder for appending; a job with the same id may have written there. */
static tutti_status open_log(const tutti__job *job, int rank, const char *name,
                             tutti__log_pipe *pipe)
{
    char folder[PATH_MAX];

    TUTTI_TRY(tutti__files_folder(job, rank, folder, sizeof folder));
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
static tutti_status open_filtered(const tutti__job *job, int rank, const char *name,
                                  tutti__log_pipe *pipe)
{
    char folder[PATH_MAX], path[PATH_MAX];
    int fd = -1;

    TUTTI_TRY(tutti__files_folder(job, rank, folder, sizeof folder));
    *strrchr(folder, '/') = '\0';
    if (snprintf(path, sizeof path, "%s/filtered_%s.log", folder, name) < (int)sizeof path)
        fd = open_end(path);
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot write %s", path);
    pipe->filtered = fd; /* above 2: the launcher keeps 0, 1 and 2 open */
    return TUTTI_OK;
}

/* The prefix by its template, as Python's string.Template: ${name}, $name, $$; unknown names stay. */
static void fill_template(const tutti__job *job, int rank, const char *p, char *text, size_t bytes)
{
    char rank_text[16], local_rank[16];
    const struct {
        const char *name, *value;
    } known[] = {{"role_name", job->opts.role},
                 {"local_rank", local_rank},
                 {"rank", rank_text},
                 {"hostname", job->host}};
    size_t n = 0;

    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(local_rank, sizeof local_rank, "%d", rank - job->round.first_rank);
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

static void name_stream(const tutti__job *job, int rank, int fd, tutti__log_pipe *pipe)
{
    static const int colors[] = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
    const tutti__round *round = &job->round;
    char host[80] = "";

    *pipe = (tutti__log_pipe){.fd = -1, .file = -1, .console_fd = -1, .rank = rank};
    pipe->filters = job->opts.filters[fd - 1];
    if (job->opts.prefix) {
        fill_template(job, rank, job->opts.prefix, pipe->prefix, sizeof pipe->prefix);
        return;
    }
    if (round->n_nodes > 1)
        snprintf(host, sizeof host, "%.64s ", job->host);
    if (round->world_size > 1 && tutti__wants_colour(fd))
        snprintf(pipe->prefix, sizeof pipe->prefix, "\033[%dm[%s%d]\033[0m ",
                 colors[(size_t)rank % TUTTI__COUNT_OF(colors)], host, rank);
    else if (round->world_size > 1)
        snprintf(pipe->prefix, sizeof pipe->prefix, "[%s%d] ", host, rank);
}

/* Whether the stream need not be read: the worker inherits ours. */
static bool is_direct(const tutti__job *job, int rank, const tutti__log_pipe *pipe)
{
    if (pipe->file >= 0 || pipe->filters)
        return false;
    return (job->round.world_size == 1 && !*pipe->prefix) || (rank == 0 && job->opts.rank0_direct);
}

tutti_status tutti__worker_stream_open(const tutti__job *job, int rank, tutti__streams which,
                                       tutti__log_pipe *pipe, int *end_p)
{
    const tutti__launch_opts *opts = &job->opts;
    const char *name = which == TUTTI__STREAM_OUT ? "stdout" : "stderr";
    int local_rank = rank - job->round.first_rank, ends[2];
    bool redirect = opts->redirect && (opts->redirect[local_rank] & which);
    bool tee = opts->tee && (opts->tee[local_rank] & which);
    bool shown = (!opts->shown || opts->shown[local_rank]) && (!redirect || tee);

    *end_p = -1;
    name_stream(job, rank, (int)which, pipe);
    if (redirect || (tee && opts->log_dir))
        TUTTI_TRY(open_log(job, rank, name, pipe));
    if (redirect && !tee && !pipe->filters) { /* the worker writes to the file itself */
        *end_p = pipe->file;
        pipe->file = -1;
        return TUTTI_OK;
    }
    if (pipe->filters)
        TUTTI_TRY(open_filtered(job, rank, name, pipe));
    if (shown && is_direct(job, rank, pipe))
        return TUTTI_OK;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tutti__no_descriptors(rank);
    pipe->fd = ends[0];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *end_p = ends[1];
    pipe->console_fd = shown ? (int)which : -1;
    return TUTTI_OK;
}
