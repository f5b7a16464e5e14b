/* shard_step.c -- a run by shards: this rank computes as many shards of each step as it gets.   SPDX-License-Identifier: MIT */
#include "data/loader.h"
#include "data/sampler.h"
#include "ddp/ddp.h"
#include "elastic/settings.h"
#include "train/machine/signals.h"
#include "train/run/regroup.h"
#include "train/config/agreement.h"
#include "train/session/digests.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#define LOSS_PARTS 0x1p36

/* What may stop a run early, in order of severity; of several the last one counts. */
static const int64_t stops[] = {SIGHUP, SIGINT, SIGUSR1, SIGPIPE, SIGTERM, TUTTI__UNSAVED};
_Static_assert(TUTTI__COUNT_OF(stops) == TUTTI__N_COUNTERS - TUTTI__COUNT_SIGNALS,
               "a counter for each");

static int64_t *counters_of(const tutti__train_run *run)
{
    return tutti_reducer_counters(tutti_ddp_reducer(run->session.ddp));
}

/* ---- A shard -------------------------------------------------------------------------------------------------- */

/* Requests the batches of this shard in the next step, which this rank will probably compute too. */
static void ask_ahead(const tutti__train_run *run, int shard)
{
    const tutti__session *s = &run->session;
    const tutti__run_cursor *at = &run->position.at;
    const size_t next = at->batch + tutti__plan_step_batches(&run->plan, at);
    const bool over = next == s->step.batches;

    for (size_t k = 0; k < (size_t)s->config->grad_accumulation; k++)
        tutti_loader_ask(s->data.train_loader, over ? k : next + k, shard, over);
}

/* Requests batches for the first step in a group, by the ranges of shards for unknown speeds. */
static void ask_first(const tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    const tutti__run_cursor *at = &run->position.at;
    const int64_t size = s->size, shards = s->shards;
    const size_t n = tutti__plan_step_batches(&run->plan, at);

    for (int64_t v = s->rank * shards / size; v < (s->rank + 1) * shards / size; v++)
        for (size_t k = 0; k < n; k++)
            tutti_loader_ask(s->data.train_loader, at->batch + k, (int)v, 0);
}

static void seek(tutti__train_run *run)
{
    const bool anew = run->sought.epoch == 0;

    if (anew)
        tutti_loader_forget(run->session.data.train_loader);
    tutti__run_seek(run);
    if (anew)
        ask_first(run);
}

/* Adds the shard's mean loss. The digest of its samples was summed batch by batch. */
static void count_shard(const tutti__session *s, int64_t *counters)
{
    const double mean = s->step.loss.sum / s->step.loss.n;

    counters[TUTTI__COUNT_IMAGES] += (int64_t)s->step.images;
    if (s->step.loss.n == 0)
        return;
    if (fabs(mean) * s->shards >= 0x1p26) {
        counters[TUTTI__COUNT_DIVERGED]++;
        return;
    }
    counters[TUTTI__COUNT_LOSS] += llround(mean * LOSS_PARTS);
    counters[TUTTI__COUNT_FINITE] += (int64_t)s->step.loss.n;
}

/* When all ranks know it, and that no rank has computed it wrong. */
static tutti_status check_losses(const tutti__train_run *run)
{
    const long long n = (long long)counters_of(run)[TUTTI__COUNT_DIVERGED];

    if (n == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_STATE,
                       "the loss of %lld of %d shards is above %g in step %llu, too large to be "
                       "added up: training has diverged; lower the learning rate or set "
                       "clip_grad_norm",
                       n, run->session.shards, 0x1p26 / run->session.shards,
                       (unsigned long long)run->session.step.number);
}

static tutti_status compute(tutti__train_run *run, int shard)
{
    tutti__session *s = &run->session;
    int64_t *counters = counters_of(run);
    const uint64_t begin_ns = tutti__now_ns();
    tutti_batch batch;
    double rest;

    s->step.shard = shard;
    s->step.loss = (tutti__mean){0, 0};
    s->step.images = 0;
    tutti__digests_shard(s);
    s->step.samples = (uint64_t *)counters + TUTTI__COUNT_SAMPLES;
    if (!tutti__session_next_batch(s, run->position.at.batch, &batch))
        return tutti_loader_status(s->data.train_loader);
    if (!tutti__elastic_is_discarded(s->elastic))
        ask_ahead(run, shard);
    TUTTI_TRY(tutti__session_accumulate(s, &batch, begin_ns, &rest));
    count_shard(s, counters);
    return TUTTI_OK;
}

