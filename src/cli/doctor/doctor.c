/* doctor.c -- `tutti doctor`: is this machine fit for training?   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "base/flag.h"
#include "checkpoint/output.h"
#include "cli/nproc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char HELP[] =
    "Checks what ranks on this machine depend on, and says how to fix what it finds.\n"
    "\n"
    "usage: tutti doctor [-n N] [--json FILE] [GROUP...]\n"
    "\n"
    "  GROUP          only these groups of checks (below); default: all\n"
    "  -n, --ranks N  how many ranks will run on this machine (default: one per core, at least 2)\n"
    "  --json FILE    also write the findings as JSON; -: to standard output, in place of the "
    "page\n"
    "  -h, --help     this text\n"
    "\n"
    "Each line has a severity: ok; note (nothing to fix: absent, unknown, or yours to judge); "
    "warning\n"
    "(slower, or fails in some cases); problem (ranks will fail). Warnings and problems are "
    "followed by\n"
    "the remedy.\n"
    "A check that takes longer than 6 s is abandoned. Nothing on the machine is changed; "
    "small files are\n"
    "made and removed in this folder, /dev/shm and the temporary folder.\n"
    "\n"
    "Exit code: 0 if there is no problem (warnings or not), 1 if there is one, 2 usage.\n"
    "\n"
    "Groups:\n";

#define GROUP(name, title)    {#name, title, NULL, NULL, NULL},
#define CHECK(name, if_hangs) {NULL, NULL, #name, if_hangs, tutti__check_##name},
static const tutti__check rows[] = {
#include "cli/doctor/doctor.def"
};
#undef GROUP
#undef CHECK

enum { N_ROWS = sizeof rows / sizeof rows[0] };

typedef struct command_line {
    int ranks;
    const char *json;   /* NULL: none; "-": standard output */
    bool all;           /* groups */
    bool asked[N_ROWS]; /* indexed by group rows */
} command_line;

/* ---- Command line --------------------------------------------------------------------------------------- */

static void print_help(void)
{
    fputs(HELP, stdout);
    for (size_t i = 0; i < N_ROWS; i++)
        if (!rows[i].run)
            printf("  %-12s %s\n", rows[i].group, rows[i].title);
}

static tutti_status ask_for_group(command_line *line, const char *name)
{
    const char *names[N_ROWS];
    size_t n = 0;

    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].run)
            continue;
        names[n++] = rows[i].group;
        if (strcmp(rows[i].group, name) == 0) {
            line->asked[i] = true;
            line->all = false;
            return TUTTI_OK;
        }
    }
    return tutti__fail_unknown("group", NULL, name, names, n);
}

static tutti_status read_ranks(command_line *line, const char *text)
{
    int64_t n;

    TUTTI_TRY(tutti__nproc_parse(text, &n));
    line->ranks = (int)n;
    return TUTTI_OK;
}

static tutti_status read_line(command_line *line, int argc, char **argv)
{
    static const char *const flags[] = {"--ranks", "--json", "--help"};
    int cores = tutti__cores();

    *line = (command_line){.ranks = cores > 2 ? cores : 2, .all = true};
    for (int i = 1; i < argc; i++) {
        const char *text = NULL;
        bool missing = false;

        if (argv[i][0] != '-') {
            TUTTI_TRY(ask_for_group(line, argv[i]));
        } else if ((text = tutti__flag_value("--json", argc, argv, &i, &missing))) {
            line->json = text;
            TUTTI_TRY(tutti__output_check("--json", text));
        } else if (!missing && ((text = tutti__flag_value("--ranks", argc, argv, &i, &missing)) ||
                                (text = tutti__flag_value("-n", argc, argv, &i, &missing)))) {
            TUTTI_TRY(read_ranks(line, text));
        } else if (missing) {
            return tutti__fail(TUTTI_ERR_ARG, "%s needs a value", argv[i]);
        } else {
            return tutti__fail_unknown("flag", NULL, argv[i], flags, TUTTI__COUNT_OF(flags));
        }
    }
    return TUTTI_OK;
}

/* ---- The page ------------------------------------------------------------------------------------------- */

static const char *const severity_names[] = {"ok", "note", "warning", "problem"};

static void print_found(const tutti__found *found, bool colour)
{
    static const char *const colours[] = {"\033[32m", "\033[2m", "\033[33m", "\033[1;31m"};

    printf("  %s%-7s%s  ", colour ? colours[found->severity] : "", severity_names[found->severity],
           colour ? "\033[0m" : "");
    tutti__print_line(stdout, "%s: %s", found->subject, found->text);
    if (found->remedy)
        tutti__print_line(stdout, "           remedy: %s", found->remedy);
}

static size_t count(const tutti__findings *f, tutti__severity severity)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++)
        n += f->list[i].severity == severity;
    return n;
}

