/* report.c -- `tutti report`: run folders as one HTML page.   SPDX-License-Identifier: MIT */
#include "cli/report/report.h"
#include "cli/cli.h"
#include "base/flag.h"
#include "base/terminal.h"
#include "checkpoint/output.h"
#include "train/output/counter.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "Makes one HTML page of one or several runs: curves, throughput, where the time went, what "
    "the ranks\n"
    "waited for, results and configurations side by side. The page needs no network and no other "
    "file.\n"
    "\n"
    "usage: tutti report RUN_DIR... [--out FILE.html]\n"
    "       tutti report --trace OUT.json RUN_DIR\n"
    "\n"
    "  --out FILE      output file (default: RUN_DIR/report.html; for several runs: report.html "
    "here);\n"
    "                  - is standard output\n"
    "  --trace FILE    instead of the page, the traces of all ranks (tutti train --profile A:B) "
    "in one file, for\n"
    "                  ui.perfetto.dev\n"
    "  -h, --help      this text\n"
    "\n"
    "A run may still be going on, or have been killed: the page says what is missing.\n";

typedef struct command_line {
    const char *out, *trace;
    tutti__report_run *runs;
    size_t n;
} command_line;

static tutti_status read_line(command_line *line, int argc, char **argv)
{
    static const char *const flags[] = {"--out", "--trace", "--help"};
    bool only_runs = false;

    for (int i = 1; i < argc; i++) {
        const char *text;
        bool missing = false;

        if (only_runs || argv[i][0] != '-')
            line->runs[line->n++].path = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            only_runs = true;
        else if ((text = tutti__flag_value("--out", argc, argv, &i, &missing)))
            line->out = text;
        else if (!missing && (text = tutti__flag_value("--trace", argc, argv, &i, &missing)))
            line->trace = text;
        else if (missing)
            return tutti__fail(TUTTI_ERR_ARG, "%s needs a value, a file", argv[i]);
        else
            return tutti__fail_unknown("flag", NULL, argv[i], flags, TUTTI__COUNT_OF(flags));
    }
    if (line->n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "of which runs? Give run folders, such as runs/*");
    if (line->trace && (line->n > 1 || line->out))
        return tutti__fail(TUTTI_ERR_ARG, "--trace takes one run, without --out");
    for (size_t i = 0; i < line->n; i++)
        if (!*line->runs[i].path)
            return tutti__fail(TUTTI_ERR_ARG, "a run folder's name is empty");
    if (line->trace)
        return tutti__output_check("--trace", line->trace);
    if (line->out)
        return tutti__output_check("--out", line->out);
    return TUTTI_OK;
}

/* To a file, or to standard output ("-"). */
static tutti_status write_text(const char *path, const char *text, size_t bytes)
{
    if (strcmp(path, "-") == 0)
        return tutti__write_all(STDOUT_FILENO, "standard output", text, bytes);
    return tutti__write_file(path, text, bytes);
}

static tutti_status write_page(const command_line *line, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    tutti_status status = TUTTI_OK;

    if (out)
        status = tutti__report_print(out, line->runs, line->n);
    if (!out || fclose(out) != 0)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the page");
    if (status == TUTTI_OK)
        status = write_text(path, text, bytes);
    free(text);
    return status;
}

static void say_notes(const command_line *line)
{
    for (size_t i = 0; i < line->n; i++)
        for (size_t k = 0; k < line->runs[i].n_notes; k++)
            tutti__print_line(stderr, "tutti report: note: %s: %s", line->runs[i].path,
                              line->runs[i].notes[k]);
}

static tutti_status read_runs(command_line *line)
{
    tutti__counter counter;
    tutti__tick tick = tutti__counter_begin(&counter, "reading", "MB");
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < line->n && status == TUTTI_OK; i++)
        status = tutti__report_read(&line->runs[i], &tick);
    tutti__counter_clear(&counter);
    return status;
}

static tutti_status make_page(command_line *line)
{
    char path[4096] = "report.html";

    if (line->out)
        snprintf(path, sizeof path, "%s", line->out);
    else if (line->n == 1 &&
             snprintf(path, sizeof path, "%s/report.html", line->runs[0].path) >= (int)sizeof path)
        return tutti__fail(TUTTI_ERR_ARG, "the path %.60s... is too long", line->runs[0].path);
    TUTTI_TRY(read_runs(line));
    TUTTI_TRY(tutti__report_label(line->runs, line->n));
    TUTTI_TRY(write_page(line, path));
    say_notes(line);
    if (strcmp(path, "-") != 0)
        tutti__print_line(stdout, "%s", path);
    return TUTTI_OK;
}

static tutti_status make_trace(const command_line *line)
{
    char *text = NULL;
    tutti_status status = tutti__report_trace(line->runs[0].path, &text);

    if (status == TUTTI_OK)
        status = write_text(line->trace, text, strlen(text));
    free(text);
    return status;
}

int tutti__cli_report(int argc, char **argv)
{
    command_line line = {.runs = calloc((size_t)argc + 1, sizeof *line.runs)};
    tutti_status status;
    bool usage;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        free(line.runs);
        return 0;
    }
    status = line.runs ? read_line(&line, argc, argv)
                       : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d arguments", argc);
    usage = status != TUTTI_OK;
    if (status == TUTTI_OK)
        status = line.trace ? make_trace(&line) : make_page(&line);
    for (size_t i = 0; i < line.n; i++)
        tutti__report_free(&line.runs[i]);
    free(line.runs);
    if (status == TUTTI_OK)
        return 0;
    fprintf(stderr, "tutti report: %s%s\n", tutti_last_error(),
            usage ? "; see tutti report --help" : "");
    return usage ? 2 : tutti_status_exit_code(status);
}
