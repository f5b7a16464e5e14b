/* train_step.c -- the two halves of an optimizer step: its gradients, and the update.   SPDX-License-Identifier: MIT
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
#include "ddp/ddp.h"
#include "optim/optim.h"
#include "tensor/tensor.h"
#include "train/machine/signals.h"
#include "train/output/trace.h"
#include "train/config/agreement.h"
#include "train/session/amp.h"
#include "train/session/digests.h"
#include "train/session/session.h"

#include <math.h>
#include <string.h>

/* Records a span of this step on the main thread, from begin_ns until now. */
static void mark(tutti__session *s, const char *name, uint64_t begin_ns)
{
    tutti__record(s->cx->recorder, "step", name, (int64_t)s->step.number, TUTTI__THREAD_MAIN,
                  begin_ns, tutti__now_ns());
}

/* The epoch's batch `index`, or by rank the next one. Waiting for it is a range in the device's profiler, as are forward,
 * backward and optimizer. */
bool tutti__session_next_batch(tutti__session *s, size_t index, tutti_batch *batch)
{
    bool more;

    tutti__range_begin(tutti_ctx_stream(s->cx), "data");
    more = s->shards > 0 ? tutti_loader_take(s->data.train_loader, index, s->step.shard, batch)
                         : tutti_loader_next(s->data.train_loader, batch);
    tutti__range_end(tutti_ctx_stream(s->cx));
    if (more && s->step.samples)
        tutti__samples_digest_add(s->step.samples, s->step.number, batch->samples, batch->n);
    if (more)
        tutti__digests_batch(s, batch);
    return more;
}

tutti_status tutti__session_take_loss(tutti__session *s, size_t n)
{
    double value;

    TUTTI_TRY(tutti__loss_get(&s->loss, &value));
    /* its gradients are not finite either: the scaler skips the step */
    if (!isfinite(value) && s->scaler && !s->config->lr_find)
        return TUTTI_OK;
    if (!isfinite(value) && !s->config->lr_find) /* whose end it is */
        return tutti__fail(
            TUTTI_ERR_STATE,
            "the loss is %s in step %llu: training has diverged, or the weights or data hold "
            "such values; lower the learning rate or set clip_grad_norm",
            isnan(value) ? "NaN" : "infinite", (unsigned long long)s->step.number);
    s->step.loss.sum += value * (double)n;
    s->step.loss.n += (double)n;
    return TUTTI_OK;
}

tutti_status tutti__session_forward(const tutti__session *s, tutti_array x, tutti_tensor **output_p)
{
    *output_p = tutti_model_forward(s->model, tutti_input(s->cx, x));
    return *output_p ? TUTTI_OK
                     : tutti__fail(TUTTI_ERR_ARG,
                                   "model %s: its forward function returned NULL; expected a "
                                   "tensor",
                                   s->config->model);
}

tutti_status tutti__session_loss(const tutti__session *s, tutti_tensor *output, tutti_array y,
                                 tutti_tensor **loss_p)
{
    const tutti_trainer_opts *own = &s->parts->own;
    tutti_tensor *target = tutti_input(s->cx, y);
    const tutti_array weights = {s->loss_weights.value, TUTTI_SHAPE((int64_t)s->loss_weights.n),
                                 TUTTI_F32};
    const tutti__loss_terms terms = {.label_smoothing = (float)s->config->label_smoothing,
                                     .weight = s->loss_weights.value ? tutti_input(s->cx, weights)
                                                                     : NULL};

    if (own->loss)
        *loss_p = own->loss(own->self, output, target);
    else {
        TUTTI_TRY(tutti_tensor_status(output));
        TUTTI_TRY(tutti__task_check_output(&s->task, s->config->model, tutti_tensor_shape(output)));
        TUTTI_TRY(tutti__task_check_targets(&s->task, y.p, (size_t)y.shape.d[0]));
        *loss_p = tutti__task_loss(&s->task, output, target, &terms);
    }
    return *loss_p ? TUTTI_OK
                   : tutti__fail(TUTTI_ERR_ARG, "the program's loss function returned NULL; "
                                                "expected a scalar tensor");
}

static bool sums_losses(const tutti__session *s)
{
    return strcmp(s->config->loss_reduction, "sum") == 0;
}

/* Divided by the samples, a sum is averaged over batches and ranks as a mean is, has its size where ranges are limited (fp16, exact sums
 * of shards), and is multiplied when all is added up. */
tutti_tensor *tutti__session_objective(const tutti__session *s, tutti_tensor *loss, tutti_array y)
{
    const double each = sums_losses(s) ? tutti__task_divisor(&s->task, y, s->loss_weights.value) /
                                             (double)y.shape.d[0]
                                       : 1;

    if (each != 1)
        loss = tutti_scale(loss, (float)each);
    return s->scaler ? tutti_scaler_scale(s->scaler, loss) : loss;
}

/* After the first forward pass, in which a model's mistakes show, on all ranks alike: one message, and no rank waits in a
 * collective of backward. Not where the ranks' forward passes wait for each other, or ranks take different numbers of shards. */
