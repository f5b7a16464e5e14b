/* console.h -- queues whole lines for standard output and error.   SPDX-License-Identifier: MIT
 *
 * One queue for both, so that lines stay in order and do not mix. Writing never blocks: a terminal that is not read must not block
 * the agent. */
#ifndef TUTTI_LAUNCH_CONSOLE_H
#define TUTTI_LAUNCH_CONSOLE_H

#include "base/base.h"

typedef struct tutti__console_part {
    int fd;
    size_t bytes;
} tutti__console_part;

/* A line of Tutti's that other ranks may print too. */
typedef struct tutti__repeat {
    uint64_t hash, at_ns; /* at_ns: when it was last printed; 0: none */
    int rank;             /* the rank whose line was shown */
    int *ranks;           /* [n], other ranks with this line, not reported yet */
    size_t n, capacity;
    char line[80]; /* its beginning */
} tutti__repeat;

typedef struct tutti__console {
    const char *title; /* of Tutti's own lines; borrowed. NULL: "tutti run" */
    char *bytes;
    size_t begin, end, capacity;
    tutti__console_part *parts;
    size_t first, n_parts, parts_capacity;
    /* [1], [2]: non-blocking duplicates of descriptors 1 and 2; 0: none, uses the descriptor itself */
    int own[3];
    int error;   /* errno of a failed write or allocation: later output is dropped */
    int streams; /* open streams that have had output */
    /* Takes a line of Tutti's for another console, which shows it once for all nodes; false: it cannot. NULL: it is shown here */
    bool (*forward)(void *context, int rank, const char *prefix, const char *line, size_t bytes);
    void *context;
    tutti__repeat repeats[8];
} tutti__console;

void tutti__console_open(tutti__console *console, const char *title);
/* Queues text for descriptor 1 or 2. */
void tutti__console_add(tutti__console *console, int fd, const char *text, size_t bytes);
void tutti__console_print(tutti__console *console, const char *format, ...) TUTTI_PRINTF(2, 3);
/* A line of Tutti's: "TITLE: ..." and its end, as tutti__printable shows it, because it may contain names from outside. */
void tutti__console_say(tutti__console *console, const char *format, ...) TUTTI_PRINTF(2, 3);
static inline bool tutti__console_empty(const tutti__console *console)
{
    return console->begin == console->end;
}
/* repeats.c: true if the line repeats one of another rank that was shown a moment ago, so it is not shown. The second function
 * prints the ranks whose lines were dropped, at the latest when the last stream has ended. */
bool tutti__console_repeats(tutti__console *console, int rank, const char *line, size_t bytes);
/* Shows a line of another node's worker, unless it repeats one. */
void tutti__console_line(tutti__console *console, int rank, const char *prefix, const char *line);
bool tutti__console_is_ours(const char *line, size_t bytes);
void tutti__console_report_repeats(tutti__console *console);
/* Hash of what this rank says, with '*' for its own number, after "rank " or '['. At most 8 KiB count. */
uint64_t tutti__hash_without_rank(const char *text, size_t bytes, int rank);
/* "0-3, 5", of n sorted ranks, truncated with "..." if necessary. */
void tutti__list_ranks(const int *ranks, size_t n, char *text, size_t bytes);
/* Doubles *capacity until it holds `wanted` elements; false: no memory. */
bool tutti__grow(void **p, size_t *capacity, size_t wanted, size_t element);
/* The descriptor to poll for writing, or -1. */
int tutti__console_fd(const tutti__console *console);
void tutti__console_write(tutti__console *console);
void tutti__console_free(tutti__console *console);

#endif
