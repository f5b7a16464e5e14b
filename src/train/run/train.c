/* train.c -- one rank's run, from its start to its exit code.   SPDX-License-Identifier: MIT */
#include "train/run/train.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "train/session/agree.h"
#include "train/session/amp.h"
#include "train/run/members.h"
#include "train/machine/signals.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    INHERIT_MS = 150, /* for rank 0 to end */
    XID_MS = 100      /* for the driver to report the cause */
};

double tutti__run_seconds(const tutti__run *run)
{
    return run->seconds_before + (double)(tutti__now_ns() - run->start_ns) * 1e-9;
}

tutti_traffic tutti__run_traffic(const tutti__run *run)
{
    tutti_reducer *reducer = run->ddp ? tutti_ddp_reducer(run->ddp) : NULL;
    tutti_traffic traffic = reducer ? tutti_reducer_traffic(reducer) : (tutti_traffic){0};

    traffic.gradient_bytes += run->traffic_before.gradient_bytes;
    traffic.wire_bytes += run->traffic_before.wire_bytes;
    return traffic;
}

/* 2777674 as "2,777,674" */
static const char *grouped(int64_t n, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), k = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[k++] = ',';
        text[k++] = digits[i];
    }
    text[k] = '\0';
    return text;
}

static void say_continued(tutti__run *run)
{
    const size_t count = tutti_dataset_describe(run->train_data).count;
    const long long ranks = json_integer_value(json_object_get(run->resume.state, "world_size")),
                    were = json_integer_value(json_object_get(run->resume.state, "shards")),
                    then = were > 0 ? were : ranks, now = tutti__run_shares(run);

    tutti__progress_say(&run->progress, "resumed from %s: %llu of %llu steps are done",
                        run->resume.path, (unsigned long long)run->at.step,
                        (unsigned long long)run->total_steps);
    if (then == now)
        return;
    tutti__progress_say(
        &run->progress, "%lld %s%s before, %lld%s now: a step takes %lld samples instead of %lld",
        then, were > 0 ? "shard" : "rank", then == 1 ? "" : "s", now,
        (were > 0) == (run->shards > 0) ? ""
        : run->shards > 0               ? " shards"
                                        : " ranks",
        (long long)run->config->batch_size * now, (long long)run->config->batch_size * then);
    if (run->at.start > 0 && run->at.start < count)
        tutti__progress_say(&run->progress,
                            "the %zu remaining samples of epoch %lld are divided among them",
                            count - run->at.start, (long long)run->at.epoch);
}

static void say_resumed(tutti__run *run)
{
    if (run->resume.found)
        say_continued(run);
    else if (strcmp(run->config->resume, "auto") == 0 || run->job.restarted || run->job.requeued)
        tutti__progress_say(&run->progress,
                            "resume: no checkpoint there, starting from the beginning");
}

/* Prints the device; nothing for the CPU. */
static void say_device(tutti__run *run)
{
    const tutti__gpus *g = &run->gpus;

    if (!g->device.bus[0])
        return;
    if (g->most_on_one > 1)
        tutti__progress_say(&run->progress,
                            "on %d GPU%s (%s), shared by up to %d ranks each: their collectives go "
                            "through host memory",
                            g->n_devices, g->n_devices == 1 ? "" : "s", g->device.name,
                            g->most_on_one);
    else
        tutti__progress_say(&run->progress, "on %d GPU%s (%s), one a rank", g->n_devices,
                            g->n_devices == 1 ? "" : "s", g->device.name);
}

static void say_amp(tutti__run *run)
{
    const tutti_dtype dtype = tutti__amp_dtype(run);
    const char *kernels = tutti_ctx_half_kernels_name(run->cx, dtype);

    if (dtype != TUTTI_F32)
        tutti__progress_say(&run->progress, "amp %s: %s%s", run->config->amp, kernels,
                            strcmp(kernels, "emulated") == 0 ? ", slower than amp off" : "");
}

