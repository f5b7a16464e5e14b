/* shards.c -- what a member of a run by shards does.   SPDX-License-Identifier: MIT
 *
 *   step -> a line, if one is due -> at the epoch's end an evaluation -> a checkpoint, if one is due -> step ...
 *
 * The next of these is a function of run->at and run->kept, which change on all ranks in the same way: when a step is
 * committed, or after the last collective of what comes between. So ranks that survive a death, or join, continue at the same
 * point. */
#include "data/loader.h"
#include "data/sampler.h"
#include "ddp/ddp.h"
#include "train/session/agree.h"
#include "train/run/members.h"
#include "train/machine/signals.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#define LOSS_PARTS 0x1p36

/* What may stop a run early, in order of severity; of several the last one counts. */
static const int64_t stops[] = {SIGHUP, SIGINT, SIGUSR1, SIGPIPE, SIGTERM, TUTTI__UNSAVED};
_Static_assert(TUTTI__COUNT_OF(stops) == TUTTI__N_COUNTERS - TUTTI__COUNT_SIGNALS,
               "a counter for each");

/* ---- A shard -------------------------------------------------------------------------------------------------- */

static size_t step_batches(const tutti__run *run)
{
    const size_t left = run->batches - (size_t)run->at.batch,
                 each = (size_t)run->config->grad_accumulation;

    return left < each ? left : each;
}

/* Requests the batches of this shard in the next step, which this rank will probably compute too. */
static void ask_ahead(tutti__run *run, int shard)
{
    const size_t next = (size_t)run->at.batch + step_batches(run);
    const bool over = next == run->batches;

    for (size_t k = 0; k < (size_t)run->config->grad_accumulation; k++)
        tutti_loader_ask(run->train_loader, over ? k : next + k, shard, over);
}

/* Requests batches for the first step in a group, by the ranges of shards for unknown speeds. */
static void ask_first(tutti__run *run)
{
    const int64_t size = run->size, shards = run->shards;

    for (int64_t v = run->rank * shards / size; v < (run->rank + 1) * shards / size; v++)
        for (size_t k = 0; k < step_batches(run); k++)
            tutti_loader_ask(run->train_loader, (size_t)run->at.batch + k, (int)v, 0);
}

static void seek(tutti__run *run)
{
    tutti__members *m = run->members;

    run->batches = tutti__plan_batches(run, run->at.start);
    if (m->sought && m->epoch == run->at.epoch && m->start == run->at.start)
        return;
    if (!m->sought)
        tutti_loader_forget(run->train_loader);
    tutti__loader_seek(run->train_loader, (uint64_t)run->at.epoch - 1, run->at.start, 0);
    if (!m->sought)
        ask_first(run);
    m->sought = true;
    m->epoch = run->at.epoch;
    m->start = run->at.start;
}

/* Adds the shard's mean loss, and the digest of its samples, which tutti__run_next_batch has summed batch by batch. */
static tutti_status count_shard(tutti__run *run, int64_t *counters)
{
    const double mean = run->local_loss.sum / run->local_loss.n;

    counters[TUTTI__COUNT_IMAGES] += (int64_t)run->local_images;
    if (run->local_loss.n == 0)
        return TUTTI_OK;
    if (fabs(mean) * run->shards >= 0x1p26)
        return tutti__fail(TUTTI_ERR_STATE,
                           "the loss is %g in step %llu, too large to be added up: training has "
                           "diverged; lower the learning rate or set clip_grad_norm",
                           mean, (unsigned long long)run->at.step + 1);
    counters[TUTTI__COUNT_LOSS] += llround(mean * LOSS_PARTS);
    counters[TUTTI__COUNT_FINITE] += (int64_t)run->local_loss.n;
    return TUTTI_OK;
}

static tutti_status compute(tutti__run *run, int shard)
{
    int64_t *counters = tutti_reducer_counters(tutti_ddp_reducer(run->ddp));
    const uint64_t begin_ns = tutti__now_ns();
    tutti_batch batch;
    double rest;

    run->shard = shard;
    run->local_loss = (tutti__mean){0, 0};
    run->local_images = 0;
    run->samples = (uint64_t *)counters + TUTTI__COUNT_SAMPLES;
    if (!tutti__run_next_batch(run, (size_t)run->at.batch, &batch))
        return tutti_loader_status(run->train_loader);
    ask_ahead(run, shard);
    TUTTI_TRY(tutti__run_accumulate(run, &batch, begin_ns, &rest));
    return count_shard(run, counters);
}

/* ---- A step --------------------------------------------------------------------------------------------------- */

static void note_signal(const tutti__run *run)
{
    int64_t *counters = tutti_reducer_counters(tutti_ddp_reducer(run->ddp));
    const int64_t signal = run->saving.failure == TUTTI_OK ? tutti__signals_seen() : TUTTI__UNSAVED;

    for (size_t i = 0; i < TUTTI__COUNT_OF(stops); i++)
        counters[TUTTI__COUNT_SIGNALS + i] = stops[i] == signal;
}

