/* failure_report.c -- the report of a failure: which worker was first, how it failed, and what the others did.
 * SPDX-License-Identifier: MIT */
#include "launch/report/failure_report.h"
#include "base/terminal.h"
#include "launch/process/descendants.h"
#include "launch/process/files.h"
#include "launch/report/flight.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUOTED_LINES = 10 }; /* of the first failure's standard error */

/* ---- The first failure ------------------------------------------------------------------------------ */

/* When a worker failed, and whether another failed first by its own account: by exit code 3, or by its error file, whose time
 * also counts before that of its end. */
typedef struct failure {
    const tutti__worker *worker;
    uint64_t at_ns;
    bool effect, has_reason;
    tutti__reason reason;
} failure;

static failure look(const tutti__worker *w)
{
    failure f = {.worker = w, .at_ns = w->running ? UINT64_MAX : w->ended_ns};

    f.has_reason = tutti__error_file_read(w, &f.reason);
    f.effect = !w->running && tutti__worker_exit_code(w) == 3;
    if (f.has_reason) {
        f.effect = f.effect || f.reason.effect;
        if (f.reason.at_ns < w->started_ns) /* files' times are those of the kernel's last tick */
            f.reason.at_ns = w->started_ns;
        f.at_ns = f.reason.at_ns < f.at_ns ? f.reason.at_ns : f.at_ns;
    }
    return f;
}

static bool is_before(const failure *a, const failure *b)
{
    return a->effect != b->effect ? b->effect : a->at_ns < b->at_ns;
}

const tutti__worker *tutti__first_failed(const tutti__worker *workers, int n)
{
    failure first = {.worker = NULL};

    for (int i = 0; i < n; i++) {
        failure f;

        if (!tutti__worker_failed(&workers[i]))
            continue;
        f = look(&workers[i]);
        if (!first.worker || is_before(&f, &first))
            first = f;
    }
    return first.worker;
}

/* A running rank may be the cause all the same: its error file says why it fails, but it has not ended yet, or it is stopped
 * and the others considered it dead. */
static failure find_cause(const tutti__report *r, const tutti__worker *first)
{
    failure cause = look(first);

    for (int i = 0; i < r->job->opts.n; i++) {
        failure f = {.worker = &r->workers[i]};

        if (!f.worker->running)
            continue;
        f = look(f.worker);
        if ((f.has_reason && is_before(&f, &cause)) ||
            (cause.effect && tutti__worker_is_stopped(f.worker)))
            cause = f;
    }
    return cause;
}

bool tutti__cause_is_known(const tutti__report *r)
{
    for (int i = 0; i < r->job->opts.n; i++) {
        failure f = look(&r->workers[i]);

        if ((tutti__worker_failed(f.worker) || f.has_reason) && !f.effect)
            return true;
    }
    return false;
}

static void quote_line(const tutti__report *r, const char *line, size_t bytes)
{
    tutti__console_print(r->console, "    | %.*s\n", (int)bytes, line);
}

static void quote_last_lines(const tutti__report *r, tutti__log_pipe *pipe)
{
    const char *text = pipe->tail, *end = pipe->tail + pipe->tail_bytes, *line = end;

    for (int n = 0; line > text; line--)
        if (line[-1] == '\n' && line < end && ++n == QUOTED_LINES)
            break;
    if (line == text && pipe->tail_bytes == sizeof pipe->tail) { /* the tail begins within a line */
        const char *newline = memchr(line, '\n', (size_t)(end - line));

        line = newline && newline + 1 < end ? newline + 1 : line;
    }
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline ? newline : end;

        quote_line(r, line, (size_t)(stop - line));
        line = stop + 1;
    }
}

/* Quotes its error file. */
static void quote_reason(const tutti__report *r, const char *reason)
{
    size_t bytes = strcspn(reason, "\n");

    if (!reason[bytes]) {
        tutti__console_say(r->console, "its error: %s", reason);
        return;
    }
    tutti__console_say(r->console, "its error:");
    for (int n = 0; *reason && n < QUOTED_LINES; n++) {
        quote_line(r, reason, bytes);
        reason += bytes + (reason[bytes] == '\n');
        bytes = strcspn(reason, "\n");
    }
}

