/* write_results.c -- the files at the end of a run: weights, summary.json.   SPDX-License-Identifier: MIT */
#include "data/sampler.h"
#include "train/forecast/footprint.h"
#include "train/run/run.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum { INHERIT_MS = 150 /* for rank 0 to end */ };

/* digests: receives the text of two. */
static void make_summary(const tutti__train_run *run, const char *status, char digests[2][33],
                         tutti__summary *s)
{
    tutti_traffic traffic = tutti__totals_traffic(&run->totals, run->session.ddp);
    /* Its digest takes all ranks, which a failed run does not have. */
    const bool divided = tutti__session_divides_model(&run->session);

    digests[0][0] = '\0';
    *s =
        (tutti__summary){.status = status,
                         .world_size = run->session.size,
                         .device = run->gpus.device.name,
                         .steps = (int64_t)run->position.at.step,
                         .epochs = run->position.epochs_done,
                         .train_loss = run->position.epoch_loss.sum / run->position.epoch_loss.n,
                         .images_per_s = run->position.images / run->position.train_seconds,
                         .seconds = tutti__totals_seconds(&run->totals),
                         .gradient_bytes = (int64_t)traffic.gradient_bytes,
                         .wire_bytes = (int64_t)traffic.wire_bytes,
                         .planned_memory = run->planned_memory,
                         .peak_memory = (int64_t)tutti__resident_now().most,
                         .best_step = (int64_t)run->position.best.step,
                         .best_value = run->position.best.step > 0 ? run->position.best.value : NAN,
                         .skipped_steps = (int64_t)run->position.skipped_steps,
                         .shards = run->session.shards,
                         .lost_workers = run->position.shared.lost,
                         .joined_workers = run->position.shared.joined,
                         .left_workers = run->position.shared.left,
                         .lost_attempts = run->position.shared.attempts,
                         .taken_over_shards = run->position.shared.taken_over};
    s->tokens_per_s = tutti__text_rate(&run->session.text, s->images_per_s);
    s->mfu = tutti__text_mfu(&run->session.text, run->session.size, s->tokens_per_s);
    tutti__summary_set_scores(s, &run->position.scores);
    if (run->session.shards > 0) {
        tutti__samples_digest_text(run->position.shared.samples, digests[1]);
        s->samples_digest = digests[1];
    }
    if (run->session.module && tutti_module_status(run->session.module) == TUTTI_OK) {
        s->parameters = tutti__session_n_parameters(&run->session);
        if (run->digests[0][0])
            strcpy(digests[0], run->digests[0]);
        else if (!divided)
            tutti_module_digest(run->session.module, digests[0]);
        s->parameter_digest = digests[0];
        if (!*digests[0] && !divided) /* the weights are complete all the same */
            tutti_log(TUTTI_LOG_WARN, "train", "summary.json lacks parameter_digest: %s",
                      tutti_last_error());
    }
}

static tutti_status write_summary(tutti__train_run *run, const tutti__summary *s)
{
    json_t *time = tutti__ledger_json(&run->totals.ledger);
    tutti_status status = tutti__run_folder_summary(&run->folder, s, time, run->confusion);

    json_decref(time);
    return status;
}

/* Which results could not be written, as sentences. */
typedef struct shortfall {
    char text[4096];
    size_t n;
} shortfall;

static void note(shortfall *notes, const char *format, ...) TUTTI_PRINTF(2, 3);
static void note(shortfall *notes, const char *format, ...)
{
    va_list args;

    if (notes->n > 0 && notes->n + 2 < sizeof notes->text)
        notes->n += (size_t)sprintf(notes->text + notes->n, "; ");
    va_start(args, format);
    vsnprintf(notes->text + notes->n, sizeof notes->text - notes->n, format, args);
    va_end(args);
    notes->n = strlen(notes->text);
}

/* Whether the module's values are saved as `name`. If there is no space for them, links the last checkpoint's file. */
static bool write_weights(tutti__train_run *run, const char *name, shortfall *notes)
{
    const bool saved = run->saving.n > 0 && !run->saving.unsaved[0];
    const tutti_status status = tutti__run_folder_weights(&run->folder, name, run->session.module);
    char reason[2048];

    if (status == TUTTI_OK)
        return true;
    if (saved && tutti__saving_make_room(&run->saving, status) &&
        tutti__run_folder_weights(&run->folder, name, run->session.module) == TUTTI_OK)
        return true;
    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    if (saved &&
        tutti__run_folder_link_weights(&run->folder, name, run->position.at.step) == TUTTI_OK) {
        tutti_log(TUTTI_LOG_WARN, "train", "%s: it shares the file of the last checkpoint", reason);
        return true;
    }
    if (saved)
        note(notes, "%s; the weights are in %s/checkpoints/step-%08llu/%s", reason,
             run->folder.path, (unsigned long long)run->position.at.step, name);
    else
        note(notes, "%s", reason);
    return saved;
}