void tutti__run_say_beginning(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    const tutti_dataset_info info = tutti_dataset_describe(run->train_data);
    char parameters[32], images[32], kind[64], tests[64] = "", shards[32] = "";

    if (run->test_data) {
        const size_t n = tutti_dataset_describe(run->test_data).count;

        tutti__dataset_text(run->test_data, n, kind);
        snprintf(tests, sizeof tests, ", %s test %.*s", grouped((int64_t)n, images),
                 (int)strcspn(kind, " "), kind);
    }
    tutti__dataset_text(run->train_data, info.count, kind);
    tutti__progress_say(&run->progress, "%s, %s parameters, on %s: %s training %s%s", c->model,
                        grouped(tutti_module_count(run->module), parameters), c->data,
                        grouped((int64_t)info.count, images), kind, tests);
    if (run->shards > 0)
        snprintf(shards, sizeof shards, " over %d shard%s", run->shards,
                 tutti__s((uint64_t)run->shards));
    tutti__progress_say(&run->progress,
                        "%d rank%s (%s)%s x batch %lld, %s kernels, %d thread%s a rank%s",
                        run->size, run->size == 1 ? "" : "s",
                        tutti_group_transport_name(run->group), shards, (long long)c->batch_size,
                        tutti_ctx_kernels_name(run->cx), tutti_ctx_threads(run->cx),
                        tutti_ctx_threads(run->cx) == 1 ? "" : "s",
                        !tutti__dataset_has_images(run->train_data) ? ""
                        : c->augment                                ? ", augment on"
                                                                    : ", augment off");
    say_device(run);
    if (!c->deterministic && run->cx->device.kind != TUTTI_CUDA)
        tutti__progress_say(&run->progress,
                            "deterministic false changes nothing here: only GPUs have algorithms "
                            "whose bits vary");
    say_amp(run);
    if (run->folder.aside[0])
        tutti__progress_say(&run->progress, "run folder %s (its earlier run is now in %s)",
                            run->folder.path, run->folder.aside);
    else
        tutti__progress_say(&run->progress, "run folder %s", run->folder.path);
    if (run->file_size > 0 && run->file_size != run->size && run->shards == 0)
        tutti__progress_say(
            &run->progress,
            "the configuration is of a run of %lld rank%s: a step has other samples here",
            (long long)run->file_size, run->file_size == 1 ? "" : "s");
    say_resumed(run);
}

/* digests: receives the text of two. */
static void make_summary(const tutti__run *run, const char *status, char digests[2][33],
                         tutti__summary *s)
{
    tutti_traffic traffic = tutti__run_traffic(run);

    *s = (tutti__summary){.status = status,
                          .world_size = run->size,
                          .device = run->gpus.device.name,
                          .steps = (int64_t)run->at.step,
                          .epochs = run->at.epochs_done,
                          .train_loss = run->at.epoch_loss.sum / run->at.epoch_loss.n,
                          .val_loss = run->at.val_loss,
                          .val_accuracy = run->at.val_accuracy,
                          .images_per_s = run->at.images / run->at.train_seconds,
                          .seconds = tutti__run_seconds(run),
                          .gradient_bytes = (int64_t)traffic.gradient_bytes,
                          .wire_bytes = (int64_t)traffic.wire_bytes,
                          .skipped_steps = (int64_t)run->at.skipped_steps,
                          .shards = run->shards,
                          .lost_workers = run->kept.lost,
                          .joined_workers = run->kept.joined,
                          .left_workers = run->kept.left,
                          .lost_attempts = run->kept.attempts,
                          .taken_over_shards = run->kept.taken_over};
    if (run->shards > 0) {
        tutti__samples_digest_text(run->kept.samples, digests[1]);
        s->samples_digest = digests[1];
    }
    if (run->module && tutti_module_status(run->module) == TUTTI_OK) {
        s->parameters = tutti_module_count(run->module);
        tutti_module_digest(run->module, digests[0]);
        s->parameter_digest = digests[0];
        if (!*digests[0]) /* the weights are complete all the same */
            tutti_log(TUTTI_LOG_WARN, "train", "summary.json lacks parameter_digest: %s",
                      tutti_last_error());
    }
}

/* The invariant of data parallelism: after any step all replicas have the same bits. */
static tutti_status check_replicas(tutti__run *run)
{
    TUTTI_TRY(tutti_ddp_broadcast_buffers(run->ddp));
    return tutti_ddp_check_replicas(run->ddp);
}

