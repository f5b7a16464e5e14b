/* checkpoint.c -- when checkpoints are written, and what happens if that fails.   SPDX-License-Identifier: MIT */
#include "train/save/checkpoint.h"

#include "checkpoint/folder.h"
#include "data/sampler.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"
#include "train/session/agree.h"
#include "train/session/amp.h"
#include "train/save/resume.h"
#include "train/run/run.h"
#include "train/metrics/trace.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOOK_TAG = 1 };

/* JSON has no NaN. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *mean_json(const tutti__mean *mean)
{
    return json_pack("[f, f]", mean->sum, mean->n);
}

/* The sums with which summary and metrics continue. */
static json_t *sums_json(const tutti__run *run)
{
    tutti_traffic traffic = tutti__run_traffic(run);

    return json_pack("{s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:I, s:I}",
                     "unix_s", tutti__wall_seconds(), "time", tutti__ledger_json(&run->ledger),
                     "val_loss", real(run->at.val_loss), "log_loss", mean_json(&run->at.log_loss),
                     "epoch_loss", mean_json(&run->at.epoch_loss), "shown_loss",
                     real(run->at.shown_loss), "val_accuracy", real(run->at.val_accuracy),
                     "train_seconds", run->at.train_seconds, "log_seconds", run->at.log_seconds,
                     "images", run->at.images, "log_images", run->at.log_images, "seconds",
                     tutti__run_seconds(run), "gradient_bytes", (json_int_t)traffic.gradient_bytes,
                     "wire_bytes", (json_int_t)traffic.wire_bytes);
}

/* What a run by shards has in addition. */
static tutti_status add_shards(const tutti__run *run, json_t *state)
{
    tutti_reducer *reducer = tutti_ddp_reducer(run->ddp);
    const float *ranges = tutti_reducer_ranges(reducer);
    const tutti__kept *k = &run->kept;
    const tutti__position *from = &k->from;
    json_t *list = json_array();
    char digest[33];
    int failed = 0;

    for (size_t i = 0; tutti_reducer_name(reducer, i); i++)
        failed |= json_array_append_new(list, json_real((double)ranges[i]));
    tutti__samples_digest_text(k->samples, digest);
    failed |= json_object_set_new(
        state, "members",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "now", (json_int_t)k->members, "lost",
                  (json_int_t)k->lost, "joined", (json_int_t)k->joined, "left", (json_int_t)k->left,
                  "attempts", (json_int_t)k->attempts, "taken_over", (json_int_t)k->taken_over));
    failed |= json_object_set_new(state, "ranges", list);
    failed |= json_object_set_new(state, "samples_digest", json_string(digest));
    failed |=
        json_object_set_new(state, "samples_from",
                            json_pack("{s:I, s:I, s:I, s:I}", "step", (json_int_t)from->step,
                                      "epoch", (json_int_t)from->epoch, "start",
                                      (json_int_t)from->start, "batch", (json_int_t)from->batch));
    return failed ? TUTTI_ERR_MEMORY : TUTTI_OK;
}

/* state.json, without digests. */
static json_t *state_json(const tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    const tutti__position at = {
        .epoch = epoch, .start = epoch == run->at.epoch ? run->at.start : 0, .batch = batch};
    char *keys = tutti__config_json(run->config);
    json_t *state = json_pack(
        "{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:i, s:i, s:I, s:I, s:I, s:o, s:o, s:o}",
        "format", 1, "step", (json_int_t)run->at.step, "epoch", (json_int_t)epoch, "start",
        (json_int_t)at.start, "batch", (json_int_t)batch, "samples",
        (json_int_t)tutti__plan_samples(run, &at, tutti__run_shares(run)), "train_images",
        (json_int_t)tutti_dataset_describe(run->train_data).count, "finished", (int)finished,
        "world_size", run->size, "shards", run->shards, "seed", (json_int_t)run->config->seed,
        "epochs_done", (json_int_t)run->at.epochs_done, "forwards",
        (json_int_t)(run->shards > 0 ? run->kept.forwards : tutti_ctx_step(run->cx)), "scaler",
        tutti__amp_json(run), "sums", sums_json(run), "config",
        keys ? json_loads(keys, 0, NULL) : NULL);

    free(keys);
    if (state && run->shards > 0 && add_shards(run, state) != TUTTI_OK) {
        json_decref(state);
        state = NULL;
    }
    if (!state)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    return state;
}

