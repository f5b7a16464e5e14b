/* checkpoint_load.c -- whole checkpoints of a training loop of one's own: rank 0 reads, and sends all ranks what it has read.
 * SPDX-License-Identifier: MIT
 *
 * So that a failed load changes nothing on any rank, rank 0 reads everything into memory, every rank allocates what it needs, and
 * all agree that this has worked. Then the values are sent, and only when all have arrived does a rank change anything, by copies
 * that do not allocate. */
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_call.h"
#include "checkpoint/divided_load.h"
#include "checkpoint/optim_load.h"
#include "checkpoint/verify_together.h"
#include "data/loader.h"
#include "optim/optim.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 10 };

/* What rank 0 sends before the values. */
typedef struct head {
    uint64_t step, forwards, epoch, start, batch, ema_updates;
    size_t n_ranges;
    tutti_scaler_state scaler;
    float lr;
    char folder[TUTTI__CHECKPOINT_PATH], digest[40]; /* of state.json */
} head;

typedef struct loading {
    head head;
    /* Over ranks: the model, and the average, or only the optimizer's state; of these each rank then reads what it has. */
    bool divides_model, divides_optim;
    tutti__snapshot model, ema;
    tutti__optim_block block;
    float *ranges; /* head.n_ranges of them */
} loading;

static tutti_status integer(const json_t *state, const char *key, const char *folder, int64_t least,
                            uint64_t *value_p)
{
    const json_t *value = json_object_get(state, key);

    if (!json_is_integer(value) || json_integer_value(value) < least)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "%s/state.json is damaged: %s is not an integer of at least %lld",
                           folder, key, (long long)least);
    *value_p = (uint64_t)json_integer_value(value);
    return TUTTI_OK;
}

static tutti_status natural(const json_t *state, const char *key, const char *folder,
                            uint64_t *value_p)
{
    return integer(state, key, folder, 0, value_p);
}

/* The loader's place, if it is for the same samples in the same order. */
static tutti_status read_place(const tutti__checkpoint_call *p, const json_t *state,
                               const char *folder, head *h)
{
    const tutti__loader_place here = tutti__loader_at(p->opts.loader);
    const json_t *shuffle = json_object_get(state, "shuffle");
    uint64_t samples, count, batch_size, seed, ranks;

    if (!json_object_get(state, "batch_size"))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "checkpoint %s was saved without a loader (or by `tutti train`), so that it "
            "has no place for this one; load it without opts.loader",
            folder);
    TUTTI_TRY(natural(state, "samples", folder, &samples));
    TUTTI_TRY(natural(state, "train_images", folder, &count));
    TUTTI_TRY(natural(state, "batch_size", folder, &batch_size));
    TUTTI_TRY(integer(state, "seed", folder, INT64_MIN, &seed)); /* negative from 2^63 on */
    TUTTI_TRY(natural(state, "world_size", folder, &ranks));
    if (count != here.count || seed != here.seed || json_is_true(shuffle) != here.shuffle)
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint %s: its loader had %llu samples, seed %llu and shuffle %d, "
                           "and this one has %zu, %llu and %d: samples would be repeated or "
                           "skipped; use the same data and options, or load without opts.loader",
                           folder, (unsigned long long)count, (unsigned long long)seed,
                           json_is_true(shuffle), here.count, (unsigned long long)here.seed,
                           (int)here.shuffle);
    if (samples > count || h->start > count)
        return tutti__fail(TUTTI_ERR_FORMAT, "%s/state.json is damaged: %llu of %llu samples",
                           folder, (unsigned long long)samples, (unsigned long long)count);
    if (ranks != (uint64_t)here.ranks || batch_size != here.batch_size) {
        h->start = samples; /* the rest is divided among the ranks of now */
        h->batch = 0;
    }
    return TUTTI_OK;
}