static tutti_status write_summary(tutti__run *run, const tutti__summary *s)
{
    json_t *time = tutti__ledger_json(&run->ledger);
    tutti_status status = tutti__run_folder_summary(&run->folder, s, time);

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

/* Whether the weights are saved. If there is no space for them, links the last checkpoint's file. */
static bool write_weights(tutti__run *run, shortfall *notes)
{
    const bool saved = run->saving.n > 0 && !run->saving.unsaved[0];
    const tutti_status status = tutti__run_folder_weights(&run->folder, run->module);
    char reason[2048];

    if (status == TUTTI_OK)
        return true;
    if (saved && tutti__run_checkpoint_make_room(run, status) &&
        tutti__run_folder_weights(&run->folder, run->module) == TUTTI_OK)
        return true;
    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    if (saved && tutti__run_folder_link_weights(&run->folder, run->at.step) == TUTTI_OK) {
        tutti_log(TUTTI_LOG_WARN, "train", "%s: it shares the file of the last checkpoint", reason);
        return true;
    }
    if (saved)
        note(notes, "%s; the weights are in %s/checkpoints/step-%08llu/model.safetensors", reason,
             run->folder.path, (unsigned long long)run->at.step);
    else
        note(notes, "%s", reason);
    return saved;
}

/* summary.json comes first, because lines missing from metrics.jsonl may take all remaining space. Missing lines do not make a
 * run fail. */
static tutti_status write_end(tutti__run *run, shortfall *notes, tutti__summary *summary)
{
    tutti__run_folder *folder = &run->folder;
    const size_t before = notes->n;
    tutti_status status;

    if (folder->n_pending > 0)
        note(notes, "metrics.jsonl lacks %zu bytes", folder->n_pending);
    summary->reason = notes->n > 0 ? notes->text : NULL;
    status = write_summary(run, summary);
    if (status != TUTTI_OK && !run->saving.unsaved[0] &&
        tutti__run_checkpoint_make_room(run, status))
        status = write_summary(run, summary);
    if (status != TUTTI_OK || folder->n_pending == 0)
        return status;
    if (tutti__run_folder_flush(folder) != TUTTI_OK) {
        tutti_log(TUTTI_LOG_WARN, "train", "metrics.jsonl lacks its last %zu bytes: %s",
                  folder->n_pending, tutti_last_error());
        return TUTTI_OK;
    }
    notes->text[notes->n = before] = '\0';
    summary->reason = before > 0 ? notes->text : NULL;
    return write_summary(run, summary);
}

/* Writes as many results as possible; if any is missing, the run ends with DISK, and summary.json says which. */
tutti_status tutti__run_write_results(tutti__run *run)
{
    tutti__summary summary;
    shortfall notes = {.n = 0};
    char digests[2][33];
    bool kept, lacks;

    if (run->rank != 0)
        return TUTTI_OK;
    if (run->saving.unsaved[0])
        note(&notes, "%s", run->saving.unsaved);
    kept = write_weights(run, &notes);
    lacks = notes.n > 0;
    make_summary(run,
                 !kept           ? "failed"
                 : run->stopping ? "interrupted"
                                 : "completed",
                 digests, &summary);
    if (write_end(run, &notes, &summary) != TUTTI_OK) {
        note(&notes, "%s", tutti_last_error());
        lacks = true;
    }
    tutti__logs_end(&run->logs, &summary);
    run->summarised = true;
    tutti__run_say_results(run, &summary);
    return lacks ? tutti__fail(TUTTI_ERR_DISK, "%s", notes.text) : TUTTI_OK;
}

/* Whether other workers may continue a run that has ended here with this status. */
static bool may_continue(const tutti__run *run, tutti_status status)
{
    return run->shards > 0 && (status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT ||
                               status == TUTTI_ERR_MEMORY || status == TUTTI_ERR_DEVICE);
}

/* A run that fails before its first step is done leaves no folder, unless it has begun in one that holds other files, or a log
 * records its failure. */
static bool leaves_nothing(const tutti__run *run, tutti_status status)
{
    const tutti__train_config *c = run->config;
    const bool logged = c->tensorboard || c->prometheus[0] || strcmp(c->wandb, "offline") == 0,
               others = !run->folder.blank && !run->folder.aside[0];
    const bool recorded = run->folder.metrics >= 0 && (logged || others);

    return status != TUTTI_OK && run->rank == 0 && run->at.step == run->kept.begun_at &&
           !recorded && !run->summarised && !may_continue(run, status);
}

static void withdraw(tutti__run *run)
{
    tutti__run_folder *folder = &run->folder;
    const bool moved = folder->aside[0];

    tutti__run_folder_withdraw(folder);
    if (moved && !folder->aside[0])
        tutti__progress_say(&run->progress, "the earlier run is in %s again", folder->path);
}

/* Writes what can be saved of a failed run: its summary, with the cause. Done by rank 0 or, if it was killed, by the first
 * other rank that gets its lock; later ones find it done. The failure itself was reported; a failure here is not. */
static void write_failure(tutti__run *run, tutti_status status, const char *reason)
{
    tutti__summary summary;
    char path[TUTTI__CONFIG_TEXT + 16], digests[2][33];

    if (run->rank == 0 && run->folder.metrics < 0)
        return; /* the folder does not belong to this run yet */
    if (run->rank != 0) {
        snprintf(path, sizeof path, "%s/summary.json", run->config->run_dir);
        if (!tutti__run_lock_inherit(&run->folder.lock, run->config->run_dir, run->token, &run->job,
                                     INHERIT_MS) ||
            access(path, F_OK) == 0)
            return;
        snprintf(run->folder.path, sizeof run->folder.path, "%s", run->config->run_dir);
    }
    make_summary(run, "failed", digests, &summary);
    summary.reason = reason;
    if (run->rank != 0)
        summary.parameter_digest = NULL; /* a step may be half complete */
    if (!leaves_nothing(run, status) && write_summary(run, &summary) != TUTTI_OK)
        tutti_log(TUTTI_LOG_INFO, "train", "%s", tutti_last_error());
    tutti__logs_end(&run->logs, &summary);
}

/* Prints a message at once, because a step may take long. */
void tutti__run_watch_signals(const tutti__run *run)
{
    const bool launched = getenv("TUTTI_AGENT_FD"); /* the launcher ends it at the second Ctrl-C */
    char word[256] = "";

    if (run->progress.out)
        snprintf(word, sizeof word,
                 "%s%.90s: stopping: finishing the current step, then saving%s\n",
                 run->progress.bar.out ? tutti__wipe(STDERR_FILENO) : "", run->parts->title,
                 launched ? "" : "; three more signals end it at once");
    tutti__signals_watch(word);
}

static tutti_status run_to_the_end(tutti__run *run)
{
    tutti_status status = TUTTI_OK;

    tutti__run_say_beginning(run);
    tutti__run_watch_signals(run);
    if (!run->resume.finished)
        status = tutti__run_epochs(run);
    tutti__progress_clear(&run->progress);
    if (status != TUTTI_OK && !run->told)
        tutti__fail_alone(run->group, status);
    if (status == TUTTI_OK)
        status = tutti__fail_together(run->group, check_replicas(run));
    if (status == TUTTI_OK)
        status = tutti__fail_together(run->group, tutti__run_write_results(run));
    return status;
}

/* In its own steps: with as many ranks as now it might have been others. */
static unsigned long long steps_of_complete(const tutti__run *run)
{
    const json_t *step = json_object_get(run->resume.state, "step");

    return json_is_integer(step) ? (unsigned long long)json_integer_value(step)
                                 : (unsigned long long)run->total_steps;
}

static tutti_status train(tutti__run *run)
{
    tutti_status status;
    char reason[2048];

    TUTTI_TRY(tutti__run_open(run));
    if (run->shards > 0 ? run->kept.complete : run->resume.complete) {
        tutti__progress_say(&run->progress, "%s is complete: all %llu steps are done",
                            run->config->run_dir, steps_of_complete(run));
        return run->shards > 0 ? tutti__members_work(run) : TUTTI_OK;
    }
    status = run->shards > 0 ? tutti__members_work(run) : run_to_the_end(run);
    if (status != TUTTI_OK && !run->summarised) {
        snprintf(reason, sizeof reason, "%s", tutti_last_error());
        tutti__gpus_listen(&run->gpus, XID_MS);
        write_failure(run, status, reason);
    }
    return status;
}

void tutti__run_outcome(const tutti__run *run, tutti_status status, tutti_trainer_result *result)
{
    const bool interrupted = status == TUTTI_OK && run->stopping;

    if (status == TUTTI_ERR_MISMATCH && run->shards > 0)
        status = TUTTI_ERR_ARG; /* exit code 2: a replacement would differ in the same way */
    result->status = status != TUTTI_OK ? "failed" : interrupted ? "interrupted" : "completed";
    result->exit_code = interrupted ? 128 + (int)run->signalled : tutti_status_exit_code(status);
    if (run->size > 0) { /* else there was no group */
        result->rank = run->rank;
        result->world_size = run->size;
    }
}

static void fill_in(const tutti__run *run, tutti_status status, tutti_trainer_result *result)
{
    const tutti__standing *at = &run->at;

    result->steps = at->step;
    result->epochs = at->epochs_done;
    result->train_loss = at->epoch_loss.sum / at->epoch_loss.n;
    result->val_loss = at->val_loss;
    result->val_accuracy = at->val_accuracy;
    result->images_per_s = at->images / at->train_seconds;
    result->seconds = tutti__run_seconds(run);
    if (run->module && tutti_module_status(run->module) == TUTTI_OK) {
        result->parameters = tutti_module_count(run->module);
        if (status == TUTTI_OK)
            tutti_module_digest(run->module, result->parameter_digest);
    }
}

tutti_status tutti__train(tutti__train_config *config, const tutti__parts *parts,
                          tutti_trainer_result *result)
{
    tutti__run *run = tutti__alloc(sizeof *run);
    char message[2048];
    tutti_status status;

    tutti__say_as(parts->title);
    if (!run)
        return tutti__say_no_memory();
    run->config = config;
    run->parts = parts;
    status = train(run);
    snprintf(message, sizeof message, "%s", tutti_last_error());
    fill_in(run, status, result);
    if (leaves_nothing(run, status))
        withdraw(run);
    tutti__run_close(run);
    tutti__run_outcome(run, status, result); /* closing may have found a signal */
    free(run);
    tutti__say_as(NULL); /* the title belongs to the trainer */
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, message);
}
