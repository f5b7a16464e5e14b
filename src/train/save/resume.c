/* resume.c -- resumes a run from a checkpoint.   SPDX-License-Identifier: MIT */
#include "train/save/resume.h"

#include "base/terminal.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/divided_load.h"
#include "checkpoint/json_text.h"
#include "checkpoint/optim_load.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/state.h"
#include "checkpoint/verify_together.h"
#include "checkpoint/weights_parts.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "nn/nn.h"
#include "optim/ema.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

void tutti__resume_free(tutti__resume *resume)
{
    json_decref(resume->state);
    tutti__optim_block_free(&resume->optim);
    tutti__snapshot_free(&resume->ema);
    resume->state = NULL;
}

/* ---- Choosing a checkpoint ------------------------------------------------------------------------------------------------ */

static bool is_path(const tutti__train_config *c)
{
    return c->resume[0] && strcmp(c->resume, "no") != 0 && strcmp(c->resume, "auto") != 0;
}

/* `path` is a checkpoint, or a folder with some: sets `dir` to the folder of checkpoints, and *one_p to whether it is one. */
static tutti_status locate(const char *path, char dir[TUTTI__CHECKPOINT_PATH], bool *one_p)
{
    char real[PATH_MAX];
    uint64_t step;

    *one_p = false;
    if (!realpath(path, real) || access(path, R_OK) != 0 ||
        (tutti__is_folder(path) && access(path, X_OK) != 0))
        return tutti__fail_errno(errno, "resume: cannot read %s", path);
    if (tutti__checkpoint_step(real, &step)) {
        *one_p = true;
        snprintf(dir, TUTTI__CHECKPOINT_PATH, "%s", dirname(real));
        return TUTTI_OK;
    }
    snprintf(dir, TUTTI__CHECKPOINT_PATH, "%s/checkpoints", path);
    if (tutti__is_folder(dir))
        return TUTTI_OK;
    if (tutti__folder_holds(path, "state.json"))
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "resume: %s holds no checkpoint of a run, but one of a program's own "
                           "loop, in which that program continues; a new run can begin with its "
                           "weights: --init %s",
                           path, path);
    return tutti__fail(TUTTI_ERR_NOT_FOUND,
                       "resume: %s holds no checkpoint; expected one of a run's "
                       "checkpoints/step-NNNNNNNN, or a run folder",
                       path);
}

tutti_status tutti__resume_find_folder(tutti__train_config *c)
{
    char dir[TUTTI__CHECKPOINT_PATH];
    const char *name;
    bool one;

    if (c->run_dir[0] || !is_path(c))
        return TUTTI_OK;
    TUTTI_TRY(locate(c->resume, dir, &one));
    name = strrchr(dir, '/');
    /* A checkpoint copied out of its run starts a new run. */
    if (strcmp(name ? name + 1 : dir, "checkpoints") == 0)
        snprintf(c->run_dir, sizeof c->run_dir, "%s", dirname(dir));
    return TUTTI_OK;
}

/* ---- Reading a checkpoint ----------------------------------------------------------------------------------------------- */

static tutti_status read_state(json_t **state_p, const char *folder)
{
    TUTTI_TRY(tutti__state_read(state_p, folder));
    return tutti__state_check_run(*state_p, folder);
}

int tutti__resume_shares_then(const tutti__resume *r)
{
    const int shards = (int)json_integer_value(json_object_get(r->state, "shards"));
    const json_t *data_ranks =
        json_object_get(r->state, "data_ranks"); /* fewer than ranks, with a mesh */

    return shards > 0   ? shards
           : data_ranks ? (int)json_integer_value(data_ranks)
                        : tutti__resume_ranks_then(r);
}

static const char *digest_of(const tutti__resume *r)
{
    const char *digest = json_string_value(json_object_get(r->state, "digest"));

    return digest ? digest : "";
}

/* Of what is divided no rank reads more than its part, when there is a layout; until then it is only verified, with the others. */
static tutti_status verify_divided(const tutti__resume *r, const char *folder)
{
    tutti__verify_wish wish = {.model = tutti__session_divides_model(r->session), .optim = true};

    wish.average = wish.model && r->session->config->ema > 0 &&
                   json_is_object(json_object_get(r->state, "ema"));
    snprintf(wish.folder, sizeof wish.folder, "%s", folder);
    snprintf(wish.digest, sizeof wish.digest, "%s", digest_of(r));
    return tutti__verify_ask(r->session->group, r->session->module, &wish);
}