/* ---- State of each rank: PowerSGD's ----------------------------------------------------------- */

/* Gathers all ranks' state on rank 0, because it changes in the next backward. All have the same buckets, hence the same size. */
static tutti_status collect_hooks(tutti__run *run, size_t bytes)
{
    tutti__saving *s = &run->saving;
    const size_t all = bytes * (size_t)run->size;

    if (all > s->hooks_bytes) {
        free(s->hooks);
        s->hooks = tutti__alloc(all);
        s->hooks_bytes = s->hooks ? all : 0;
    }
    if (!s->hooks) { /* else the others would wait for this rank */
        tutti_group_abort(run->group, "%s", tutti_last_error());
        return TUTTI_ERR_MEMORY;
    }
    tutti__powersgd_save(&run->hook, s->hooks);
    for (int r = 1; r < run->size; r++)
        TUTTI_TRY(tutti_recv(run->group, TUTTI_BUF(s->hooks + (size_t)r * bytes, bytes, TUTTI_U8),
                             r, HOOK_TAG, NULL));
    return TUTTI_OK;
}

static tutti_status send_hook(tutti__run *run, size_t bytes)
{
    void *p = tutti__alloc(bytes);
    tutti_status status;

    if (!p) {
        tutti_group_abort(run->group, "%s", tutti_last_error());
        return TUTTI_ERR_MEMORY;
    }
    tutti__powersgd_save(&run->hook, p);
    status = tutti_send(run->group, TUTTI_CONST_BUF(p, bytes, TUTTI_U8), 0, HOOK_TAG, NULL);
    free(p);
    return status;
}

/* ---- Failures ----------------------------------------------------------------------------------------------- */

