/* failure_report.c -- the report of a failure: which worker was first, how it failed, and what the others did.
 * SPDX-License-Identifier: MIT */
#include "launch/report/failure_report.h"
#include "base/terminal.h"
#include "comm/bootstrap/launcher_cause.h"
#include "launch/process/descendants.h"
#include "launch/process/first_failure.h"
#include "launch/report/flight_table.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUOTED_LINES = 10 }; /* of the first failure's standard error */

/* A running rank may be the cause all the same: its error file says why it fails, but it has not ended yet, or it is stopped
 * and the others considered it dead. */
static tutti__failure find_cause(const tutti__workers *all, const tutti__worker *first)
{
    tutti__failure cause = tutti__failure_of(first);

    for (int i = 0; i < all->job->opts.n; i++) {
        tutti__failure f = {.worker = &all->list[i]};

        if (!f.worker->running)
            continue;
        f = tutti__failure_of(f.worker);
        if ((f.has_reason && tutti__failure_is_before(&f, &cause)) ||
            (cause.effect && tutti__worker_is_stopped(f.worker)))
            cause = f;
    }
    return cause;
}

static void quote_line(const tutti__workers *all, const char *line, size_t bytes)
{
    tutti__console_print(all->console, "    | %.*s\n", (int)bytes, line);
}

static void quote_last_lines(const tutti__workers *all, tutti__log_pipe *pipe)
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

        quote_line(all, line, (size_t)(stop - line));
        line = stop + 1;
    }
}

/* Quotes its error file. */
static void quote_reason(const tutti__workers *all, const char *reason)
{
    size_t bytes = strcspn(reason, "\n");

    if (!reason[bytes]) {
        tutti__console_say(all->console, "its error: %s", reason);
        return;
    }
    tutti__console_say(all->console, "its error:");
    for (int n = 0; *reason && n < QUOTED_LINES; n++) {
        quote_line(all, reason, bytes);
        reason += bytes + (reason[bytes] == '\n');
        bytes = strcspn(reason, "\n");
    }
}

/* Whether its standard error is only one line, which its error file repeats. */
static bool has_no_more(const tutti__log_pipe *pipe, const tutti__failure *f)
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
static void print_others(const tutti__workers *all, const tutti__worker *first)
{
    int n = all->job->opts.n, *ranks = calloc((size_t)n, sizeof *ranks);
    char how[160], text[256];

    for (int i = 0; i < n && ranks; i++) {
        const tutti__worker *w = &all->list[i];
        size_t alike = 0;
        bool reported = false;

        if (w != first && tutti__worker_is_stopped(w))
            tutti__console_say(all->console,
                               "rank %d (process %d) is stopped (SIGSTOP, a debugger)", w->rank,
                               (int)w->pid);
        if (w == first || !tutti__worker_failed(w))
            continue;
        for (int k = 0; k < n; k++) {
            if (!ended_alike(&all->list[k], w, first))
                continue;
            reported = reported || k < i;
            ranks[alike++] = all->list[k].rank;
        }
        tutti__list_ranks(ranks, alike, text, sizeof text);
        tutti__worker_describe(w, how, sizeof how);
        if (!reported)
            tutti__console_say(all->console, "then rank%s %s: %s", alike > 1 ? "s" : "", text, how);
    }
    free(ranks);
}

/* The state of a rank without a flight-recorder report. */
static void describe_state(const tutti__worker *w, char *how, size_t bytes)
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

void tutti__report_flights(const tutti__workers *all, const char *said)
{
    const tutti__round *round = &all->job->round;
    int n = round->world_size;
    char(*how)[80] = calloc((unsigned)n, sizeof *how);
    const char **list = calloc((unsigned)n, sizeof *list);
    char *table = NULL;

    for (int i = 0; i < n && how && list; i++) {
        int local = i - round->first_rank;

        if (local >= 0 && local < all->job->opts.n)
            describe_state(&all->list[local], how[i], sizeof how[i]);
        else
            snprintf(how[i], sizeof how[i], "on another node");
        list[i] = how[i];
    }
    if (how && list && all->job->store)
        table = tutti__flight_collect(all->job->store, round->number, list, n, all->job->opts.title,
                                      tutti__wants_colour(STDERR_FILENO));
    if (table) {
        shorten(table, said);
        tutti__console_add(all->console, STDERR_FILENO, table, strlen(table));
    }
    free(table);
    free(how);
    free(list);
}