/* By shards rank 0 reads all of it: a group begins with all of the state on each rank. */
static tutti_status read_files(tutti__resume *r, const char *folder)
{
    const bool in_parts = r->session->shards == 0 && tutti__session_is_divided(r->session);
    const bool divided = in_parts && tutti__session_divides_model(r->session);
    tutti__snapshot model = {.n = 0};
    tutti_status status;

    TUTTI_TRY(tutti__state_check_files(folder, "model", r->state));
    TUTTI_TRY(tutti__state_check_files(folder, "optimizer", r->state));
    if (r->session->config->ema > 0)
        TUTTI_TRY(tutti__state_check_files(folder, "ema", r->state));
    status = divided ? TUTTI_OK
                     : tutti__checkpoint_read_model(&model, r->session->module, folder, r->state);
    if (status == TUTTI_OK && in_parts)
        status = verify_divided(r, folder);
    if (status == TUTTI_OK)
        status = in_parts ? tutti__optim_file_names(&r->optim, folder)
                          : tutti__optim_block_read(&r->optim, r->session->module, folder);
    if (status == TUTTI_OK && !divided && r->session->config->ema > 0)
        status = tutti__checkpoint_read_ema(&r->ema, r->session->module, folder, r->state,
                                            &r->ema_updates);
    if (status == TUTTI_OK)
        status = tutti__resume_check_hook(r, folder);
    if (status == TUTTI_OK && !divided)
        status = tutti__snapshot_put(&model, r->session->module);
    tutti__snapshot_free(&model);
    return status;
}

static uint64_t natural(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* The checkpoint's position, for this run's number of ranks. */
static tutti__run_cursor cursor_of(const tutti__resume *r)
{
    const json_t *state = r->state;
    tutti__run_cursor at = {.step = natural(state, "step"),
                            .epoch = (int64_t)natural(state, "epoch"),
                            .start = (size_t)natural(state, "start"),
                            .batch = (size_t)natural(state, "batch")};

    if (tutti__resume_shares_then(r) == r->plan->shares)
        return at;
    return (tutti__run_cursor){.step = at.step,
                               .epoch = at.epoch,
                               .start =
                                   tutti__plan_samples(r->plan, &at, tutti__resume_shares_then(r))};
}

/* The columns, scale and classes of a table must be those of the run. */
static tutti_status check_fit(const tutti__resume *r, const char *folder)
{
    const json_t *was = json_object_get(r->state, "data");
    const char *fit = tutti_dataset_fitted(r->session->data.train);
    json_t *is = fit ? json_loads(fit, 0, NULL) : NULL;
    const bool same = !was || (is && json_equal(was, is));

    json_decref(is);
    if (same)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "data: the run of %s had other training data: their columns, mean, std or "
        "classes, or their tokenizer or text (its state.json, \"data\") are not those of "
        "this run's, which would "
        "change the result; resume with the same data, or begin a new run from its "
        "weights: --init %s",
        folder, folder);
}

/* Checks that the data set has the same size, and that the position is within it. */
static tutti_status check_data(const tutti__resume *r, const char *folder)
{
    const size_t count = r->plan->count;
    const json_t *state = r->state, *was = json_object_get(state, "train_images");
    const tutti__run_cursor at = {.start = (size_t)natural(state, "start"),
                                  .batch = (size_t)natural(state, "batch")};

    if (json_is_integer(was) && json_integer_value(was) != (json_int_t)count)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data: the run of %s had %lld training %s, and this one has %zu, "
                           "which would change the result; resume with the same data, or begin a "
                           "new run from its weights: --init %s",
                           folder, (long long)json_integer_value(was),
                           tutti__dataset_noun(r->session->data.train), count, folder);
    TUTTI_TRY(check_fit(r, folder));
    if (json_object_get(state, "samples") &&
        (at.start > count || tutti__plan_samples(r->plan, &at, tutti__resume_shares_then(r)) !=
                                 natural(state, "samples")))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s/state.json is damaged: start %zu and batch %zu of %d %s are not "
                           "%llu samples of %zu",
                           folder, at.start, at.batch, tutti__resume_shares_then(r),
                           natural(state, "shards") > 0 ? "shards" : "ranks",
                           (unsigned long long)natural(state, "samples"), count);
    return TUTTI_OK;
}