/* Of a model of which no rank has all: whether it is saved, in the checkpoint of the last step, which may be the one that the run
 * came from. Its parts are linked into the run folder. */
static bool link_parts(tutti__train_run *run, const char *stem, shortfall *notes)
{
    const uint64_t step = run->position.at.step;

    if (run->saving.unsaved[0] || !tutti__run_folder_has_parts(&run->folder, stem, step)) {
        note(notes, "no rank has all of the weights, and they are not saved");
        return false;
    }
    if (tutti__run_folder_link_parts(&run->folder, stem, step) != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "train", "%s: the weights are in %s/checkpoints/step-%08llu",
                  tutti_last_error(), run->folder.path, (unsigned long long)step);
    return true;
}

static bool write_divided(tutti__train_run *run, shortfall *notes, char ema_digest[33])
{
    const bool kept = link_parts(run, "model", notes);

    strcpy(ema_digest, run->digests[1]);
    return (!run->session.ema || link_parts(run, "ema", notes)) && kept;
}

/* Of the averages: whether they are saved. ema_digest: "" if it is not known. */
static bool write_average(tutti__train_run *run, shortfall *notes, char ema_digest[33])
{
    tutti_ema *ema = run->session.ema;
    bool kept;

    ema_digest[0] = '\0';
    if (!ema)
        return true;
    if (tutti_ema_swap(ema) != TUTTI_OK) {
        note(notes, "ema.safetensors is not written: %s", tutti_last_error());
        return false;
    }
    kept = write_weights(run, "ema.safetensors", notes);
    tutti_module_digest(run->session.module, ema_digest);
    if (tutti_ema_swap(ema) == TUTTI_OK)
        return kept;
    note(notes, "%s", tutti_last_error());
    return false;
}

/* summary.json comes first, because lines missing from metrics.jsonl may take all remaining space. Missing lines do not make a
 * run fail. */
static tutti_status write_end(tutti__train_run *run, shortfall *notes, tutti__summary *summary,
                              const char *why)
{
    tutti__run_folder *folder = &run->folder;
    const size_t before = notes->n;
    tutti_status status;

    if (folder->n_pending > 0)
        note(notes, "metrics.jsonl lacks %zu bytes", folder->n_pending);
    summary->reason = notes->n > 0 ? notes->text : why;
    status = write_summary(run, summary);
    if (status != TUTTI_OK && !run->saving.unsaved[0] &&
        tutti__saving_make_room(&run->saving, status))
        status = write_summary(run, summary);
    if (status != TUTTI_OK || folder->n_pending == 0)
        return status;
    if (tutti__run_folder_flush(folder) != TUTTI_OK) {
        tutti_log(TUTTI_LOG_WARN, "train", "metrics.jsonl lacks its last %zu bytes: %s",
                  folder->n_pending, tutti_last_error());
        return TUTTI_OK;
    }
    notes->text[notes->n = before] = '\0';
    summary->reason = before > 0 ? notes->text : why;
    return write_summary(run, summary);
}

/* What the range test has found. False: its file could not be written. */
static bool write_lr_find(tutti__train_run *run)
{
    const tutti__lr_find *find = &run->lr_find;
    double lr;
    const tutti_status status = tutti__lr_find_write(find, &run->folder, &lr);
    const double last = find->n > 0 ? find->lr[find->n - 1] : NAN;

    if (find->n > 0 && find->n < 20 && !isfinite(find->loss[find->n - 1]))
        tutti__progress_say(&run->progress,
                            "\nno learning rate to suggest: the loss is %s in step %zu, at a rate "
                            "of only %.2g; look for NaN, infinite and very large numbers in the "
                            "data and the initial weights",
                            isnan(find->loss[find->n - 1]) ? "NaN" : "infinite", find->n, last);
    else if (isfinite(lr))
        tutti__progress_say(&run->progress,
                            "\nsuggested learning rate %g: there the loss falls most steeply "
                            "(tested up to %.2g; the curve: tutti report %s)",
                            lr, last, run->folder.path);
    else
        tutti__progress_say(&run->progress, "\nno learning rate to suggest: %s (tested up to %.2g)",
                            find->n < 20 ? "there were less than 20 steps"
                                         : "the loss did not fall before it diverged",
                            last);
    return status == TUTTI_OK;
}

