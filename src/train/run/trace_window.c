/* trace_window.c -- the window of the key `profile`: reads clocks before and after it, and writes its spans.
 * SPDX-License-Identifier: MIT */
#include "data/loader.h"
#include "device/device.h"
#include "tensor/tensor.h"
#include "train/output/trace.h"
#include "train/run/run.h"

#define EVENTS_A_BATCH 512 /* and the same for the step */

tutti_status tutti__run_trace_open(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    tutti__trace_window *w = &run->trace;
    const size_t batches =
        (size_t)s->config->grad_accumulation * (size_t)(s->shards > 0 ? s->shards : 1);

    /* The syntax was checked with the configuration. */
    if (!tutti__config_profile(s->config, &w->first, &w->last) || w->first == 0)
        return TUTTI_OK;
    if ((uint64_t)w->first > run->plan.total_steps)
        return tutti__fail(TUTTI_ERR_ARG, "profile: %s begins after the last step, %llu",
                           s->config->profile, (unsigned long long)run->plan.total_steps);
    w->capacity = (size_t)(w->last - w->first + 3) * (1 + batches) * EVENTS_A_BATCH;
    w->recorder = tutti__recorder_new(w->capacity);
    if (!w->recorder)
        return TUTTI_ERR_MEMORY;
    s->cx->recorder = w->recorder; /* used by steps, the tape and DDP */
    /* on other devices operations end after they return */
    if (tutti__on_host(tutti_ctx_stream(s->cx))) {
        w->profile = s->cx->profile = tutti__profile_new();
        if (!w->profile)
            return TUTTI_ERR_MEMORY;
    }
    tutti__loader_set_recorder(s->data.train_loader, w->recorder);
    return TUTTI_OK;
}

void tutti__run_trace_close(tutti__train_run *run)
{
    tutti__recorder_free(run->trace.recorder);
    tutti__profile_free(run->trace.profile);
}

tutti_status tutti__run_trace_before(tutti__train_run *run)
{
    tutti__trace_window *w = &run->trace;

    if (!w->recorder || (int64_t)run->position.at.step + 1 != w->first || w->clock.n > 0)
        return TUTTI_OK;
    return run->session.shards > 0 ? TUTTI_OK : tutti__clock_read(&w->clock, run->session.group);
}

static tutti_status write_trace(const tutti__train_run *run)
{
    const tutti__trace_window *w = &run->trace;
    char folder[TUTTI__CONFIG_TEXT + 16], path[TUTTI__CONFIG_TEXT + 64];

    snprintf(folder, sizeof folder, "%s/trace", run->session.config->run_dir);
    snprintf(path, sizeof path, "%s/rank-%d.json", folder, run->session.rank);
    TUTTI_TRY(tutti__make_dirs(folder));
    return tutti__trace_write(&(tutti__trace){.path = path,
                                              .recorder = w->recorder,
                                              .capacity = w->capacity,
                                              .rank = run->session.rank,
                                              .begin_ns = w->begin_ns,
                                              .end_ns = w->end_ns,
                                              .clock = &w->clock,
                                              .ddp = run->session.ddp});
}

tutti_status tutti__run_trace_after(tutti__train_run *run, uint64_t begin_ns)
{
    const tutti__position *p = &run->position;
    tutti__trace_window *w = &run->trace;

    if (!w->recorder)
        return TUTTI_OK;
    if ((int64_t)p->at.step == w->first)
        w->begin_ns = begin_ns;
    if (!w->begin_ns || w->end_ns ||
        ((int64_t)p->at.step < w->last && !tutti__plan_is_over(&run->plan, p) && !p->stop))
        return TUTTI_OK;
    w->end_ns = tutti__now_ns();
    if (run->session.shards == 0) /* else ranks change: each uses its own clock in its trace */
        TUTTI_TRY(tutti__clock_read(&w->clock, run->session.group));
    if (write_trace(run) != TUTTI_OK) /* as with other logs, a failure does not end the run */
        tutti_log(TUTTI_LOG_WARN, "train", "profile: %s; training continues without its trace",
                  tutti_last_error());
    return TUTTI_OK;
}