/* Sets the best evaluation, if it was judged by the same metric, and whether the program had ended the run. */
static void apply_end(const tutti__resume *r, tutti__position *p)
{
    const json_t *best = json_object_get(r->state, "best");
    const char *metric = json_string_value(json_object_get(best, "metric")),
               *why = json_string_value(json_object_get(r->state, "stopped"));

    p->stopped = why != NULL;
    snprintf(p->stop_why, sizeof p->stop_why, "%s", why ? why : "");
    if (metric && strcmp(metric, tutti__monitor_of(r->session->config).name) == 0)
        p->best = (tutti__best){.value = json_number_value(json_object_get(best, "value")),
                                .step = natural(best, "step"),
                                .since = json_integer_value(json_object_get(best, "since"))};
}

/* Whether nothing was left to do there. */
static bool is_finished(tutti__resume *r)
{
    const tutti__run_cursor at = cursor_of(r);
    tutti__position p = tutti__position_begin();

    if (!json_is_true(json_object_get(r->state, "finished")))
        return false;
    apply_end(r, &p);
    tutti__plan_why(r->session->config, &p.best, p.stopped, p.stop_why, r->why);
    return r->why[0] || tutti__plan_left(r->plan, &at) == 0;
}

/* ARG: it is intact, but of another run. */
static tutti_status read_checkpoint(tutti__resume *r, const char *dir, const char *folder)
{
    char mine[4096], real_dir[PATH_MAX], real_mine[PATH_MAX];
    tutti_status status;

    tutti__resume_free(r);
    status = read_state(&r->state, folder);
    if (status == TUTTI_OK)
        status = tutti__resume_check_keys(r, json_object_get(r->state, "config"), folder);
    if (status == TUTTI_OK)
        status = check_data(r, folder);
    if (status == TUTTI_OK)
        status = read_files(r, folder);
    if (status != TUTTI_OK) {
        tutti__resume_free(r);
        return status;
    }
    snprintf(r->path, sizeof r->path, "%s", folder);
    r->found = true;
    r->here = tutti__run_folder_checkpoints(r->folder, mine) == TUTTI_OK &&
              realpath(dir, real_dir) && realpath(mine, real_mine) &&
              strcmp(real_dir, real_mine) == 0;
    r->finished = is_finished(r);
    r->complete = r->finished && r->here && tutti__run_folder_is_complete(r->folder);
    return TUTTI_OK;
}

/* A checkpoint that was named. */
static tutti_status read_named(tutti__resume *r, const char *dir, const char *folder)
{
    const tutti_status status = read_checkpoint(r, dir, folder);

    if (status != TUTTI_ERR_FORMAT && status != TUTTI_ERR_NOT_FOUND && status != TUTTI_ERR_IO)
        return status;
    return tutti__fail(status,
                       "resume: %s; restore this checkpoint, name another one, or name its run's "
                       "folder, of which the latest that is intact is taken",
                       tutti_last_error());
}

static tutti_status read_first_whole(tutti__resume *r, const char *dir, const uint64_t *steps,
                                     size_t n)
{
    char folder[TUTTI__CHECKPOINT_PATH];
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < n && !r->found; i++) {
        status = tutti__checkpoint_path(dir, steps[i], folder);
        if (status == TUTTI_OK)
            status = read_checkpoint(r, dir, folder);
        if (status == TUTTI_ERR_ARG || status == TUTTI_ERR_MEMORY ||
            (status != TUTTI_OK && tutti_status_scope(status) == TUTTI_SCOPE_GROUP))
            break;
        if (status != TUTTI_OK)
            tutti__print_line(stderr, "%s: checkpoint %s is skipped: %s", r->session->parts->title,
                              folder, tutti_last_error());
        status = TUTTI_OK;
    }
    return status;
}

/* " step-00000040, step-00000020" */
static void names_text(const uint64_t *steps, size_t n, char text[600])
{
    int length = 0;

    for (size_t i = 0; i < n && length < 500; i++)
        length += snprintf(text + length, 600 - (size_t)length, "%s step-%08" PRIu64, i ? "," : "",
                           steps[i]);
    if (length >= 500)
        snprintf(text + length, 600 - (size_t)length, ", ...");
}

/* Reads the latest intact checkpoint of a folder; damaged ones are reported, and do not change the module. FORMAT if none of
 * them is intact. */
static tutti_status read_latest(tutti__resume *r, const char *dir)
{
    char names[600] = "";
    uint64_t *steps;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &n));
    status = read_first_whole(r, dir, steps, n);
    names_text(steps, n, names);
    free(steps);
    if (status != TUTTI_OK || r->found || n == 0)
        return status;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "resume: no checkpoint in %s is intact (damaged:%s); restore one, or start "
                       "from the beginning: with --resume no, or without that folder",
                       dir, names);
}

