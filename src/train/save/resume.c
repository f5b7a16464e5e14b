/* resume.c -- resumes a run from a checkpoint.   SPDX-License-Identifier: MIT */
#include "train/save/resume.h"

#include "checkpoint/files.h"
#include "checkpoint/json_text.h"
#include "checkpoint/safetensors.h"
#include "comm/comm.h"
#include "data/dataset.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"
#include "train/session/amp.h"
#include "train/run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

enum { HOOK_TAG = 1, MOST_RANKS = 1 << 20 };
#define MOST_STEPS ((json_int_t)1 << 50)

void tutti__resume_free(tutti__resume *resume)
{
    json_decref(resume->state);
    tutti__optim_block_free(&resume->optim);
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

tutti_status tutti__resume_find_folder(tutti__run *run)
{
    char dir[TUTTI__CHECKPOINT_PATH];
    const char *name;
    bool one;

    if (run->config->run_dir[0] || !is_path(run->config))
        return TUTTI_OK;
    TUTTI_TRY(locate(run->config->resume, dir, &one));
    name = strrchr(dir, '/');
    /* A checkpoint copied out of its run starts a new run. */
    if (strcmp(name ? name + 1 : dir, "checkpoints") == 0)
        snprintf(run->config->run_dir, sizeof run->config->run_dir, "%s", dirname(dir));
    return TUTTI_OK;
}

/* ---- Reading a checkpoint ----------------------------------------------------------------------------------------------- */

/* Checks that the position is possible within the keys' ranges. */
static tutti_status check_ranges(const json_t *state, const char *folder)
{
    static const struct {
        const char *key;
        json_int_t min, max;
        bool younger; /* missing in the oldest version's files */
    } ranges[] = {{"step", 0, MOST_STEPS, false},       {"epoch", 1, 1000001, false},
                  {"start", 0, MOST_STEPS, true},       {"batch", 0, MOST_STEPS, false},
                  {"epochs_done", 0, 1000000, false},   {"forwards", 0, MOST_STEPS, false},
                  {"world_size", 1, MOST_RANKS, false}, {"shards", 0, 4096, true},
                  {"samples", 0, MOST_STEPS, true}};

    for (size_t i = 0; i < TUTTI__COUNT_OF(ranges); i++) {
        const json_t *value = json_object_get(state, ranges[i].key);
        const json_int_t n = json_integer_value(value);

        if (!value && ranges[i].younger)
            continue;
        if (!json_is_integer(value) || n < ranges[i].min || n > ranges[i].max)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s/state.json is damaged: %s is not an integer from %lld to %lld",
                               folder, ranges[i].key, (long long)ranges[i].min,
                               (long long)ranges[i].max);
    }
    return TUTTI_OK;
}

static tutti_status read_state(json_t **state_p, const char *folder)
{
    TUTTI_TRY(tutti__state_read(state_p, folder));
    TUTTI_TRY(check_ranges(*state_p, folder));
    if (!json_is_object(json_object_get(*state_p, "config")) ||
        !json_is_object(json_object_get(*state_p, "sums")) ||
        !json_is_string(json_object_get(*state_p, "model_digest")))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s/state.json is damaged: config, sums or model_digest is missing",
                           folder);
    return TUTTI_OK;
}

/* Reads one rank's hook state into memory that the caller frees. */
static tutti_status read_hook(const char *folder, int rank, void **p_p, size_t *bytes_p)
{
    char path[TUTTI__CHECKPOINT_PATH + 64];
    const tutti__safetensors_entry *e;
    tutti__safetensors *file;
    tutti_status status;

    *p_p = NULL;
    snprintf(path, sizeof path, "%s/hook-rank-%05d.safetensors", folder, rank);
    TUTTI_TRY(tutti__safetensors_open(&file, path));
    e = tutti__safetensors_find(file, "powersgd");
    status = e && tutti__safetensors_has_digest(file, e)
                 ? TUTTI_OK
                 : tutti__fail(TUTTI_ERR_FORMAT, "%s: powersgd or its digest is missing", path);
    if (status == TUTTI_OK) {
        *bytes_p = (size_t)e->bytes;
        *p_p = tutti__alloc(*bytes_p);
        status = *p_p ? tutti__safetensors_read(file, e, *p_p) : TUTTI_ERR_MEMORY;
    }
    tutti__safetensors_close(file);
    return status;
}

