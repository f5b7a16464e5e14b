/* loop.c -- epochs and steps, and their counts.   SPDX-License-Identifier: MIT
 *
 *   batch -> forward -> loss -> backward (buckets are reduced meanwhile) -> clip -> optimizer
 *
 * An optimizer step may take several batches (grad_accumulation): all but the last only accumulate. Ranks decide together when
 * to stop: each contributes whether it got a signal at the start of a step, and all know the result at its end, because the
 * reduction of that one number precedes the gradients' first bucket. */
#include "comm/comm.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "device/flat.h"
#include "ddp/ddp.h"
#include "train/session/agree.h"
#include "train/session/amp.h"
#include "train/run/run.h"
#include "train/machine/signals.h"
#include "train/metrics/trace.h"

#include <math.h>
#include <stdio.h>

/* Records a span of this step on the main thread, from begin_ns until now. */
static void mark(tutti__run *run, const char *name, uint64_t begin_ns)
{
    tutti__record(run->recorder, "step", name, (int64_t)run->at.step + 1, TUTTI__THREAD_MAIN,
                  begin_ns, tutti__now_ns());
}

/* The epoch's batch `index`, or by rank the next one. Waiting for it is a range in the device's profiler, as are forward,
 * backward and optimizer. */
bool tutti__run_next_batch(tutti__run *run, size_t index, tutti_batch *batch)
{
    bool more;

    tutti__range_begin(tutti_ctx_stream(run->cx), "data");
    more = run->shards > 0 ? tutti_loader_take(run->train_loader, index, run->shard, batch)
                           : tutti_loader_next(run->train_loader, batch);
    tutti__range_end(tutti_ctx_stream(run->cx));
    if (more && run->samples)
        tutti__samples_digest_add(run->samples, run->at.step + 1, batch->samples, batch->n);
    return more;
}

static tutti_status exchange_sums(tutti__run *run)
{
    double sums[3] = {run->local_loss.sum, run->local_loss.n, run->local_images};

    TUTTI_TRY(tutti_all_reduce(run->group, TUTTI_BUF(sums, 3, TUTTI_F64), TUTTI_SUM, NULL));
    run->local_loss = (tutti__mean){0, 0};
    run->local_images = 0;
    run->at.log_loss.sum += sums[0];
    run->at.log_loss.n += sums[1];
    run->at.epoch_loss.sum += sums[0];
    run->at.epoch_loss.n += sums[1];
    run->at.log_images += sums[2];
    run->at.images += sums[2];
    return tutti__ledger_exchange(&run->ledger, run->group);
}

/* NaN and infinity are found on the rank that computes them. */
static tutti_status take_loss(tutti__run *run, size_t n)
{
    double value;

    TUTTI_TRY(tutti__loss_get(&run->loss, &value));
    /* its gradients are not finite either: the scaler skips the step */
    if (!isfinite(value) && run->scaler)
        return TUTTI_OK;
    if (!isfinite(value))
        return tutti__fail(
            TUTTI_ERR_STATE,
            "the loss is %s in step %llu: training has diverged, or the weights or data hold "
            "such values; lower the learning rate or set clip_grad_norm",
            isnan(value) ? "NaN" : "infinite", (unsigned long long)run->at.step + 1);
    run->local_loss.sum += value * (double)n;
    run->local_loss.n += (double)n;
    return TUTTI_OK;
}

tutti_status tutti__run_forward(const tutti__run *run, tutti_array x, tutti_tensor **output_p)
{
    *output_p = tutti_model_forward(run->model, tutti_input(run->cx, x));
    return *output_p ? TUTTI_OK
                     : tutti__fail(TUTTI_ERR_ARG,
                                   "model %s: its forward function returned NULL; expected a "
                                   "tensor",
                                   run->config->model);
}

tutti_status tutti__run_loss(const tutti__run *run, tutti_tensor *output, tutti_array y,
                             tutti_tensor **loss_p)
{
    const tutti_trainer_opts *own = &run->parts->own;
    const tutti_cross_entropy_opts opts = {.label_smoothing = (float)run->config->label_smoothing};
    const tutti_dataset *data = run->train_data ? run->train_data : run->test_data;
    tutti_tensor *target = tutti_input(run->cx, y);

    if (own->loss)
        *loss_p = own->loss(own->self, output, target);
    else if (tutti_dataset_describe(data).classes == 0)
        *loss_p = tutti_mse_loss(output, target);
    else
        *loss_p = tutti_cross_entropy_with(output, target, &opts);
    return *loss_p ? TUTTI_OK
                   : tutti__fail(TUTTI_ERR_ARG, "the program's loss function returned NULL; "
                                                "expected a scalar tensor");
}

