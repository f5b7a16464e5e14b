/* lost_time.c -- what a failure cost, computed when the run is resumed.   SPDX-License-Identifier: MIT
 *
 * All work after the checkpoint is repeated, and nothing is done in the pause: lost is the time from the checkpoint to the
 * start that resumes it. Checkpoints contain the sums, so failures without a checkpoint in between are counted once. */
#include "train/run/run.h"

#include "checkpoint/state.h"

#include <jansson.h>
#include <string.h>

/* Whether the run ended with that checkpoint: then it was stopped, and nothing failed. */
static bool was_left(const tutti__train_run *run, const json_t *summary)
{
    const char *status = json_string_value(json_object_get(summary, "status"));

    return status && strcmp(status, "failed") != 0 &&
           json_integer_value(json_object_get(summary, "steps")) ==
               (json_int_t)run->position.at.step;
}

void tutti__run_count_lost(tutti__train_run *run)
{
    const json_t *sums = json_object_get(run->resume.state, "sums");
    const double saved = json_number_value(json_object_get(sums, "unix_s"));
    const double start =
        tutti__wall_seconds() - (double)(tutti__now_ns() - run->totals.start_ns) * 1e-9;
    char path[TUTTI__CONFIG_TEXT + 16];
    json_t *summary;

    if (saved <= 0 || saved >= start) /* from an older version, or the clock was changed */
        return;
    snprintf(path, sizeof path, "%s/summary.json", run->folder.path);
    summary = tutti__json_read(path, 0, NULL);
    if (!was_left(run, summary)) {
        tutti__ledger_lose(&run->totals.ledger, run->position.at.step, start - saved,
                           json_string_value(json_object_get(summary, "reason")));
        run->totals.seconds_before += start - saved;
    }
    json_decref(summary);
}