static tutti_status agree_on_forward(tutti__session *s, tutti_status status)
{
    if (s->forward_agreed || s->shards > 0 || s->config->sync_bn || s->mesh)
        return status;
    s->forward_agreed = true;
    status = tutti__fail_together(s->group, status);
    s->reported = status != TUTTI_OK;
    return status;
}

/* Forward and backward of one batch; averages over ranks if it is the last of its optimizer step. */
static tutti_status train_batch(tutti__session *s, const tutti_batch *batch, bool last)
{
    const tutti_stream *stream = tutti_ctx_stream(s->cx);
    const bool on_host = tutti__on_host(stream);
    uint64_t t = tutti__now_ns();
    tutti_tensor *loss = NULL, *logits;
    tutti_status status;

    if (last)
        tutti_ddp_resume(s->ddp);
    else
        tutti_ddp_pause(s->ddp);
    tutti__range_begin(stream, "forward");
    tutti_step_begin(s->cx, &(tutti_step_opts){.autocast = tutti__amp_dtype(s)});
    status = tutti__session_forward(s, batch->x, &logits);
    if (status == TUTTI_OK)
        status = tutti__session_loss(s, logits, batch->y, &loss);
    tutti__digests_loss(s, loss);
    tutti__range_end(stream);
    mark(s, "forward", t);
    s->step.images += (double)batch->n;
    if (status == TUTTI_OK)
        status = tutti__loss_ask(&s->loss, loss);
    if (status == TUTTI_OK && on_host) /* before it reaches all ranks' gradients */
        status = tutti__session_take_loss(s, batch->n);
    status = agree_on_forward(s, status);
    tutti__range_begin(stream, "backward");
    if (status == TUTTI_OK)
        status =
            tutti_backward(tutti__session_objective(s, loss, batch->y)); /* records its own span */
    tutti__range_end(stream);
    if (status == TUTTI_OK && !on_host) /* later, so that the device was not kept waiting */
        status = tutti__session_take_loss(s, batch->n);
    tutti_step_end(s->cx);
    return status;
}

static tutti_status scale(tutti__session *s, double factor)
{
    return factor == 1 ? TUTTI_OK : tutti__scale_gradients(s->module, (float)factor);
}

tutti_status tutti__session_complete(tutti__session *s, double rest)
{
    const double samples = (double)s->step.n_samples * tutti__session_shares(s);

    return scale(s, sums_losses(s) ? rest * samples : rest);
}

tutti_status tutti__session_update(tutti__session *s, float lr, bool wants_norm,
                                   uint64_t *skipped_steps, double *norm_p)
{
    float norm = 0, clip = (float)s->config->clip_grad_norm;
    const tutti_stream *stream = tutti_ctx_stream(s->cx);
    uint64_t t = tutti__now_ns();
    tutti_status status;

    tutti_optim_set_lr(s->optim, lr);
    tutti__range_begin(stream, "optimizer");
    status = tutti__amp_update(s, clip, skipped_steps, wants_norm || clip > 0 ? &norm : NULL);
    if (status == TUTTI_OK && s->ema)
        status = tutti_ema_update(s->ema);
    tutti__range_end(stream);
    TUTTI_TRY(status);
    tutti__digests_end(s);
    *norm_p = (double)norm;
    mark(s, "optimizer", t);
    return TUTTI_OK;
}

/* ---- One optimizer step ---- */

/* The accumulated gradient is scaled by the current batch's size, which may be the epoch's smaller last one. */
tutti_status tutti__session_accumulate(tutti__session *s, tutti_batch *batch, uint64_t t,
                                       double *rest_p)
{
    size_t total = 0;
    bool last = false;

    tutti_optim_zero_grad(s->optim);
    for (int64_t k = 1; !last; k++) {
        size_t n = batch->n;

        mark(s, "data", t);
        s->step.data_seconds += (double)(tutti__now_ns() - t) * 1e-9;
        s->step.taken = batch->index + 1;
        last = k == s->config->grad_accumulation || batch->index + 1 == s->step.batches;
        total += n;
        TUTTI_TRY(train_batch(s, batch, last));
        t = tutti__now_ns();
        if (last)
            *rest_p = (double)n / (double)total;
        else if (!tutti__session_next_batch(s, batch->index + 1, batch))
            return tutti_loader_status(s->data.train_loader);
        else
            TUTTI_TRY(scale(s, (double)n / (double)batch->n));
    }
    s->step.n_samples = total;
    return TUTTI_OK;
}

tutti_status tutti__session_ask_to_stop(tutti__session *s)
{
    tutti_status status;

    s->stop.signal = s->stop.cannot_save ? TUTTI__UNSAVED : tutti__signals_seen();
    tutti__group_hold(s->group, true); /* begun together with the gradients' first bucket */
    status = tutti_all_reduce(s->group, TUTTI_BUF(&s->stop.signal, 1, TUTTI_I64), TUTTI_MAX,
                              &s->stop.work);
    tutti__group_hold(s->group, false);
    return status;
}

tutti_status tutti__session_hear_of_stop(tutti__session *s)
{
    tutti_work *work = s->stop.work;

    s->stop.work = NULL;
    TUTTI_TRY(tutti_work_wait(work));
    s->stop.stopping = s->stop.signal != 0;
    return TUTTI_OK;
}