static tutti_status read_state(const tutti__checkpoint_call *p, const json_t *state,
                               const char *folder, head *h)
{
    const tutti_checkpoint_opts *o = &p->opts;
    char path[TUTTI__CHECKPOINT_PATH];
    const char *kind = json_string_value(json_object_get(state, "optimizer"));
    const json_t *lr = json_object_get(state, "lr");

    TUTTI_TRY(natural(state, "step", folder, &h->step));
    TUTTI_TRY(natural(state, "forwards", folder, &h->forwards));
    if ((o->position || o->loader) && !json_object_get(state, "epoch"))
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint %s was saved without a position; load it without "
                           "opts.position and opts.loader",
                           folder);
    if (o->position || o->loader) {
        TUTTI_TRY(natural(state, "epoch", folder, &h->epoch));
        TUTTI_TRY(natural(state, "start", folder, &h->start));
        TUTTI_TRY(natural(state, "batch", folder, &h->batch));
        h->epoch -= h->epoch > 0;
    }
    if (o->loader)
        TUTTI_TRY(read_place(p, state, folder, h));
    if (o->scaler && !json_is_object(json_object_get(state, "scaler")))
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint %s was saved without a scaler; load it without opts.scaler",
                           folder);
    if (o->ema && !json_is_object(json_object_get(state, "ema")))
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint %s was saved without an average of the weights; load it "
                           "without opts.ema",
                           folder);
    h->scaler = tutti__scaler_of_json(json_object_get(state, "scaler"));
    if (p->optim && !tutti__tensor_files_path(folder, "optimizer", path))
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint %s holds no state of an optimizer; pass optim NULL to load "
                           "only its weights",
                           folder);
    if (p->optim)
        TUTTI_TRY(tutti__state_check_files(folder, "optimizer", state));
    if (p->optim && kind && strcmp(kind, p->optim->rule->name) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint %s is of the optimizer %s, and this one is %s; use the same "
                           "kind, or pass optim NULL to load only its weights",
                           folder, kind, p->optim->rule->name);
    h->lr = !p->optim            ? 0
            : json_is_number(lr) ? (float)json_number_value(lr)
                                 : tutti_optim_lr(p->optim);
    return TUTTI_OK;
}

static tutti_status read_model(const tutti__checkpoint_call *p, const json_t *state,
                               const char *folder, loading *l)
{
    const json_t *updates = json_object_get(json_object_get(state, "ema"), "updates");

    l->head.ema_updates = (uint64_t)json_integer_value(updates);
    TUTTI_TRY(tutti__state_check_files(folder, "model", state));
    if (p->opts.ema)
        TUTTI_TRY(tutti__state_check_files(folder, "ema", state));
    if (l->divides_model)
        return TUTTI_OK;
    TUTTI_TRY(tutti__checkpoint_read_model(&l->model, p->m, folder, state));
    return p->opts.ema
               ? tutti__checkpoint_read_ema(&l->ema, p->m, folder, state, &l->head.ema_updates)
               : TUTTI_OK;
}

/* What is divided is verified now, by all ranks, and its values are read when all have agreed. */
static tutti_status verify(const tutti__checkpoint_call *p, const loading *l)
{
    tutti__verify_wish wish = {.model = l->divides_model,
                               .average = l->divides_model && p->opts.ema,
                               .optim = l->divides_optim && p->optim};

    if (!wish.model && !wish.optim)
        return TUTTI_OK;
    snprintf(wish.folder, sizeof wish.folder, "%s", l->head.folder);
    snprintf(wish.digest, sizeof wish.digest, "%s", l->head.digest);
    return tutti__verify_ask(p->group, p->m, &wish);
}

static tutti_status read_files(const tutti__checkpoint_call *p, const char *folder, loading *l)
{
    char path[TUTTI__CHECKPOINT_PATH + 32];
    const char *digest;
    json_t *state;
    tutti_status status;

    TUTTI_TRY(tutti__state_read(&state, folder));
    status = read_state(p, state, folder, &l->head);
    if (status == TUTTI_OK)
        status = tutti__state_ranges(state, folder, &l->ranges, &l->head.n_ranges);
    if (status == TUTTI_OK)
        status = read_model(p, state, folder, l);
    digest = json_string_value(json_object_get(state, "digest"));
    snprintf(l->head.digest, sizeof l->head.digest, "%s", digest ? digest : "");
    snprintf(l->head.folder, sizeof l->head.folder, "%s", folder);
    json_decref(state);
    if (status == TUTTI_OK)
        status = verify(p, l);
    if (status != TUTTI_OK || !p->optim)
        return status;
    snprintf(path, sizeof path, "%s/optimizer.safetensors", folder);
    TUTTI_TRY(l->divides_optim ? tutti__optim_file_names(&l->block, folder)
                               : tutti__optim_block_read(&l->block, p->m, folder));
    return tutti__optim_block_fits(&l->block, p->optim, path);
}

