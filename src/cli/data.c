/* data.c -- `tutti data show`, `pack` and `tokenize`.   SPDX-License-Identifier: MIT */
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/data_tokenize.h"
#include "train/output/counter.h"
#include "base/flag.h"
#include "data/dataset.h"
#include "data/records.h"
#include "data/text/tokens.h"
#include "train/config/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(void)
{
    const tutti_dataset_format *format;
    char usage[96];

    fputs("usage: tutti data show [--image-size N] [--target NAMES] [--features NAMES] "
          "[--tokenizer FILE] [--context N] SPEC\n"
          "       tutti data pack [--image-size N] [--resize] SOURCE DEST\n"
          "       tutti data tokenize --tokenizer FILE --out FILE [--val FILE] [--raw] PATH...\n"
          "\n"
          "show reads a whole data set and describes it: counts, shape, images of each class, mean "
          "and standard\n"
          "deviation as used and as measured, the first labels, the first image. SPEC is one of\n",
          stdout);
    for (size_t i = 0; (format = tutti__format_at(i)); i++)
        printf("  %-28s %s\n", tutti__format_usage(format, usage), format->help);
    printf("  %-28s %s\n", "./FILE.so:DIR/train|test",
           "a format of your own (docs/your-own-dataset.md)");
    fputs("  --image-size N   scale images so that the shorter side is N, and use the middle "
          "square (folder)\n"
          "  --target NAMES   columns to predict, separated by commas (csv); default: the last\n"
          "  --features NAMES columns to predict them from (csv); default: all others\n"
          "  --tokenizer FILE tokenizer of the text, or of the tokens (text, tokens)\n"
          "  --context N      tokens of a sample (text, tokens, shakespeare); default: 64\n"
          "\n"
          "pack turns the images SOURCE/train/CLASS/FILE and SOURCE/test/CLASS/FILE (or val) into "
          "CIFAR-10 binary\n"
          "files in the new folder DEST, with their size, mean and standard deviation "
          "in " TUTTI__RECORDS_INFO ", for --data cifar10\n"
          "--data-dir DEST.\n"
          "  --image-size N   images of any size become N x N, as above; without it all must have "
          "the same size, and keep it\n"
          "  --resize         stretch them to N x N instead (without --image-size: 32 x 32)\n"
          "\n",
          stdout);
    fputs(tutti__data_tokenize_help, stdout);
    fputs("\n  -h, --help       this text\n", stdout);
}

static int fail(const char *verb, tutti_status status, tutti__counter *counter)
{
    tutti__counter_clear(counter);
    fprintf(stderr, "tutti data %s: %s\n", verb, tutti_last_error());
    return tutti__counter_stopped() ? 128 + tutti__counter_stopped()
                                    : tutti_status_exit_code(status);
}

static int fail_usage(const char *verb, const char *what)
{
    fprintf(stderr, "tutti data%s%s: %s; see tutti data --help\n", *verb ? " " : "", verb, what);
    return 2;
}

/* Whether argv[*i] is --image-size, whose value goes to *size_p; 0: not a size, with a message. */
static bool take_image_size(int argc, char **argv, int *i, int *size_p)
{
    bool missing = false;
    const char *text = tutti__flag_value("--image-size", argc, argv, i, &missing);
    int64_t size;

    if (!text && !missing)
        text = tutti__flag_value("--image_size", argc, argv, i, &missing);
    if (!text && !missing)
        return false;
    *size_p = 0;
    if (text && tutti__parse_int64(text, &size) && size >= 1 && size <= TUTTI__RECORDS_SIDE)
        *size_p = (int)size;
    else if (text)
        tutti__fail(TUTTI_ERR_ARG, "--image-size is \"%.60s\", expected a number from 1 to %d",
                    text, TUTTI__RECORDS_SIDE);
    else
        tutti__fail(TUTTI_ERR_ARG, "--image-size needs a value, a number from 1 to %d",
                    TUTTI__RECORDS_SIDE);
    return true;
}

static int unknown_flag(const char *verb, const char *flag)
{
    static const char *const names[] = {"--resize",   "--image-size", "--help",   "--target",
                                        "--features", "--tokenizer",  "--context"};

    if (strcmp(verb, "pack") == 0)
        (void)tutti__fail_unknown("flag", NULL, flag, names, 3);
    else
        (void)tutti__fail_unknown("flag", NULL, flag, names + 1, 6);
    return fail_usage(verb, tutti_last_error());
}

/* Whether argv[*i] is this flag, whose value goes to *text_p; NULL: it is missing. */
static bool take_text(int argc, char **argv, int *i, const char *flag, const char *what,
                      const char **text_p)
{
    bool missing = false;
    const char *text = tutti__flag_value(flag, argc, argv, i, &missing);

    if (!text && !missing)
        return false;
    *text_p = text;
    if (missing)
        tutti__fail(TUTTI_ERR_ARG, "%s needs a value, %s", flag, what);
    return true;
}

static void tell_broken(void *counter, const char *message)
{
    tutti__counter_clear(counter);
    tutti__print_line(stderr, "tutti data show: %s", message);
}