/* Says that --resume auto finds an earlier run, which cannot be continued. */
static void say_anew(const tutti__resume *r, const char *dir)
{
    const uint64_t step = tutti__run_folder_last_step(r->folder);

    if (step > 0)
        tutti__print_line(stderr,
                          "%s: %s/metrics.jsonl ends at step %" PRIu64
                          ", but there is no checkpoint in %s: the run begins anew",
                          r->session->parts->title, r->folder->path, step, dir);
}

tutti_status tutti__resume_choose(tutti__resume *r, const tutti__train_job *job)
{
    const tutti__train_config *c = r->session->config;
    char dir[TUTTI__CHECKPOINT_PATH];
    bool one;

    if (strcmp(c->resume, "auto") == 0 ||
        tutti__train_job_continues(job, &r->folder->lock.earlier)) {
        TUTTI_TRY(tutti__run_folder_checkpoints(r->folder, dir));
        TUTTI_TRY(read_latest(r, dir));
        if (!r->found && strcmp(c->resume, "auto") == 0)
            say_anew(r, dir);
    }
    if (r->found || !is_path(c))
        return TUTTI_OK;
    TUTTI_TRY(locate(c->resume, dir, &one));
    if (one)
        return read_named(r, dir, c->resume);
    TUTTI_TRY(read_latest(r, dir));
    return r->found ? TUTTI_OK
                    : tutti__fail(TUTTI_ERR_NOT_FOUND, "resume: there is no checkpoint in %s", dir);
}

/* ---- Distribution to all ranks -------------------------------------------------- */