/* NOT_FOUND only if there is nothing of this name, since a program then begins from the start. */
static tutti_status find(const char *folder, struct stat *st)
{
    if (stat(folder, st) != 0)
        return errno == ENOENT && lstat(folder, st) == 0
                   ? tutti__fail(TUTTI_ERR_FORMAT, "%s is a symbolic link to nothing", folder)
                   : tutti__fail_errno(errno, "cannot read the checkpoint %s", folder);
    if (S_ISDIR(st->st_mode) && access(folder, R_OK | X_OK) != 0)
        return tutti__fail_errno(errno, "cannot read the checkpoint %s", folder);
    if (!tutti__is_checkpoint(folder))
        return tutti__fail(
            TUTTI_ERR_FORMAT,
            "%s is not a checkpoint: expected a folder with state.json and "
            "model.safetensors, as tutti_checkpoint_save writes, or `tutti train` in "
            "its run's folder, checkpoints/latest",
            folder);
    return TUTTI_OK;
}

static void loading_free(loading *l)
{
    const bool model = l->divides_model, optim = l->divides_optim;

    tutti__optim_block_free(&l->block);
    tutti__snapshot_free(&l->model);
    tutti__snapshot_free(&l->ema);
    free(l->ranges);
    *l = (loading){.divides_model = model, .divides_optim = optim};
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* If another program saves to the path meanwhile, the files are those of two checkpoints: reads them again. */
static tutti_status read_all(const tutti__checkpoint_call *p, const char *folder, loading *l)
{
    struct stat before, after;
    tutti_status status;

    for (int i = 0; i < TRIES; i++) {
        status = find(folder, &before);
        if (status == TUTTI_ERR_NOT_FOUND) {
            tutti__checkpoint_recover(folder);
            status = find(folder, &before);
        }
        TUTTI_TRY(status);
        status = read_files(p, folder, l);
        if (stat(folder, &after) == 0 && is_same(&before, &after))
            return status;
        loading_free(l);
    }
    return tutti__fail(TUTTI_ERR_STATE,
                       "another program saves to %s so often that it cannot be read: it was "
                       "replaced %d times meanwhile",
                       folder, TRIES);
}

/* ---- Loading ---------------------------------------------------------------------------------------------------- */

/* Allocates all that is needed to take rank 0's values. */
static tutti_status prepare(const tutti__checkpoint_call *p, loading *l)
{
    if (!tutti__checkpoint_call_is_first(p)) {
        if (!l->divides_model)
            TUTTI_TRY(tutti__snapshot_new(&l->model, p->m));
        if (p->opts.ema && !l->divides_model)
            TUTTI_TRY(tutti__snapshot_new(&l->ema, p->m));
        l->ranges = tutti__alloc((l->head.n_ranges + 1) * sizeof *l->ranges);
        if (!l->ranges)
            return TUTTI_ERR_MEMORY;
        if (p->optim && !l->divides_optim)
            TUTTI_TRY(tutti__optim_block_new(&l->block, p->optim, p->m));
    }
    if (p->opts.ema)
        TUTTI_TRY(tutti__ema_prepare(p->opts.ema));
    return p->optim && !p->optim->sharding && !l->divides_optim
               ? tutti__optim_prepare(p->optim, NULL)
               : TUTTI_OK;
}

static tutti_status share(const tutti__checkpoint_call *p, loading *l)
{
    if (tutti__checkpoint_call_ranks(p) == 1)
        return TUTTI_OK;
    if (!l->divides_model)
        TUTTI_TRY(tutti_broadcast(p->group, TUTTI_BUF(l->model.values, l->model.bytes, TUTTI_U8), 0,
                                  NULL));
    TUTTI_TRY(
        tutti_broadcast(p->group, TUTTI_BUF(l->ranges, l->head.n_ranges, TUTTI_F32), 0, NULL));
    if (p->opts.ema && !l->divides_model)
        TUTTI_TRY(
            tutti_broadcast(p->group, TUTTI_BUF(l->ema.values, l->ema.bytes, TUTTI_U8), 0, NULL));
    return p->optim && !l->divides_optim ? tutti__optim_block_share(&l->block, p->m, p->group)
                                         : TUTTI_OK;
}

/* Those of other gradients, and of a checkpoint without shards, are found anew. */
static void apply_ranges(struct tutti_root *root, loading *l)
{
    if (root->ranges && root->n_ranges == l->head.n_ranges)
        memcpy(root->ranges, l->ranges, root->n_ranges * sizeof *root->ranges);
    if (root->ranges)
        return;
    free(root->loaded_ranges);
    root->loaded_ranges = l->ranges;
    root->n_loaded_ranges = l->head.n_ranges;
    l->ranges = NULL;
}

static tutti_status apply(const tutti__checkpoint_call *p, loading *l)
{
    const tutti_checkpoint_opts *o = &p->opts;
    const head *h = &l->head;

    if (o->scaler) /* first, since it may refuse its numbers */
        TUTTI_TRY(tutti_scaler_state_set(o->scaler, &h->scaler));
    if (!l->divides_model)
        TUTTI_TRY(tutti__snapshot_put(&l->model, p->m));
    if (o->ema && !l->divides_model)
        TUTTI_TRY(tutti__snapshot_put_ema(&l->ema, o->ema, h->ema_updates));
    if (o->ema && l->divides_model)
        TUTTI_TRY(tutti_ema_set_updates(o->ema, h->ema_updates));
    if (p->optim && !l->divides_optim)
        TUTTI_TRY(tutti__optim_block_put(&l->block, p->optim, p->m));
    if (p->optim)
        tutti_optim_set_lr(p->optim, h->lr);
    apply_ranges(p->m->root, l);
    tutti_ctx_set_step(p->m->cx, h->forwards);
    if (o->loader)
        tutti__loader_resume(o->loader, h->epoch, (size_t)h->start, (size_t)h->batch);
    if (o->position)
        *o->position = (tutti_position){
            .step = h->step, .epoch = h->epoch, .batch = h->batch, .start = h->start};
    return TUTTI_OK;
}

/* Each rank reads what it has of what is divided: of the optimizer's state in its next step. */
static tutti_status take_divided(const tutti__checkpoint_call *p, const loading *l)
{
    const head *h = &l->head;

    if (l->divides_model)
        TUTTI_TRY(tutti__divided_load(p->m, NULL, p->group, h->folder, "model", h->digest));
    if (l->divides_model && p->opts.ema)
        TUTTI_TRY(tutti__divided_load(p->m, p->opts.ema, p->group, h->folder, "ema", h->digest));
    return p->optim && l->divides_optim
               ? tutti__optim_load_later(p->optim, p->m, p->group, h->folder, h->digest)
               : TUTTI_OK;
}

/* Rank 0's part, in which the others verify what is divided. */
static tutti_status read_first(const tutti__checkpoint_call *p, const char *folder, loading *l)
{
    const tutti_status status = read_all(p, folder, l);

    return l->divides_optim ? tutti__verify_end(p->group, status) : status;
}

static tutti_status load(const tutti__checkpoint_call *p, const char *folder, loading *l)
{
    TUTTI_TRY(tutti__checkpoint_call_divided(p, &l->divides_model, &l->divides_optim));
    TUTTI_TRY(tutti__checkpoint_call_agree(
        p, tutti__checkpoint_call_is_first(p) ? read_first(p, folder, l)
           : l->divides_optim                 ? tutti__verify_answer(p->group, p->m)
                                              : TUTTI_OK));
    if (p->group)
        TUTTI_TRY(
            tutti_broadcast(p->group, TUTTI_BUF(&l->head, sizeof l->head, TUTTI_U8), 0, NULL));
    TUTTI_TRY(tutti__checkpoint_call_agree(p, prepare(p, l)));
    TUTTI_TRY(take_divided(p, l));
    TUTTI_TRY(share(p, l));
    return tutti__checkpoint_call_agree(p, apply(p, l));
}

tutti_status tutti_checkpoint_load_with(const char *path, tutti_module *m, tutti_optim *optim,
                                        tutti_group *group, const tutti_checkpoint_opts *opts)
{
    char folder[TUTTI__CHECKPOINT_PATH];
    tutti__checkpoint_call p = {.m = m, .optim = optim, .group = group};
    loading l = {.head = {.step = 0}};
    tutti_status status = tutti__checkpoint_call_begin(&p, opts, path, folder);

    if (status == TUTTI_OK)
        status = load(&p, folder, &l);
    loading_free(&l);
    return status;
}

tutti_status tutti_checkpoint_load(const char *path, tutti_module *m, tutti_optim *optim,
                                   tutti_group *group)
{
    return tutti_checkpoint_load_with(path, m, optim, group, NULL);
}
