/* profile.c -- the window of the key `profile`: reads clocks before and after it, and writes its spans.
 * SPDX-License-Identifier: MIT */
#include "train/run/run.h"
#include "train/metrics/trace.h"

#include <stdio.h>

tutti_status tutti__run_profile_before(tutti__run *run)
{
    if (!run->recorder || (int64_t)run->at.step + 1 != run->profile_first || run->clock.n > 0)
        return TUTTI_OK;
    return run->shards > 0 ? TUTTI_OK : tutti__clock_read(&run->clock, run->group);
}

static tutti_status write_trace(const tutti__run *run)
{
    char folder[TUTTI__CONFIG_TEXT + 16], path[TUTTI__CONFIG_TEXT + 64];

    snprintf(folder, sizeof folder, "%s/trace", run->config->run_dir);
    snprintf(path, sizeof path, "%s/rank-%d.json", folder, run->rank);
    TUTTI_TRY(tutti__make_dirs(folder));
    return tutti__trace_write(&(tutti__trace){.path = path,
                                              .recorder = run->recorder,
                                              .capacity = run->recorder_capacity,
                                              .rank = run->rank,
                                              .begin_ns = run->profile_begin_ns,
                                              .end_ns = run->profile_end_ns,
                                              .clock = &run->clock,
                                              .ddp = run->ddp});
}

tutti_status tutti__run_profile_after(tutti__run *run, uint64_t begin_ns)
{
    if (!run->recorder)
        return TUTTI_OK;
    if ((int64_t)run->at.step == run->profile_first)
        run->profile_begin_ns = begin_ns;
    if (!run->profile_begin_ns || run->profile_end_ns ||
        ((int64_t)run->at.step < run->profile_last && run->at.step < run->total_steps &&
         !run->stopping))
        return TUTTI_OK;
    run->profile_end_ns = tutti__now_ns();
    if (run->shards == 0) /* else ranks change: each uses its own clock in its trace */
        TUTTI_TRY(tutti__clock_read(&run->clock, run->group));
    if (write_trace(run) != TUTTI_OK) /* as with other logs, a failure does not end the run */
        tutti_log(TUTTI_LOG_WARN, "train", "profile: %s; training continues without its trace",
                  tutti_last_error());
    return TUTTI_OK;
}