/* Writes as many results as possible; if any is missing, the run ends with DISK, and summary.json says which. */
tutti_status tutti__run_write_results(tutti__train_run *run)
{
    tutti__summary summary;
    shortfall notes = {.n = 0};
    char digests[2][33], ema_digest[33], why[TUTTI__PLAN_WHY];
    bool kept, lacks;

    if (run->session.rank != 0)
        return TUTTI_OK;
    if (run->saving.unsaved[0])
        note(&notes, "%s", run->saving.unsaved);
    kept = run->session.config->lr_find;
    ema_digest[0] = '\0';
    if (tutti__session_divides_model(&run->session))
        kept = kept || write_divided(run, &notes, ema_digest);
    else {
        kept = kept || write_weights(run, "model.safetensors", &notes);
        kept = write_average(run, &notes, ema_digest) && kept;
    }
    lacks = notes.n > 0;
    make_summary(run,
                 !kept                        ? "failed"
                 : run->session.stop.stopping ? "interrupted"
                                              : "completed",
                 digests, &summary);
    summary.ema_digest = ema_digest;
    tutti__run_why(run, why);
    if (write_end(run, &notes, &summary, why) != TUTTI_OK) {
        note(&notes, "%s", tutti_last_error());
        lacks = true;
    }
    tutti__logs_end(&run->logs, &summary);
    run->summarised = true;
    tutti__run_print_results(run, &summary);
    if (run->session.config->lr_find && !write_lr_find(run)) {
        note(&notes, "%s", tutti_last_error());
        lacks = true;
    }
    return lacks ? tutti__fail(TUTTI_ERR_DISK, "%s", notes.text) : TUTTI_OK;
}

/* ---- Of a failed run ------------------------------------------------------------------------------------------- */

/* Whether other workers may continue a run that has ended here with this status. */
static bool may_continue(const tutti__train_run *run, tutti_status status)
{
    return run->session.shards > 0 && (status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT ||
                                       status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_DEVICE);
}

/* A run that fails before its first step is done leaves no folder, unless it has begun in one that holds other files, or a log
 * records its failure. */
bool tutti__run_leaves_nothing(const tutti__train_run *run, tutti_status status)
{
    const tutti__train_config *c = run->session.config;
    const bool logged = c->tensorboard || c->prometheus[0] || strcmp(c->wandb, "offline") == 0,
               others = !run->folder.blank && !run->folder.aside[0];
    const bool recorded = run->folder.metrics >= 0 && (logged || others);

    return status != TUTTI_OK && run->session.rank == 0 &&
           run->position.at.step == run->position.begun_at && !recorded && !run->summarised &&
           !may_continue(run, status);
}

/* Writes what can be saved of a failed run: its summary, with the cause. Done by rank 0 or, if it was killed, by the first
 * other rank that gets its lock; later ones find it done. The failure itself was reported; a failure here is not. */
void tutti__run_write_failure(tutti__train_run *run, tutti_status status, const char *reason)
{
    tutti__summary summary;
    char path[TUTTI__CONFIG_TEXT + 16], digests[2][33];

    if (run->session.rank == 0 && run->folder.metrics < 0)
        return; /* the folder does not belong to this run yet */
    if (run->session.rank != 0) {
        snprintf(path, sizeof path, "%s/summary.json", run->session.config->run_dir);
        if (!tutti__run_lock_inherit(&run->folder.lock, run->session.config->run_dir, run->token,
                                     &run->job, INHERIT_MS) ||
            access(path, F_OK) == 0)
            return;
        snprintf(run->folder.path, sizeof run->folder.path, "%s", run->session.config->run_dir);
    }
    make_summary(run, "failed", digests, &summary);
    summary.reason = reason;
    if (run->session.rank != 0)
        summary.parameter_digest = NULL; /* a step may be half complete */
    if (!tutti__run_leaves_nothing(run, status) && write_summary(run, &summary) != TUTTI_OK)
        tutti_log(TUTTI_LOG_INFO, "train", "%s", tutti_last_error());
    tutti__logs_end(&run->logs, &summary);
}
