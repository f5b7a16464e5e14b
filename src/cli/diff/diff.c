/* diff.c -- `tutti diff`: the first difference of two runs and its cause.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "base/flag.h"
#include "base/terminal.h"
#include "checkpoint/output.h"
#include "cli/cli.h"
#include "train/config/agreement.h"
#include "train/output/counter.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HELP[] =
    "Compares two runs: says in which step, on which rank and in which tensor or module they "
    "first\n"
    "differ, and why. The first line is the verdict.\n"
    "\n"
    "usage: tutti diff RUN_A RUN_B [--tolerance T] [--rerun] [--json FILE]\n"
    "       tutti diff RUN            whether its ranks differ from each other\n"
    "\n"
    "  tutti diff runs/mine runs/theirs\n"
    "  tutti diff runs/mine runs/torch --tolerance 1e-5\n"
    "\n"
    "Of runs with records (tutti train --trace-digests; of PyTorch: tutti_torch.record) it "
    "compares\n"
    "all that both have recorded, else their checkpoints, metrics.jsonl and results.\n"
    "\n"
    "  --tolerance T   of runs that computed with other kernels or another framework: how much "
    "norms and\n"
    "                  projections may differ, relative to the norm (default 0: bits)\n"
    "  --rerun         if they differ, runs both again here, from their last equal checkpoint or "
    "the\n"
    "                  start, with everything recorded, up to the difference, and compares these "
    "runs\n"
    "  --keep FOLDER   with --rerun: keep the run folders there, as FOLDER/a and FOLDER/b\n"
    "  --json FILE     the result as a JSON object; -: to standard output, in place of the text\n"
    "  -h, --help      this text\n"
    "\n"
    "Where a run has values that are NaN or infinite, it says where they came first.\n"
    "\n"
    "Exit code: 0 if they are equal, 1 if they differ, 2 if they cannot be compared, or not "
    "be\n"
    "run again, 4 for want of memory or disk, 128 + the signal that stopped --rerun.\n";

typedef struct command_line {
    const char *paths[2];
    size_t n;
    double tolerance;
    bool rerun;
    const char *json, *keep;
} command_line;

static tutti_status take_path(command_line *line, const char *path)
{
    if (line->n == 2)
        return tutti__fail(TUTTI_ERR_ARG, "%s is a third run; expected two", path);
    if (!*path)
        return tutti__fail(TUTTI_ERR_ARG, "a run folder's name is empty");
    line->paths[line->n++] = path;
    return TUTTI_OK;
}

static tutti_status take_flag(command_line *line, int argc, char **argv, int *i)
{
    static const char *const flags[] = {"--tolerance", "--rerun", "--keep", "--json", "--help"};
    const char *text;
    bool missing = false;

    if (tutti__flag_is(argv[*i], "--rerun")) {
        if (strchr(argv[*i], '='))
            return tutti__fail_value("--rerun", strchr(argv[*i], '=') + 1);
        line->rerun = true;
    } else if ((text = tutti__flag_value("--tolerance", argc, argv, i, &missing))) {
        if (!tutti__parse_double(text, &line->tolerance) ||
            !(line->tolerance >= 0 && line->tolerance < 1))
            return tutti__fail(
                TUTTI_ERR_ARG,
                "--tolerance is \"%.40s\", expected a number from 0 to below 1, such as "
                "1e-5",
                text);
    } else if (!missing && (text = tutti__flag_value("--json", argc, argv, i, &missing)))
        line->json = text;
    else if (!missing && (text = tutti__flag_value("--keep", argc, argv, i, &missing)))
        line->keep = text;
    else if (missing)
        return tutti__fail(TUTTI_ERR_ARG, "%s needs a value", argv[*i]);
    else
        return tutti__fail_unknown("flag", NULL, argv[*i], flags, TUTTI__COUNT_OF(flags));
    return TUTTI_OK;
}

/* Whether the reruns' folders can be made in it, as far as can be told before. */
static tutti_status check_keep(const char *folder)
{
    static const char *const made[] = {"a", "b", "a.log", "b.log", "a.error.json", "b.error.json"};
    char path[PATH_MAX];
    struct stat st;
    size_t n;

    if (snprintf(path, sizeof path, "%s", folder) >= PATH_MAX - 16 || !*folder)
        return tutti__fail(TUTTI_ERR_ARG, "--keep: \"%.60s\" is no name of a folder", folder);
    for (size_t i = 0; i < TUTTI__COUNT_OF(made); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        if (lstat(path, &st) == 0)
            return tutti__fail(TUTTI_ERR_ARG,
                               "--keep: %s exists already; remove it, or name another folder",
                               path);
    }
    snprintf(path, sizeof path, "%s", folder);
    while (stat(path, &st) != 0 && errno == ENOENT && strcmp(path, ".") != 0) {
        for (n = strlen(path); n > 0 && path[n - 1] == '/';)
            n--;
        while (n > 0 && path[n - 1] != '/')
            n--;
        snprintf(path + n, sizeof path - n, "%s", n > 0 ? "" : ".");
    }
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return tutti__fail(TUTTI_ERR_ARG, "--keep: %s is not a folder", path);
    if (access(path, W_OK | X_OK) != 0)
        return tutti__fail_errno(errno, "--keep: cannot write to %s", path);
    return TUTTI_OK;
}