/* Whether its standard error is only one line, which its error file repeats. */
static bool says_no_more(const tutti__log_pipe *pipe, const failure *f)
{
    const char *newline = memchr(pipe->tail, '\n', pipe->tail_bytes);
    size_t bytes = newline ? (size_t)(newline - pipe->tail) + 1 : pipe->tail_bytes;

    return f->has_reason && bytes == pipe->tail_bytes &&
           memmem(pipe->tail, bytes, f->reason.text, strlen(f->reason.text));
}

/* Ended by a closed pipe, like any program whose reader has exited: not reported. */
static bool reader_has_gone(const tutti__worker *worker)
{
    struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};

    return WIFSIGNALED(worker->status) && WTERMSIG(worker->status) == SIGPIPE &&
           poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

static bool ended_alike(const tutti__worker *a, const tutti__worker *b, const tutti__worker *first)
{
    return a != first && tutti__worker_failed(a) && a->status == b->status;
}

/* Reports the other failures, those with the same end on one line, and stopped workers. */
static void tell_others(const tutti__report *r, const tutti__worker *first)
{
    int n = r->job->opts.n, *ranks = calloc((size_t)n, sizeof *ranks);
    char how[160], text[256];

    for (int i = 0; i < n && ranks; i++) {
        const tutti__worker *w = &r->workers[i];
        size_t alike = 0;
        bool told = false;

        if (w != first && tutti__worker_is_stopped(w))
            tutti__console_say(r->console, "rank %d (process %d) is stopped (SIGSTOP, a debugger)",
                               w->rank, (int)w->pid);
        if (w == first || !tutti__worker_failed(w))
            continue;
        for (int k = 0; k < n; k++) {
            if (!ended_alike(&r->workers[k], w, first))
                continue;
            told = told || k < i;
            ranks[alike++] = r->workers[k].rank;
        }
        tutti__list_ranks(ranks, alike, text, sizeof text);
        tutti__worker_describe(w, how, sizeof how);
        if (!told)
            tutti__console_say(r->console, "then rank%s %s: %s", alike > 1 ? "s" : "", text, how);
    }
    free(ranks);
}

/* The state of a rank without a flight-recorder report. */
static void tell_how(const tutti__worker *w, char *how, size_t bytes)
{
    if (!w->running) {
        tutti__worker_describe(w, how, bytes);
        how[strcspn(how, "(")] = '\0'; /* the description of a signal's name */
        how[strlen(how) - (how[strlen(how) - 1] == ' ')] = '\0';
        return;
    }
    snprintf(how, bytes, "%s", tutti__worker_is_stopped(w) ? "stopped (SIGSTOP)" : "runs, silent");
}

/* Removes the cause from the table's first line if it was printed already. */
static void shorten(char *table, const char *said)
{
    static const char before[] = " said: ", instead[] = " reported it (above)";
    char *at = *said ? strstr(table, said) : NULL, *from = at ? at - strlen(before) : NULL;

    if (!at || from < table || memcmp(from, before, strlen(before)) != 0 ||
        strlen(before) + strlen(said) < strlen(instead))
        return;
    memcpy(from, instead, strlen(instead));
    memmove(from + strlen(instead), at + strlen(said), strlen(at + strlen(said)) + 1);
}

void tutti__report_flights(const tutti__report *r, const char *said)
{
    const tutti__round *round = &r->job->round;
    int n = round->world_size;
    char(*how)[80] = calloc((unsigned)n, sizeof *how);
    const char **list = calloc((unsigned)n, sizeof *list);
    char *table = NULL;

    for (int i = 0; i < n && how && list; i++) {
        int local = i - round->first_rank;

        if (local >= 0 && local < r->job->opts.n)
            tell_how(&r->workers[local], how[i], sizeof how[i]);
        else
            snprintf(how[i], sizeof how[i], "on another node");
        list[i] = how[i];
    }
    if (how && list && r->job->store)
        table = tutti__flight_collect(r->job->store, round->number, list, n, r->job->opts.title,
                                      tutti__wants_colour(STDERR_FILENO));
    if (table) {
        shorten(table, said);
        tutti__console_add(r->console, STDERR_FILENO, table, strlen(table));
    }
    free(table);
    free(how);
    free(list);
}

/* A rank with an error of its own has not failed because it is stopped now: a tracer stops it for moments. */
static bool is_stopped(const failure *cause)
{
    return cause->worker->running && (!cause->has_reason || cause->effect) &&
           tutti__worker_is_stopped(cause->worker);
}