static void print_end(const tutti__findings *f, double seconds)
{
    size_t problems = count(f, TUTTI__PROBLEM), warnings = count(f, TUTTI__WARNING);

    printf("\n%zu problem%s, %zu warning%s in %.2f s\n", problems, problems == 1 ? "" : "s",
           warnings, warnings == 1 ? "" : "s", seconds);
}

/* ---- JSON ----------------------------------------------------------------------------------------------- */

static void print_member(FILE *file, const char *name, const char *text)
{
    fprintf(file, ", \"%s\": ", name);
    if (text)
        tutti__json_string(file, text);
    else
        fputs("null", file);
}

static void print_json(FILE *file, const tutti__findings *f, const struct utsname *host, int ranks,
                       double seconds)
{
    fprintf(file, "{\"version\": \"%s\"", TUTTI_VERSION);
    print_member(file, "host", host->nodename);
    print_member(file, "kernel", host->release);
    fprintf(file,
            ", \"ranks\": %d, \"problems\": %zu, \"warnings\": %zu, \"seconds\": %.3f,\n "
            "\"findings\": [",
            ranks, count(f, TUTTI__PROBLEM), count(f, TUTTI__WARNING), seconds);
    for (size_t i = 0; i < f->n; i++) {
        const tutti__found *found = &f->list[i];

        fprintf(file, "%s\n  {\"mark\": \"%s\"", i ? "," : "", severity_names[found->severity]);
        print_member(file, "group", found->group);
        print_member(file, "check", found->check);
        print_member(file, "subject", found->subject);
        print_member(file, "text", found->text);
        print_member(file, "remedy", found->remedy);
        fputs("}", file);
    }
    fputs("\n ]}\n", file);
}

static tutti_status write_json(const char *path, const tutti__findings *f,
                               const struct utsname *host, int ranks, double seconds)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    bool written;

    if (!file)
        return tutti__fail_errno(errno, "cannot write %s (--json)", path);
    print_json(file, f, host, ranks, seconds);
    if (file == stdout)
        return TUTTI_OK; /* main checks standard output */
    written = !ferror(file);
    errno = 0;
    if (fclose(file) != 0 || !written)
        return tutti__fail_errno(errno ? errno : EIO, "cannot write %s (--json)", path);
    return TUTTI_OK;
}

/* ---- All checks ----------------------------------------------------------------------------------------- */

static tutti_status run_all(const command_line *line, tutti__findings *findings)
{
    bool page = !line->json || strcmp(line->json, "-") != 0,
         colour = tutti__wants_colour(STDOUT_FILENO), asked = false;
    tutti__check check = {0};

    for (size_t i = 0; i < N_ROWS; i++) {
        size_t before = findings->n;

        if (!rows[i].run) {
            check = rows[i];
            asked = line->all || line->asked[i];
            if (asked && page)
                printf("\n%s\n", rows[i].title);
            continue;
        }
        if (!asked)
            continue;
        check.name = rows[i].name;
        check.if_hangs = rows[i].if_hangs;
        check.run = rows[i].run;
        fflush(stdout); /* shows results so far, and leaves no buffered output to the child */
        TUTTI_TRY(tutti__run_check(&check, line->ranks, findings));
        for (size_t k = before; page && k < findings->n; k++)
            print_found(&findings->list[k], colour);
    }
    return TUTTI_OK;
}

int tutti__cli_doctor(int argc, char **argv)
{
    double begin = tutti__now_ms(), seconds;
    tutti__findings findings = {0};
    struct utsname host;
    command_line line;
    tutti_status status;
    int code;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        print_help();
        return 0;
    }
    if (read_line(&line, argc, argv) != TUTTI_OK) {
        fprintf(stderr, "tutti doctor: %s; see tutti doctor --help\n", tutti_last_error());
        return 2;
    }
    signal(SIGCHLD, SIG_DFL); /* if ignored, the exit status of checks would be lost */
    uname(&host);
    if (!line.json || strcmp(line.json, "-") != 0)
        printf("Tutti %s on %s, %s %s %s, for %d rank%s\n", TUTTI_VERSION, host.nodename,
               host.sysname, host.release, host.machine, line.ranks,
               tutti__s((uint64_t)line.ranks));
    status = run_all(&line, &findings);
    seconds = (tutti__now_ms() - begin) * 1e-3;
    if (status == TUTTI_OK && (!line.json || strcmp(line.json, "-") != 0))
        print_end(&findings, seconds);
    if (status == TUTTI_OK && line.json)
        status = write_json(line.json, &findings, &host, line.ranks, seconds);
    code = count(&findings, TUTTI__PROBLEM) > 0 ? 1 : 0;
    tutti__findings_free(&findings);
    if (status == TUTTI_OK)
        return code;
    fprintf(stderr, "tutti doctor: %s\n", tutti_last_error());
    return tutti_status_exit_code(status);
}
