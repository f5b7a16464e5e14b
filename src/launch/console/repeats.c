/* repeats.c -- shows a message that many ranks print once, with those ranks.
 * SPDX-License-Identifier: MIT
 *
 * Only for Tutti's own messages on standard error ("tutti train: ...", "tutti[3] warn comm: ..."), which contain their rank:
 * they repeat if they are the same except for that and processes' numbers. All lines of other programs are shown. Log files have every line in any
 * case. */
#include "launch/console/console.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 8192, QUOTED = 72 };
#define KEEP_NS 1000000000u /* how long to wait for the next one */

bool tutti__console_is_ours(const char *line, size_t bytes)
{
    return bytes > 6 && bytes < LONGEST && memcmp(line, "tutti", 5) == 0 && strchr(" :[", line[5]);
}

uint64_t tutti__hash_without_rank(const char *line, size_t bytes, int rank)
{
    char text[LONGEST + 1];
    size_t n = 0;

    bytes = bytes < LONGEST ? bytes : LONGEST;
    for (size_t i = 0; i < bytes;) {
        bool marked =
            i > 0 && (line[i - 1] == '[' || (i > 4 && memcmp(line + i - 5, "rank ", 5) == 0));
        const bool process = i > 7 && memcmp(line + i - 8, "process ", 8) == 0;
        size_t digits = 0;

        while ((marked || process) && i + digits < bytes &&
               isdigit((unsigned char)line[i + digits]))
            digits++;
        if (digits > 0 && digits < 9 && (process || atoi(line + i) == rank)) {
            text[n++] = '*';
            i += digits;
        } else {
            text[n++] = line[i++];
        }
    }
    return tutti__hash64(text, n);
}

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void report(tutti__console *console, tutti__repeat *r)
{
    char ranks[256];

    if (r->n == 0)
        return;
    qsort(r->ranks, r->n, sizeof *r->ranks, by_value);
    tutti__list_ranks(r->ranks, r->n, ranks, sizeof ranks);
    tutti__console_print(console, "[%s] as rank %d: %s\n", ranks, r->rank, r->line);
    r->n = 0;
}

static void forget(tutti__console *console, tutti__repeat *r)
{
    report(console, r);
    free(r->ranks);
    *r = (tutti__repeat){0};
}

void tutti__console_report_repeats(tutti__console *console)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(console->repeats); i++)
        report(console, &console->repeats[i]);
}

static bool add_rank(tutti__repeat *r, int rank)
{
    if (r->n == r->capacity) {
        size_t larger = r->capacity ? 2 * r->capacity : 16;
        int *more = realloc(r->ranks, larger * sizeof *more);

        if (!more)
            return false;
        r->ranks = more;
        r->capacity = larger;
    }
    r->ranks[r->n++] = rank;
    r->at_ns = tutti__now_ns();
    return true;
}

static bool is_known(const tutti__repeat *r, int rank)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->ranks[i] == rank)
            return true;
    return r->rank == rank;
}

/* Remembers a new line, in place of the oldest one. */
static void remember(tutti__console *console, uint64_t hash, int rank, const char *line,
                     size_t bytes)
{
    tutti__repeat *oldest = &console->repeats[0];

    for (size_t i = 1; i < TUTTI__COUNT_OF(console->repeats); i++)
        if (console->repeats[i].at_ns < oldest->at_ns)
            oldest = &console->repeats[i];
    forget(console, oldest);
    *oldest = (tutti__repeat){.hash = hash, .rank = rank, .at_ns = tutti__now_ns()};
    bytes -= line[bytes - 1] == '\n';
    snprintf(oldest->line, sizeof oldest->line, "%.*s%s", bytes > QUOTED ? QUOTED : (int)bytes,
             line, bytes > QUOTED ? "..." : "");
}

bool tutti__console_repeats(tutti__console *console, int rank, const char *line, size_t bytes)
{
    uint64_t hash, now;

    if (!tutti__console_is_ours(line, bytes))
        return false;
    now = tutti__now_ns();
    hash = tutti__hash_without_rank(line, bytes, rank);
    for (size_t i = 0; i < TUTTI__COUNT_OF(console->repeats); i++) {
        tutti__repeat *r = &console->repeats[i];

        if (r->at_ns && now - r->at_ns > KEEP_NS)
            forget(console, r);
        else if (r->at_ns && r->hash == hash && !is_known(r, rank))
            return add_rank(r, rank);
    }
    remember(console, hash, rank, line, bytes);
    return false;
}

void tutti__console_line(tutti__console *console, int rank, const char *prefix, const char *line)
{
    if (!tutti__console_repeats(console, rank, line, strlen(line)))
        tutti__console_print(console, "%s%s\n", prefix, line);
}