/* Prints which rank failed, and how. */
static void tell_cause(const tutti__report *r, const failure *cause)
{
    const tutti__worker *w = cause->worker;
    const char *first = r->job->round.world_size > 1 ? " first" : "";
    char how[160], where[80] = "";

    if (r->job->round.n_nodes > 1)
        snprintf(where, sizeof where, " on %s", r->job->host);
    if (is_stopped(cause)) {
        tutti__console_say(
            r->console,
            "rank %d%s (process %d) is stopped (SIGSTOP, a debugger): the others gave up on it; "
            "`kill -CONT %d` resumes it",
            w->rank, where, (int)w->pid, (int)w->pid);
    } else if (w->running) {
        tutti__console_say(
            r->console, "rank %d%s failed%s, and is still running (process %d, after %.3f s)",
            w->rank, where, first, (int)w->pid, (double)(cause->at_ns - w->started_ns) * 1e-9);
    } else {
        tutti__worker_describe(w, how, sizeof how);
        tutti__console_say(r->console, "rank %d%s failed%s: %s (process %d, after %.3f s)", w->rank,
                           where, first, how, (int)w->pid,
                           (double)(w->ended_ns - w->started_ns) * 1e-9);
    }
    if (!w->running && w->status == SIGKILL && tutti__oom_kills() > r->oom_kills)
        tutti__console_say(
            r->console,
            "the kernel's out-of-memory killer ran on this machine meanwhile, and most likely "
            "killed "
            "this rank; use fewer workers, a smaller batch, or more memory");
}

/* Whether a line that the console has shown for this worker ends with this message. */
static bool has_shown(const tutti__log_pipe *pipe, const char *reason)
{
    const char *line = pipe->tail, *end = pipe->tail + pipe->tail_bytes, *newline;
    const size_t bytes = strlen(reason);

    if (pipe->console_fd < 0)
        return false;
    for (; line < end; line = newline + 1) {
        newline = memchr(line, '\n', (size_t)(end - line));
        newline = newline ? newline : end;
        if ((size_t)(newline - line) >= bytes && memcmp(newline - bytes, reason, bytes) == 0)
            return true;
    }
    return false;
}

/* Whether the console has a line with this message, of that rank or of one that failed for the same reason: another's error may
 * end with the same words. That of rank 0 may not pass through the agent. */
static bool is_said(const tutti__report *r, const failure *cause)
{
    tutti__reason said;

    for (int i = 0; i < r->job->opts.n; i++) {
        const tutti__worker *w = &r->workers[i];

        if (w != cause->worker &&
            !(tutti__error_file_read(w, &said) && strcmp(said.text, cause->reason.text) == 0))
            continue;
        if ((w->rank == 0 && r->job->opts.rank0_direct) || has_shown(&w->err, cause->reason.text))
            return true;
    }
    return false;
}

