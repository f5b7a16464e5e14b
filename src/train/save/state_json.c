/* state_json.c -- a run's state.json: its position, sums and keys.   SPDX-License-Identifier: MIT */
#include "train/save/saving.h"

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/state.h"
#include "data/sampler.h"
#include "nn/nn.h"

#include <math.h>
#include <stdlib.h>

/* JSON has no NaN. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *mean_json(const tutti__mean *mean)
{
    return json_pack("[f, f]", mean->sum, mean->n);
}

/* Results of the last evaluation that summary.json has beside val_loss and val_accuracy; the program's in their order. */
static json_t *scores_json(const tutti__eval_metrics *scores)
{
    json_t *o = json_object(), *own = json_array();

    for (size_t i = 0; i < tutti__eval_table.n; i++) {
        const tutti__metric_row *row = &tutti__eval_table.rows[i];

        if (row->type == TUTTI__METRIC_SOME && isfinite(tutti__metric_number(row, scores)))
            (void)json_object_set_new(o, row->name, json_real(tutti__metric_number(row, scores)));
    }
    for (size_t i = 0; i < TUTTI__OWN_METRICS; i++)
        (void)json_array_append_new(own, real(scores->own[i]));
    (void)json_object_set_new(o, "own", own);
    return o;
}

/* The sums with which summary and metrics continue. */
static json_t *sums_json(const tutti__saving *s)
{
    const tutti__position *p = s->position;
    const tutti_traffic traffic = tutti__totals_traffic(s->totals, s->session->ddp);

    return json_pack(
        "{s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "unix_s",
        tutti__wall_seconds(), "time", tutti__ledger_json(&s->totals->ledger), "val_loss",
        real(p->scores.val_loss), "log_loss", mean_json(&p->log_loss), "epoch_loss",
        mean_json(&p->epoch_loss), "shown_loss", real(p->shown_loss), "val_accuracy",
        real(p->scores.val_accuracy), "train_seconds", p->train_seconds, "log_seconds",
        p->log_seconds, "images", p->images, "log_images", p->log_images, "seconds",
        tutti__totals_seconds(s->totals), "gradient_bytes", (json_int_t)traffic.gradient_bytes,
        "wire_bytes", (json_int_t)traffic.wire_bytes, "scores", scores_json(&p->scores));
}

/* The best evaluation; null without one. */
static json_t *best_json(const tutti__saving *s)
{
    const tutti__best *best = &s->position->best;

    if (best->step == 0)
        return json_null();
    return json_pack("{s:s, s:f, s:I, s:I}", "metric", tutti__monitor_of(s->session->config).name,
                     "value", best->value, "step", (json_int_t)best->step, "since",
                     (json_int_t)best->since);
}

/* What a run by shards has in addition. */
static tutti_status add_shards(const tutti__saving *s, json_t *state)
{
    const struct tutti_root *root = s->session->module->root;
    const tutti__shared_position *k = &s->position->shared;
    const tutti__run_cursor *from = &k->from;
    char digest[33];
    int failed = tutti__state_set_ranges(state, root->ranges, root->n_ranges);

    tutti__samples_digest_text(k->samples, digest);
    failed |= json_object_set_new(
        state, "members",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "now", (json_int_t)k->workers, "lost",
                  (json_int_t)k->lost, "joined", (json_int_t)k->joined, "left", (json_int_t)k->left,
                  "attempts", (json_int_t)k->attempts, "taken_over", (json_int_t)k->taken_over));
    failed |= json_object_set_new(state, "samples_digest", json_string(digest));
    failed |=
        json_object_set_new(state, "samples_from",
                            json_pack("{s:I, s:I, s:I, s:I}", "step", (json_int_t)from->step,
                                      "epoch", (json_int_t)from->epoch, "start",
                                      (json_int_t)from->start, "batch", (json_int_t)from->batch));
    return failed ? TUTTI_ERR_MEMORY : TUTTI_OK;
}

/* What the training data taught, which eval and predict use: the columns, scale and classes of a table. */
static tutti_status add_fit(const tutti__session *session, json_t *state)
{
    const char *fit = tutti_dataset_fitted(session->data.train);

    if (!fit)
        return TUTTI_OK;
    return json_object_set_new(state, "data", json_loads(fit, 0, NULL)) == 0 ? TUTTI_OK
                                                                             : TUTTI_ERR_MEMORY;
}

/* The scaler's state; null without one. */
static json_t *scaler_json(const tutti__saving *s)
{
    json_t *o = tutti__scaler_json(s->session->scaler);

    if (json_is_object(o) &&
        json_object_set_new(o, "skipped_steps",
                            json_integer((json_int_t)s->position->skipped_steps)) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *tutti__state_json(const tutti__saving *s)
{
    const tutti__position *p = s->position;
    const tutti__session *session = s->session;
    const tutti__run_cursor at = tutti__plan_saves_at(s->plan, p);
    char *keys = tutti__config_json(session->config);
    json_t *state = json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:i, s:i, s:I, s:I, s:I, s:o, s:o, s:o, "
        "s:o, "
        "s:o, s:s?}",
        "format", 1, "step", (json_int_t)p->at.step, "evaluated", (json_int_t)p->evaluated, "epoch",
        (json_int_t)at.epoch, "start", (json_int_t)at.start, "batch", (json_int_t)at.batch,
        "samples", (json_int_t)tutti__plan_samples(s->plan, &at, s->plan->shares), "train_images",
        (json_int_t)s->plan->count, "finished", (int)tutti__plan_finishes(s->plan, p), "world_size",
        session->size, "shards", session->shards, "seed", (json_int_t)session->config->seed,
        "epochs_done", (json_int_t)p->epochs_done, "forwards",
        (json_int_t)(session->shards > 0 ? p->shared.forwards : tutti_ctx_step(session->cx)),
        "scaler", scaler_json(s), "ema", tutti__ema_json(session->ema), "sums", sums_json(s),
        "config", keys ? json_loads(keys, 0, NULL) : NULL, "best", best_json(s), "stopped",
        p->stopped ? p->stop_why : NULL);

    free(keys);
    if (state && session->shards == 0 && s->plan->shares != session->size &&
        json_object_set_new(state, "data_ranks", json_integer(s->plan->shares)) != 0) {
        json_decref(state);
        state = NULL;
    }
    if (state && add_fit(session, state) != TUTTI_OK) {
        json_decref(state);
        state = NULL;
    }
    if (state && session->shards > 0 && add_shards(s, state) != TUTTI_OK) {
        json_decref(state);
        state = NULL;
    }
    if (!state)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    return state;
}
