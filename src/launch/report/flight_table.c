/* flight_table.c -- the flight recorders of all ranks, merged.   SPDX-License-Identifier: MIT
 *
 * Ranks without a report (killed, stopped, hung outside of Tutti) are described by the state of their process and the last call
 * that their peers saw from them. Ranks with the same description share a line; ranks that are not where most ranks wait come
 * first. */
#include "launch/report/flight_table.h"

#include "base/base.h"
#include "comm/engine/flight_report.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OTHER "in another call"

enum { MOST_GROUPS = 3, MOST_LINES = 20, MOST_RANKS = 1 << 16 };

/* A rank of a group, or several with the same description. */
typedef struct row {
    int rank, next; /* the next rank on this line; -1: none. rank -1: not the first of its line */
    const json_t *report;
    bool odd;     /* not where the others wait */
    bool suspect; /* most likely the cause */
    char state[64], last[80], call[128];
    double since_s; /* -1: not in a call */
} row;

typedef struct flight_group {
    const json_t *first; /* the earliest report */
    row *rows;
    int size;
    int64_t top; /* the last call that any rank is in; -1: none */
    char top_text[128];
} flight_group;

static int64_t number(const json_t *object, const char *name, int64_t other)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) ? (int64_t)json_integer_value(value) : other;
}

static const char *text(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));

    return value ? value : "";
}

static bool is_report(const json_t *r)
{
    int64_t size = number(r, "size", 0), rank = number(r, "rank", -1);

    return number(r, "version", 0) == TUTTI__FLIGHT_VERSION && size > 1 && size <= MOST_RANKS &&
           rank >= 0 && rank < size && *text(r, "id") && json_is_array(json_object_get(r, "calls"));
}

/* The newest call in this state; NULL: none. */
static const json_t *newest(const json_t *report, const char *state)
{
    const json_t *calls = json_object_get(report, "calls"), *found = NULL;

    for (size_t i = 0; i < json_array_size(calls); i++)
        if (strcmp(text(json_array_get(calls, i), "state"), state) == 0)
            found = json_array_get(calls, i);
    return found;
}

static void short_name(const json_t *call, char *name, size_t bytes)
{
    snprintf(name, bytes, "%.40s #%lld", text(call, "op"), (long long)number(call, "sequence", -1));
}

/* ---- A group ------------------------------------------------------------------------------------------ */

/* Finds the last call that any rank is in, and its most frequent name. */
static void find_top(flight_group *g)
{
    int most = 0;

    g->top = -1;
    for (int r = 0; r < g->size; r++) {
        const json_t *call = g->rows[r].report ? newest(g->rows[r].report, "running") : NULL;
        int64_t sequence = number(call, "sequence", -1);
        int n = 0;

        if (!call || sequence < g->top)
            continue;
        for (int q = 0; q < g->size; q++) {
            const json_t *other = g->rows[q].report ? newest(g->rows[q].report, "running") : NULL;

            n += other && strcmp(text(other, "text"), text(call, "text")) == 0;
        }
        if (sequence == g->top && n <= most)
            continue;
        g->top = sequence;
        most = n;
        snprintf(g->top_text, sizeof g->top_text, "%s", text(call, "text"));
    }
}

/* The last call of a silent rank that its peers saw, and their name for it. */
static int64_t last_seen(const flight_group *g, int rank, char *name, size_t bytes)
{
    int64_t last = -1;

    *name = '\0';
    for (int r = 0; r < g->size; r++) {
        const json_t *seen = json_object_get(g->rows[r].report, "seen");
        int64_t s = (int64_t)json_integer_value(json_array_get(seen, (size_t)rank));

        if (g->rows[r].report && s > last)
            last = s;
    }
    for (int r = 0; r < g->size && last >= 0; r++) {
        const json_t *calls = json_object_get(g->rows[r].report, "calls");

        for (size_t i = 0; i < json_array_size(calls); i++)
            if (number(json_array_get(calls, i), "sequence", -1) == last)
                short_name(json_array_get(calls, i), name, bytes);
    }
    return last;
}