/* After the first forward pass, in which a model's mistakes show, on all ranks alike: one message, and no rank waits in a
 * collective of backward. Not where the ranks' forward passes wait for each other, or ranks take different numbers of shards. */
static tutti_status agree_on_forward(tutti__run *run, tutti_status status)
{
    if (run->forward_agreed || run->shards > 0 || run->config->sync_bn)
        return status;
    run->forward_agreed = true;
    status = tutti__fail_together(run->group, status);
    run->told = status != TUTTI_OK;
    return status;
}

/* Forward and backward of one batch; averages over ranks if it is the last of its optimizer step. */
static tutti_status train_batch(tutti__run *run, const tutti_batch *batch, bool last)
{
    const tutti_stream *stream = tutti_ctx_stream(run->cx);
    const bool on_host = tutti__on_host(stream);
    uint64_t t = tutti__now_ns();
    tutti_tensor *loss = NULL, *logits;
    tutti_status status;

    if (last)
        tutti_ddp_resume(run->ddp);
    else
        tutti_ddp_pause(run->ddp);
    tutti__range_begin(stream, "forward");
    tutti_step_begin(run->cx, &(tutti_step_opts){.autocast = tutti__amp_dtype(run)});
    status = tutti__run_forward(run, batch->x, &logits);
    if (status == TUTTI_OK)
        status = tutti__run_loss(run, logits, batch->y, &loss);
    tutti__range_end(stream);
    mark(run, "forward", t);
    run->local_images += (double)batch->n;
    if (status == TUTTI_OK)
        status = tutti__loss_ask(&run->loss, loss);
    if (status == TUTTI_OK && on_host) /* before it reaches all ranks' gradients */
        status = take_loss(run, batch->n);
    status = agree_on_forward(run, status);
    tutti__range_begin(stream, "backward");
    if (status == TUTTI_OK)
        status = tutti_backward(run->scaler ? tutti_scaler_scale(run->scaler, loss)
                                            : loss); /* records its own span */
    tutti__range_end(stream);
    if (status == TUTTI_OK && !on_host) /* later, so that the device was not kept waiting */
        status = take_loss(run, batch->n);
    tutti_step_end(run->cx);
    return status;
}

tutti_status tutti__run_scale(tutti__run *run, double factor)
{
    tutti_flat flat;
    tutti_stream *stream;

    if (factor == 1)
        return TUTTI_OK;
    TUTTI_TRY(tutti_module_flat(run->module, &flat));
    stream = tutti_ctx_stream(run->cx);
    return stream->ops->flat->scale(stream, flat.gradients, flat.n, (float)factor);
}

tutti_status tutti__run_update(tutti__run *run, bool wants_norm, double *norm_p)
{
    float norm = 0, clip = (float)run->config->clip_grad_norm;
    const tutti_stream *stream = tutti_ctx_stream(run->cx);
    uint64_t t = tutti__now_ns();
    tutti_status status;

    tutti__run_checkpoint_copied(run);
    tutti_optim_set_lr(run->optim,
                       tutti_schedule_lr(&run->schedule, tutti__plan_schedule_step(run)));
    tutti__range_begin(stream, "optimizer");
    status = tutti__amp_update(run, clip, wants_norm || clip > 0 ? &norm : NULL);
    tutti__range_end(stream);
    TUTTI_TRY(status);
    *norm_p = (double)norm;
    mark(run, "optimizer", t);
    return TUTTI_OK;
}

/* ---- After a step ---- */

tutti__step_metrics tutti__run_line(tutti__run *run, double norm)
{
    const tutti__ledger *l = &run->ledger;
    tutti__step_metrics line;

    tutti__gpus_listen(&run->gpus, 0);
    run->at.shown_loss = run->at.log_loss.sum / run->at.log_loss.n;
    run->shown_images_per_s = run->at.log_images / run->at.log_seconds;
    line = (tutti__step_metrics){
        .step = (int64_t)run->at.step,
        .epoch = run->at.epoch,
        .loss = run->at.shown_loss,
        .lr = (double)tutti_optim_lr(run->optim),
        .grad_norm = norm,
        .loss_scale = run->scaler ? (double)tutti_scaler_get_scale(run->scaler) : NAN,
        .images_per_s = run->shown_images_per_s,
        .time_s = tutti__run_seconds(run),
        .compute_ms = tutti__ledger_line_ms(l, TUTTI__TIME_COMPUTE),
        .communication_ms = tutti__ledger_line_ms(l, TUTTI__TIME_COMMUNICATION),
        .wait_ms = tutti__ledger_line_ms(l, TUTTI__TIME_WAIT),
        .data_ms = tutti__ledger_line_ms(l, TUTTI__TIME_DATA)};
    tutti__ledger_begin_line(&run->ledger);
    run->at.log_loss = (tutti__mean){0, 0};
    run->at.log_images = run->at.log_seconds = 0;
    return line;
}

