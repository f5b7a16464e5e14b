/* checkpoint.c -- writes a checkpoint.   SPDX-License-Identifier: MIT */
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "reducer/reducer.h"
#include "train/agree.h"
#include "train/resume.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>

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

/* What summary and metrics go on with. */
static json_t *sums_json(const tutti__run *run)
{
    tutti_traffic traffic = tutti__run_traffic(run);

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "time",
                     tutti__ledger_json(&run->ledger), "val_loss", real(run->val_loss), "log_loss",
                     mean_json(&run->log_loss), "epoch_loss", mean_json(&run->epoch_loss),
                     "shown_loss", real(run->shown_loss), "val_accuracy", real(run->val_accuracy),
                     "train_seconds", run->train_seconds, "log_seconds", run->log_seconds, "images",
                     run->images, "log_images", run->log_images, "seconds", tutti__run_seconds(run),
                     "gradient_bytes", (json_int_t)traffic.gradient_bytes, "wire_bytes",
                     (json_int_t)traffic.wire_bytes);
}

/* The text of state.json; free() it. */
static char *state_text(const tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    char digest[33], *keys = tutti__config_json(run->config), *text = NULL;
    json_t *state;

    tutti_module_digest(run->module, digest);
    state = json_pack("{s:i, s:I, s:I, s:I, s:b, s:i, s:I, s:I, s:I, s:s, s:o, s:o}", "format", 1,
                      "step", (json_int_t)run->step, "epoch", (json_int_t)epoch, "batch",
                      (json_int_t)batch, "finished", (int)finished, "world_size", run->size, "seed",
                      (json_int_t)run->config->seed, "epochs_done", (json_int_t)run->epochs_done,
                      "forwards", (json_int_t)tutti_ctx_step(run->cx), "model_digest", digest,
                      "sums", sums_json(run), "config", keys ? json_loads(keys, 0, NULL) : NULL);
    if (state && digest[0] && tutti__state_digest(state, digest) == TUTTI_OK &&
        json_object_set_new(state, "digest", json_string(digest)) == 0)
        text = json_dumps(state, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text)
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    json_decref(state);
    free(keys);
    return text;
}

static tutti_status write_optimizer(tutti__run *run, const char *folder)
{
    tutti__optim_block block;
    char path[TUTTI__CHECKPOINT_PATH + 32];
    tutti_status status = tutti__optim_block_new(&block, run->optim, run->module);

    snprintf(path, sizeof path, "%s/optimizer.safetensors", folder);
    if (status == TUTTI_OK)
        status = tutti__optim_block_take(&block, run->optim, run->module);
    if (status == TUTTI_OK)
        status = tutti__optim_block_write(&block, run->module, path);
    tutti__optim_block_free(&block);
    return status;
}

static tutti_status write_files(tutti__run *run, const char *folder, const char *text)
{
    char path[TUTTI__CHECKPOINT_PATH + 32];

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    TUTTI_TRY(tutti_module_save(run->module, path));
    TUTTI_TRY(write_optimizer(run, folder));
    return tutti__checkpoint_text(folder, "state.json", text);
}

/* ---- What each rank keeps of its own: PowerSGD's ----------------------------------------------------------- */

static tutti_status write_hook(const char *folder, int rank, const void *p, size_t bytes)
{
    char path[TUTTI__CHECKPOINT_PATH + 64], digest[24];
    const tutti__safetensors_source source = {"powersgd",
                                              {(void *)p, TUTTI_SHAPE((int64_t)bytes), TUTTI_U8}};
    const tutti__safetensors_pair pair = {"digest", digest};

    snprintf(path, sizeof path, "%s/hook-rank-%05d.safetensors", folder, rank);
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)tutti__hash64(p, bytes));
    return tutti__safetensors_write(path, &source, 1, &pair, 1);
}

/* Rank 0 takes one rank's after the other. `status`: what has become of its own files; it takes all the same, for the
 * others send. Returns the first failure. */
static tutti_status collect_hooks(tutti__run *run, const char *folder, void *p, size_t bytes,
                                  tutti_status status)
{
    char message[2048] = "";

    for (int r = 0; r < run->size; r++) {
        if (r > 0)
            TUTTI_TRY(tutti_recv(run->group, (tutti_buf){p, bytes, TUTTI_U8}, r, HOOK_TAG, NULL));
        if (status == TUTTI_OK)
            status = write_hook(folder, r, p, bytes);
        if (status != TUTTI_OK && !message[0])
            snprintf(message, sizeof message, "%s", tutti_last_error());
    }
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, message);
}

/* All ranks have the same buckets, so as many bytes. */
static tutti_status save_hooks(tutti__run *run, const char *folder, tutti_status status)
{
    size_t bytes = tutti__powersgd_bytes(&run->hook);
    char message[2048] = "";
    void *p;

    if (bytes == 0)
        return status;
    if (status != TUTTI_OK)
        snprintf(message, sizeof message, "%s", tutti_last_error());
    p = tutti__alloc(bytes);
    if (!p) { /* the others would wait for this rank */
        tutti_group_abort(run->group, "%s", tutti_last_error());
        return TUTTI_ERR_MEMORY;
    }
    tutti__powersgd_save(&run->hook, p);
    if (message[0])
        tutti__fail_again(status, message);
    if (run->rank == 0)
        status = collect_hooks(run, folder, p, bytes, status);
    else
        status = tutti_send(run->group, (tutti_const_buf){p, bytes, TUTTI_U8}, 0, HOOK_TAG, NULL);
    free(p);
    return status;
}

/* ---- All of it ---------------------------------------------------------------------------------------------- */

static tutti_status save(tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    char dir[4096] = "", folder[TUTTI__CHECKPOINT_PATH] = "", *text = NULL;
    tutti_status status = TUTTI_OK;

    if (run->rank == 0) {
        status = tutti__run_folder_checkpoints(&run->folder, dir);
        text = state_text(run, epoch, batch, finished);
        if (status == TUTTI_OK)
            status = text ? tutti__checkpoint_begin(dir, run->step, folder) : TUTTI_ERR_MEMORY;
        if (status == TUTTI_OK)
            status = write_files(run, folder, text);
        free(text);
    }
    status = save_hooks(run, folder, status);
    if (run->rank != 0)
        return status;
    if (status == TUTTI_OK)
        status = tutti__checkpoint_commit(dir, run->step);
    if (status != TUTTI_OK)
        tutti__checkpoint_abandon(dir, run->step);
    else if (tutti__checkpoint_keep(dir, (size_t)run->config->keep_checkpoints) != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "train", "an older checkpoint stays: %s", tutti_last_error());
    return status;
}

tutti_status tutti__run_checkpoint(tutti__run *run, int64_t epoch, size_t batch, bool finished)
{
    uint64_t begin_ns = tutti__now_ns();
    tutti_status status = TUTTI_OK;

    if (run->zero)
        status = tutti_zero_consolidate(run->zero, run->optim, 0);
    if (status == TUTTI_OK)
        status = save(run, epoch, batch, finished);
    status = tutti__fail_together(run->group, status);
    run->told = status != TUTTI_OK;
    run->saved_step = run->step;
    tutti__record(run->recorder, "step", "checkpoint", (int64_t)run->step, 0, begin_ns,
                  tutti__now_ns());
    tutti__ledger_add(&run->ledger, TUTTI__TIME_CHECKPOINT,
                      (double)(tutti__now_ns() - begin_ns) * 1e-9);
    return status;
}