static void say(tutti__run *run, const char *format, ...) TUTTI_PRINTF(2, 3);
static void say(tutti__run *run, const char *format, ...)
{
    char text[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tutti__progress_clear(&run->progress);
    tutti__print_line(stderr, "%s: %s", run->parts->title, text);
}

/* "; checkpoints/step-00000120 is intact" */
static void whole_text(const tutti__run *run, char text[TUTTI__CHECKPOINT_PATH + 64])
{
    char dir[4096], path[TUTTI__CHECKPOINT_PATH];
    uint64_t *steps = NULL;
    size_t n = 0;

    strcpy(text, "");
    if (tutti__run_folder_checkpoints(&run->folder, dir) == TUTTI_OK &&
        tutti__checkpoint_list(dir, &steps, &n) == TUTTI_OK && n > 0 &&
        tutti__checkpoint_path(dir, steps[0], path) == TUTTI_OK)
        snprintf(text, TUTTI__CHECKPOINT_PATH + 64, "; %s is intact", path);
    free(steps);
}

/* Notes that the state of `step` is not saved, because of the thread's error. */
static void note_failure(tutti__run *run, uint64_t step)
{
    tutti__saving *s = &run->saving;
    char whole[TUTTI__CHECKPOINT_PATH + 64], text[2048];

    snprintf(text, sizeof text, "%s", tutti_last_error());
    whole_text(run, whole);
    snprintf(s->unsaved, sizeof s->unsaved, "the state of step %llu is not saved: %.1200s%.700s",
             (unsigned long long)step, text, whole);
}

/* The same while training: OK if it continues. */
static tutti_status fail(tutti__run *run, uint64_t step)
{
    tutti__saving *s = &run->saving;

    note_failure(run, step);
    if (strcmp(run->config->checkpoint_failure, "stop") == 0) {
        s->failure = TUTTI_ERR_DISK;
        return tutti__fail_again(s->failure, s->unsaved);
    }
    say(run, "%s; training continues, and tries again at the next checkpoint", s->unsaved);
    return TUTTI_OK;
}

/* Waits for the previous write, and handles its result. Rank 0. */
static tutti_status settle(tutti__run *run)
{
    tutti__saving *s = &run->saving;
    const bool busy = tutti__writer_is_busy(s->writer);
    tutti_status status = tutti__writer_end(s->writer);

    if (status == TUTTI_OK && busy)
        s->unsaved[0] = '\0';
    return status == TUTTI_OK ? TUTTI_OK : fail(run, tutti__writer_step(s->writer));
}

bool tutti__run_checkpoint_make_room(tutti__run *run, tutti_status status)
{
    char dir[4096];
    uint64_t *steps = NULL;
    size_t n = 0;
    char reason[2048];

    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    if (status != TUTTI_ERR_DISK || run->config->keep_checkpoints == 0)
        return false;
    if (tutti__run_folder_checkpoints(&run->folder, dir) != TUTTI_OK ||
        tutti__checkpoint_list(dir, &steps, &n) != TUTTI_OK)
        return false;
    free(steps);
    if (n < 2)
        return false;
    say(run, "%s: all checkpoints but the newest are removed to make room", reason);
    if (tutti__checkpoint_keep(dir, 1) == TUTTI_OK)
        return true;
    tutti_log(TUTTI_LOG_WARN, "train", "%s", tutti_last_error());
    return false;
}

/* The last checkpoint could not be written. There is no more training to stop: the other results are written anyway, and the
 * end reports it. */
static void try_again(tutti__run *run, tutti_status status)
{
    tutti__saving *s = &run->saving;
    char message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (status != TUTTI_ERR_DISK || tutti__run_checkpoint_make_room(run, status)) {
        status = tutti__writer_again(s->writer);
        if (status == TUTTI_OK)
            status = tutti__writer_end(s->writer);
    } else
        tutti__fail_again(status, message);
    if (status == TUTTI_OK)
        s->unsaved[0] = '\0';
    else
        note_failure(run, run->at.step);
}

/* ---- Writing a checkpoint ---------------------------------------------------------------------------------------------- */

static tutti_status begin(tutti__run *run, tutti__writing *writing, int64_t epoch, size_t batch,
                          bool finished)
{
    tutti__saving *s = &run->saving;

    TUTTI_TRY(tutti__run_folder_checkpoints(&run->folder, writing->dir));
    if (!s->writer)
        TUTTI_TRY(tutti__writer_new(&s->writer, run->module, run->optim, run->recorder));
    writing->state = state_json(run, epoch, batch, finished);
    if (!writing->state)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__writer_begin(s->writer, writing));
    /* The first backward moves parameters. */
    if (!tutti_ddp_reducer(run->ddp))
        tutti__writer_wait_for_copy(s->writer);
    return TUTTI_OK;
}

/* Rank 0's part, after the other ranks' state was gathered. last: the end of the run, so it waits. */
static tutti_status write_one(tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    const bool last = finished || run->stopping;
    tutti__saving *s = &run->saving;
    tutti__writing writing = {.step = run->at.step,
                              .keep = (size_t)run->config->keep_checkpoints,
                              .hook_bytes = tutti__powersgd_bytes(&run->hook),
                              .ranks = run->size};
    tutti_status status;

    writing.hooks = writing.hook_bytes > 0 ? s->hooks : NULL;
    if (last) /* before the copy of the state is allocated: this keeps the peak of memory that of the steps */
        tutti__step_memory_release(run->cx);
    status = begin(run, &writing, epoch, batch, finished);
    if (status != TUTTI_OK && last)
        note_failure(run, run->at.step);
    if (status != TUTTI_OK)
        return last ? TUTTI_OK : fail(run, run->at.step);
    if (!last)
        return run->config->checkpoint_background ? TUTTI_OK : settle(run);
    status = tutti__writer_end(s->writer);
    if (status != TUTTI_OK)
        try_again(run, status);
    else
        s->unsaved[0] = '\0';
    return TUTTI_OK;
}

