/* loop.c -- the loop of all runs: what the plan says is next, is done.   SPDX-License-Identifier: MIT */
#include "data/loader.h"
#include "ddp/ddp.h"
#include "ddp/pieces.h"
#include "optim/optim.h"
#include "train/run/run.h"
#include "train/session/digests.h"

/* ---- A step ----------------------------------------------------------------------------------------------------- */

void tutti__run_begin_step(tutti__train_run *run)
{
    tutti__plan_begin_step(&run->plan, &run->position);
    run->session.step.number = run->position.at.step + 1;
    run->session.step.epoch = run->position.at.epoch;
    run->session.step.data_seconds = 0;
    tutti__digests_begin(&run->session);
}

void tutti__run_seek(tutti__train_run *run)
{
    const tutti__run_cursor *at = &run->position.at;

    run->session.step.batches = tutti__plan_batches(&run->plan, at->start);
    if (run->sought.epoch == at->epoch && run->sought.start == at->start)
        return;
    tutti__loader_seek(run->session.data.train_loader, (uint64_t)at->epoch - 1, at->start,
                       run->session.shards > 0 ? 0 : at->batch);
    run->sought = *at;
}

/* The rates of parameters with schedules of their own. */
static void set_own_rates(const tutti__train_run *run)
{
    tutti_optim *optim = run->session.optim;
    double epochs;

    for (size_t i = 0; (epochs = tutti__optim_length(optim, i)) > 0; i++)
        tutti__optim_set_length_lr(
            optim, epochs, (double)tutti__plan_lr_within(&run->plan, &run->position.at, epochs));
}

tutti_status tutti__run_update(tutti__train_run *run)
{
    tutti__position *p = &run->position;

    tutti__saving_copied(&run->saving);
    tutti__guard_forget(run);
    set_own_rates(run);
    return tutti__session_update(&run->session, tutti__plan_lr(&run->plan, &p->at),
                                 tutti__plan_has_line(&run->plan, p), &p->skipped_steps, &p->norm);
}

void tutti__run_count_step(tutti__train_run *run, size_t batches, uint64_t begin_ns)
{
    tutti__position *p = &run->position;
    const double seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9 - run->saving.step_stall_s;

    tutti__plan_end_step(&run->plan, p, batches);
    run->step_seconds = seconds;
    p->train_seconds += seconds;
    p->log_seconds += seconds;
    tutti__guard_count_step(run);
    tutti__ledger_step(&run->totals.ledger, seconds, run->session.step.data_seconds,
                       run->session.step.stages_seconds,
                       tutti__ddp_exposed_seconds(run->session.ddp));
}

tutti_status tutti__run_end_step(tutti__train_run *run, uint64_t begin_ns)
{
    tutti__session *s = &run->session;
    tutti__position *p = &run->position;

    if (tutti__session_hooks(s)) {
        p->agree_due = true;
        TUTTI_TRY(tutti__session_hook(s, tutti__session_hooks(s)->on_update));
    }
    TUTTI_TRY(tutti__run_histograms(run));
    if (p->line_due != p->at.step)
        tutti__run_show(run, false);
    return tutti__run_trace_after(run, begin_ns);
}

/* ---- Between steps ---------------------------------------------------------------------------------------------- */

static tutti_status save(tutti__train_run *run)
{
    TUTTI_TRY(run->kind->save(run));
    tutti__plan_saved(&run->plan, &run->position);
    return TUTTI_OK;
}

/* Those of a model of which no rank has all: by all of them. */
static tutti_status find_digests(tutti__train_run *run)
{
    tutti__session *s = &run->session;

    if (!tutti__session_divides_model(s))
        return TUTTI_OK;
    TUTTI_TRY(tutti__digest_together(s->module, NULL, s->group, run->digests[0]));
    return s->ema ? tutti__digest_together(s->module, s->ema, s->group, run->digests[1]) : TUTTI_OK;
}

static tutti_status finish(tutti__train_run *run)
{
    const tutti__saving *saving = &run->saving;
    tutti_status status = TUTTI_OK;

    tutti__progress_clear(&run->progress);
    if (run->session.rank == 0 && saving->failure != TUTTI_OK)
        status = tutti__fail_again(saving->failure, saving->unsaved);
    TUTTI_TRY(run->kind->agree(run, status));
    TUTTI_TRY(run->kind->check(run));
    TUTTI_TRY(find_digests(run));
    TUTTI_TRY(run->kind->agree(run, tutti__run_has_folder(run) ? tutti__run_write_results(run)
                                                               : tutti__run_check_folder(run)));
    run->position.ended = true;
    return TUTTI_OK;
}

static tutti_status act(tutti__train_run *run, tutti__train_action action, bool *over_p)
{
    switch (action) {
    case TUTTI__DO_STEP:
        return run->kind->step(run, over_p);
    case TUTTI__DO_GUARD:
        return tutti__guard_check(run);
    case TUTTI__DO_AGREE:
        return tutti__run_agree(run);
    case TUTTI__DO_LINE:
        return tutti__run_line(run);
    case TUTTI__DO_EVALUATE:
        return tutti__run_evaluate(run);
    case TUTTI__DO_SAVE:
        return save(run);
    case TUTTI__DO_FINISH:
        return finish(run);
    case TUTTI__DO_END:
        break;
    }
    *over_p = true;
    return TUTTI_OK;
}

tutti_status tutti__run_loop(tutti__train_run *run)
{
    const tutti__run_kind *kind = run->kind;
    bool over = false;

    while (!over) {
        tutti_status status;

        if (kind->join)
            TUTTI_TRY(kind->join(run, &over));
        if (over)
            break;
        status = act(run, tutti__plan_next(&run->plan, &run->position), &over);
        if (status != TUTTI_OK && !(kind->recover && kind->recover(run, status)))
            return status;
    }
    return TUTTI_OK;
}