void tutti__run_tell_step(const tutti__run *run, const tutti__step_metrics *line)
{
    const tutti_trainer_opts *own = &run->parts->own;

    if (run->rank == 0 && own->on_step)
        own->on_step(own->self, &(tutti_trainer_step){.step = (uint64_t)line->step,
                                                      .epoch = line->epoch,
                                                      .loss = line->loss,
                                                      .lr = line->lr,
                                                      .grad_norm = line->grad_norm,
                                                      .images_per_s = line->images_per_s,
                                                      .seconds = line->time_s});
}

static tutti_status log_step(tutti__run *run, double norm)
{
    tutti__step_metrics line;

    TUTTI_TRY(exchange_sums(run));
    line = tutti__run_line(run, norm);
    tutti__logs_step(&run->logs, &line);
    tutti__run_tell_step(run, &line);
    return TUTTI_OK;
}

void tutti__run_show(tutti__run *run, bool logged, double seconds)
{
    tutti__progress_state s = {.epoch = run->at.epoch,
                               .epochs = run->config->epochs,
                               .step = run->at.step,
                               .steps = run->total_steps,
                               .loss = run->at.shown_loss,
                               .lr = (double)tutti_optim_lr(run->optim),
                               .noun = tutti__dataset_noun(run->train_data),
                               .images_per_s = run->shown_images_per_s,
                               .step_images =
                                   (double)(run->step_samples * (size_t)tutti__run_shares(run)),
                               .step_seconds = seconds};

    if (isnan(run->at.shown_loss) && run->local_loss.n > 0)
        s.loss = run->local_loss.sum / run->local_loss.n;
    s.seconds_left =
        run->at.train_seconds / (double)run->at.step * (double)(run->total_steps - run->at.step);
    tutti__progress_step(&run->progress, &s, logged);
}

double tutti__run_count_step(tutti__run *run, uint64_t begin_ns)
{
    double seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;

    seconds -= run->saving.step_stall_s; /* counted in the ledger */
    run->at.step++;
    run->at.train_seconds += seconds;
    run->at.log_seconds += seconds;
    tutti__ledger_step(&run->ledger, seconds, run->data_seconds,
                       tutti__ddp_exposed_seconds(run->ddp));
    return seconds;
}

static tutti_status end_step(tutti__run *run, double norm, bool logged, uint64_t begin_ns)
{
    const double seconds = tutti__run_count_step(run, begin_ns);

    if (logged)
        TUTTI_TRY(log_step(run, norm));
    tutti__logs_tensors(&run->logs, run->module, run->at.step, !run->zero);
    tutti__run_show(run, logged, seconds);
    return tutti__run_profile_after(run, begin_ns);
}

/* ---- One optimizer step ---- */

/* The accumulated gradient is scaled by the current batch's size, which may be the epoch's smaller last one. */
tutti_status tutti__run_accumulate(tutti__run *run, tutti_batch *batch, uint64_t t, double *rest_p)
{
    size_t total = 0;
    bool last = false;

    tutti_optim_zero_grad(run->optim);
    for (int64_t k = 1; !last; k++) {
        size_t n = batch->n;

        mark(run, "data", t);
        run->data_seconds += (double)(tutti__now_ns() - t) * 1e-9;
        run->n_taken = batch->index + 1;
        last = k == run->config->grad_accumulation || batch->index + 1 == run->batches;
        total += n;
        TUTTI_TRY(train_batch(run, batch, last));
        t = tutti__now_ns();
        if (last)
            *rest_p = (double)n / (double)total;
        else if (!tutti__run_next_batch(run, batch->index + 1, batch))
            return tutti_loader_status(run->train_loader);
        else
            TUTTI_TRY(tutti__run_scale(run, (double)n / (double)batch->n));
    }
    run->step_samples = total;
    return TUTTI_OK;
}

tutti_status tutti__run_gradients(tutti__run *run, tutti_batch *batch, uint64_t begin_ns)
{
    double rest;

    run->data_seconds = 0;
    TUTTI_TRY(tutti__run_accumulate(run, batch, begin_ns, &rest));
    return tutti__run_scale(run, rest);
}

tutti_status tutti__run_ask_to_stop(tutti__run *run)
{
    tutti_status status;

    run->signalled = run->saving.failure == TUTTI_OK ? tutti__signals_seen() : TUTTI__UNSAVED;
    tutti__group_hold(run->group, true); /* begun together with the gradients' first bucket */
    status = tutti_all_reduce(run->group, TUTTI_BUF(&run->signalled, 1, TUTTI_I64), TUTTI_MAX,
                              &run->signal_work);
    tutti__group_hold(run->group, false);
    return status;
}