static void fill_reported(const flight_group *g, row *w)
{
    const json_t *call = newest(w->report, "running"), *done = newest(w->report, "done");
    int64_t sequence = number(call, "sequence", -1);

    if (done)
        short_name(done, w->last, sizeof w->last);
    w->odd = !call || sequence < g->top || strcmp(text(call, "text"), g->top_text) != 0;
    snprintf(w->state, sizeof w->state, "%s",
             !call               ? "in no call"
             : sequence < g->top ? "behind"
             : w->odd            ? OTHER
                                 : "waits");
    if (!call)
        return;
    snprintf(w->call, sizeof w->call, "%s", text(call, "text"));
    w->since_s = json_number_value(json_object_get(w->report, "time")) -
                 json_number_value(json_object_get(call, "began"));
}

static void fill_silent(const flight_group *g, row *w, const char *how)
{
    char name[64];
    int64_t last = last_seen(g, w->rank, name, sizeof name);

    w->odd = true;
    snprintf(w->state, sizeof w->state, "%s", how ? how : "silent");
    if (last >= 0 && last == g->top)
        snprintf(w->call, sizeof w->call, "%s", g->top_text);
    else if (last >= 0 && *name)
        snprintf(w->last, sizeof w->last, "%s (by its peers)", name);
}

static bool alike(const row *a, const row *b)
{
    return strcmp(a->state, b->state) == 0 && strcmp(a->last, b->last) == 0 &&
           strcmp(a->call, b->call) == 0 && !a->report == !b->report && a->suspect == b->suspect;
}

static void fold(flight_group *g)
{
    for (int r = 0; r < g->size; r++)
        for (int q = r + 1, tail = r; q < g->size && g->rows[r].rank >= 0; q++)
            if (g->rows[q].rank >= 0 && alike(&g->rows[r], &g->rows[q])) {
                if (g->rows[q].since_s > g->rows[r].since_s)
                    g->rows[r].since_s = g->rows[q].since_s;
                g->rows[q].rank = -1;
                g->rows[tail].next = q;
                tail = q;
            }
}

/* ---- Text -------------------------------------------------------------------------------------------- */

/* "0-1, 3" of the ranks on the lines for which `pick` is true. */
static void list_ranks(const flight_group *g, int first, char *list, size_t bytes)
{
    size_t n = 0;

    *list = '\0';
    for (int r = first; r >= 0 && n < bytes;) {
        int last = r, next;

        while ((next = g->rows[last].next) == last + 1)
            last = next;
        n += (size_t)snprintf(list + n, bytes - n, last > r ? "%s%d-%d" : "%s%d", n ? ", " : "", r,
                              last);
        r = next;
    }
}

/* The ranks to look at: the rank that the failure names, if it is not where the others are; else all that are not. (The
 * others may just have noticed the failure on their way.) */
static void find_suspects(flight_group *g)
{
    int64_t culprit = number(g->first, "culprit", -1);
    bool named = culprit >= 0 && culprit < g->size && g->rows[culprit].odd;
    bool differ = strcmp(text(g->first, "status"), "ERR_MISMATCH") == 0;

    for (int r = 0; r < g->size; r++)
        g->rows[r].suspect = differ  ? strcmp(g->rows[r].state, OTHER) == 0
                             : named ? r == culprit
                                     : g->rows[r].odd;
}

static void verdict(FILE *out, const flight_group *g, const char *title)
{
    const char *status = text(g->first, "status");
    char waiting[128] = "", absent[256] = "";
    size_t n = 0;
    int n_absent = 0, n_waiting = 0;

    for (int r = 0; r < g->size; r++) {
        const row *w = &g->rows[r];
        char ranks[128];

        if (w->rank < 0)
            continue;
        list_ranks(g, r, ranks, sizeof ranks);
        for (int q = r; q >= 0; q = g->rows[q].next) {
            n_absent += w->suspect;
            n_waiting += !w->odd;
        }
        if (!w->odd)
            snprintf(waiting, sizeof waiting, "%s", ranks);
        else if (w->suspect && n < sizeof absent)
            n += (size_t)snprintf(absent + n, sizeof absent - n, "%s%s", n ? ", " : "", ranks);
    }
    if (g->top < 0 || n_absent == 0 || n_waiting == 0 || strcmp(status, "ERR_MISMATCH") == 0)
        return;
    fprintf(out, "%s: rank%s %s did not complete %s, in which rank%s %s wait%s\n", title,
            n_absent > 1 ? "s" : "", absent, g->top_text, n_waiting > 1 ? "s" : "", waiting,
            n_waiting > 1 ? "" : "s");
}

