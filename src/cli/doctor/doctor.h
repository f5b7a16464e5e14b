/* doctor.h -- shared by the files of `tutti doctor`.   SPDX-License-Identifier: MIT
 *
 * A check is one small function. It runs in a child process with a time limit, so that a hanging network file system or a
 * crashing driver costs one line; its findings come back through a pipe. So it may change its process as it likes.
 *
 *     doctor.def         the table of checks, by group
 *     doctor.c           command line, running them, the page and the JSON
 *     child.c            one check as a child; findings as bytes
 *     look.c             helpers of checks: files, programs in PATH
 *     check_<subject>.c  the checks */
#ifndef TUTTI_CLI_DOCTOR_H
#define TUTTI_CLI_DOCTOR_H

#include "base/base.h"

typedef enum tutti__severity {
    TUTTI__FINE,
    TUTTI__NOTE,    /* neither good nor bad: absent, unknown, or left to the reader */
    TUTTI__WARNING, /* works, but slower, or not in every case */
    TUTTI__PROBLEM  /* ranks will fail */
} tutti__severity;

/* The input and output of a check. */
typedef struct tutti__doctor {
    int ranks; /* planned ranks on this machine */
    FILE *out; /* findings; used only by find() and remedy() */
} tutti__doctor;

typedef struct tutti__found {
    tutti__severity severity;
    const char *group, *check;     /* of the table */
    char *subject, *text, *remedy; /* owned; remedy NULL: not needed */
} tutti__found;

typedef struct tutti__findings {
    tutti__found *list;
    size_t n, capacity;
} tutti__findings;

/* ---- For checks ---------------------------------------------------------------------------------------- */

#define GROUP(name, title)
#define CHECK(name, if_hangs) void tutti__check_##name(tutti__doctor *d);
#include "cli/doctor/doctor.def"
#undef GROUP
#undef CHECK

/* Adds a finding: its subject, and the result. */
void tutti__find(tutti__doctor *d, tutti__severity severity, const char *subject,
                 const char *format, ...) TUTTI_PRINTF(4, 5);
/* The remedy for the last finding. Every warning and problem has one. */
void tutti__remedy(tutti__doctor *d, const char *format, ...) TUTTI_PRINTF(2, 3);

/* Searches a program in PATH. */
bool tutti__find_program(const char *name, char *path, size_t bytes);
/* Runs it with both outputs into `text`. Its exit code; -1: it could not be run, was killed, or took longer than `ms`. */
int tutti__run_program(const char *const *argv, char *text, size_t bytes, int ms);
/* Runs body(arg) in a child; true if it returned 0 within `ms`. */
bool tutti__in_child(int (*body)(void *arg), void *arg, int ms);
/* "3.4 GiB", in `text`, which is returned. */
typedef struct tutti__size_text {
    char text[24];
} tutti__size_text;
const char *tutti__size(tutti__size_text *text, double bytes);
/* The first line of a text, truncated to the width of a finding. */
const char *tutti__first_line(char *text);

/* ---- For doctor.c ------------------------------------------------------------------------------------- */

typedef struct tutti__check {
    const char *group, *title; /* the group's, in each of its rows */
    const char *name, *if_hangs;
    void (*run)(tutti__doctor *d);
} tutti__check;

/* Runs it in a child and adds its findings. MEMORY, IO: the child could not be started. */
tutti_status tutti__run_check(const tutti__check *check, int ranks, tutti__findings *findings);
void tutti__findings_free(tutti__findings *findings);

#endif
