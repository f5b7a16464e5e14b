/* report_trace.c -- merges the traces of all ranks of a run.   SPDX-License-Identifier: MIT
 *
 * The ranks' files already have times by rank 0's clock (train/machine/clock.h): only the events must be concatenated. */
#include "cli/report/report.h"

#include "checkpoint/json_text.h"
#include "checkpoint/state.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

static int is_trace(const struct dirent *entry)
{
    int rank, end = 0;

    return sscanf(entry->d_name, "rank-%d.json%n", &rank, &end) == 1 && entry->d_name[end] == '\0';
}

static tutti_status add_trace(json_t *events, json_t *others, const char *path)
{
    json_error_t error;
    json_t *trace = tutti__json_read(path, 0, &error), *its = json_object_get(trace, "traceEvents"),
           *its_data = json_object_get(trace, "otherData");
    int failed;

    if (!json_is_array(its)) {
        json_decref(trace);
        return tutti__fail(TUTTI_ERR_FORMAT, "%s is damaged: %s", path,
                           trace ? "it has no array traceEvents" : error.text);
    }
    failed = json_array_extend(events, its);
    if (its_data)
        failed |= json_array_append(others, its_data);
    json_decref(trace);
    return failed ? tutti__fail(TUTTI_ERR_MEMORY, "no memory for the trace %s", path) : TUTTI_OK;
}

tutti_status tutti__report_trace(const char *run_dir, char **text_p)
{
    char folder[PATH_MAX], path[PATH_MAX + 300];
    json_t *events = json_array(), *others = json_array(), *whole;
    struct dirent **names = NULL;
    tutti_status status = TUTTI_OK;
    int n;

    snprintf(folder, sizeof folder, "%s/trace", run_dir);
    n = scandir(folder, &names, is_trace, versionsort);
    if (n < 0 && errno != ENOENT)
        status = tutti__fail_errno(errno, "cannot read %s", folder);
    else if (n <= 0)
        status = tutti__fail(TUTTI_ERR_NOT_FOUND,
                             "%s holds no trace/rank-N.json; tutti train --profile A:B writes them",
                             run_dir);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (status == TUTTI_OK)
            status = add_trace(events, others, path);
        free(names[i]);
    }
    free(names);
    whole = json_pack("{s:s, s:o, s:o}", "displayTimeUnit", "ms", "otherData", others,
                      "traceEvents", events);
    if (status == TUTTI_OK) {
        *text_p = tutti__json_text(whole, JSON_COMPACT | JSON_REAL_PRECISION(17));
        if (!*text_p)
            status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for the trace");
    }
    json_decref(whole);
    return status;
}