static void since(double s, char *cell, size_t bytes)
{
    if (s < 0)
        *cell = '\0';
    else
        snprintf(cell, bytes, s < 10 ? "%.2f s" : "%.0f s", s);
}

static void print_rows(FILE *out, const flight_group *g, bool color)
{
    int width[4] = {5, 5, 13, 8}, lines = 0, hidden = 0;
    char ranks[128], cell[32];

    for (int r = 0; r < g->size; r++) {
        const row *w = &g->rows[r];
        const char *cells[] = {ranks, w->state, w->last, w->call};

        list_ranks(g, r, ranks, sizeof ranks);
        for (int i = 0; i < 4 && w->rank >= 0; i++)
            if ((int)strlen(cells[i]) > width[i])
                width[i] = (int)strlen(cells[i]);
    }
    fprintf(out, "    %-*s  %-*s  %-*s  %-*s  %s\n", width[0], "rank", width[1], "state", width[2],
            "last finished", width[3], "waits in", "for");
    for (int suspects = 1; suspects >= 0; suspects--)
        for (int r = 0; r < g->size; r++) {
            const row *w = &g->rows[r];
            bool red = color && suspects;

            if (w->rank < 0 || w->suspect != suspects)
                continue;
            if (lines++ >= MOST_LINES) {
                hidden++;
                continue;
            }
            list_ranks(g, r, ranks, sizeof ranks);
            since(w->since_s, cell, sizeof cell);
            fprintf(out, "  %s%s %-*s  %-*s  %-*s  %-*s  %s%s\n", red ? "\033[1;31m" : "",
                    suspects ? ">" : " ", width[0], ranks, width[1], w->state, width[2],
                    *w->last ? w->last : "-", width[3], *w->call ? w->call : "-",
                    *cell ? cell : "-", red ? "\033[0m" : "");
        }
    if (hidden)
        fprintf(out, "    ... and %d line%s more\n", hidden, tutti__s((uint64_t)hidden));
}

/* Lists the members of a sub-group, which has its own rank numbers. */
static void print_members(FILE *out, const flight_group *g, const char *title)
{
    const json_t *members = json_object_get(g->first, "members");
    bool same = true;

    for (size_t r = 0; r < json_array_size(members); r++)
        same = same && json_integer_value(json_array_get(members, r)) == (json_int_t)r;
    if (same || json_array_size(members) > 64)
        return;
    fprintf(out, "%s: its ranks 0-%d are the job's ranks", title, g->size - 1);
    for (size_t r = 0; r < json_array_size(members); r++)
        fprintf(out, "%s %d", r ? "," : "", (int)json_integer_value(json_array_get(members, r)));
    fprintf(out, "\n");
}

/* ---- The table ---------------------------------------------------------------------------------------- */