tutti_status tutti__run_hear_of_stop(tutti__run *run)
{
    tutti_work *work = run->signal_work;

    run->signal_work = NULL;
    TUTTI_TRY(tutti_work_wait(work));
    run->stopping = run->signalled != 0;
    return TUTTI_OK;
}

/* False in *more_p: the epoch has no batch left. */
static tutti_status train_step(tutti__run *run, bool *more_p)
{
    uint64_t begin_ns;
    bool logged = (run->at.step + 1) % (uint64_t)run->config->log_every == 0 ||
                  run->at.step + 1 == run->total_steps;
    tutti_batch batch;
    double norm = 0;

    TUTTI_TRY(tutti__run_profile_before(run));
    begin_ns = tutti__now_ns();
    *more_p = tutti__run_next_batch(run, 0, &batch);
    if (!*more_p)
        return tutti_loader_status(run->train_loader);
    TUTTI_TRY(tutti__run_ask_to_stop(run));
    TUTTI_TRY(tutti__run_gradients(run, &batch, begin_ns));
    run->at.batch = run->n_taken;
    TUTTI_TRY(tutti__run_hear_of_stop(run));
    TUTTI_TRY(tutti__run_update(run, logged || run->stopping, &norm));
    return end_step(run, norm, logged || run->stopping, begin_ns);
}

/* ---- Epochs ---- */

bool tutti__run_checkpoint_is_due(const tutti__run *run)
{
    const uint64_t every = (uint64_t)run->config->checkpoint_every;

    return every > 0 && run->at.step % every == 0 && !run->stopping &&
           run->at.step < run->total_steps && run->at.batch < run->batches;
}

bool tutti__run_epoch_is_due(const tutti__run *run, bool end, int64_t *epoch_p, size_t *batch_p)
{
    const uint64_t every = (uint64_t)run->config->checkpoint_every;
    const bool whole = run->at.batch == run->batches;

    *epoch_p = whole ? run->at.epoch + 1 : run->at.epoch;
    *batch_p = whole ? 0 : (size_t)run->at.batch;
    return end || every == 0 || run->at.step % every == 0;
}

static tutti_status checkpoint(tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    TUTTI_TRY(exchange_sums(run)); /* a checkpoint must have all ranks' sums */
    return tutti__run_checkpoint(run, epoch, batch, finished);
}

/* Trains from batch run->at.batch on. */
static tutti_status train_epoch(tutti__run *run)
{
    bool more = true;

    run->batches = tutti__plan_batches(run, run->at.start);
    tutti__loader_seek(run->train_loader, (uint64_t)run->at.epoch - 1, run->at.start,
                       run->at.batch);
    if (run->at.batch == 0 && run->at.start == 0)
        run->at.epoch_loss = (tutti__mean){0, 0};
    while (more && !run->stopping && run->at.step < run->total_steps) {
        TUTTI_TRY(train_step(run, &more));
        if (more && tutti__run_checkpoint_is_due(run))
            TUTTI_TRY(checkpoint(run, run->at.epoch, run->at.batch, false));
    }
    if (run->at.batch == run->batches)
        run->at.epochs_done = run->at.epoch;
    return exchange_sums(run);
}

/* The checkpoint after an epoch, or after the last steps, and their evaluation. */
static tutti_status save_epoch(tutti__run *run, bool end)
{
    int64_t epoch;
    size_t batch;

    return tutti__run_epoch_is_due(run, end, &epoch, &batch) ? checkpoint(run, epoch, batch, end)
                                                             : TUTTI_OK;
}

/* Stopped by a signal: saves a checkpoint, so that no step is lost. */
static tutti_status save_stopped(tutti__run *run)
{
    if (run->saved_step == run->at.step && run->signalled != TUTTI__UNSAVED)
        return TUTTI_OK;
    return checkpoint(run, run->at.epoch, run->at.batch, false);
}

tutti_status tutti__run_epochs(tutti__run *run)
{
    int64_t every = run->config->eval_every;

    for (;; run->at.epoch++, run->at.start = run->at.batch = 0) {
        bool end;

        TUTTI_TRY(train_epoch(run));
        end = run->at.step >= run->total_steps;
        if (run->test_data && !run->stopping && (end || run->at.epoch % every == 0))
            TUTTI_TRY(tutti__run_evaluate(run));
        if (run->stopping)
            return save_stopped(run);
        TUTTI_TRY(save_epoch(run, end));
        if (end)
            return TUTTI_OK;
    }
}
