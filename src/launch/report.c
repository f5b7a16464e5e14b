/* report.c -- what is said of a failure: who was first, how, and what the others did.   SPDX-License-Identifier: MIT */
#include "launch/agent.h"
#include "launch/flight.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { QUOTED_LINES = 10 }; /* of the first failure's standard error */

#define SAY(r, format, ...)                                                                        \
    tutti__console_print((r)->console, "%s: " format "\n", (r)->job->opts.title, __VA_ARGS__)

bool tutti__wants_color(int fd)
{
    const char *wish = tutti__env_text(TUTTI__ENV_COLOR), *terminal = getenv("TERM");

    if (strcmp(wish, "always") == 0 || strcmp(wish, "never") == 0)
        return *wish == 'a';
    return isatty(fd) && !getenv("NO_COLOR") && terminal && strcmp(terminal, "dumb") != 0;
}

/* ---- The first failure ------------------------------------------------------------------------------ */

/* Exit code 3 says that a peer was lost: the effect of another failure, if there is one. */
const tutti__worker *tutti__first_failed(const tutti__worker *workers, int n)
{
    const tutti__worker *first = NULL;

    for (int i = 0; i < n; i++) {
        const tutti__worker *w = &workers[i];
        bool effect = tutti__worker_failed(w) && tutti__worker_exit_code(w) == 3;
        bool first_is_effect = first && tutti__worker_exit_code(first) == 3;

        if (!tutti__worker_failed(w) || (first && effect && !first_is_effect))
            continue;
        if (!first || (first_is_effect && !effect) || w->ended_ns < first->ended_ns)
            first = w;
    }
    return first;
}

static void quote_last_lines(const tutti__report *r, tutti__log_pipe *pipe)
{
    const char *text = pipe->tail, *end = pipe->tail + pipe->tail_bytes, *line = end;

    for (int n = 0; line > text; line--)
        if (line[-1] == '\n' && line < end && ++n == QUOTED_LINES)
            break;
    if (line == text && pipe->tail_bytes == sizeof pipe->tail) { /* begins in the middle */
        const char *newline = memchr(line, '\n', (size_t)(end - line));

        line = newline && newline + 1 < end ? newline + 1 : line;
    }
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline ? newline : end;

        tutti__console_print(r->console, "    | %.*s\n", (int)(stop - line), line);
        line = stop + 1;
    }
}

/* Ended by a closed pipe, like any program whose reader has seen enough: nobody wants to hear of it. */
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

/* The other failures, those that ended alike on one line. */
static void tell_others(const tutti__report *r, const tutti__worker *first)
{
    int n = r->job->opts.n;

    for (int i = 0; i < n; i++) {
        const tutti__worker *w = &r->workers[i];
        char how[160], ranks[256] = "";
        int alike = 0, used = 0;
        bool told = false;

        if (w == first || !tutti__worker_failed(w))
            continue;
        for (int k = 0; k < n; k++) {
            int last = k;

            if (!ended_alike(&r->workers[k], w, first))
                continue;
            told = told || k < i;
            while (last + 1 < n && ended_alike(&r->workers[last + 1], w, first))
                last++;
            alike += last - k + 1;
            if (used < (int)sizeof ranks)
                used += snprintf(ranks + used, sizeof ranks - (size_t)used,
                                 last > k ? "%s%d-%d" : "%s%d", used ? ", " : "", k, last);
            k = last;
        }
        tutti__worker_describe(w, how, sizeof how);
        if (!told)
            SAY(r, "then rank%s %s%s: %s", alike > 1 ? "s" : "", ranks,
                used < (int)sizeof ranks ? "" : ", ...", how);
    }
}

/* What became of a rank that has not told itself what it was doing. */
static void tell_how(const tutti__worker *w, char *how, size_t bytes)
{
    char path[64], state = '?';
    FILE *file;

    if (!w->running) {
        tutti__worker_describe(w, how, bytes);
        how[strcspn(how, "(")] = '\0'; /* the description of a signal's name */
        how[strlen(how) - (how[strlen(how) - 1] == ' ')] = '\0';
        return;
    }
    snprintf(path, sizeof path, "/proc/%d/stat", (int)w->pid);
    file = fopen(path, "re");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = '?';
    if (file)
        fclose(file);
    snprintf(how, bytes, "%s", state == 'T' ? "stopped (SIGSTOP)" : "runs, silent");
}

void tutti__report_flights(const tutti__report *r)
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
                                      tutti__wants_color(STDERR_FILENO));
    if (table)
        tutti__console_add(r->console, STDERR_FILENO, table, strlen(table));
    free(table);
    free(how);
    free(list);
}

void tutti__report_failure(const tutti__report *r, const tutti__worker *first)
{
    int running = 0;
    char how[160];

    if (reader_has_gone(first))
        return;
    tutti__worker_describe(first, how, sizeof how);
    tutti__log_pipe_drain(&r->workers[first->local_rank].err, r->console); /* what it said last */
    SAY(r, "rank %d failed%s: %s (process %d, after %.3f s)", first->rank,
        r->job->opts.n > 1 ? " first" : "", how, (int)first->pid,
        (double)(first->ended_ns - first->started_ns) * 1e-9);
    if (first->status == SIGKILL && tutti__oom_kills() > r->oom_kills)
        SAY(r, "%s",
            "the kernel's out-of-memory killer has struck on this machine meanwhile: most likely "
            "it ended "
            "this rank; use fewer workers, a smaller batch, or more memory");
    if (first->err.tail_bytes > 0) {
        SAY(r, "the last lines of rank %d on standard error:", first->rank);
        quote_last_lines(r, &r->workers[first->local_rank].err);
    }
    if (first->err.path && first->err.tail_bytes == 0)
        SAY(r, "the standard error of rank %d is in %s", first->rank, first->err.path);
    tell_others(r, first);
    for (int i = 0; i < r->job->opts.n; i++)
        running += r->workers[i].running;
    if (running == 1)
        SAY(r, "%s", "stopping the other worker");
    else if (running > 1)
        SAY(r, "stopping the other %d workers", running);
    if (r->job->round.n_nodes == 1) /* else the others have yet to tell */
        tutti__report_flights(r);
}
