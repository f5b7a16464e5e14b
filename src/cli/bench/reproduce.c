/* reproduce.c -- `tutti bench reproduce`: measures a record again, and says whether this machine agrees.
 * SPDX-License-Identifier: MIT
 *
 * What is compared is the ratio of ours to the peer's, which both ran here, in turn: absolute figures are those of a machine. */
#include "cli/bench/reproduce.h"

#include "base/base.h"
#include "base/flag.h"
#include "cli/bench/records.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char HELP[] =
    "Measures a figure of bench/RECORDS.md again, beside the same peer, and says whether this "
    "machine agrees.\n"
    "\n"
    "usage: tutti bench reproduce [NAME] [--within X] [--records FILE]\n"
    "       tutti bench reproduce NAME --table\n"
    "\n"
    "  tutti bench reproduce            the records, with what each needs\n"
    "  tutti bench reproduce start      how fast a job starts, beside torchrun\n"
    "  PYTHON=venv/bin/python tutti bench reproduce step\n"
    "\n"
    "  --within X       a ratio agrees if it is within a factor of X of the record's (default "
    "1.25)\n"
    "  --records FILE   the records (default: bench/records.json here, or where this command was "
    "built)\n"
    "  --table          measure nothing; the record as rows of a Markdown table\n"
    "  -h, --help       this text\n"
    "\n"
    "Compared is the ratio of our figure to the peer's; both are measured here, in turn, by the "
    "record's command.\n"
    "Nothing else should run meanwhile. Exit code 0: no ratio is worse than the record's; 1: one "
    "is, or could not\n"
    "be measured; 2: usage.\n";

typedef struct reproduce_line {
    const char *name, *records;
    double within;
    bool table;
} reproduce_line;

enum { RECORDS, WITHIN, TABLE, N_FLAGS };
static const char *const flag_names[N_FLAGS] = {"--records", "--within", "--table"};

static tutti_status read_flag(reproduce_line *l, int argc, char **argv, int *i)
{
    for (size_t id = 0; id < TABLE; id++) {
        bool missing = false;
        const char *value = tutti__flag_value(flag_names[id], argc, argv, i, &missing);

        if (missing)
            return tutti__fail(TUTTI_ERR_ARG, "%s needs a value", flag_names[id]);
        if (!value)
            continue;
        if (id == RECORDS)
            l->records = value;
        else if (!tutti__parse_double(value, &l->within) || !(l->within >= 1) || isinf(l->within))
            return tutti__fail(TUTTI_ERR_ARG,
                               "--within is \"%.60s\", expected a factor of at least 1, as 1.25",
                               value);
        return TUTTI_OK;
    }
    if (!tutti__flag_is(argv[*i], flag_names[TABLE]))
        return tutti__fail_unknown("flag", "tutti bench reproduce", argv[*i], flag_names, N_FLAGS);
    if (strchr(argv[*i], '='))
        return tutti__fail_value(flag_names[TABLE], strchr(argv[*i], '=') + 1);
    l->table = true;
    return TUTTI_OK;
}

static tutti_status read_line(reproduce_line *l, int argc, char **argv)
{
    *l = (reproduce_line){.within = 1.25};
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            TUTTI_TRY(read_flag(l, argc, argv, &i));
        else if (l->name)
            return tutti__fail(TUTTI_ERR_ARG,
                               "one record at a time, but there are \"%.60s\" and \"%.60s\"",
                               l->name, argv[i]);
        else
            l->name = argv[i];
    }
    if (l->table && !l->name)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--table: of which record? Without a name all are listed");
    return TUTTI_OK;
}

static tutti_status find(const tutti__bench_records *records, const char *name,
                         const tutti__bench_record **record_p)
{
    const char **names = tutti__alloc(records->n * sizeof *names);
    tutti_status status;

    if (!names)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < records->n; i++) {
        names[i] = records->list[i].name;
        if (tutti__flag_is(name, names[i]))
            *record_p = &records->list[i];
    }
    status = *record_p
                 ? TUTTI_OK
                 : tutti__fail_unknown("record", "tutti bench reproduce", name, names, records->n);
    free(names);
    return status;
}

/* Four digits, but no exponent. */
static const char *number(double value, char text[32])
{
    snprintf(text, 32, value >= 1000 ? "%.0f" : "%.4g", value);
    return text;
}

static void list(const tutti__bench_records *records)
{
    char ours[32], peer[32];

    for (size_t i = 0; i < records->n; i++) {
        const tutti__bench_record *r = &records->list[i];

        printf("%-12s %s; %s\n", r->name, r->title, r->measured);
        for (size_t k = 0; k < r->n; k++) {
            const tutti__bench_figure *f = &r->figures[k];

            printf("%-12s   %s: %s %s, %s %s: %.2fx\n", "", f->what, number(f->ours, ours), f->unit,
                   r->peer, number(f->peer, peer), tutti__bench_advantage(f, f->ours, f->peer));
        }
        printf("%-12s   needs %s\n", "", r->needs);
    }
}

/* Three digits are more than a machine repeats. */
static const char *short_number(double number, char text[32])
{
    snprintf(text, 32, number >= 10 ? "%.0f" : "%.2g", number);
    return text;
}