static tutti_status save(tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    const size_t bytes = tutti__powersgd_bytes(&run->hook);
    tutti__saving *s = &run->saving;
    tutti_status status = TUTTI_OK, before = TUTTI_OK;

    if (run->rank == 0)
        before = s->failure == TUTTI_OK ? settle(run) : tutti__fail_again(s->failure, s->unsaved);
    if (run->zero && run->shards == 0)
        status = tutti_zero_consolidate(run->zero, run->optim, 0);
    if (status == TUTTI_OK && bytes > 0)
        status = run->rank == 0 ? collect_hooks(run, bytes) : send_hook(run, bytes);
    if (status != TUTTI_OK)
        return status;
    if (before != TUTTI_OK)
        return tutti__fail_again(before, s->unsaved);
    return run->rank == 0 ? write_one(run, epoch, batch, finished) : TUTTI_OK;
}

static void count_stall(tutti__run *run, uint64_t begin_ns)
{
    const double seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;

    run->saving.stall_s += seconds;
    tutti__ledger_add(&run->ledger, TUTTI__TIME_CHECKPOINT, seconds);
    tutti__record(run->recorder, "step", "checkpoint", (int64_t)run->at.step, TUTTI__THREAD_MAIN,
                  begin_ns, tutti__now_ns());
}

tutti_status tutti__run_checkpoint_gather(tutti__run *run, bool *wanted_p)
{
    int64_t wanted = *wanted_p;

    if (!run->zero)
        return TUTTI_OK;
    TUTTI_TRY(tutti_broadcast(run->group, TUTTI_BUF(&wanted, 1, TUTTI_I64), 0, NULL));
    *wanted_p = wanted != 0;
    if (!*wanted_p)
        return TUTTI_OK;
    tutti__writer_wait_for_copy(run->saving.writer); /* of the state gathered before */
    return tutti_zero_consolidate(run->zero, run->optim, 0);
}

/* The collective part is over; writing goes on. */
static void note_checkpoint(tutti__run *run, uint64_t begin_ns)
{
    run->saved_step = run->at.step;
    run->saving.n++;
    count_stall(run, begin_ns);
}

tutti_status tutti__run_checkpoint_alone(tutti__run *run, int64_t epoch, size_t batch,
                                         bool finished)
{
    uint64_t begin_ns = tutti__now_ns();
    tutti_status status = save(run, epoch, batch, finished);

    note_checkpoint(run, begin_ns);
    return status;
}

tutti_status tutti__run_checkpoint(tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    uint64_t begin_ns = tutti__now_ns();
    tutti_status status = tutti__fail_together(run->group, save(run, epoch, batch, finished));

    run->told = status != TUTTI_OK;
    note_checkpoint(run, begin_ns);
    return status;
}

void tutti__run_checkpoint_copied(tutti__run *run)
{
    tutti__saving *s = &run->saving;
    uint64_t begin_ns = tutti__now_ns();

    s->step_stall_s = 0;
    if (!tutti__writer_is_busy(s->writer))
        return;
    if (tutti__writer_is_over(s->writer) && settle(run) != TUTTI_OK)
        return; /* s->failure is set: the next step's exchange tells all ranks */
    if (tutti__writer_wait_for_copy(s->writer)) {
        count_stall(run, begin_ns);
        s->step_stall_s = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    }
}

/* A failed run may have a write in flight, whose result only this reports. */
void tutti__run_checkpoint_close(tutti__run *run)
{
    if (tutti__writer_end(run->saving.writer) != TUTTI_OK) {
        note_failure(run, tutti__writer_step(run->saving.writer));
        say(run, "%s", run->saving.unsaved);
    }
    tutti__writer_free(run->saving.writer);
    free(run->saving.hooks);
    run->saving.writer = NULL;
    run->saving.hooks = NULL;
}
