/* checkpoint_save.c -- whole checkpoints of a training loop of one's own: rank 0 writes.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_call.h"
#include "checkpoint/copies.h"
#include "data/loader.h"
#include "optim/optim.h"
#include "tensor/tensor.h"
#include <tutti/ddp.h>

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether nothing is lost if the folder PATH + end, which need not exist, is removed. */
static tutti_status check_contents(const char *path, const char *end)
{
    static const char *const own[] = {".",
                                      "..",
                                      "model.safetensors",
                                      "optimizer.safetensors",
                                      "ema.safetensors",
                                      "state.json",
                                      "model" TUTTI__PARTS_INDEX,
                                      "optimizer" TUTTI__PARTS_INDEX,
                                      "ema" TUTTI__PARTS_INDEX};
    char folder[TUTTI__CHECKPOINT_PATH + 32];
    struct dirent *entry;
    struct stat st;
    tutti_status status = TUTTI_OK;
    DIR *list;

    snprintf(folder, sizeof folder, "%s%s", path, end);
    if (lstat(folder, &st) != 0)
        return TUTTI_OK;
    list = opendir(folder);
    if (!list) /* ENOENT: another program has just completed its checkpoint */
        return errno == ENOENT ? TUTTI_OK : tutti__fail_errno(errno, "cannot replace %s", folder);
    while (status == TUTTI_OK && (entry = readdir(list))) {
        size_t i = 0;

        while (i < TUTTI__COUNT_OF(own) && strcmp(entry->d_name, own[i]) != 0)
            i++;
        if (i == TUTTI__COUNT_OF(own) && !tutti__is_part_name(entry->d_name, ""))
            status = tutti__fail(TUTTI_ERR_ARG,
                                 "%s would be replaced, and holds \"%s\", which is not a part of "
                                 "a checkpoint; move that elsewhere, or name another path",
                                 folder, entry->d_name);
    }
    closedir(list);
    return status;
}

/* `tutti train` could not resume from what would replace it. */
static tutti_status check_owner(const char *path)
{
    json_t *state;
    bool of_a_run;

    if (tutti__state_read(&state, path) != TUTTI_OK)
        return TUTTI_OK; /* damaged: nothing is lost */
    of_a_run = json_object_get(state, "config");
    json_decref(state);
    return of_a_run ? tutti__fail(TUTTI_ERR_ARG,
                                  "%s is a checkpoint of a run of `tutti train`, so it is not "
                                  "replaced; name another path",
                                  path)
                    : TUTTI_OK;
}

/* If PATH is a link, it becomes what that points to. */
static tutti_status check_target(char path[TUTTI__CHECKPOINT_PATH])
{
    char real[PATH_MAX];
    struct stat st;

    if (lstat(path, &st) == 0) {
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, R_OK | W_OK | X_OK) != 0)
            return tutti__fail_errno(errno, "cannot replace the checkpoint %s", path);
        if (!tutti__is_checkpoint(path) || !realpath(path, real))
            return tutti__fail(
                TUTTI_ERR_ARG,
                "%s exists and is not a checkpoint, so it is not replaced; remove it, or "
                "name another path",
                path);
        snprintf(path, TUTTI__CHECKPOINT_PATH, "%s", real);
        TUTTI_TRY(check_owner(path));
        TUTTI_TRY(check_contents(path, ""));
    }
    TUTTI_TRY(check_contents(path, ".tmp"));
    return check_contents(path, ".previous.tmp");
}

/* state.json has integers of 63 bits, and counts epochs from 1. */
static tutti_status check_position(const tutti_position *at)
{
    const uint64_t most = INT64_MAX - 1;

    if (!at || (at->step <= most && at->epoch <= most && at->batch <= most && at->start <= most))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "checkpoint: position is step %llu, epoch %llu, batch %llu, start %llu; "
                       "expected at most 2^63 - 2 of each (was a count below 0?)",
                       (unsigned long long)at->step, (unsigned long long)at->epoch,
                       (unsigned long long)at->batch, (unsigned long long)at->start);
}