/* ---- A step --------------------------------------------------------------------------------------------------- */

static void count_signal(const tutti__train_run *run)
{
    int64_t *counters = counters_of(run);
    const int64_t signal = run->session.stop.cannot_save ? TUTTI__UNSAVED : tutti__signals_seen();

    for (size_t i = 0; i < TUTTI__COUNT_OF(stops); i++)
        counters[TUTTI__COUNT_SIGNALS + i] = stops[i] == signal;
}

/* Adds all ranks' counters of this step to the position. */
static void add_counters(tutti__train_run *run)
{
    const int64_t *n = counters_of(run);
    tutti__session *s = &run->session;
    tutti__position *p = &run->position;
    const double images = (double)n[TUTTI__COUNT_IMAGES],
                 loss = (double)n[TUTTI__COUNT_LOSS] / LOSS_PARTS * images / s->shards;

    s->step.n_samples = (size_t)n[TUTTI__COUNT_IMAGES] / (size_t)s->shards;
    s->step.mean_loss = loss / (double)n[TUTTI__COUNT_FINITE];
    p->images += images;
    p->log_images += images;
    p->log_loss.sum += loss;
    p->log_loss.n += (double)n[TUTTI__COUNT_FINITE];
    p->epoch_loss.sum += loss;
    p->epoch_loss.n += (double)n[TUTTI__COUNT_FINITE];
    for (int i = 0; i < 2; i++)
        p->shared.samples[i] += (uint64_t)n[TUTTI__COUNT_SAMPLES + i];
    p->shared.taken_over += n[TUTTI__COUNT_TAKEN_OVER];
    for (size_t i = 0; i < TUTTI__COUNT_OF(stops); i++)
        if (n[TUTTI__COUNT_SIGNALS + i] > 0)
            p->stop = stops[i];
    s->stop.signal = p->stop;
    s->stop.stopping = p->stop != 0;
}

/* Counts failed tries at steps since the last commit, and the time they took. */
static void count_lost(tutti__train_run *run)
{
    const tutti_elastic_stats now = tutti_elastic_get_stats(run->session.elastic);
    tutti_elastic_stats *before = &run->worker->before;

    run->position.shared.attempts += (int64_t)(now.attempts - before->attempts);
    if (now.lost_s > before->lost_s)
        tutti__ledger_lose(&run->totals.ledger, run->position.at.step, now.lost_s - before->lost_s,
                           run->worker->why);
    *before = now;
}

static tutti_status commit(tutti__train_run *run, double rest, uint64_t begin_ns)
{
    const size_t n = tutti__plan_step_batches(&run->plan, &run->position.at);
    tutti_status status;

    TUTTI_TRY(check_losses(run));
    run->worker->undo = run->position;
    add_counters(run);
    status = tutti__session_complete(&run->session, rest);
    if (status == TUTTI_OK)
        status = tutti__run_update(run);
    if (status != TUTTI_OK) {
        /* With copies of shares the update may not have begun, and the step is done again. */
        run->position = run->worker->undo;
        return status;
    }
    tutti__run_count_step(run, n, begin_ns);
    run->position.shared.forwards += n;
    count_lost(run);
    tutti_elastic_commit(run->session.elastic);
    if (tutti__zero_is_incomplete(run->session.ddp)) /* nothing may read the weights */
        return tutti_group_status(run->session.group);
    return tutti__run_end_step(run, begin_ns);
}

/* The samples of the step's last batch relative to all: gradients are scaled by the last batch. The same for all shards. */
static double rest_of(const tutti__train_run *run)
{
    const tutti__run_cursor *at = &run->position.at;
    const tutti_sampler_opts sampler = {
        .count = run->plan.count, .world_size = run->session.shards, .start = at->start};
    const size_t each = (size_t)run->session.config->batch_size,
                 batches = tutti__plan_step_batches(&run->plan, at),
                 length = tutti_sampler_length(&sampler), first = at->batch * each,
                 end = first + batches * each, all = (end < length ? end : length) - first;

    return (double)(all - (batches - 1) * each) / (double)all;
}

