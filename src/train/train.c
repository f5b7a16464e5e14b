/* train.c -- one rank's run from its beginning to its exit code.   SPDX-License-Identifier: MIT */
#include "train/train.h"
#include "train/agree.h"
#include "train/run.h"
#include "train/signals.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { INHERIT_MS = 150 }; /* for rank 0 to end, if it does */

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

static void say_resumed(tutti__run *run)
{
    if (run->resume.found)
        tutti__progress_say(&run->progress, "resumed from %s: %llu of %llu steps are done",
                            run->resume.path, (unsigned long long)run->step,
                            (unsigned long long)run->total_steps);
    else if (strcmp(run->config->resume, "auto") == 0 || run->job.restarted || run->job.requeued)
        tutti__progress_say(&run->progress, "resume: no checkpoint there, from the beginning");
}

static void say_beginning(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    tutti_dataset_info info = tutti_dataset_describe(run->train_data);
    char parameters[32], images[32], tests[64] = "";

    if (run->test_data)
        snprintf(tests, sizeof tests, ", %s test images",
                 grouped((int64_t)tutti_dataset_describe(run->test_data).count, images));
    tutti__progress_say(
        &run->progress, "%s, %s parameters, on %s: %s training images of %dx%dx%d%s", c->model,
        grouped(tutti_module_count(run->module), parameters), c->data,
        grouped((int64_t)info.count, images), info.channels, info.height, info.width, tests);
    tutti__progress_say(&run->progress,
                        "%d rank%s (%s) x batch %lld, %s kernels, %d thread%s a rank", run->size,
                        run->size == 1 ? "" : "s", tutti_group_transport_name(run->group),
                        (long long)c->batch_size, tutti_ctx_kernels_name(run->cx),
                        tutti_ctx_threads(run->cx), tutti_ctx_threads(run->cx) == 1 ? "" : "s");
    tutti__progress_say(&run->progress, "run folder %s%s", run->folder.path,
                        run->folder.replaced && !(run->resume.found && run->resume.here)
                            ? " (the files of its earlier run are replaced)"
                            : "");
    if (run->file_size > 0 && run->file_size != run->size)
        tutti__progress_say(
            &run->progress,
            "the configuration is of a run of %lld rank%s: a step has other samples here",
            (long long)run->file_size, run->file_size == 1 ? "" : "s");
    say_resumed(run);
}

/* digest: where its text is to be. */
static void make_summary(const tutti__run *run, const char *status, char digest[33],
                         tutti__summary *s)
{
    tutti_traffic traffic = tutti__run_traffic(run);

    *s = (tutti__summary){.status = status,
                          .world_size = run->size,
                          .steps = (int64_t)run->step,
                          .epochs = run->epochs_done,
                          .train_loss = run->epoch_loss.sum / run->epoch_loss.n,
                          .val_loss = run->val_loss,
                          .val_accuracy = run->val_accuracy,
                          .images_per_s = run->images / run->train_seconds,
                          .seconds = tutti__run_seconds(run),
                          .gradient_bytes = (int64_t)traffic.gradient_bytes,
                          .wire_bytes = (int64_t)traffic.wire_bytes};
    if (run->module && tutti_module_status(run->module) == TUTTI_OK) {
        s->parameters = tutti_module_count(run->module);
        tutti_module_digest(run->module, digest);
        s->parameter_digest = digest;
    }
}

/* The law of data parallelism: after any step all replicas are the same, to the bit. */
static tutti_status check_replicas(tutti__run *run)
{
    TUTTI_TRY(tutti_ddp_broadcast_buffers(run->ddp));
    return tutti_ddp_check_replicas(run->ddp);
}

/* summary.json, and what the logs end with. */
static tutti_status write_summary(tutti__run *run, const tutti__summary *s)
{
    json_t *time = tutti__ledger_json(&run->ledger);
    tutti_status status = tutti__run_folder_summary(&run->folder, s, time);

    json_decref(time);
    tutti__logs_end(&run->logs, s);
    return status;
}