static bool has_hook_state(const tutti__run *run)
{
    return strcmp(run->config->comm_hook, "powersgd") == 0;
}

static int ranks_then(const tutti__run *run)
{
    return (int)json_integer_value(json_object_get(run->resume.state, "world_size"));
}

/* Among how many ranks or shards the samples of a step were divided. */
static int shares_then(const tutti__run *run)
{
    const int shards = (int)json_integer_value(json_object_get(run->resume.state, "shards"));

    return shards > 0 ? shards : ranks_then(run);
}

static tutti_status check_hooks(const tutti__run *run, const char *folder)
{
    for (int r = 0; r < ranks_then(run) && has_hook_state(run); r++) {
        size_t bytes;
        void *p;
        tutti_status status = read_hook(folder, r, &p, &bytes);

        free(p);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

/* The module changes only when all has been read. */
static tutti_status read_files(tutti__run *run, const char *folder)
{
    tutti__snapshot model = {.n = 0};
    tutti_status status =
        tutti__checkpoint_read_model(&model, run->module, folder, run->resume.state);

    if (status == TUTTI_OK)
        status = tutti__checkpoint_read_optim(&run->resume.optim, run->module, folder);
    if (status == TUTTI_OK)
        status = check_hooks(run, folder);
    if (status == TUTTI_OK)
        status = tutti__snapshot_put(&model, run->module);
    tutti__snapshot_free(&model);
    return status;
}

static uint64_t natural(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

/* The checkpoint's position, for this run's number of ranks. */
static tutti__position position(const tutti__run *run)
{
    const json_t *state = run->resume.state;
    tutti__position at = {.step = natural(state, "step"),
                          .epoch = (int64_t)natural(state, "epoch"),
                          .start = (size_t)natural(state, "start"),
                          .batch = (size_t)natural(state, "batch")};

    if (shares_then(run) == tutti__run_shares(run))
        return at;
    return (tutti__position){.step = at.step,
                             .epoch = at.epoch,
                             .start = tutti__plan_samples(run, &at, shares_then(run))};
}

/* Checks that the data set has the same size, and that the position is within it. */
static tutti_status check_data(const tutti__run *run, const char *folder)
{
    const size_t count = tutti_dataset_describe(run->train_data).count;
    const json_t *state = run->resume.state, *was = json_object_get(state, "train_images");
    const tutti__position at = {.start = (size_t)natural(state, "start"),
                                .batch = (size_t)natural(state, "batch")};

    if (json_is_integer(was) && json_integer_value(was) != (json_int_t)count)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data: the run of %s had %lld training %s, and this one has %zu, "
                           "which would change the result; resume with the same data, or begin a "
                           "new run from its weights: --init %s/model.safetensors",
                           folder, (long long)json_integer_value(was),
                           tutti__dataset_noun(run->train_data), count, folder);
    if (json_object_get(state, "samples") &&
        (at.start > count ||
         tutti__plan_samples(run, &at, shares_then(run)) != natural(state, "samples")))
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s/state.json is damaged: start %zu and batch %zu of %d %s are not "
                           "%llu samples of %zu",
                           folder, at.start, at.batch, shares_then(run),
                           natural(state, "shards") > 0 ? "shards" : "ranks",
                           (unsigned long long)natural(state, "samples"), count);
    return TUTTI_OK;
}

/* ARG: it is intact, but of another run. */
static tutti_status read_checkpoint(tutti__run *run, const char *dir, const char *folder)
{
    char mine[4096], real_dir[PATH_MAX], real_mine[PATH_MAX];
    tutti__resume *r = &run->resume;
    tutti__position at;
    tutti_status status;

    tutti__resume_free(r);
    status = read_state(&r->state, folder);
    if (status == TUTTI_OK)
        status = tutti__resume_check_keys(run, json_object_get(r->state, "config"), folder);
    if (status == TUTTI_OK)
        status = check_data(run, folder);
    if (status == TUTTI_OK)
        status = read_files(run, folder);
    if (status != TUTTI_OK) {
        tutti__resume_free(r);
        return status;
    }
    snprintf(r->path, sizeof r->path, "%s", folder);
    r->found = true;
    r->here = tutti__run_folder_checkpoints(&run->folder, mine) == TUTTI_OK &&
              realpath(dir, real_dir) && realpath(mine, real_mine) &&
              strcmp(real_dir, real_mine) == 0;
    at = position(run);
    r->finished =
        json_is_true(json_object_get(r->state, "finished")) && tutti__plan_left(run, &at) == 0;
    r->complete = r->finished && r->here && tutti__run_folder_is_complete(&run->folder);
    return TUTTI_OK;
}

static tutti_status read_first_whole(tutti__run *run, const char *dir, const uint64_t *steps,
                                     size_t n)
{
    char folder[TUTTI__CHECKPOINT_PATH];
    tutti_status status = TUTTI_OK;

    for (size_t i = 0; i < n && !run->resume.found; i++) {
        status = tutti__checkpoint_path(dir, steps[i], folder);
        if (status == TUTTI_OK)
            status = read_checkpoint(run, dir, folder);
        if (status == TUTTI_ERR_ARG || status == TUTTI_ERR_MEMORY)
            break;
        if (status != TUTTI_OK)
            tutti__print_line(stderr, "%s: checkpoint %s is skipped: %s", run->parts->title, folder,
                              tutti_last_error());
        status = TUTTI_OK;
    }
    return status;
}

/* Reads the latest intact checkpoint of a folder; damaged ones are reported, and do not change the module. */
static tutti_status read_latest(tutti__run *run, const char *dir)
{
    uint64_t *steps;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &n));
    status = read_first_whole(run, dir, steps, n);
    free(steps);
    return status;
}

