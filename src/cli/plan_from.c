/* plan_from.c -- the time of a step's computation, as a run has measured it.   SPDX-License-Identifier: MIT */
#include "cli/plan_scaling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 4096 }; /* of metrics.jsonl, at most */

/* Keys on which the time of a rank's computation depends. */
static const char *const keys[] = {"model",         "layers",     "heads",
                                   "width",         "context",    "vocab",
                                   "data",          "batch_size", "grad_accumulation",
                                   "amp",           "tensor",     "pipeline",
                                   "micro_batches", "recompute",  "threads",
                                   "optimizer"};

static tutti_status compare(const char *run_dir, const json_t *theirs, const json_t *ours)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(keys); i++) {
        const json_t *a = json_object_get(theirs, keys[i]), *b = json_object_get(ours, keys[i]);

        if (a && b && !json_equal(a, b))
            return tutti__fail(TUTTI_ERR_ARG,
                               "--from %s: its %s is another one, so that it has measured another "
                               "computation; leave the key out, or give --step-ms",
                               run_dir, keys[i]);
    }
    return TUTTI_OK;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of its lines' compute_ms, without the first, in which kernels are made, if there are others. */
static tutti_status read_lines(const char *path, double *median_p)
{
    FILE *file = fopen(path, "re");
    double *values = tutti__alloc(LINES * sizeof *values);
    size_t n = 0, first;

    if (!file || !values) {
        const int error = errno;

        if (file)
            fclose(file);
        free(values);
        return file ? TUTTI_ERR_MEMORY : tutti__fail_errno(error, "--from: cannot read %s", path);
    }
    while (n < LINES) {
        json_t *line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *value = json_object_get(line, "compute_ms");

        if (!line)
            break;
        if (json_is_number(value) && json_number_value(value) > 0)
            values[n++] = json_number_value(value);
        json_decref(line);
    }
    fclose(file);
    first = n > 1;
    if (n > 0) {
        qsort(values + first, n - first, sizeof *values, by_size);
        *median_p = values[first + (n - first) / 2];
    }
    free(values);
    return n > 0 ? TUTTI_OK
                 : tutti__fail(TUTTI_ERR_FORMAT,
                               "--from: %s has no line with compute_ms: the run has logged no step",
                               path);
}

/* Of a run by shards a rank has computed more of them if there were fewer ranks. */
static tutti_status scale(const json_t *theirs, const tutti__train_config *config, int ranks,
                          double *step_ms)
{
    const double world = json_number_value(json_object_get(theirs, "world_size"));

    if (config->shards > 0 && world > 0)
        *step_ms *= world / ranks;
    return TUTTI_OK;
}

tutti_status tutti__plan_from(const char *run_dir, const tutti__train_config *config, int ranks,
                              double *step_ms)
{
    char path[4096];
    json_error_t error;
    char *text = tutti__config_json(config);
    json_t *ours = text ? json_loads(text, 0, NULL) : NULL, *theirs;
    tutti_status status;

    free(text);
    snprintf(path, sizeof path, "%s/config.json", run_dir);
    theirs = json_load_file(path, 0, &error);
    if (!ours || !theirs)
        status = !ours ? tutti__fail(TUTTI_ERR_MEMORY, "no memory for the run's keys")
                       : tutti__fail(TUTTI_ERR_FORMAT, "--from: %s: %s", path, error.text);
    else
        status = compare(run_dir, theirs, ours);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    if (status == TUTTI_OK)
        status = read_lines(path, step_ms);
    if (status == TUTTI_OK)
        status = scale(theirs, config, ranks, step_ms);
    json_decref(ours);
    json_decref(theirs);
    return status;
}