/* Options of `show`, whose parts opts points to. */
typedef struct show_line {
    tutti_dataset_opts opts;
    tutti_table_opts table;
    tutti_text_opts text;
    const char *context, *spec;
} show_line;

/* Whether argv[*i] is one of the flags with a text; *missing_p: without it. */
static bool take_flag(show_line *line, int argc, char **argv, int *i, bool *missing_p)
{
    static const char columns[] = "names of columns separated by commas";
    const struct {
        const char *flag, *what, **text;
    } flags[] = {{"--target", columns, &line->table.target},
                 {"--features", columns, &line->table.features},
                 {"--tokenizer", "a file", &line->text.tokenizer},
                 {"--context", "a number of tokens", &line->context}};

    for (size_t k = 0; k < TUTTI__COUNT_OF(flags); k++)
        if (take_text(argc, argv, i, flags[k].flag, flags[k].what, flags[k].text)) {
            *missing_p = !*flags[k].text;
            return true;
        }
    return false;
}

/* 0, or the exit code. */
static int read_show(show_line *line, int argc, char **argv)
{
    int64_t context = 0;

    for (int i = 0; i < argc; i++) {
        bool missing = false;

        if (take_image_size(argc, argv, &i, &line->opts.image_size)) {
            if (line->opts.image_size == 0)
                return fail_usage("show", tutti_last_error());
        } else if (take_flag(line, argc, argv, &i, &missing)) {
            if (missing)
                return fail_usage("show", tutti_last_error());
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return unknown_flag("show", argv[i]);
        } else if (line->spec)
            return fail_usage("show", "expected one data set, such as digits:train");
        else
            line->spec = argv[i];
    }
    if (line->context && (!tutti__parse_int64(line->context, &context) || context < 1 ||
                          context > TUTTI__MAX_CONTEXT))
        return fail_usage("show", "--context is not a number from 1 to 1048576");
    line->text.context = (int)context;
    line->opts.table = &line->table;
    line->opts.text = &line->text;
    return line->spec ? 0 : fail_usage("show", "expected one data set, such as digits:train");
}

static int run_show(int argc, char **argv)
{
    tutti__counter counter;
    tutti__tick tick = tutti__counter_begin(&counter, "reading", "samples");
    show_line line = {.spec = NULL};
    const int code = read_show(&line, argc, argv);
    tutti_status status;
    char *named;

    if (code != 0)
        return code;
    status = tutti__parts_find_spec(line.spec, &named, &line.opts.format);
    if (status == TUTTI_OK)
        status = tutti__data_show(named, &line.opts, stdout, &tick, tell_broken, &counter);
    free(named);
    return status == TUTTI_OK ? 0 : fail("show", status, &counter);
}

static int run_pack(int argc, char **argv)
{
    tutti__counter counter;
    tutti__tick tick = tutti__counter_begin(&counter, "packing", "images");
    tutti__pack_opts opts = {.tick = &tick};
    tutti__pack_report report;
    uint64_t begin = tutti__now_ns();
    tutti_status status;
    const char *paths[2];
    int n = 0;

    for (int i = 0; i < argc; i++) {
        if (take_image_size(argc, argv, &i, &opts.image_size)) {
            if (opts.image_size == 0)
                return fail_usage("pack", tutti_last_error());
        } else if (strcmp(argv[i], "--resize") == 0)
            opts.resize = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return unknown_flag("pack", argv[i]);
        else if (n == 2)
            return fail_usage("pack", "more than a source and a destination");
        else
            paths[n++] = argv[i];
    }
    if (n != 2)
        return fail_usage("pack", "expected the source and the destination folder");
    if (opts.resize && opts.image_size == 0)
        opts.image_size = 32;
    status = tutti__data_pack(paths[0], paths[1], &opts, &report);
    if (status != TUTTI_OK)
        return fail("pack", status, &counter);
    tutti__print_line(
        stdout, "packed %zu training and %zu test images of %d class%s, %dx%d, into %s in %.1f s",
        report.train, report.test, report.classes, report.classes == 1 ? "" : "es", report.width,
        report.height, paths[1], (double)(tutti__now_ns() - begin) * 1e-9);
    return 0;
}

int tutti__cli_data(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";

    if (tutti__wants_help(argc - 1, argv + 1)) {
        print_help();
        return 0;
    }
    tutti__counter_catch_signals();
    if (strcmp(verb, "show") == 0)
        return run_show(argc - 2, argv + 2);
    if (strcmp(verb, "pack") == 0)
        return run_pack(argc - 2, argv + 2);
    if (strcmp(verb, "tokenize") == 0)
        return tutti__data_tokenize(argc - 2, argv + 2);
    if (*verb)
        tutti__print_line(stderr,
                          "tutti data: there is no \"%.60s\"; it is show, pack or tokenize; see "
                          "tutti data --help",
                          verb);
    else
        fputs("tutti data: show, pack or tokenize? See tutti data --help\n", stderr);
    return 2;
}