/* Broadcasts state.json's text, rank 0's *text_p; the caller frees it. */
static tutti_status share_state(tutti__resume *r, size_t bytes, char **text_p)
{
    if (r->session->rank != 0)
        *text_p = tutti__alloc(bytes + 1);
    if (!*text_p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state");
    return tutti_broadcast(r->session->group, TUTTI_BUF(*text_p, bytes, TUTTI_U8), 0, NULL);
}

tutti_status tutti__resume_share(tutti__resume *r)
{
    int64_t head[5] = {r->found, r->finished, r->complete, 0, r->here};
    char *text = NULL;
    tutti_status status;

    if (r->session->rank == 0 && r->found) {
        text = tutti__json_text(r->state, JSON_REAL_PRECISION(17));
        head[3] = text ? (int64_t)strlen(text) : 0;
    }
    status = tutti_broadcast(r->session->group, TUTTI_BUF(head, 5, TUTTI_I64), 0, NULL);
    r->found = head[0] != 0;
    r->finished = head[1] != 0;
    r->complete = head[2] != 0;
    r->here = head[4] != 0;
    if (status == TUTTI_OK && r->found)
        status = share_state(r, (size_t)head[3], &text);
    if (status == TUTTI_OK && r->found && r->session->rank != 0) {
        r->state = json_loadb(text, (size_t)head[3], 0, NULL);
        if (!r->state)
            status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state");
    }
    free(text);
    return status;
}

static double real(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static tutti__mean mean_of(const json_t *object, const char *key)
{
    const json_t *pair = json_object_get(object, key);

    return (tutti__mean){json_number_value(json_array_get(pair, 0)),
                         json_number_value(json_array_get(pair, 1))};
}

/* What state_json.c writes of the last evaluation. */
static tutti__eval_metrics scores_of(const json_t *sums)
{
    const json_t *saved = json_object_get(sums, "scores");
    tutti__eval_metrics scores = tutti__no_scores();

    for (size_t i = 0; i < tutti__eval_table.n; i++)
        if (tutti__eval_table.rows[i].type == TUTTI__METRIC_SOME)
            *tutti__eval_value(&tutti__eval_table.rows[i], &scores) =
                real(saved, tutti__eval_table.rows[i].name, NAN);
    for (size_t i = 0; i < TUTTI__OWN_METRICS; i++) {
        const json_t *value = json_array_get(json_object_get(saved, "own"), i);

        scores.own[i] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    scores.val_loss = real(sums, "val_loss", NAN);
    scores.val_accuracy = real(sums, "val_accuracy", NAN);
    return scores;
}

static void apply_state(tutti__resume *r)
{
    const json_t *state = r->state, *sums = json_object_get(state, "sums");
    tutti__position *p = r->position;

    p->at = cursor_of(r);
    p->saved_step = p->at.step;
    *r->plan = tutti__plan_of(r->plan->config, r->plan->count, r->plan->shares, r->plan->evaluates,
                              &p->at);
    apply_end(r, p);
    p->epochs_done = (int64_t)natural(state, "epochs_done");
    p->evaluated = natural(state, "evaluated");
    tutti_ctx_set_step(r->session->cx, natural(state, "forwards"));
    p->log_loss = mean_of(sums, "log_loss");
    p->epoch_loss = mean_of(sums, "epoch_loss");
    p->shown_loss = real(sums, "shown_loss", NAN);
    p->scores = scores_of(sums);
    tutti__ledger_restore(&r->totals->ledger, json_object_get(sums, "time"));
    p->train_seconds = real(sums, "train_seconds", 0);
    p->log_seconds = real(sums, "log_seconds", 0);
    p->images = real(sums, "images", 0);
    p->log_images = real(sums, "log_images", 0);
    p->complete = r->complete;
    p->finished = r->finished;
    p->saved_elsewhere = !r->here && tutti__session_divides_model(r->session);
    r->totals->seconds_before = real(sums, "seconds", 0);
    r->totals->before = (tutti_traffic){.gradient_bytes = natural(sums, "gradient_bytes"),
                                        .wire_bytes = natural(sums, "wire_bytes")};
}

static tutti_status apply_scaler(tutti__resume *r)
{
    const json_t *o = json_object_get(r->state, "scaler");
    const tutti_scaler_state s = tutti__scaler_of_json(o);

    if (!r->session->scaler)
        return TUTTI_OK;
    if (tutti_scaler_state_set(r->session->scaler, &s) != TUTTI_OK)
        return tutti__fail(TUTTI_ERR_FORMAT, "the checkpoint's state.json: %s", tutti_last_error());
    r->position->skipped_steps = natural(o, "skipped_steps");
    return TUTTI_OK;
}

static tutti_status check_optimizer(const tutti__resume *r)
{
    char path[TUTTI__CHECKPOINT_PATH + 32];

    snprintf(path, sizeof path, "%s/optimizer.safetensors", r->path);
    return tutti__optim_block_fits(&r->optim, r->session->optim, path);
}

/* Each rank reads its part of the optimizer's state: in the first step, which makes the layout. */
static tutti_status apply_divided(tutti__resume *r)
{
    TUTTI_TRY(tutti__group_agree(r->session->group,
                                 r->session->rank == 0 ? check_optimizer(r) : TUTTI_OK));
    return tutti__optim_load_later(r->session->optim, r->session->module, r->session->group,
                                   r->path, digest_of(r));
}

/* And its part of the model, and of the averages. */
static tutti_status apply_model(tutti__resume *r)
{
    tutti__session *s = r->session;
    const json_t *updates = json_object_get(json_object_get(r->state, "ema"), "updates");

    if (!tutti__session_is_divided(s))
        return TUTTI_OK;
    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(r->path, sizeof r->path, TUTTI_U8), 0, NULL));
    if (!tutti__session_divides_model(s))
        return TUTTI_OK;
    TUTTI_TRY(tutti__divided_load(s->module, NULL, s->group, r->path, "model", digest_of(r)));
    if (!s->ema || !updates)
        return TUTTI_OK;
    TUTTI_TRY(tutti__group_agree(s->group, tutti__ema_prepare(s->ema)));
    TUTTI_TRY(tutti__divided_load(s->module, s->ema, s->group, r->path, "ema", digest_of(r)));
    return tutti_ema_set_updates(s->ema, (uint64_t)json_integer_value(updates));
}

static tutti_status apply_optimizer(tutti__resume *r)
{
    tutti__optim_block *block = &r->optim;
    tutti_status status;

    if (tutti__session_is_divided(r->session))
        return apply_divided(r);
    TUTTI_TRY(tutti__group_agree(
        r->session->group, r->session->rank == 0 ? check_optimizer(r)
                                                 : tutti__optim_block_new(block, r->session->optim,
                                                                          r->session->module)));
    status = tutti__optim_block_share(block, r->session->module, r->session->group);
    if (status == TUTTI_OK)
        status = tutti__optim_block_put(block, r->session->optim, r->session->module);
    tutti__optim_block_free(block);
    return status;
}

/* Rank 0 has read it, and sends it. A checkpoint that is older than the key has none: the average begins anew. */
static tutti_status apply_ema(tutti__resume *r)
{
    tutti__session *s = r->session;
    int64_t head[2] = {r->ema.n > 0, (int64_t)r->ema_updates};
    tutti_status status = TUTTI_OK;

    if (!s->ema || tutti__session_divides_model(s))
        return TUTTI_OK;
    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(head, 2, TUTTI_I64), 0, NULL));
    if (!head[0])
        return TUTTI_OK;
    if (s->rank != 0)
        status = tutti__snapshot_new(&r->ema, s->module);
    TUTTI_TRY(tutti__group_agree(s->group, status));
    TUTTI_TRY(tutti_broadcast(s->group, TUTTI_BUF(r->ema.values, r->ema.bytes, TUTTI_U8), 0, NULL));
    status = tutti__snapshot_put_ema(&r->ema, s->ema, (uint64_t)head[1]);
    tutti__snapshot_free(&r->ema);
    return status;
}

