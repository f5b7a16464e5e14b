/* report_read.c -- reads a run folder for `tutti report`: all files that exist, with notes about the others.
 * SPDX-License-Identifier: MIT */
#include "cli/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_FILE = 16 << 20, /* of config.json and summary.json */
    MAX_LINE = 1 << 18,  /* of metrics.jsonl */
    TICK_LINES = 10000
};

__attribute__((format(printf, 2, 3))) static void note(tutti__report_run *run, const char *format,
                                                       ...)
{
    va_list args;
    char *text = NULL;

    if (run->n_notes == TUTTI__REPORT_NOTES)
        return;
    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0)
        run->notes[run->n_notes++] = text;
    va_end(args);
}

/* Opens a regular file of the run folder, or returns NULL, with a note unless it does not exist. A pipe would block. */
static FILE *open_file(tutti__report_run *run, const char *name, off_t *bytes_p)
{
    char path[PATH_MAX];
    struct stat st;
    int fd;

    if (snprintf(path, sizeof path, "%s/%s", run->path, name) >= (int)sizeof path) {
        note(run, "%s: the path is too long", name);
        return NULL;
    }
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT)
            note(run, "%s cannot be read: %s", name, strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        note(run, "%s is not a regular file, and was left out", name);
        close(fd);
        return NULL;
    }
    *bytes_p = st.st_size;
    return fdopen(fd, "r");
}

static json_t *read_object(tutti__report_run *run, const char *name)
{
    json_error_t error;
    json_t *json;
    off_t bytes;
    FILE *file = open_file(run, name, &bytes);

    if (!file)
        return NULL;
    json = bytes <= MAX_FILE ? json_loadf(file, 0, &error) : NULL;
    fclose(file);
    if (json_is_object(json))
        return json;
    if (bytes > MAX_FILE)
        note(run, "%s has %lld bytes, more than a file of this kind may have; it was left out",
             name, (long long)bytes);
    else if (bytes == 0)
        note(run, "%s is empty", name);
    else
        note(run, "%s is damaged, and was left out: %s", name,
             json ? "it is not a JSON object" : error.text);
    json_decref(json);
    return NULL;
}

/* ---- metrics.jsonl --------------------------------------------------------------------------------- */

static tutti_status put(tutti__curves *curves, const char *before, const json_t *object);

static tutti_status put_value(tutti__curves *curves, const char *name, const json_t *value)
{
    if (json_is_number(value))
        return tutti__curves_put(curves, name, json_number_value(value));
    return json_is_object(value) ? put(curves, name, value) : TUTTI_OK;
}

/* Adds the numbers of an object; those of a nested object are named "outer.inner". */
static tutti_status put(tutti__curves *curves, const char *before, const json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        char name[2 * TUTTI__COLUMN_NAME];

        if (snprintf(name, sizeof name, "%s%s%s", before, *before ? "." : "", key) >=
            TUTTI__COLUMN_NAME)
            curves->crowded = true;
        else
            TUTTI_TRY(put_value(curves, name, value));
    }
    return TUTTI_OK;
}

/* A sample of the machine belongs to the previous step line, whose step and time it repeats. */
static tutti_status put_system(tutti__curves *steps, json_t *system)
{
    json_object_del(system, "step");
    json_object_del(system, "time_s");
    return steps->lines > 0 ? put(steps, "system", system) : TUTTI_OK;
}

static void take_sample(tutti__report_run *run, const json_t *sample)
{
    const char *text = json_string_value(json_object_get(sample, "text"));

    free(run->sample);
    run->sample = text ? strdup(text) : NULL;
}

/* False in *good_p: not a line of metrics. */
static tutti_status take_line(tutti__report_run *run, const char *line, size_t n, bool *good_p)
{
    json_t *object = json_loadb(line, n, 0, NULL), *eval = json_object_get(object, "eval");
    json_t *system = json_object_get(object, "system");
    tutti_status status = TUTTI_OK;

    *good_p = json_is_object(object);
    if (json_is_object(json_object_get(object, "sample")))
        take_sample(run, json_object_get(object, "sample"));
    else if (json_is_object(eval)) {
        tutti__curves_begin_line(&run->evals);
        status = put(&run->evals, "", eval);
    } else if (json_is_object(system)) {
        status = put_system(&run->steps, system);
    } else if (*good_p) {
        tutti__curves_begin_line(&run->steps);
        status = put(&run->steps, "", object);
    }
    json_decref(object);
    return status;
}

/* Reads a line of at most MAX_LINE bytes, without its newline, or the beginning of a longer one. Returns its length, or -1 at
 * the end. *whole_p: it ended with a newline. */
static long next_line(FILE *file, char line[MAX_LINE], bool *whole_p)
{
    long n = 0;
    int c = EOF;

    while ((c = getc_unlocked(file)) != EOF && c != '\n')
        if (n < MAX_LINE)
            line[n++] = (char)c;
    *whole_p = c == '\n';
    return n == 0 && c == EOF ? -1 : n;
}