/* epoch counts from 1, as in the checkpoints of `tutti train`. */
static int add_position(const tutti_position *at, json_t *state)
{
    return json_object_update_new(
        state, json_pack("{s:I, s:I, s:I}", "epoch", (json_int_t)at->epoch + 1, "start",
                         (json_int_t)at->start, "batch", (json_int_t)at->batch));
}

static int add_loader(const tutti_loader *loader, json_t *state)
{
    const tutti__loader_place l = tutti__loader_at(loader);
    const tutti_position at = {.epoch = l.epoch, .start = l.start, .batch = l.batch};

    return add_position(&at, state) |
           json_object_update_new(state, json_pack("{s:I, s:I, s:I, s:I, s:b}", "samples",
                                                   (json_int_t)l.samples, "train_images",
                                                   (json_int_t)l.count, "batch_size",
                                                   (json_int_t)l.batch_size, "seed",
                                                   (json_int_t)l.seed, "shuffle", (int)l.shuffle));
}

static json_t *state_of(const tutti__checkpoint_call *p)
{
    const uint64_t forwards = tutti_ctx_step(p->m->cx);
    json_t *state =
        json_pack("{s:i, s:I, s:i, s:b, s:I, s:o, s:o, s:s?}", "format", 1, "step",
                  (json_int_t)(p->opts.position ? p->opts.position->step : forwards), "world_size",
                  tutti__checkpoint_call_ranks(p), "finished", 0, "forwards", (json_int_t)forwards,
                  "scaler", tutti__scaler_json(p->opts.scaler), "ema", tutti__ema_json(p->opts.ema),
                  "optimizer", p->optim ? p->optim->rule->name : NULL);
    int failed = state ? 0 : -1;

    if (state && p->opts.loader)
        failed |= add_loader(p->opts.loader, state);
    else if (state && p->opts.position)
        failed |= add_position(p->opts.position, state);
    if (state && p->m->root->ranges)
        failed |= tutti__state_set_ranges(state, p->m->root->ranges, p->m->root->n_ranges);
    if (state && p->optim)
        failed |= json_object_set_new(state, "lr", json_real((double)tutti_optim_lr(p->optim)));
    if (failed == 0)
        return state;
    json_decref(state);
    tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's state.json");
    return NULL;
}

/* What rank 0 needs before anything is written. */
static tutti_status check_place(const tutti__checkpoint_call *p,
                                char target[TUTTI__CHECKPOINT_PATH])
{
    TUTTI_TRY(check_position(p->opts.position));
    tutti__checkpoint_recover(target);
    return check_target(target);
}

static tutti_status copy(tutti__copies *c)
{
    TUTTI_TRY(tutti__copies_take_buffers(c));
    return tutti__copies_take(c, c->module->cx->stream);
}

/* Rank 0's end of it: state.json, and the name; or nothing is left. */
static tutti_status finish(const tutti__checkpoint_call *p, tutti__copies *c, tutti__draft *draft,
                           const uint64_t *headers, tutti_status status)
{
    json_t *state = status == TUTTI_OK ? state_of(p) : NULL;
    const uint64_t step = (uint64_t)json_integer_value(json_object_get(state, "step"));

    if (status == TUTTI_OK)
        status = state ? tutti__copies_finish(c, draft, step, headers, state) : TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = tutti__checkpoint_commit(draft);
    json_decref(state);
    return status == TUTTI_OK ? TUTTI_OK : tutti__checkpoint_abandon(draft, status);
}

static uint64_t step_of(const tutti__checkpoint_call *p)
{
    return p->opts.position ? p->opts.position->step : tutti_ctx_step(p->m->cx);
}