/* ---- Shards ------------------------------------------------------------------------------------------------------- */

/* If steps are divided as before, the digest of samples continues; else it restarts from here. */
static tutti_status apply_samples(tutti__resume *r)
{
    const json_t *state = r->state, *samples = json_object_get(state, "samples_digest"),
                 *from = json_object_get(state, "samples_from");
    const tutti__run_cursor at = cursor_of(r);

    r->position->shared.from = at;
    if (!samples || !from || tutti__resume_shares_then(r) != r->session->shards)
        return TUTTI_OK;
    if (sscanf(json_string_value(samples) ? json_string_value(samples) : "",
               "%16" SCNx64 "%16" SCNx64, &r->position->shared.samples[0],
               &r->position->shared.samples[1]) != 2)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s/state.json is damaged: samples_digest", r->path);
    r->position->shared.from = (tutti__run_cursor){.step = natural(from, "step"),
                                                   .epoch = (int64_t)natural(from, "epoch"),
                                                   .start = (size_t)natural(from, "start"),
                                                   .batch = (size_t)natural(from, "batch")};
    return TUTTI_OK;
}

static void apply_workers(tutti__resume *r)
{
    const json_t *members = json_object_get(r->state, "members");
    tutti__shared_position *k = &r->position->shared;

    k->workers = json_integer_value(json_object_get(members, "now"));
    k->lost = json_integer_value(json_object_get(members, "lost"));
    k->joined = json_integer_value(json_object_get(members, "joined"));
    k->left = json_integer_value(json_object_get(members, "left"));
    k->attempts = json_integer_value(json_object_get(members, "attempts"));
    k->taken_over = json_integer_value(json_object_get(members, "taken_over"));
}

/* A checkpoint of a run by rank has none; the first step finds them. */
static tutti_status apply_ranges(tutti__resume *r)
{
    const struct tutti_root *root = r->session->module->root;
    float *ranges = NULL;
    size_t n;
    tutti_status status = tutti__state_ranges(r->state, r->path, &ranges, &n);

    if (status == TUTTI_OK && n > 0 && n != root->n_ranges)
        status = tutti__fail(TUTTI_ERR_FORMAT,
                             "%s/state.json is damaged: ranges are %zu numbers, expected %zu",
                             r->path, n, root->n_ranges);
    if (status == TUTTI_OK)
        memcpy(root->ranges, ranges, n * sizeof *ranges);
    free(ranges);
    return status;
}

tutti_status tutti__resume_apply_alone(tutti__resume *r)
{
    if (!r->found)
        return TUTTI_OK;
    apply_state(r);
    r->position->shared.forwards = natural(r->state, "forwards");
    TUTTI_TRY(apply_scaler(r));
    apply_workers(r);
    TUTTI_TRY(apply_samples(r));
    TUTTI_TRY(apply_ranges(r));
    TUTTI_TRY(check_optimizer(r));
    if (r->session->ema && r->ema.n > 0)
        TUTTI_TRY(tutti__snapshot_put_ema(&r->ema, r->session->ema, r->ema_updates));
    return tutti__optim_block_put(&r->optim, r->session->optim, r->session->module);
}

tutti_status tutti__resume_apply(tutti__resume *r)
{
    if (!r->found)
        return TUTTI_OK;
    apply_state(r);
    TUTTI_TRY(apply_scaler(r));
    TUTTI_TRY(apply_model(r));
    TUTTI_TRY(apply_optimizer(r));
    TUTTI_TRY(apply_ema(r));
    return tutti__resume_apply_hook(r);
}