/* Adds all ranks' counters of this step to run->at and run->kept. */
static void add_counters(tutti__run *run)
{
    const int64_t *n = tutti_reducer_counters(tutti_ddp_reducer(run->ddp));
    const double images = (double)n[TUTTI__COUNT_IMAGES],
                 loss = (double)n[TUTTI__COUNT_LOSS] / LOSS_PARTS * images / run->shards;
    tutti__kept *k = &run->kept;

    run->step_samples = (size_t)n[TUTTI__COUNT_IMAGES] / (size_t)run->shards;
    run->at.images += images;
    run->at.log_images += images;
    run->at.log_loss.sum += loss;
    run->at.log_loss.n += (double)n[TUTTI__COUNT_FINITE];
    run->at.epoch_loss.sum += loss;
    run->at.epoch_loss.n += (double)n[TUTTI__COUNT_FINITE];
    for (int i = 0; i < 2; i++)
        k->samples[i] += (uint64_t)n[TUTTI__COUNT_SAMPLES + i];
    k->taken_over += n[TUTTI__COUNT_TAKEN_OVER];
    for (size_t i = 0; i < TUTTI__COUNT_OF(stops); i++)
        if (n[TUTTI__COUNT_SIGNALS + i] > 0)
            k->signalled = stops[i];
    run->signalled = k->signalled;
    run->stopping = k->signalled != 0;
}

/* Notes why an attempt failed, for the time that it cost. */
static void note_failure(tutti__run *run)
{
    snprintf(run->members->why, sizeof run->members->why, "%s", tutti_last_error());
}

/* Counts failed attempts since the last commit, and the time they took. */
static void count_lost(tutti__run *run)
{
    const tutti_elastic_stats now = tutti_elastic_get_stats(run->elastic);
    tutti_elastic_stats *before = &run->members->before;

    run->kept.attempts += (int64_t)(now.attempts - before->attempts);
    if (now.lost_s > before->lost_s)
        tutti__ledger_lose(&run->ledger, run->at.step, now.lost_s - before->lost_s,
                           run->members->why);
    *before = now;
}

static tutti_status commit(tutti__run *run, double rest, uint64_t begin_ns)
{
    const uint64_t next = run->at.step + 1;
    const size_t n = step_batches(run);
    double seconds;
    bool logged;

    add_counters(run);
    logged =
        next % (uint64_t)run->config->log_every == 0 || next == run->total_steps || run->stopping;
    TUTTI_TRY(tutti__run_scale(run, rest));
    TUTTI_TRY(tutti__run_update(run, logged, &run->kept.norm));
    seconds = tutti__run_count_step(run, begin_ns);
    run->at.batch += n;
    run->kept.forwards += n;
    if (run->at.batch == run->batches)
        run->at.epochs_done = run->at.epoch;
    if (logged)
        run->kept.line_due = next;
    count_lost(run);
    tutti_elastic_commit(run->elastic);
    tutti__logs_tensors(&run->logs, run->module, run->at.step, true);
    if (!logged)
        tutti__run_show(run, false, seconds);
    return tutti__run_profile_after(run, begin_ns);
}

/* The samples of the step's last batch relative to all: gradients are scaled by the last batch. The same for all shards. */
static double rest_of(const tutti__run *run)
{
    const tutti_sampler_opts sampler = {.count = tutti_dataset_describe(run->train_data).count,
                                        .world_size = run->shards,
                                        .start = run->at.start};
    const size_t each = (size_t)run->config->batch_size, length = tutti_sampler_length(&sampler),
                 first = (size_t)run->at.batch * each, end = first + step_batches(run) * each,
                 all = (end < length ? end : length) - first;

    return (double)(all - (step_batches(run) - 1) * each) / (double)all;
}

static tutti_status take_step(tutti__run *run, bool *over_p)
{
    const uint64_t begin_ns = tutti__now_ns();
    uint64_t taken_over;
    int shard;

    TUTTI_TRY(tutti__run_profile_before(run));
    *over_p = !tutti_elastic_begin(run->elastic);
    if (*over_p)
        return TUTTI_OK;
    seek(run);
    run->data_seconds = 0;
    taken_over = tutti_elastic_get_stats(run->elastic).taken_over;
    note_signal(run);
    while ((shard = tutti_elastic_shard(run->elastic)) >= 0)
        TUTTI_TRY(compute(run, shard));
    tutti_reducer_counters(tutti_ddp_reducer(run->ddp))[TUTTI__COUNT_TAKEN_OVER] =
        (int64_t)(tutti_elastic_get_stats(run->elastic).taken_over - taken_over);
    if (tutti_elastic_finish(run->elastic))
        return commit(run, rest_of(run), begin_ns);
    note_failure(run);
    return TUTTI_OK;
}

/* ---- Between steps -------------------------------------------------------------------------------------------- */

static tutti_status write_line(tutti__run *run)
{
    TUTTI_TRY(tutti__ledger_exchange(&run->ledger, run->group));
    run->kept.line = tutti__run_line(run, run->kept.norm);
    tutti__members_write_lines(run);
    tutti__run_show(run, true, 0);
    return TUTTI_OK;
}

