/* diff_read.c -- reads a run folder for `tutti diff`.   SPDX-License-Identifier: MIT */
#include "cli/diff/diff.h"
#include "base/terminal.h"
#include "checkpoint/checkpoint_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 16 << 20 }; /* of config.json and summary.json */

static bool is_regular(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* NULL: it is missing or damaged; the latter is said. */
static json_t *read_object(const char *run_dir, const char *name)
{
    char path[PATH_MAX], *text;
    json_error_t error;
    json_t *json;

    if (snprintf(path, sizeof path, "%s/%s", run_dir, name) >= (int)sizeof path ||
        access(path, F_OK) != 0)
        return NULL;
    if (!is_regular(path)) {
        tutti__diff_note("%s is not a regular file, and was left out", path);
        return NULL;
    }
    if (tutti__read_text("", path, "", MAX_FILE, &text) != TUTTI_OK) {
        tutti__diff_note("%s", tutti_last_error());
        return NULL;
    }
    json = json_loads(text, 0, &error);
    free(text);
    if (json_is_object(json))
        return json;
    tutti__diff_note("%s is damaged, and was left out: %s", path,
                     json ? "it is not a JSON object" : error.text);
    json_decref(json);
    return NULL;
}

/* ---- metrics.jsonl ------------------------------------------------------------------------------------------- */

/* Adds a line to those of its step; of a figure that they have twice, after a restart, the last counts. *last_p: the step of the last
 * line with a loss, which is a mean since the one before. */
static void take_metrics(json_t *steps, json_t *object, json_int_t *last_p)
{
    json_t *eval = json_object_get(object, "eval");
    json_t *line = json_is_object(eval) ? eval : object;
    const json_int_t step = json_integer_value(json_object_get(line, "step"));
    char key[24];

    if (step > 0) {
        if (json_object_get(line, "loss")) {
            json_object_set_new(line, "before", json_integer(*last_p < step ? *last_p : -1));
            *last_p = step;
        }
        snprintf(key, sizeof key, "%lld", (long long)step);
        if (json_object_get(steps, key))
            json_object_update(json_object_get(steps, key), line);
        else
            json_object_set(steps, key, line);
    }
}

static tutti_status read_metrics(tutti__diff_run *run)
{
    char path[PATH_MAX], *text = NULL;
    uint64_t lines = 0, bad = 0, first_bad = 0;
    json_int_t last = 0;
    size_t size = 0;
    json_t *line;
    ssize_t got;
    FILE *file;
    tutti_status status;

    run->metrics = json_object();
    if (!run->metrics)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the metrics of %s", run->path);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run->path);
    file = is_regular(path) ? fopen(path, "re") : NULL;
    if (!file)
        return TUTTI_OK;
    while ((got = getline(&text, &size, file)) > 0 && text[got - 1] == '\n') {
        line = json_loadb(text, (size_t)got, 0, NULL);
        lines++;
        if (json_is_object(line))
            take_metrics(run->metrics, line, &last);
        else if (bad++ == 0)
            first_bad = lines;
        json_decref(line);
    }
    status = tutti__diff_whole(file, got, path);
    free(text);
    fclose(file);
    if (bad > 0)
        tutti__diff_note("%s has %llu damaged line%s, left out; the first is line %llu", path,
                         (unsigned long long)bad, tutti__s(bad), (unsigned long long)first_bad);
    return status;
}

/* ---- A run --------------------------------------------------------------------------------------------------- */

static tutti_status list_checkpoints(tutti__diff_run *run)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/checkpoints", run->path);
    return tutti__is_folder(path)
               ? tutti__checkpoint_list(path, &run->checkpoints, &run->n_checkpoints)
               : TUTTI_OK;
}

tutti_status tutti__diff_read(tutti__diff_run *run, const char *path)
{
    struct stat st;

    *run = (tutti__diff_run){.path = path};
    if (stat(path, &st) != 0)
        return tutti__fail_errno(errno, "cannot read the run folder %s", path);
    if (!S_ISDIR(st.st_mode))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is not a folder; expected a run folder, which holds config.json",
                           path);
    if (strlen(path) > PATH_MAX - 100)
        return tutti__fail(TUTTI_ERR_ARG, "the path %.60s... is too long", path);
    if (access(path, R_OK | X_OK) != 0)
        return tutti__fail_errno(errno, "cannot read the run folder %s", path);
    run->config = read_object(path, "config.json");
    run->summary = read_object(path, "summary.json");
    TUTTI_TRY(read_metrics(run));
    TUTTI_TRY(list_checkpoints(run));
    TUTTI_TRY(tutti__diff_record_read(&run->record, path));
    if (!run->config && !run->summary && run->n_checkpoints == 0 && run->record.files == 0 &&
        json_object_size(run->metrics) == 0)
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "%s holds no run: neither config.json nor a record, checkpoints or "
                           "metrics.jsonl; expected what tutti train --run-dir has written",
                           path);
    return TUTTI_OK;
}

void tutti__diff_free(tutti__diff_run *run)
{
    json_decref(run->config);
    json_decref(run->summary);
    json_decref(run->metrics);
    free(run->checkpoints);
    tutti__diff_record_free(&run->record);
}

bool tutti__diff_has_failed(const tutti__diff_run *run)
{
    const char *status = json_string_value(json_object_get(run->summary, "status"));

    return status && strcmp(status, "failed") == 0;
}

const char *tutti__diff_header(const tutti__diff_run *run, const char *key)
{
    const char *text = json_string_value(json_object_get(run->record.header, key));

    return text ? text : "";
}
