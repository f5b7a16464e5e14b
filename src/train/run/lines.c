/* lines.c -- what a run writes and shows after steps and evaluations.   SPDX-License-Identifier: MIT */
#include "base/pages.h"
#include "data/dataset.h"
#include "ddp/ddp.h"
#include "train/output/trace.h"
#include "train/run/run.h"
#include "train/session/evaluate.h"
#include "train/session/scores.h"

#include <math.h>
#include <stdio.h>

void tutti__run_begin_logs(tutti__train_run *run, uint64_t step)
{
    const tutti_metric *own = run->session.parts->own.metrics;
    const char *names[TUTTI__OWN_METRICS];
    size_t n = 0;

    for (; own && own[n].name; n++)
        names[n] = own[n].name;
    tutti__metric_tables_set(&run->tables, names, n);
    run->folder.tables = &run->tables;
    tutti__logs_begin(&run->logs, &run->folder, run->session.config, run->session.parts->title,
                      &run->gpus, step);
}

/* ---- A line ----------------------------------------------------------------------------------------------------- */

static void call_on_step(const tutti__train_run *run, const tutti__step_metrics *line)
{
    const tutti_trainer_opts *own = &run->session.parts->own;

    if (run->session.rank == 0 && own->on_step)
        own->on_step(own->self, &(tutti_trainer_step){.step = (uint64_t)line->step,
                                                      .epoch = line->epoch,
                                                      .loss = line->loss,
                                                      .lr = line->lr,
                                                      .grad_norm = line->grad_norm,
                                                      .images_per_s = line->images_per_s,
                                                      .seconds = line->time_s});
}

static void call_on_eval(const tutti__train_run *run, const tutti__eval_metrics *eval)
{
    const tutti_trainer_opts *own = &run->session.parts->own;

    if (run->session.rank == 0 && own->on_eval)
        own->on_eval(own->self, &(tutti_trainer_eval){.step = (uint64_t)eval->step,
                                                      .epoch = eval->epoch,
                                                      .loss = eval->val_loss,
                                                      .accuracy = eval->val_accuracy,
                                                      .seconds = eval->time_s,
                                                      .metrics = own->metrics ? eval->own : NULL});
}

bool tutti__run_has_folder(const tutti__train_run *run)
{
    return run->session.rank == 0 && (run->session.shards == 0 ||
                                      tutti__run_lock_is_held(&run->folder.lock, run->folder.path));
}

tutti_status tutti__run_check_folder(const tutti__train_run *run)
{
    if (run->job.generation == 0 || !tutti__run_lock_is_lost(&run->folder.lock, run->folder.path))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_PEER, "another group of this run has taken over the run folder %s",
                       run->folder.path);
}

static void write_sample(tutti__train_run *run)
{
    const tutti__eval_metrics *eval = &run->position.eval;
    const char *text = tutti__run_sample_text(run);

    if (*text)
        tutti__logs_sample(&run->logs, &(tutti__sample_metrics){
                                           .epoch = eval->epoch, .step = eval->step, .text = text});
}

void tutti__run_write_lines(tutti__train_run *run)
{
    const tutti__position *p = &run->position;

    if (!tutti__run_has_folder(run))
        return;
    if ((uint64_t)p->line.step > run->logged.step) {
        tutti__logs_step(&run->logs, &p->line);
        call_on_step(run, &p->line);
        run->logged.step = (uint64_t)p->line.step;
    }
    if ((uint64_t)p->eval.step > run->logged.eval) {
        tutti__logs_eval(&run->logs, &p->eval);
        write_sample(run);
        call_on_eval(run, &p->eval);
        run->logged.eval = (uint64_t)p->eval.step;
    }
}

