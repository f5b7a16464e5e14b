/* data_tokenize.c -- `tutti data tokenize`: text files to a .bin of tokens.   SPDX-License-Identifier: MIT */
#include "cli/data_tokenize.h"

#include "base/flag.h"
#include "base/terminal.h"
#include "data/text/tokenize.h"
#include "train/output/counter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char tutti__data_tokenize_help[] =
    "tokenize turns text files (UTF-8; of a folder all NAME.txt) into a file of tokens for --data "
    "tokens, with the tokenizer\n"
    "beside it. PATHs are documents, with an end-of-text token between two. Tokens have 16 bits, "
    "or 32 if the vocabulary\n"
    "needs them, behind llm.c's header.\n"
    "  --tokenizer FILE the tokenizer: Hugging Face's tokenizer.json, a .tiktoken, or a folder "
    "with one;\n"
    "                   bytes: each byte is a token; shakespeare: each of its 65 characters\n"
    "  -o, --out FILE   the file to write, as DIR/train.bin\n"
    "  --val FILE       write the last tenth of the text to this file, as DIR/val.bin\n"
    "  --raw            no header, as nanoGPT's (16 bits only)\n";

static int usage(const char *what)
{
    fprintf(stderr, "tutti data tokenize: %s; see tutti data --help\n", what);
    return 2;
}

/* Whether argv[*i] is one of the flags with a value; *missing_p: without it. */
static bool take(tutti__bin_job *job, int argc, char **argv, int *i, bool *missing_p)
{
    const struct {
        const char *flag, **text;
    } flags[] = {{"--tokenizer", &job->tokenizer},
                 {"-o", &job->out},
                 {"--out", &job->out},
                 {"--val", &job->val}};

    for (size_t k = 0; k < TUTTI__COUNT_OF(flags); k++) {
        const char *text = tutti__flag_value(flags[k].flag, argc, argv, i, missing_p);

        if (*missing_p)
            tutti__fail(TUTTI_ERR_ARG, "%s needs a value, a file", flags[k].flag);
        if (text)
            *flags[k].text = text;
        if (text || *missing_p)
            return true;
    }
    return false;
}

/* 0, or the exit code. sources: [argc]. */
static int read_line(tutti__bin_job *job, const char **sources, int argc, char **argv)
{
    static const char *const names[] = {"--tokenizer", "--out", "--val", "--raw", "--help"};

    job->sources = sources;
    for (int i = 0; i < argc; i++) {
        bool missing = false;

        if (take(job, argc, argv, &i, &missing)) {
            if (missing)
                return usage(tutti_last_error());
        } else if (strcmp(argv[i], "--raw") == 0) {
            job->raw = true;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            (void)tutti__fail_unknown("flag", NULL, argv[i], names, TUTTI__COUNT_OF(names));
            return usage(tutti_last_error());
        } else
            sources[job->n++] = argv[i];
    }
    if (job->n == 0)
        return usage("expected text files, or folders of them");
    if (!job->tokenizer)
        return usage("expected --tokenizer FILE");
    if (!job->out || !*job->out || (job->val && !*job->val))
        return usage("expected --out FILE, the file to write");
    return 0;
}

static void print_report(const tutti__bin_job *job, const tutti__bin_report *r, double seconds)
{
    char val[4200] = "";

    if (job->val)
        snprintf(val, sizeof val, ", and the last tenth, %llu tokens, to %s",
                 (unsigned long long)r->val_tokens, job->val);
    tutti__print_line(stdout,
                      "wrote %llu tokens of %d bits (vocabulary of %lld) to %s%s: %llu bytes of "
                      "%llu document%s in %.1f s",
                      (unsigned long long)r->tokens, 8 * r->width, (long long)r->vocab, job->out,
                      val, (unsigned long long)r->bytes, (unsigned long long)r->documents,
                      tutti__s(r->documents), seconds);
}

int tutti__data_tokenize(int argc, char **argv)
{
    const uint64_t begin = tutti__now_ns();
    const char **sources = calloc((size_t)argc + 1, sizeof *sources);
    tutti__counter counter;
    tutti__tick tick = tutti__counter_begin(&counter, "tokenizing", "bytes");
    tutti__bin_job job = {.tick = &tick};
    tutti__bin_report report;
    tutti_status status;
    int code;

    if (!sources)
        return 4;
    code = read_line(&job, sources, argc, argv);
    if (code == 0) {
        status = tutti__bin_write(&job, &report);
        tutti__counter_clear(&counter);
        if (status == TUTTI_OK)
            print_report(&job, &report, (double)(tutti__now_ns() - begin) * 1e-9);
        else
            fprintf(stderr, "tutti data tokenize: %s\n", tutti_last_error());
        code = status == TUTTI_OK         ? 0
               : tutti__counter_stopped() ? 128 + tutti__counter_stopped()
                                          : tutti_status_exit_code(status);
    }
    free(sources);
    return code;
}