static tutti_status read_line(command_line *line, int argc, char **argv)
{
    bool only_paths = false;

    for (int i = 1; i < argc; i++) {
        if (only_paths || argv[i][0] != '-')
            TUTTI_TRY(take_path(line, argv[i]));
        else if (strcmp(argv[i], "--") == 0)
            only_paths = true;
        else
            TUTTI_TRY(take_flag(line, argc, argv, &i));
    }
    if (line->n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "of which runs? Give two run folders");
    if (line->rerun && line->n == 1)
        return tutti__fail(TUTTI_ERR_ARG, "--rerun needs two runs");
    if (line->keep && !line->rerun)
        return tutti__fail(TUTTI_ERR_ARG, "--keep is for --rerun, which was not given");
    if (line->keep)
        TUTTI_TRY(check_keep(line->keep));
    return line->json ? tutti__output_check("--json", line->json) : TUTTI_OK;
}

/* ---- Work -------------------------------------------------------------------------------------------------------- */

static bool nothing_in_common(const tutti__diff_result *r)
{
    return r->runs == 2 && tutti__diff_is_equal(r) && r->extent.entries == 0 &&
           r->checkpoints == 0 && r->lines == 0 && !r->same_end;
}

/* The file in which run i has the weights of the finding, if it is still there. */
static bool find_weights(const tutti__diff_result *r, size_t i, char path[PATH_MAX])
{
    const tutti__diff_finding *f = &r->first;
    const char *init = json_string_value(json_object_get(r->run[i].config, "init"));

    if (f->phase == TUTTI__DIFF_INITIAL && f->step == 0 && init && *init)
        return snprintf(path, PATH_MAX, "%s", init) < PATH_MAX && access(path, R_OK) == 0;
    if ((f->phase != TUTTI__DIFF_PARAMETER && f->phase != TUTTI__DIFF_BUFFER) || f->b.rank != 0)
        return false; /* checkpoints are the lowest rank's */
    return tutti__diff_find_checkpoint(&r->run[i], f->step, "model", path);
}

/* Which elements differ, of which the record has but the digest; without it where the files are damaged. */
static tutti_status find_elements(tutti__diff_result *r)
{
    char paths[2][PATH_MAX], name[600];
    uint64_t tensors = 0;
    bool equal;
    tutti_status status;

    if (r->first.source != TUTTI__DIFF_RECORD || !find_weights(r, 0, paths[0]) ||
        !find_weights(r, 1, paths[1]))
        return TUTTI_OK;
    status = tutti__diff_tensors(paths[0], paths[1], r->first.name, &equal, name, r->first.detail,
                                 &tensors);
    if (status == TUTTI_OK || status == TUTTI_ERR_MEMORY)
        return status;
    r->first.detail[0] = '\0';
    tutti__diff_note("elements were not compared: %s", tutti_last_error());
    return TUTTI_OK;
}

/* Of one run: whether there is anything to say of it. */
static tutti_status check_ranks(const tutti__diff_result *result)
{
    const tutti__diff_run *run = &result->run[0];

    if (result->ranks_extent[0].entries > 0 || result->nan[0].source != TUTTI__DIFF_EQUAL ||
        result->infinite[0].source != TUTTI__DIFF_EQUAL)
        return TUTTI_OK;
    if (run->record.files < 2)
        return tutti__fail(
            TUTTI_ERR_NOT_FOUND,
            "%s has no record of several ranks (tutti train --trace-digests -n N), so "
            "there is nothing to compare; give a second run",
            run->path);
    return tutti__fail(TUTTI_ERR_NOT_FOUND,
                       "the record of %s has nothing that several ranks have in common; give a "
                       "second run",
                       run->path);
}

static tutti_status compare(tutti__diff_result *result, const command_line *line)
{
    *result = (tutti__diff_result){.runs = line->n, .tolerance = line->tolerance};
    for (size_t i = 0; i < line->n; i++)
        TUTTI_TRY(tutti__diff_read(&result->run[i], line->paths[i]));
    if (line->n == 2) {
        TUTTI_TRY(
            tutti__diff_keys(&result->keys, &result->n_keys, &result->run[0], &result->run[1]));
        TUTTI_TRY(tutti__diff_records(result));
        TUTTI_TRY(find_elements(result));
        TUTTI_TRY(tutti__diff_files(result));
    }
    for (size_t i = 0; i < line->n; i++) {
        TUTTI_TRY(tutti__diff_ranks(result, i));
        TUTTI_TRY(tutti__diff_not_finite(result, i));
    }
    return line->n == 1 ? check_ranks(result) : TUTTI_OK;
}

static void free_result(tutti__diff_result *result)
{
    for (size_t i = 0; i < result->runs; i++)
        tutti__diff_free(&result->run[i]);
    free(result->keys);
}