/* The sums since the last line, which restart. */
static tutti__step_metrics take_line(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    tutti__ledger *l = &run->totals.ledger;
    tutti__position *p = &run->position;
    tutti__step_metrics line;
    double tokens_per_s;

    tutti__gpus_listen(&run->gpus, 0);
    p->shown_loss = p->log_loss.sum / p->log_loss.n;
    run->shown_images_per_s = p->log_images / p->log_seconds;
    tokens_per_s = tutti__text_rate(&s->text, run->shown_images_per_s);
    line = (tutti__step_metrics){
        .step = (int64_t)p->at.step,
        .epoch = p->at.epoch,
        .loss = p->shown_loss,
        .lr = (double)tutti_optim_lr(s->optim),
        .grad_norm = p->norm,
        .loss_scale = s->scaler ? (double)tutti_scaler_get_scale(s->scaler) : NAN,
        .images_per_s = run->shown_images_per_s,
        .tokens_per_s = tokens_per_s,
        .mfu = tutti__text_mfu(&s->text, s->size, tokens_per_s),
        .time_s = tutti__totals_seconds(&run->totals),
        .compute_ms = tutti__ledger_line_ms(l, TUTTI__TIME_COMPUTE),
        .communication_ms = tutti__ledger_line_ms(l, TUTTI__TIME_COMMUNICATION),
        .wait_ms = tutti__ledger_line_ms(l, TUTTI__TIME_WAIT),
        .stages_ms = s->pipeline ? tutti__ledger_line_ms(l, TUTTI__TIME_STAGES) : NAN,
        .data_ms = tutti__ledger_line_ms(l, TUTTI__TIME_DATA)};
    tutti__ledger_begin_line(l);
    p->log_loss = (tutti__mean){0, 0};
    p->log_images = p->log_seconds = 0;
    return line;
}

tutti_status tutti__run_line(tutti__train_run *run)
{
    TUTTI_TRY(run->kind->exchange(run));
    run->position.line = take_line(run);
    if (run->session.config->lr_find)
        run->position.finished |=
            tutti__lr_find_add(&run->lr_find, run->position.line.lr, run->position.line.loss);
    run->position.agree_due = run->session.parts->program;
    tutti__run_write_lines(run);
    TUTTI_TRY(tutti__run_check_folder(run));
    tutti__run_show(run, true);
    return TUTTI_OK;
}

void tutti__run_show(tutti__train_run *run, bool logged)
{
    const tutti__session *s = &run->session;
    const tutti__position *p = &run->position;
    const double left = (double)(run->plan.total_steps - p->at.step);
    const bool of_tokens = s->text.tokens > 0;
    const double each = of_tokens ? s->text.tokens : 1;
    tutti__progress_state state = {
        .epoch = p->at.epoch,
        .epochs = s->config->epochs,
        .step = p->at.step,
        .steps = run->plan.total_steps,
        .loss = p->shown_loss,
        .lr = (double)tutti_optim_lr(s->optim),
        .seconds_left = p->train_seconds / (double)p->at.step * left,
        .noun = of_tokens ? "tokens" : tutti__dataset_noun(s->data.train),
        .images_per_s = each * run->shown_images_per_s,
        .step_images = each * (double)(s->step.n_samples * (size_t)tutti__session_shares(s)),
        .step_seconds = run->step_seconds};

    if (isnan(p->shown_loss) && s->step.loss.n > 0)
        state.loss = s->step.loss.sum / s->step.loss.n;
    tutti__progress_step(&run->progress, &state, logged);
}

/* ---- An evaluation ---------------------------------------------------------------------------------------------- */

static bool show_count(void *user, size_t done, size_t total)
{
    tutti__train_run *run = user;

    tutti__bar_count(&run->progress.bar, "evaluation", tutti__dataset_noun(run->session.data.test),
                     done, total);
    return true;
}

/* In summary.json: of more classes the matrix is larger than all the rest. */
enum { CONFUSION_CLASSES = 50 };

static void keep_confusion(tutti__train_run *run, const tutti__tally *tally)
{
    json_decref(run->confusion);
    run->confusion = NULL;
    if (tally->confusion && tutti__tally_counted(tally) > 0)
        run->confusion = tutti__confusion_json(
            tally, tutti_dataset_describe(run->session.data.test).class_names);
}