tutti_status tutti__resume_choose(tutti__run *run)
{
    const tutti__train_config *c = run->config;
    char dir[TUTTI__CHECKPOINT_PATH];
    bool one;

    if (strcmp(c->resume, "auto") == 0 ||
        tutti__train_job_continues(&run->job, &run->folder.lock.earlier)) {
        TUTTI_TRY(tutti__run_folder_checkpoints(&run->folder, dir));
        TUTTI_TRY(read_latest(run, dir));
    }
    if (run->resume.found || !is_path(c))
        return TUTTI_OK;
    TUTTI_TRY(locate(c->resume, dir, &one));
    if (one)
        return read_checkpoint(run, dir, c->resume);
    TUTTI_TRY(read_latest(run, dir));
    if (run->resume.found)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_NOT_FOUND, "resume: there is no intact checkpoint in %s", dir);
}

/* ---- Distribution to all ranks -------------------------------------------------- */

/* Broadcasts state.json's text, rank 0's *text_p; the caller frees it. */
static tutti_status share_state(tutti__run *run, size_t bytes, char **text_p)
{
    if (run->rank != 0)
        *text_p = tutti__alloc(bytes + 1);
    if (!*text_p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state");
    return tutti_broadcast(run->group, TUTTI_BUF(*text_p, bytes, TUTTI_U8), 0, NULL);
}

tutti_status tutti__resume_share(tutti__run *run)
{
    tutti__resume *r = &run->resume;
    int64_t head[4] = {r->found, r->finished, r->complete, 0};
    char *text = NULL;
    tutti_status status;

    if (run->rank == 0 && r->found) {
        text = tutti__json_text(r->state, JSON_REAL_PRECISION(17));
        head[3] = text ? (int64_t)strlen(text) : 0;
    }
    status = tutti_broadcast(run->group, TUTTI_BUF(head, 4, TUTTI_I64), 0, NULL);
    r->found = head[0] != 0;
    r->finished = head[1] != 0;
    r->complete = head[2] != 0;
    if (status == TUTTI_OK && r->found)
        status = share_state(run, (size_t)head[3], &text);
    if (status == TUTTI_OK && r->found && run->rank != 0) {
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

static void apply_state(tutti__run *run)
{
    const json_t *state = run->resume.state, *sums = json_object_get(state, "sums");
    const tutti__position at = position(run);

    tutti__plan(run, &at);
    run->at.step = run->saved_step = at.step;
    run->at.epoch = at.epoch;
    run->at.start = at.start;
    run->at.batch = at.batch;
    run->at.epochs_done = (int64_t)natural(state, "epochs_done");
    tutti_ctx_set_step(run->cx, natural(state, "forwards"));
    run->at.log_loss = mean_of(sums, "log_loss");
    run->at.epoch_loss = mean_of(sums, "epoch_loss");
    run->at.shown_loss = real(sums, "shown_loss", NAN);
    run->at.val_loss = real(sums, "val_loss", NAN);
    run->at.val_accuracy = real(sums, "val_accuracy", NAN);
    tutti__ledger_restore(&run->ledger, json_object_get(sums, "time"));
    run->at.train_seconds = real(sums, "train_seconds", 0);
    run->at.log_seconds = real(sums, "log_seconds", 0);
    run->at.images = real(sums, "images", 0);
    run->at.log_images = real(sums, "log_images", 0);
    run->seconds_before = real(sums, "seconds", 0);
    run->traffic_before = (tutti_traffic){.gradient_bytes = natural(sums, "gradient_bytes"),
                                          .wire_bytes = natural(sums, "wire_bytes")};
}

static tutti_status check_optimizer(const tutti__run *run)
{
    char path[TUTTI__CHECKPOINT_PATH + 32];

    snprintf(path, sizeof path, "%s/optimizer.safetensors", run->resume.path);
    return tutti__optim_block_fits(&run->resume.optim, run->optim, path);
}

/* With ZeRO, too, every rank gets all of it, and keeps its share in the first step. */
static tutti_status apply_optimizer(tutti__run *run)
{
    tutti__optim_block *block = &run->resume.optim;
    tutti_status status;

    TUTTI_TRY(tutti__group_agree(
        run->group, run->rank == 0 ? check_optimizer(run)
                                   : tutti__optim_block_new(block, run->optim, run->module)));
    status = tutti__optim_block_share(block, run->group);
    if (status == TUTTI_OK)
        status = tutti__optim_block_put(block, run->optim, run->module);
    tutti__optim_block_free(block);
    return status;
}

/* The initial state of a rank when the number of ranks has changed: the mean of the old ranks' errors, so that their
 * contribution to the next mean gradient stays the same. */
static tutti_status mean_hook(const tutti__run *run, void **mean_p, size_t *bytes_p)
{
    TUTTI_TRY(read_hook(run->resume.path, 0, mean_p, bytes_p));
    for (int r = 1; r < ranks_then(run); r++) {
        size_t bytes = 0;
        void *p;
        tutti_status status = read_hook(run->resume.path, r, &p, &bytes);

        if (status == TUTTI_OK && bytes != *bytes_p)
            status = tutti__fail(TUTTI_ERR_FORMAT, "%s: ranks 0 and %d hold %zu and %zu bytes",
                                 run->resume.path, r, *bytes_p, bytes);
        if (status == TUTTI_OK)
            status = tutti__powersgd_mean(*mean_p, p, bytes, (size_t)r + 1);
        free(p);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

static tutti_status send_hook(tutti__run *run, int rank, const void *p, size_t bytes)
{
    int64_t n = (int64_t)bytes;

    if (rank == 0)
        return tutti__powersgd_restore(&run->hook, p, bytes);
    TUTTI_TRY(tutti_send(run->group, TUTTI_CONST_BUF(&n, 1, TUTTI_I64), rank, HOOK_TAG, NULL));
    return tutti_send(run->group, TUTTI_CONST_BUF(p, bytes, TUTTI_U8), rank, HOOK_TAG, NULL);
}

/* Rank 0 reads each rank's state in turn, and sends it: its size, then its bytes. */
static tutti_status send_hooks(tutti__run *run)
{
    const bool alike = ranks_then(run) == run->size;
    tutti_status status = TUTTI_OK;
    size_t bytes = 0;
    void *p = NULL;

    if (!alike)
        status = mean_hook(run, &p, &bytes);
    for (int r = run->size - 1; r >= 0 && status == TUTTI_OK; r--) {
        if (alike) {
            free(p);
            status = read_hook(run->resume.path, r, &p, &bytes);
        }
        if (status == TUTTI_OK)
            status = send_hook(run, r, p, bytes);
    }
    free(p);
    return status;
}

static tutti_status apply_hook(tutti__run *run)
{
    int64_t n = 0;
    tutti_status status;
    void *p;

    if (!has_hook_state(run))
        return TUTTI_OK;
    if (run->rank == 0)
        return send_hooks(run);
    TUTTI_TRY(tutti_recv(run->group, TUTTI_BUF(&n, 1, TUTTI_I64), 0, HOOK_TAG, NULL));
    p = tutti__alloc((size_t)n);
    if (!p)
        return TUTTI_ERR_MEMORY;
    status = tutti_recv(run->group, TUTTI_BUF(p, (size_t)n, TUTTI_U8), 0, HOOK_TAG, NULL);
    if (status == TUTTI_OK)
        status = tutti__powersgd_restore(&run->hook, p, (size_t)n);
    free(p);
    return status;
}

/* ---- Shards ------------------------------------------------------------------------------------------------------- */

/* If steps are divided as before, the digest of samples continues; else it restarts from here. */
static tutti_status apply_samples(tutti__run *run)
{
    const json_t *state = run->resume.state, *samples = json_object_get(state, "samples_digest"),
                 *from = json_object_get(state, "samples_from");
    const tutti__position at = position(run);

    run->kept.from = at;
    if (!samples || !from || shares_then(run) != run->shards)
        return TUTTI_OK;
    if (sscanf(json_string_value(samples) ? json_string_value(samples) : "",
               "%16" SCNx64 "%16" SCNx64, &run->kept.samples[0], &run->kept.samples[1]) != 2)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s/state.json is damaged: samples_digest",
                           run->resume.path);
    run->kept.from = (tutti__position){.step = natural(from, "step"),
                                       .epoch = (int64_t)natural(from, "epoch"),
                                       .start = (size_t)natural(from, "start"),
                                       .batch = (size_t)natural(from, "batch")};
    return TUTTI_OK;
}

static void apply_members(tutti__run *run)
{
    const json_t *members = json_object_get(run->resume.state, "members");
    tutti__kept *k = &run->kept;

    k->members = json_integer_value(json_object_get(members, "now"));
    k->lost = json_integer_value(json_object_get(members, "lost"));
    k->joined = json_integer_value(json_object_get(members, "joined"));
    k->left = json_integer_value(json_object_get(members, "left"));
    k->attempts = json_integer_value(json_object_get(members, "attempts"));
    k->taken_over = json_integer_value(json_object_get(members, "taken_over"));
}

/* A checkpoint of a run by rank has none; the first step finds them. */
static tutti_status apply_ranges(tutti__run *run)
{
    const json_t *ranges = json_object_get(run->resume.state, "ranges");
    tutti_reducer *reducer = tutti_ddp_reducer(run->ddp);
    size_t n = 0;

    while (tutti_reducer_name(reducer, n))
        n++;
    if (!ranges)
        return TUTTI_OK;
    if (json_array_size(ranges) != n)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s/state.json is damaged: ranges are %zu numbers, expected %zu",
                           run->resume.path, json_array_size(ranges), n);
    for (size_t i = 0; i < n; i++) {
        const float range = (float)json_number_value(json_array_get(ranges, i));

        if (!isfinite(range) || range <= 0)
            return tutti__fail(TUTTI_ERR_FORMAT,
                               "%s/state.json is damaged: number %zu of its ranges, that of "
                               "\"%s\", is not above 0",
                               run->resume.path, i, tutti_reducer_name(reducer, i));
        tutti_reducer_ranges(reducer)[i] = range;
    }
    return TUTTI_OK;
}

tutti_status tutti__resume_apply_alone(tutti__run *run)
{
    if (!run->resume.found)
        return TUTTI_OK;
    apply_state(run);
    run->kept.forwards = natural(run->resume.state, "forwards");
    run->kept.complete = run->resume.complete;
    run->kept.finished = run->resume.finished;
    TUTTI_TRY(tutti__amp_restore(run, run->resume.state));
    apply_members(run);
    TUTTI_TRY(apply_samples(run));
    TUTTI_TRY(apply_ranges(run));
    TUTTI_TRY(check_optimizer(run));
    return tutti__optim_block_put(&run->resume.optim, run->optim, run->module);
}

tutti_status tutti__resume_apply(tutti__run *run)
{
    if (!run->resume.found)
        return TUTTI_OK;
    apply_state(run);
    TUTTI_TRY(tutti__amp_restore(run, run->resume.state));
    TUTTI_TRY(apply_optimizer(run));
    return apply_hook(run);
}