static tutti_status step(tutti__train_run *run, bool *over_p)
{
    tutti_elastic *e = run->session.elastic;
    const uint64_t begin_ns = tutti__now_ns();
    uint64_t taken_over;
    int shard;

    TUTTI_TRY(tutti__guard_begin(run));
    tutti__run_begin_step(run);
    TUTTI_TRY(tutti__run_trace_before(run));
    *over_p = !tutti_elastic_begin(e);
    if (*over_p)
        return TUTTI_OK;
    seek(run);
    taken_over = tutti_elastic_get_stats(e).taken_over;
    count_signal(run);
    while ((shard = tutti_elastic_shard(e)) >= 0)
        TUTTI_TRY(compute(run, shard));
    if (!tutti__elastic_is_discarded(e)) /* the update that follows is not this try's */
        TUTTI_TRY(tutti__guard_memory(run));
    counters_of(run)[TUTTI__COUNT_TAKEN_OVER] =
        (int64_t)(tutti_elastic_get_stats(e).taken_over - taken_over);
    if (tutti_elastic_finish(e))
        return commit(run, rest_of(run), begin_ns);
    tutti__worker_note_failure(run);
    tutti__guard_shards(run);
    return TUTTI_OK;
}

/* ---- Between steps -------------------------------------------------------------------------------------------- */

static tutti_status join(tutti__train_run *run, bool *over_p)
{
    const tutti_status status = tutti_elastic_join(run->session.elastic);

    *over_p = status != TUTTI_OK && tutti_elastic_left(run->session.elastic);
    if (status != TUTTI_OK)
        return *over_p ? TUTTI_OK : status;
    if (!run->worker->has_header) {
        run->worker->has_header = true;
        if (!run->position.complete)
            tutti__run_header(run);
        tutti__run_watch_signals(run);
    }
    return TUTTI_OK;
}

static tutti_status exchange(tutti__train_run *run)
{
    return tutti__ledger_exchange(&run->totals.ledger, run->session.group);
}

/* Whether rank 0 saves: unless it has. With ZeRO the other ranks write their parts. */
static tutti_status is_wanted(const tutti__train_run *run, bool epoch, bool *wanted_p)
{
    const tutti__position *p = &run->position;
    const tutti__elastic_worker *w = run->worker;
    int64_t wanted = tutti__run_has_folder(run) &&
                     (epoch ? w->saved_epoch != p->at.epoch : w->saved_step != p->at.step);

    if (run->session.zero)
        TUTTI_TRY(tutti_broadcast(run->session.group, TUTTI_BUF(&wanted, 1, TUTTI_I64), 0, NULL));
    *wanted_p = wanted != 0;
    return TUTTI_OK;
}

/* A failure that must end the run reaches the others in the next step, or at the end. */
static tutti_status save(tutti__train_run *run)
{
    const tutti__position *p = &run->position;
    tutti__elastic_worker *w = run->worker;
    const bool epoch = tutti__plan_saves_epoch(&run->plan, p);
    tutti_status status;
    bool wanted;

    TUTTI_TRY(is_wanted(run, epoch, &wanted));
    if (!wanted)
        return TUTTI_OK;
    status = tutti__saving_alone(&run->saving);
    if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP)
        return status;
    if (status != TUTTI_OK)
        tutti_log(TUTTI_LOG_DEBUG, "train", "%s", tutti_last_error());
    w->saved_step = p->at.step;
    if (epoch)
        w->saved_epoch = p->at.epoch;
    return TUTTI_OK;
}

static tutti_status check(tutti__train_run *run)
{
    TUTTI_TRY(tutti__worker_agree(run, tutti__guard_compare(run)));
    return tutti__worker_agree(run, run->session.rank == 0 ? tutti__samples_audit(run) : TUTTI_OK);
}

static bool recover(tutti__train_run *run, tutti_status status)
{
    tutti__worker_note_failure(run);
    if (run->guard.caught && run->guard.alone) /* the others go on without this process */
        (void)tutti_elastic_recover(run->session.elastic, status);
    else if (!run->guard.caught && tutti_elastic_recover(run->session.elastic, status))
        return true;
    tutti__fail_again(status, run->worker->why);
    return false;
}

const tutti__run_kind tutti__shard_run = {.open = tutti__worker_open,
                                          .work = tutti__worker_work,
                                          .join = join,
                                          .step = step,
                                          .exchange = exchange,
                                          .save = save,
                                          .agree = tutti__worker_agree,
                                          .check = check,
                                          .recover = recover};