static tutti_status write_results(tutti__run *run)
{
    tutti__summary summary;
    char digest[33];

    if (run->rank != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__run_folder_weights(&run->folder, run->module));
    make_summary(run, run->stopping ? "interrupted" : "completed", digest, &summary);
    TUTTI_TRY(write_summary(run, &summary));
    tutti__run_say_results(run, &summary);
    return TUTTI_OK;
}

/* Tells the other ranks and the user of a failure that is this rank's own, or the user of the group's. */
static void say_failure(tutti__run *run, tutti_status status)
{
    char message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    tutti__progress_clear(&run->progress);
    if (tutti_status_scope(status) != TUTTI_SCOPE_GROUP)
        tutti_group_abort(run->group, "%s", message);
    tutti__error_file_write(tutti_status_scope(status) != TUTTI_SCOPE_GROUP, message);
    tutti__fail_again(status, message);
    tutti__say_error(run->rank, run->size);
}

/* What can still be saved of a failed run: what it was, and why it ended. Rank 0 does it, or where that has been killed the
 * first of the others that gets its lock; whoever comes later finds it done. The failure itself has been said; if this
 * fails too, that adds nothing. */
static void write_failure(tutti__run *run, const char *reason)
{
    tutti__summary summary;
    char path[TUTTI__CONFIG_TEXT + 16], digest[33];

    if (run->rank == 0 && run->folder.metrics < 0)
        return; /* the folder is not yet this run's */
    if (run->rank != 0) {
        snprintf(path, sizeof path, "%s/summary.json", run->config->run_dir);
        if (!tutti__run_lock_inherit(&run->folder.lock, run->config->run_dir, run->token,
                                     INHERIT_MS) ||
            access(path, F_OK) == 0)
            return;
        snprintf(run->folder.path, sizeof run->folder.path, "%s", run->config->run_dir);
    }
    make_summary(run, "failed", digest, &summary);
    summary.reason = reason;
    if (run->rank != 0)
        summary.parameter_digest = NULL; /* a step may be half done */
    if (write_summary(run, &summary) != TUTTI_OK)
        tutti_log(TUTTI_LOG_INFO, "train", "%s", tutti_last_error());
}

static tutti_status run_to_the_end(tutti__run *run)
{
    tutti_status status = TUTTI_OK;

    say_beginning(run);
    tutti__signals_watch();
    if (!run->resume.finished)
        status = tutti__run_epochs(run);
    tutti__progress_clear(&run->progress);
    if (status != TUTTI_OK && !run->told)
        say_failure(run, status);
    if (status == TUTTI_OK)
        status = tutti__fail_together(run->group, check_replicas(run));
    if (status == TUTTI_OK)
        status = tutti__fail_together(run->group, write_results(run));
    return status;
}

static tutti_status train(tutti__run *run)
{
    tutti_status status;
    char reason[2048];

    TUTTI_TRY(tutti__run_open(run));
    if (run->resume.complete) {
        tutti__progress_say(&run->progress, "%s is complete: all %llu steps are done",
                            run->config->run_dir, (unsigned long long)run->total_steps);
        return TUTTI_OK;
    }
    status = run_to_the_end(run);
    if (status != TUTTI_OK) {
        snprintf(reason, sizeof reason, "%s", tutti_last_error());
        write_failure(run, reason);
    }
    return status;
}

int tutti__train(tutti__train_config *config)
{
    tutti__run run = {.config = config};
    tutti_status status;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a failed write, not a death */
    status = train(&run);
    tutti__run_close(&run);
    if (status != TUTTI_OK || !run.stopping)
        return tutti_status_exit_code(status);
    if (run.signalled == SIGPIPE)
        tutti__signals_end_by_pipe();
    return 128 + (int)run.signalled;
}