static tutti_status write_json(const tutti__diff_result *result, const char *path)
{
    json_t *json = tutti__diff_json(result);
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL, *all = NULL;
    tutti_status status;

    if (!text || asprintf(&all, "%s\n", text) < 0)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the result");
    else if (strcmp(path, "-") == 0)
        status = tutti__write_all(STDOUT_FILENO, "standard output", all, strlen(all));
    else
        status = tutti__write_file(path, all, strlen(all));
    json_decref(json);
    free(text);
    free(all);
    return status;
}

static tutti_status tell(const tutti__diff_result *result, const command_line *line, int *code_p)
{
    if (nothing_in_common(result))
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "%s and %s have nothing in common that can be compared: no recorded "
                           "step, checkpoint, step of metrics.jsonl, or end at the same step; "
                           "--rerun runs both again",
                           line->paths[0], line->paths[1]);
    if (!line->json || strcmp(line->json, "-") != 0)
        tutti__diff_print(stdout, result);
    TUTTI_TRY(tutti__flush_output());
    *code_p = tutti__diff_is_equal(result) ? 0 : 1;
    return line->json ? write_json(result, line->json) : TUTTI_OK;
}

/* ---- Again ------------------------------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st;
    (void)kind;
    (void)place;
    return remove(path);
}

static tutti_status make_folder(const command_line *line, char folder[PATH_MAX])
{
    const char *temporary = getenv("TMPDIR");

    if (line->keep) {
        snprintf(folder, PATH_MAX, "%s", line->keep);
        return tutti__make_dirs(folder);
    }
    snprintf(folder, PATH_MAX, "%s/tutti-diff-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (mkdtemp(folder))
        return TUTTI_OK;
    return tutti__fail_errno(errno, "cannot make a folder for the reruns, %s", folder);
}

/* Runs both again, and compares these runs; nothing of them is needed after that. */
static tutti_status compare_again(tutti__diff_result *result, const tutti__diff_result *known,
                                  const command_line *line)
{
    char folder[PATH_MAX], a[PATH_MAX + 8], b[PATH_MAX + 8];
    command_line again = *line;
    tutti_status status = make_folder(line, folder);

    if (status != TUTTI_OK)
        return status;
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    again.paths[0] = a;
    again.paths[1] = b;
    status = tutti__diff_rerun(known, folder);
    if (status == TUTTI_OK)
        status = compare(result, &again);
    if (status == TUTTI_OK && tutti__counter_stopped())
        status = tutti__fail(TUTTI_ERR_STATE, "stopped by a signal");
    for (size_t i = 0; i < result->runs; i++)
        result->run[i].path = line->paths[i];
    if (!line->keep)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

/* From making the folder to its removal a closed pipe is no reason to end, and a signal stops the runs. */
static tutti_status rerun(const tutti__diff_result *known, const command_line *line, int *code_p)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    tutti__diff_result result = {.runs = 0};
    struct sigaction before;
    tutti_status status;

    sigaction(SIGPIPE, &ignore, &before);
    tutti__counter_catch_signals();
    status = compare_again(&result, known, line);
    sigaction(SIGPIPE, &before, NULL);
    if (status == TUTTI_OK)
        status = tell(&result, line, code_p);
    if (status == TUTTI_OK && *code_p == 0 && !tutti__diff_is_equal(known))
        tutti__diff_note("the runs themselves differ: what made them differ did not happen again "
                         "(another machine, environment or version, a fault, or files that have "
                         "changed since)");
    free_result(&result);
    return status;
}

/* What is known without reruns, which have failed. */
static tutti_status tell_known(const tutti__diff_result *known, const command_line *line,
                               tutti_status status)
{
    char *why = strdup(tutti_last_error());
    int code;

    if (why && !nothing_in_common(known) && tell(known, line, &code) == TUTTI_OK)
        status = tutti__fail(status, "%s", why);
    free(why);
    return status;
}

int tutti__cli_diff(int argc, char **argv)
{
    command_line line = {.json = NULL};
    tutti__diff_result result = {.runs = 0};
    tutti_status status;
    int code = 2;
    bool again;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    signal(SIGXFSZ, SIG_IGN); /* a file that gets too large is a failed write, as on a full disk */
    status = read_line(&line, argc, argv);
    if (status != TUTTI_OK)
        return tutti__report_usage("tutti diff", status);
    status = compare(&result, &line);
    again = status == TUTTI_OK && line.rerun &&
            (!tutti__diff_is_equal(&result) || nothing_in_common(&result));
    if (status == TUTTI_OK)
        status = again ? rerun(&result, &line, &code) : tell(&result, &line, &code);
    if (status != TUTTI_OK && again)
        status = tell_known(&result, &line, status);
    free_result(&result);
    if (status == TUTTI_OK)
        return code;
    tutti__print_line(stderr, "tutti diff: %s", tutti_last_error());
    if (tutti__counter_stopped())
        return 128 + tutti__counter_stopped();
    return tutti_status_exit_code(status) == 4 ? 4 : 2; /* 1 means that they differ */
}