static tutti_status evaluate(tutti__run *run)
{
    tutti_status status = tutti__run_evaluate(run);

    run->kept.signalled = run->stopping ? run->signalled : 0;
    if (status == TUTTI_OK)
        tutti__members_write_lines(run);
    return status;
}

/* Whether rank 0 still has the folder: if it was frozen, another rank may have taken it, and its group is dead. */
static bool has_folder(const tutti__run *run)
{
    return run->rank == 0 && tutti__run_lock_is_held(&run->folder.lock, run->folder.path);
}

/* Rank 0 saves if a checkpoint is `wanted`; with ZeRO the other ranks contribute their state. A failure that must end the run
 * reaches them in the next step, or at the end. */
static tutti_status save(tutti__run *run, bool wanted, int64_t epoch, size_t batch, bool finished)
{
    TUTTI_TRY(tutti__run_checkpoint_gather(run, &wanted));
    if (wanted && has_folder(run) &&
        tutti__run_checkpoint_alone(run, epoch, batch, finished) != TUTTI_OK)
        tutti_log(TUTTI_LOG_DEBUG, "train", "%s", tutti_last_error());
    return TUTTI_OK;
}

static tutti_status save_epoch(tutti__run *run, bool end)
{
    int64_t epoch;
    size_t batch;

    if (!tutti__run_epoch_is_due(run, end, &epoch, &batch))
        return TUTTI_OK;
    TUTTI_TRY(save(run, run->members->saved_epoch != run->at.epoch, epoch, batch, end));
    if (has_folder(run))
        run->members->saved_epoch = run->at.epoch;
    return TUTTI_OK;
}

static tutti_status finish(tutti__run *run)
{
    tutti_status status = TUTTI_OK;

    tutti__progress_clear(&run->progress);
    if (run->stopping)
        TUTTI_TRY(save(run, run->saved_step != run->at.step || run->signalled == TUTTI__UNSAVED,
                       run->at.epoch, (size_t)run->at.batch, false));
    if (run->rank == 0 && run->saving.failure != TUTTI_OK)
        status = tutti__fail_again(run->saving.failure, run->saving.unsaved);
    TUTTI_TRY(tutti__members_agree(run, status));
    TUTTI_TRY(tutti__members_agree(run, tutti_ddp_check_replicas(run->ddp)));
    TUTTI_TRY(tutti__members_agree(run, run->rank == 0 ? tutti__samples_audit(run) : TUTTI_OK));
    TUTTI_TRY(
        tutti__members_agree(run, has_folder(run) ? tutti__run_write_results(run) : TUTTI_OK));
    run->kept.ended = true;
    return TUTTI_OK;
}

static void begin_epoch(tutti__run *run)
{
    run->at.epoch++;
    run->at.start = run->at.batch = 0;
    run->at.epoch_loss = (tutti__mean){0, 0};
}

/* *over_p: this process has finished, or must end. */
static tutti_status do_next(tutti__run *run, bool *over_p)
{
    const tutti__kept *k = &run->kept;
    const bool end = run->at.step >= run->total_steps;
    bool whole;

    run->batches = tutti__plan_batches(run, run->at.start);
    whole = run->at.batch >= run->batches;
    *over_p = k->ended || k->complete;
    if (*over_p)
        return TUTTI_OK;
    if (k->line_due > (uint64_t)k->line.step)
        return write_line(run);
    if (run->stopping || k->finished)
        return finish(run);
    if (whole || end) {
        if (run->test_data && (uint64_t)k->eval.step < run->at.step &&
            (end || run->at.epoch % run->config->eval_every == 0))
            return evaluate(run);
        TUTTI_TRY(save_epoch(run, end));
        if (end)
            return finish(run);
        begin_epoch(run);
    } else if (tutti__run_checkpoint_is_due(run)) {
        TUTTI_TRY(save(run, run->saved_step != run->at.step, run->at.epoch, (size_t)run->at.batch,
                       false));
    }
    return take_step(run, over_p);
}

static void welcome(tutti__run *run)
{
    if (run->members->welcomed)
        return;
    run->members->welcomed = true;
    if (!run->kept.complete)
        tutti__run_say_beginning(run);
    tutti__run_watch_signals(run);
}

static tutti_status work(tutti__run *run)
{
    tutti_status status = TUTTI_OK;
    bool over = false;

    while (!over) {
        status = tutti_elastic_join(run->elastic);
        if (status != TUTTI_OK)
            return tutti_elastic_left(run->elastic) ? TUTTI_OK : status;
        welcome(run);
        status = do_next(run, &over);
        if (status == TUTTI_OK)
            continue;
        note_failure(run);
        if (!tutti_elastic_recover(run->elastic, status))
            return tutti__fail_again(status, run->members->why);
    }
    return tutti_elastic_end(run->elastic);
}

tutti_status tutti__members_work(tutti__run *run)
{
    const tutti_status status = work(run);

    tutti__progress_clear(&run->progress);
    if (status != TUTTI_OK && !run->told)
        tutti__members_say(run, status);
    if (status == TUTTI_OK && tutti_elastic_left(run->elastic))
        tutti_log(TUTTI_LOG_INFO, "train", "left the run after step %llu, as requested",
                  (unsigned long long)run->at.step);
    return status;
}