/* A rank with an error of its own has not failed because it is stopped now: a tracer stops it for moments. */
static bool is_stopped(const tutti__failure *cause)
{
    return cause->worker->running && (!cause->has_reason || cause->effect) &&
           tutti__worker_is_stopped(cause->worker);
}

/* Prints which rank failed, and how. */
static void print_cause(const tutti__workers *all, const tutti__failure *cause)
{
    const tutti__worker *w = cause->worker;
    const char *first = all->job->round.world_size > 1 ? " first" : "";
    char how[160], where[80] = "";

    if (all->job->round.n_nodes > 1)
        snprintf(where, sizeof where, " on %s", all->job->host);
    if (is_stopped(cause)) {
        tutti__console_say(
            all->console,
            "rank %d%s (process %d) is stopped (SIGSTOP, a debugger): the others gave up on it; "
            "`kill -CONT %d` resumes it",
            w->rank, where, (int)w->pid, (int)w->pid);
    } else if (w->running) {
        tutti__console_say(
            all->console, "rank %d%s failed%s, and is still running (process %d, after %.3f s)",
            w->rank, where, first, (int)w->pid, (double)(cause->at_ns - w->started_ns) * 1e-9);
    } else {
        tutti__worker_describe(w, how, sizeof how);
        tutti__console_say(all->console, "rank %d%s failed%s: %s (process %d, after %.3f s)",
                           w->rank, where, first, how, (int)w->pid,
                           (double)(w->ended_ns - w->started_ns) * 1e-9);
    }
    if (!w->running && w->status == SIGKILL && tutti__oom_kills() > all->oom_kills)
        tutti__console_say(
            all->console,
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

/* Whether two ranks say the same, or each the same of itself. */
static bool say_alike(const tutti__reason *a, int rank, const tutti__reason *b, int other)
{
    return strcmp(a->text, b->text) == 0 ||
           tutti__hash_without_rank(a->text, strlen(a->text), rank) ==
               tutti__hash_without_rank(b->text, strlen(b->text), other);
}

/* Whether the console has a line with this message, of that rank or of one that failed for the same reason: another's error may
 * end with the same words. That of rank 0 may not pass through the agent. */
static bool is_shown(const tutti__workers *all, const tutti__failure *cause)
{
    tutti__reason said;

    for (int i = 0; i < all->job->opts.n; i++) {
        const tutti__worker *w = &all->list[i];

        if (w == cause->worker)
            said = cause->reason;
        else if (!tutti__error_file_read(w, &said) ||
                 !say_alike(&said, w->rank, &cause->reason, cause->worker->rank))
            continue;
        if ((w->rank == 0 && all->job->opts.rank0_direct) || has_shown(&w->err, said.text))
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
static bool message_of(const tutti__workers *all, const tutti__worker *w, tutti__reason *message)
{
    tutti__log_pipe *err = &all->list[w->local_rank].err;

    if (tutti__error_file_read(w, message))
        return true;
    if (err->tail_bytes == 0)
        read_tail(err);
    if (err->tail_bytes == 0 || memchr(err->tail, '\n', err->tail_bytes - 1))
        return false;
    *message = (tutti__reason){0};
    snprintf(message->text, sizeof message->text, "%.*s", (int)err->tail_bytes, err->tail);
    return true;
}

/* Whether all ranks have failed in the same way, with the same message, or one that differs only in the rank's number, and none
 * only quotes that of another. */
static bool all_alike(const tutti__workers *all, const tutti__failure *cause)
{
    tutti__reason first, message;

    if (all->job->opts.n < 2 || all->job->round.n_nodes > 1 ||
        !message_of(all, cause->worker, &first))
        return false;
    for (int i = 0; i < all->job->opts.n; i++) {
        const tutti__worker *w = &all->list[i];

        if (!tutti__worker_failed(w) || w->status != cause->worker->status ||
            !message_of(all, w, &message) || message.effect != first.effect)
            return false;
        if (!say_alike(&message, w->rank, &first, cause->worker->rank))
            return false;
    }
    return true;
}

/* Prints all of its message. alike: that of all ranks, which have written nothing else. */
static void print_reason(const tutti__workers *all, const tutti__failure *cause, bool alike)
{
    tutti__log_pipe *err = &all->list[cause->worker->local_rank].err;

    if (alike && !cause->has_reason && err->console_fd >= 0)
        return;
    if (cause->has_reason && !is_shown(all, cause))
        quote_reason(all, cause->reason.text);
    if (err->tail_bytes == 0)
        read_tail(err);
    if (err->tail_bytes > 0 && !has_no_more(err, cause)) {
        tutti__console_say(all->console,
                           "the last lines of rank %d on standard error%s%s:", cause->worker->rank,
                           err->path ? ", of " : "", err->path ? err->path : "");
        quote_last_lines(all, err);
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

/* Passes it to the launcher above this one, if there is one, and no further round follows. */
static void pass_to_outer_launcher(const tutti__workers *all, const tutti__failure *cause)
{
    char how[160], text[400];

    if (all->job->round.restarts < all->job->opts.max_restarts && !cause->reason.permanent)
        return;
    if (cause->worker->running)
        snprintf(how, sizeof how, is_stopped(cause) ? "stopped (SIGSTOP)" : "still running");
    else
        tutti__worker_describe(cause->worker, how, sizeof how);
    snprintf(text, sizeof text, "%s: rank %d failed first: %s (process %d)", all->job->opts.title,
             cause->worker->rank, how, (int)cause->worker->pid);
    tutti__error_file_pass_on(cause->worker, text);
}

/* For workers whose group is being made: those that end now miss each other before they know of the first failure. */
static void leave_cause(const tutti__workers *all, const tutti__failure *cause)
{
    const tutti__worker *w = cause->worker;
    char text[400], how[160] = "it is stopped (SIGSTOP, a debugger)";

    if (!all->job->store || (cause->effect && !is_stopped(cause)))
        return;
    if (!w->running)
        tutti__worker_describe(w, how, sizeof how);
    else if (!is_stopped(cause))
        snprintf(how, sizeof how, "it failed");
    snprintf(text, sizeof text,
             "rank %d (%s, process %d) was lost: %s; see its last lines for the reason", w->rank,
             all->job->host, (int)w->pid, how);
    if (tutti__launcher_cause_leave(all->job->store, all->job->round.number, w->rank, text) !=
        TUTTI_OK)
        tutti_log(TUTTI_LOG_INFO, "launch", "%s", tutti_last_error());
}

const tutti__worker *tutti__report_failure(const tutti__workers *all, const tutti__worker *first)
{
    tutti__failure cause;
    char how[160];
    bool alike;
    int running = 0;

    if (reader_has_gone(first))
        return first;
    cause = find_cause(all, first);
    leave_cause(all, &cause);
    for (int i = 0; i < all->job->opts.n; i++)
        if (!all->list[i].running || &all->list[i] == cause.worker)
            tutti__log_pipe_drain(&all->list[i].err, all->console); /* its last output */
    tutti__console_report_repeats(all->console);
    alike = all_alike(all, &cause);
    if (alike) {
        tutti__worker_describe(cause.worker, how, sizeof how);
        tutti__console_say(all->console, "all %d ranks failed for the same reason: %s",
                           all->job->opts.n, how);
    } else {
        print_cause(all, &cause);
    }
    print_reason(all, &cause, alike);
    if (!alike)
        print_others(all, cause.worker);
    for (int i = 0; i < all->job->opts.n; i++)
        running += all->list[i].running && &all->list[i] != cause.worker;
    if (running == 0 && cause.worker->running)
        tutti__console_say(all->console, "stopping it");
    else if (running == 1)
        tutti__console_say(all->console, "stopping the other worker");
    else if (running > 1)
        tutti__console_say(all->console, "stopping the other %d workers", running);
    if (all->job->round.n_nodes == 1) /* else the other nodes have not reported yet */
        tutti__report_flights(all, cause.has_reason ? cause.reason.text : "");
    pass_to_outer_launcher(all, &cause);
    return cause.worker;
}