static tutti_status read_metrics(tutti__report_run *run, const tutti__tick *tick)
{
    unsigned long long number = 0, bad = 0, first_bad = 0;
    char *line;
    off_t bytes;
    bool whole = true, good = true, half = false;
    FILE *file = open_file(run, "metrics.jsonl", &bytes);
    tutti_status status = TUTTI_OK;

    if (!file) {
        note(run, "metrics.jsonl is missing: there are no curves");
        return TUTTI_OK;
    }
    line = tutti__alloc(MAX_LINE);
    for (long n; line && status == TUTTI_OK && (n = next_line(file, line, &whole)) >= 0;) {
        if (number++ % TICK_LINES == 0)
            status =
                tutti__tick_call(tick, (size_t)(ftello(file) / 1000000), (size_t)(bytes / 1000000));
        if (status == TUTTI_OK)
            status = take_line(run, line, (size_t)n, &good);
        half = !good && !whole;
        if (!good && whole && ++bad == 1)
            first_bad = number;
    }
    if (half)
        note(run, "metrics.jsonl ends in half a line (the run was killed, or is writing), which "
                  "was left out");
    if (bad > 0)
        note(run,
             "metrics.jsonl has %llu line%s that cannot be read and %s left out; the first is "
             "line %llu",
             bad, bad == 1 ? "" : "s", bad == 1 ? "was" : "were", first_bad);
    if (ferror(file))
        note(run, "metrics.jsonl cannot be read to its end: %s", strerror(errno));
    if (run->steps.crowded || run->evals.crowded)
        note(run, "metrics.jsonl has more than %d figures, or longer names, than this page shows",
             TUTTI__COLUMNS);
    fclose(file);
    free(line);
    return line ? status : TUTTI_ERR_MEMORY;
}

/* ---- A run ------------------------------------------------------------------------------------------ */

tutti_status tutti__report_read(tutti__report_run *run, const tutti__tick *tick)
{
    struct stat st;

    if (stat(run->path, &st) != 0)
        return tutti__fail_errno(errno, "cannot read the run folder %s", run->path);
    if (!S_ISDIR(st.st_mode))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is not a folder; expected a run folder, which holds metrics.jsonl",
                           run->path);
    if (access(run->path, R_OK | X_OK) != 0)
        return tutti__fail_errno(errno, "cannot read the run folder %s", run->path);
    run->config = read_object(run, "config.json");
    run->summary = read_object(run, "summary.json");
    run->lr_find = read_object(run, "lr_find.json");
    TUTTI_TRY(read_metrics(run, tick));
    if (!run->config && !run->summary && run->steps.lines + run->evals.lines == 0)
        return tutti__fail(
            TUTTI_ERR_NOT_FOUND,
            "%s holds no run: neither config.json nor metrics.jsonl nor summary.json "
            "can be read there; expected what tutti train --run-dir has written",
            run->path);
    if (!run->config)
        note(run, "config.json is missing");
    if (!run->summary)
        note(run, "summary.json is missing: the run is still going on, or was killed");
    return TUTTI_OK;
}

void tutti__report_free(tutti__report_run *run)
{
    json_decref(run->config);
    json_decref(run->summary);
    json_decref(run->lr_find);
    tutti__curves_free(&run->steps);
    tutti__curves_free(&run->evals);
    for (size_t i = 0; i < run->n_notes; i++)
        free(run->notes[i]);
    free(run->label);
    free(run->sample);
}

/* ---- Names --------------------------------------------------------------------------------------------- */

/* The last `parts` parts of a path. */
static const char *ending(const char *path, size_t parts)
{
    const char *p = path + strlen(path);

    while (p > path && parts > 0)
        if (*--p == '/' && --parts == 0)
            return p + 1;
    return path;
}

static bool is_unique(char *const *paths, size_t n, size_t i, size_t parts)
{
    for (size_t k = 0; k < n; k++)
        if (k != i && strcmp(paths[k], paths[i]) != 0 &&
            strcmp(ending(paths[k], parts), ending(paths[i], parts)) == 0)
            return false;
    return true;
}

/* The same folder given twice: the second is "name (2)". */
static char *make_label(char *const *paths, size_t i, const char *text)
{
    size_t times = 1;
    char *label = NULL;

    for (size_t k = 0; k < i; k++)
        times += strcmp(paths[k], paths[i]) == 0;
    if (times == 1)
        return strdup(text);
    return asprintf(&label, "%s (%zu)", text, times) < 0 ? NULL : label;
}

tutti_status tutti__report_label(tutti__report_run *runs, size_t n)
{
    char **paths = calloc(n, sizeof *paths);
    bool good = paths != NULL;

    for (size_t i = 0; good && i < n; i++) {
        paths[i] = realpath(runs[i].path, NULL);
        if (!paths[i])
            paths[i] = strdup(runs[i].path);
        good = paths[i] != NULL;
    }
    for (size_t i = 0; good && i < n; i++) {
        size_t parts = 1;

        while (parts < PATH_MAX && !is_unique(paths, n, i, parts))
            parts++;
        runs[i].label = make_label(paths, i, ending(paths[i], parts));
        good = runs[i].label != NULL;
    }
    for (size_t i = 0; paths && i < n; i++)
        free(paths[i]);
    free(paths);
    return good ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu runs", n);
}