static tutti_status write_alone(const tutti__checkpoint_call *p, tutti__copies *c,
                                char target[TUTTI__CHECKPOINT_PATH])
{
    uint64_t none[TUTTI__COPIES];
    tutti__draft *draft;
    tutti_status status;

    TUTTI_TRY(check_place(p, target));
    if (p->opts.ema)
        TUTTI_TRY(tutti__ema_prepare(p->opts.ema));
    TUTTI_TRY(tutti__copies_room(c, NULL));
    TUTTI_TRY(copy(c));
    draft = tutti__alloc(sizeof *draft);
    if (!draft)
        return TUTTI_ERR_MEMORY;
    status = tutti__checkpoint_begin_at(draft, target);
    if (status == TUTTI_OK)
        status = tutti__copies_write(c, draft, step_of(p), none);
    status = finish(p, c, draft, NULL, status);
    free(draft);
    return status;
}

/* Every rank writes its part. */
static tutti_status write_parts(const tutti__checkpoint_call *p, tutti__copies *c,
                                tutti__shared_draft *shared)
{
    const uint64_t step = step_of(p);
    uint64_t headers[TUTTI__COPIES] = {0};
    tutti_status status = copy(c);

    if (tutti_status_scope(status) == TUTTI_SCOPE_GROUP) {
        tutti__shared_drop(shared);
        return status;
    }
    status = tutti__group_agree(p->group, status);
    if (status == TUTTI_OK)
        status = tutti__copies_digest(c);
    if (status == TUTTI_OK)
        status = tutti__copies_write(c, &shared->draft, step, headers);
    status = tutti__shared_meet(shared, status, headers);
    if (shared->rank == 0)
        status = finish(p, c, &shared->draft, shared->headers, status);
    return tutti__shared_close(shared, status);
}

static tutti_status write_together(const tutti__checkpoint_call *p, tutti__copies *c,
                                   char target[TUTTI__CHECKPOINT_PATH])
{
    tutti__shared_draft *shared = tutti__alloc(sizeof *shared);
    tutti_status status = shared ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK && tutti__checkpoint_call_is_first(p))
        status = check_place(p, target);
    status = tutti__checkpoint_call_agree(p, status);
    if (status == TUTTI_OK)
        status = tutti__shared_begin_at(shared, p->group, target);
    if (status == TUTTI_OK) {
        status = tutti__copies_room(c, shared->may);
        if (status != TUTTI_OK)
            tutti__shared_drop(shared);
    }
    if (status == TUTTI_OK)
        status = write_parts(p, c, shared);
    free(shared);
    return status;
}

/* Finds what is divided. By logical shards, and if a share is all of the state, rank 0 gathers it. */
static tutti_status divide(const tutti__checkpoint_call *p, tutti__copies *c)
{
    const tutti_optim *optim = p->optim;
    bool model, state;

    if (optim)
        TUTTI_TRY(tutti__optim_load_now(p->optim));
    TUTTI_TRY(tutti__checkpoint_call_divided(p, &model, &state));
    if (model || (state && optim))
        TUTTI_TRY(tutti__copies_divide(c, p->group));
    if (c->group || !optim || !optim->sharding)
        return TUTTI_OK;
    return tutti_zero_consolidate(optim->sharding->self, p->optim, 0);
}

tutti_status tutti_checkpoint_save_with(const char *path, const tutti_module *m, tutti_optim *optim,
                                        tutti_group *group, const tutti_checkpoint_opts *opts)
{
    char target[TUTTI__CHECKPOINT_PATH];
    tutti__checkpoint_call p = {.m = (tutti_module *)(uintptr_t)m, .optim = optim, .group = group};
    tutti_status status = tutti__checkpoint_call_begin(&p, opts, path, target);
    tutti__copies c;

    if (status != TUTTI_OK)
        return status;
    c = (tutti__copies){.module = p.m, .optim = optim, .average = p.opts.ema};
    status = divide(&p, &c);
    if (status == TUTTI_OK && c.group)
        status = write_together(&p, &c, target);
    else if (status == TUTTI_OK && tutti__checkpoint_call_is_first(&p))
        status = write_alone(&p, &c, target);
    tutti__copies_free(&c);
    return tutti__checkpoint_call_agree(&p, status);
}

tutti_status tutti_checkpoint_save(const char *path, const tutti_module *m, tutti_optim *optim,
                                   tutti_group *group)
{
    return tutti_checkpoint_save_with(path, m, optim, group, NULL);
}