/* Reads the end of a file that the worker has written itself. */
static void read_tail(tutti__log_pipe *pipe)
{
    int fd = pipe->path ? open(pipe->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t last = end - (off_t)sizeof pipe->tail;
    off_t begin = last > pipe->begin ? last : pipe->begin;
    ssize_t n = end > begin ? pread(fd, pipe->tail, (size_t)(end - begin), begin) : 0;

    pipe->tail_bytes = n > 0 ? (size_t)n : 0;
    if (fd >= 0)
        close(fd);
}

/* What a rank says of its failure: its error file, or else the only line on its standard error. False: nothing, or more. */
static bool words_of(const tutti__report *r, const tutti__worker *w, tutti__reason *words)
{
    tutti__log_pipe *err = &r->workers[w->local_rank].err;

    if (tutti__error_file_read(w, words))
        return true;
    if (err->tail_bytes == 0)
        read_tail(err);
    if (err->tail_bytes == 0 || memchr(err->tail, '\n', err->tail_bytes - 1))
        return false;
    snprintf(words->text, sizeof words->text, "%.*s", (int)err->tail_bytes, err->tail);
    return true;
}

/* Whether all ranks have failed in the same way, with the same message, or one that differs only in the rank's number. */
static bool all_alike(const tutti__report *r, const failure *cause)
{
    const int rank = cause->worker->rank;
    tutti__reason first, words;
    uint64_t hash;

    if (r->job->opts.n < 2 || r->job->round.n_nodes > 1 || !words_of(r, cause->worker, &first))
        return false;
    hash = tutti__hash_without_rank(first.text, strlen(first.text), rank);
    for (int i = 0; i < r->job->opts.n; i++) {
        const tutti__worker *w = &r->workers[i];

        if (!tutti__worker_failed(w) || w->status != cause->worker->status ||
            !words_of(r, w, &words))
            return false;
        if (strcmp(words.text, first.text) != 0 &&
            tutti__hash_without_rank(words.text, strlen(words.text), w->rank) != hash)
            return false;
    }
    return true;
}

/* Prints all of its message. alike: that of all ranks, which have written nothing else. */
static void tell_reason(const tutti__report *r, const failure *cause, bool alike)
{
    tutti__log_pipe *err = &r->workers[cause->worker->local_rank].err;

    if (alike && !cause->has_reason && err->console_fd >= 0)
        return;
    if (cause->has_reason && !is_said(r, cause))
        quote_reason(r, cause->reason.text);
    if (err->tail_bytes == 0)
        read_tail(err);
    if (err->tail_bytes > 0 && !says_no_more(err, cause)) {
        tutti__console_say(r->console,
                           "the last lines of rank %d on standard error%s%s:", cause->worker->rank,
                           err->path ? ", of " : "", err->path ? err->path : "");
        quote_last_lines(r, err);
    }
}

void tutti__describe_failure(const tutti__worker *first, char *text, size_t bytes)
{
    tutti__reason reason;
    char how[160];
    int n;

    if (first->running) {
        n = snprintf(text, bytes, "rank %d on %s (process %d) %s", first->rank, first->job->host,
                     (int)first->pid,
                     tutti__worker_is_stopped(first)
                         ? "is stopped (SIGSTOP, a debugger): the others gave up on it"
                         : "failed first, and is still running");
    } else {
        tutti__worker_describe(first, how, sizeof how);
        n = snprintf(text, bytes, "rank %d on %s failed first: %s (process %d, after %.3f s)",
                     first->rank, first->job->host, how, (int)first->pid,
                     (double)(first->ended_ns - first->started_ns) * 1e-9);
    }
    if (n > 0 && (size_t)n < bytes && tutti__error_file_read(first, &reason))
        snprintf(text + n, bytes - (size_t)n, ", with the error: %.*s",
                 (int)strcspn(reason.text, "\n"), reason.text);
}

/* Passes it to the launcher above this one, if there is one, and no further attempt follows. */
static void pass_on(const tutti__report *r, const failure *cause)
{
    char how[160], text[400];

    if (r->job->round.restarts < r->job->opts.max_restarts && !cause->reason.permanent)
        return;
    if (cause->worker->running)
        snprintf(how, sizeof how, is_stopped(cause) ? "stopped (SIGSTOP)" : "still running");
    else
        tutti__worker_describe(cause->worker, how, sizeof how);
    snprintf(text, sizeof text, "%s: rank %d failed first: %s (process %d)", r->job->opts.title,
             cause->worker->rank, how, (int)cause->worker->pid);
    tutti__error_file_pass_on(cause->worker, text);
}

const tutti__worker *tutti__report_failure(const tutti__report *r, const tutti__worker *first)
{
    failure cause;
    char how[160];
    bool alike;
    int running = 0;

    if (reader_has_gone(first))
        return first;
    cause = find_cause(r, first);
    for (int i = 0; i < r->job->opts.n; i++)
        if (!r->workers[i].running || &r->workers[i] == cause.worker)
            tutti__log_pipe_drain(&r->workers[i].err, r->console); /* its last output */
    tutti__console_report_repeats(r->console);
    alike = all_alike(r, &cause);
    if (alike) {
        tutti__worker_describe(cause.worker, how, sizeof how);
        tutti__console_say(r->console, "all %d ranks failed for the same reason: %s",
                           r->job->opts.n, how);
    } else {
        tell_cause(r, &cause);
    }
    tell_reason(r, &cause, alike);
    if (!alike)
        tell_others(r, cause.worker);
    for (int i = 0; i < r->job->opts.n; i++)
        running += r->workers[i].running && &r->workers[i] != cause.worker;
    if (running == 0 && cause.worker->running)
        tutti__console_say(r->console, "stopping it");
    else if (running == 1)
        tutti__console_say(r->console, "stopping the other worker");
    else if (running > 1)
        tutti__console_say(r->console, "stopping the other %d workers", running);
    if (r->job->round.n_nodes == 1) /* else the other nodes have not reported yet */
        tutti__report_flights(r, cause.has_reason ? cause.reason.text : "");
    pass_on(r, &cause);
    return cause.worker;
}