/* Sets the position's results, unless a signal came. */
static tutti_status evaluate(tutti__train_run *run)
{
    tutti__position *p = &run->position;
    tutti__tick tick = {show_count, run};
    tutti__tally tally = {0};
    const tutti__train_task *task = &run->session.task;
    const bool confusion = task->positions > 0 && !task->kind->is_language_modeling &&
                           task->classes <= CONFUSION_CLASSES;
    tutti_status status =
        tutti__tally_new(&tally, task, run->session.parts->own.metrics, confusion);

    tutti__memory_trim(); /* of gradients, in place of which there are more samples at once */
    if (status == TUTTI_OK)
        status =
            tutti__evaluate(&run->session, &(tutti__evaluation){.tally = &tally, .tick = &tick});
    p->stop = run->session.stop.stopping ? run->session.stop.signal : 0;
    if (status == TUTTI_OK && !p->stop) {
        tutti__tally_scores(&tally, &p->scores);
        keep_confusion(run, &tally);
        if (run->session.mesh || tutti__run_has_folder(run))
            tutti__run_sample(run);
    }
    tutti__tally_free(&tally);
    return status;
}

/* Of the averages, which the module has meanwhile. A lost rank fails the evaluation, not the module. */
static tutti_status evaluate_average(tutti__train_run *run)
{
    tutti_ema *ema = run->session.ema;
    tutti_status status, swapped;
    char reason[2048];

    tutti__saving_copied(&run->saving); /* a checkpoint may be copying the parameters */
    TUTTI_TRY(tutti_ema_swap(ema));
    status = evaluate(run);
    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    swapped = tutti_ema_swap(ema);
    return status == TUTTI_OK ? swapped : tutti__fail_again(status, reason);
}

static void show_results(tutti__train_run *run)
{
    const tutti__position *p = &run->position;
    char scores[TUTTI__SCORES_TEXT];

    tutti__scores_text(&p->scores, run->session.parts->own.metrics, scores);
    tutti__progress_say(&run->progress, "epoch %lld/%lld  test loss %.4f%s", (long long)p->at.epoch,
                        (long long)run->session.config->epochs, p->scores.val_loss, scores);
}

tutti_status tutti__run_evaluate(tutti__train_run *run)
{
    tutti__position *p = &run->position;
    const uint64_t begin_ns = tutti__now_ns();

    if (run->session.shards == 0) /* else they are the same on all ranks */
        TUTTI_TRY(tutti_ddp_broadcast_buffers(run->session.ddp));
    TUTTI_TRY(run->session.ema ? evaluate_average(run) : evaluate(run));
    if (p->stop)
        return TUTTI_OK;
    tutti__record(run->trace.recorder, "step", "evaluate", (int64_t)p->at.step, TUTTI__THREAD_MAIN,
                  begin_ns, tutti__now_ns());
    tutti__ledger_add(&run->totals.ledger, TUTTI__TIME_EVALUATION,
                      (double)(tutti__now_ns() - begin_ns) * 1e-9);
    if (!isfinite(p->scores.val_loss))
        return tutti__fail(
            TUTTI_ERR_STATE,
            "the loss on the test set is %s after step %llu: training has diverged; lower "
            "the learning rate or set clip_grad_norm",
            isnan(p->scores.val_loss) ? "NaN" : "infinite", (unsigned long long)p->at.step);
    p->eval = p->scores;
    p->eval.epoch = p->at.epoch;
    p->eval.time_s = tutti__totals_seconds(&run->totals);
    p->eval.step = (int64_t)p->at.step;
    p->evaluated = p->at.step;
    p->agree_due = run->session.parts->program;
    tutti__best_note(run->session.config, &p->best, &p->eval);
    tutti__run_write_lines(run);
    TUTTI_TRY(tutti__run_check_folder(run));
    show_results(run);
    return TUTTI_OK;
}