static void table(const tutti__bench_record *record)
{
    char ours[32], peer[32], advantage[32];

    for (size_t i = 0; i < record->n; i++) {
        const tutti__bench_figure *f = &record->figures[i];

        printf("| %s | %s %s | %s %s | **%sx** |\n", f->what, short_number(f->ours, ours), f->unit,
               short_number(f->peer, peer), f->unit,
               short_number(tutti__bench_advantage(f, f->ours, f->peer), advantage));
    }
}

/* Shows what the command prints, and keeps it. The script finds this executable in TUTTI, and runs in the repository's root. */
static tutti_status run_command(const tutti__bench_record *record, const char *root, char **text_p)
{
    char built[4096], line[4096];
    size_t bytes;
    FILE *text = open_memstream(text_p, &bytes), *from = NULL;
    int code = -1;

    if (text && tutti__executable(built, sizeof built))
        setenv("TUTTI", built, 0);
    if (text && chdir(root) == 0) {
        fflush(NULL);
        from = popen(record->command, "re");
    }
    while (from && fgets(line, sizeof line, from)) {
        fputs(line, stdout);
        fflush(stdout);
        fputs(line, text);
    }
    if (from)
        code = pclose(from);
    if (!text || fclose(text) != 0)
        return TUTTI_ERR_MEMORY;
    if (!from)
        return tutti__fail_errno(errno, "cannot run %s in %s", record->command, root);
    if (WIFEXITED(code) && WEXITSTATUS(code) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_INTERNAL, "%s: %s failed (%s %d); it needs %s", record->name,
                       record->command, WIFEXITED(code) ? "exit code" : "signal",
                       WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code), record->needs);
}

typedef enum comparison { AGREES, NOT_MEASURED, WORSE } comparison;

/* What the command printed, and as text with its unit; 0 and "-": nothing. */
static double measured(const tutti__bench_figure *f, const char *text, const char *const cell[2],
                       char shown[64])
{
    double value = 0;
    char digits[32];

    if (!tutti__bench_cell(text, cell, &value) || value <= 0) {
        strcpy(shown, "-");
        return 0;
    }
    snprintf(shown, 64, "%s %.31s", number(value, digits), f->unit);
    return value;
}

/* Prints a row. */
static comparison compare(const tutti__bench_record *record, const tutti__bench_figure *f,
                          double within, const char *text)
{
    const double then = tutti__bench_advantage(f, f->ours, f->peer);
    char our_text[64], peer_text[64];
    const double ours = measured(f, text, f->our_cell, our_text);
    const double peer = measured(f, text, f->peer_cell, peer_text);
    double now;
    const char *verdict;

    if (ours <= 0 || peer <= 0) {
        printf("| %s | %s | %s | - | %.2f | not measured: it needs %s |\n", f->what, our_text,
               peer_text, then, record->needs);
        return NOT_MEASURED;
    }
    now = tutti__bench_advantage(f, ours, peer);
    verdict = now > then * within ? "better" : now >= then / within ? "agrees" : "worse";
    printf("| %s | %s | %s | %.2f | %.2f | %s%s |\n", f->what, our_text, peer_text, now, then,
           verdict,
           f->asked == 0     ? ""
           : now >= f->asked ? ", as asked"
                             : ", less than asked");
    return now >= then / within ? AGREES : WORSE;
}

/* The folder of the repository, from that of records.json in its bench/. */
static void root_of(const char *records, char root[PATH_MAX])
{
    if (!realpath(records, root))
        snprintf(root, PATH_MAX, "./bench/x");
    for (int up = 0; up < 2; up++)
        if (strrchr(root, '/'))
            *strrchr(root, '/') = '\0';
}

static int reproduce(const tutti__bench_records *records, const tutti__bench_record *record,
                     double within)
{
    char root[PATH_MAX], *text = NULL;
    comparison all = AGREES, one;

    root_of(records->path, root);
    printf("%s: %s\nmeasured %s\n$ %s\n", record->name, record->title, record->measured,
           record->command);
    if (run_command(record, root, &text) != TUTTI_OK) {
        free(text);
        fprintf(stderr, "tutti bench reproduce: %s\n", tutti_last_error());
        return 1;
    }
    printf("\n| | Tutti | %s | ratio | the record's | |\n|---|---|---|---|---|---|\n",
           record->peer);
    for (size_t i = 0; i < record->n; i++) {
        one = compare(record, &record->figures[i], within, text);
        all = one > all ? one : all;
    }
    printf("\n%s: this machine %s\n", record->name,
           all == AGREES  ? "agrees with the record"
           : all == WORSE ? "does not agree with the record"
                          : "was not compared with all of the record");
    free(text);
    return all == AGREES ? 0 : 1;
}

int tutti__bench_reproduce(int argc, char **argv)
{
    const tutti__bench_record *record = NULL;
    tutti__bench_records records = {0};
    reproduce_line l;
    int code = 0;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    if (read_line(&l, argc, argv) != TUTTI_OK ||
        tutti__bench_records_open(&records, l.records) != TUTTI_OK ||
        (l.name && find(&records, l.name, &record) != TUTTI_OK)) {
        fprintf(stderr, "tutti bench reproduce: %s\n", tutti_last_error());
        code = 2;
    } else if (!record) {
        list(&records);
    } else if (l.table) {
        table(record);
    } else {
        code = reproduce(&records, record, l.within);
    }
    tutti__bench_records_close(&records);
    return code;
}