static bool print_group(FILE *out, const json_t *first, json_t *const *reports, size_t n_reports,
                        const char *const *how, int n_how, const char *title, bool color)
{
    flight_group g = {.first = first, .size = (int)number(first, "size", 0)};
    const json_t *members = json_object_get(first, "members");

    g.rows = calloc((size_t)g.size, sizeof *g.rows);
    if (!g.rows)
        return false;
    for (int r = 0; r < g.size; r++)
        g.rows[r] = (row){.rank = r, .next = -1, .since_s = -1};
    for (size_t i = 0; i < n_reports; i++)
        if (strcmp(text(reports[i], "id"), text(first, "id")) == 0 &&
            number(reports[i], "rank", 0) < g.size)
            g.rows[number(reports[i], "rank", 0)].report = reports[i];
    find_top(&g);
    for (int r = 0; r < g.size; r++) {
        const json_t *member = json_array_get(members, (size_t)r);
        int64_t job_rank = json_is_integer(member) ? (int64_t)json_integer_value(member) : r;

        if (g.rows[r].report)
            fill_reported(&g, &g.rows[r]);
        else
            fill_silent(&g, &g.rows[r], job_rank >= 0 && job_rank < n_how ? how[job_rank] : NULL);
    }
    find_suspects(&g);
    fold(&g);
    fprintf(out, "%s: the group \"%s\" of %d ranks died: %s\n", title, text(first, "group"), g.size,
            text(first, "cause"));
    verdict(out, &g, title);
    print_members(out, &g, title);
    print_rows(out, &g, color);
    free(g.rows);
    return true;
}

static int by_time(const void *a, const void *b)
{
    double x = json_number_value(json_object_get(*(json_t *const *)a, "time")),
           y = json_number_value(json_object_get(*(json_t *const *)b, "time"));

    return x < y ? -1 : x > y;
}

static bool is_first_of_group(json_t *const *reports, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(text(reports[k], "id"), text(reports[i], "id")) == 0)
            return false;
    return true;
}

char *tutti__flight_table(const char *const *reports, size_t n_reports, const char *const *how,
                          int n, const char *title, bool color)
{
    json_t **parsed = calloc(n_reports + 1, sizeof(json_t *));
    char *table = NULL;
    size_t bytes, kept = 0, groups = 0;
    FILE *out = parsed ? open_memstream(&table, &bytes) : NULL;
    bool complete = out != NULL;

    for (size_t i = 0; i < n_reports && out; i++) {
        json_t *r = json_loads(reports[i], 0, NULL);

        if (r && is_report(r))
            parsed[kept++] = r;
        else
            json_decref(r);
    }
    if (kept)
        qsort(parsed, kept, sizeof(json_t *), by_time);
    for (size_t i = 0; i < kept && complete; i++)
        if (is_first_of_group(parsed, i) && groups++ < MOST_GROUPS)
            complete = print_group(out, parsed[i], parsed, kept, how, n, title, color);
    if (groups > MOST_GROUPS)
        fprintf(out, "%s: and %zu more groups\n", title, groups - MOST_GROUPS);
    if (out)
        fclose(out);
    while (kept > 0)
        json_decref(parsed[--kept]);
    free(parsed);
    if (complete)
        return table;
    free(table);
    return NULL;
}

char *tutti__flight_collect(tutti_store *store, int round, const char *const *how, int n,
                            const char *title, bool color)
{
    enum { REPORT_BYTES = 1 << 18 };
    char key[64], *buffer = malloc(REPORT_BYTES), **reports, *table;
    int64_t count = 0;
    size_t kept = 0;

    snprintf(key, sizeof key, TUTTI__FLIGHT_COUNT, round);
    if (!buffer || tutti_store_add(store, key, 0, &count) != TUTTI_OK)
        count = 0;
    count = count < TUTTI__FLIGHT_REPORTS ? count : TUTTI__FLIGHT_REPORTS;
    reports = calloc((size_t)count + 1, sizeof *reports);
    for (int64_t i = 1; i <= count && reports; i++) {
        size_t bytes = REPORT_BYTES - 1;

        snprintf(key, sizeof key, TUTTI__FLIGHT_REPORT, round, (long long)i);
        if (tutti_store_get(store, key, buffer, &bytes, 0) != TUTTI_OK)
            continue;
        buffer[bytes] = '\0';
        reports[kept] = strdup(buffer);
        kept += reports[kept] != NULL;
    }
    table = reports ? tutti__flight_table((const char *const *)reports, kept, how, n, title, color)
                    : NULL;
    while (kept > 0)
        free(reports[--kept]);
    free(reports);
    free(buffer);
    return table;
}
