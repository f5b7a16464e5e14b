/* writer.c -- writes checkpoints in a thread while training continues.   SPDX-License-Identifier: MIT */
#include "train/save/writer.h"

#include "base/thread.h"

#include "checkpoint/copies.h"
#include "comm/comm.h"
#include "nn/nn.h"
#include "train/output/trace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct tutti__writer {
    tutti__recorder *recorder;
    tutti__copies copies;
    tutti__shared_draft shared; /* if ranks write parts */
    tutti__writing writing;
    tutti__checksums checksums; /* n 0: none */
    int log_rank;
    tutti_stream *stream; /* for the copy: the thread must not use the context's */
    tutti__event *ready;  /* in the context's stream: the copy waits for it */

    bool busy;     /* of the caller */
    bool threaded; /* while busy: there is a thread; else the write is over */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* the copy is complete, and its digest made; owned by the thread, or by the caller while there is none */
    bool taken;
    bool copied, over;
    tutti_status status;
    char message[2048];
};

/* ---- Copying --------------------------------------------------------------------------------------------------- */

/* On the main thread, without waiting: copies the buffers, before the next forward changes them, and the checksums. */
static tutti_status copy_buffers(tutti__writer *w)
{
    tutti_stream *stream = w->copies.module->cx->stream;

    if (w->writing.checksums)
        TUTTI_TRY(tutti__checksums_copy(w->writing.checksums, &w->checksums));
    w->writing.checksums = NULL;

    TUTTI_TRY(tutti__copies_take_buffers(&w->copies));
    return stream->ops->event_record(w->ready, stream);
}

static tutti_status copy(tutti__writer *w)
{
    TUTTI_TRY(w->stream->ops->event_wait(w->ready, w->stream));
    return tutti__copies_take(&w->copies, w->stream);
}

/* Whether what was copied is what the checksums were taken of: if memory is that afterwards, it was. Updates wait for the copy, so nothing may have
 * written it. */
static tutti_status check_memory(const tutti__writer *w)
{
    const tutti__persistent *changed;

    if (w->checksums.n == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__checksums_compare(&w->checksums, w->writing.ddp, w->stream, false, &changed));
    return changed ? tutti__checksums_differ(changed, w->writing.rank, w->writing.step) : TUTTI_OK;
}

/* ---- Writing -------------------------------------------------------------------------------------------------- */

static tutti_status write_hooks(const tutti__writer *w, tutti__draft *draft)
{
    const tutti__writing *it = &w->writing;

    for (int r = 0; it->hooks && r < it->ranks; r++) {
        char *p = it->hooks + (size_t)r * it->hook_bytes, name[64];
        const tutti__safetensors_source source = {
            "powersgd", {p, TUTTI_SHAPE((int64_t)it->hook_bytes), TUTTI_U8}};

        snprintf(name, sizeof name, "hook-rank-%05d.safetensors", r);
        TUTTI_TRY(tutti__checkpoint_file(draft, name));
        TUTTI_TRY(tutti__safetensors_put(tutti__checkpoint_write, draft, &source, 1, NULL, 0));
    }
    return TUTTI_OK;
}

/* Whether no other process has taken over the run folder, while this one was frozen or cut off. */
static bool is_owner(const void *folder)
{
    const tutti__run_folder *f = folder;

    return !f || tutti__run_lock_is_held(&f->lock, f->path);
}

/* What is done when the checkpoint has its name. */
static tutti_status follow(const tutti__writing *it)
{
    if (it->best) /* before the one that was the best until now may go */
        TUTTI_TRY(tutti__checkpoint_point_best(it->dir, it->step));
    if (tutti__checkpoint_keep(it->dir, it->keep) != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "train", "an older checkpoint was not removed: %s",
                  tutti_last_error());
    return TUTTI_OK;
}

/* Rank 0 writes what only it has, and gives the checkpoint its name; after a failure until now it removes it. */
static tutti_status finish(tutti__writer *w, tutti__draft *draft, const uint64_t *headers,
                           tutti_status status)
{
    const tutti__writing *it = &w->writing;

    if (status == TUTTI_OK)
        status = tutti__copies_finish(&w->copies, draft, it->step, headers, it->state);
    if (status == TUTTI_OK)
        status = tutti__checkpoint_commit(draft);
    return status == TUTTI_OK ? follow(it) : tutti__checkpoint_abandon(draft, status);
}

static tutti_status write_alone(tutti__writer *w)
{
    const tutti__writing *it = &w->writing;
    uint64_t none[TUTTI__COPIES];
    tutti__draft draft;
    tutti_status status = tutti__checkpoint_begin(&draft, it->dir, it->step, is_owner, it->folder);

    if (status == TUTTI_OK)
        status = tutti__copies_write(&w->copies, &draft, it->step, none);
    if (status == TUTTI_OK)
        status = write_hooks(w, &draft);
    return finish(w, &draft, NULL, status);
}

/* The folder is there already. A failure of any rank is that of all. */
static tutti_status write_together(tutti__writer *w, tutti_status status)
{
    uint64_t headers[TUTTI__COPIES] = {0};
    tutti__draft *draft = &w->shared.draft;
    const bool first = w->shared.rank == 0;

    if (status == TUTTI_OK)
        status = tutti__copies_write(&w->copies, draft, w->writing.step, headers);
    if (status == TUTTI_OK && first)
        status = write_hooks(w, draft);
    status = tutti__shared_meet(&w->shared, status, headers);
    if (first)
        status = finish(w, draft, w->shared.headers, status);
    return tutti__shared_close(&w->shared, status);
}

/* ---- Thread ------------------------------------------------------------------------------------------------- */

static void set(tutti__writer *w, bool *what)
{
    pthread_mutex_lock(&w->mutex);
    *what = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void record(const tutti__writer *w, const char *name, uint64_t begin_ns)
{
    tutti__record(w->recorder, "step", name, (int64_t)w->writing.step, TUTTI__THREAD_WRITER,
                  begin_ns, tutti__now_ns());
}

/* Of a divided model: all ranks make it, also after a failure of their own. */
static tutti_status digest(tutti__writer *w, tutti_status status)
{
    char why[1024];
    tutti_status made;

    snprintf(why, sizeof why, "%s", status == TUTTI_OK ? "" : tutti_last_error());
    made = tutti__copies_digest(&w->copies);
    return status == TUTTI_OK ? made : tutti__fail_again(status, why);
}

static void *work(void *user)
{
    tutti__writer *w = user;
    tutti_status status = TUTTI_OK;
    uint64_t t = tutti__now_ns();

    tutti__log_set_rank(w->log_rank);
    if (!w->taken) {
        status = copy(w);
        if (status == TUTTI_OK)
            status = check_memory(w);
        record(w, "copy", t);
        set(w, &w->copied);
        if (w->copies.group && tutti_status_scope(status) != TUTTI_SCOPE_GROUP)
            status = digest(w, status);
        w->taken = status == TUTTI_OK;
    }
    t = tutti__now_ns();
    if (w->copies.group)
        status = write_together(w, status);
    else if (status == TUTTI_OK)
        status = write_alone(w);
    record(w, "write checkpoint", t);
    w->status = status;
    if (status != TUTTI_OK)
        snprintf(w->message, sizeof w->message, "%s", tutti_last_error());
    set(w, &w->over);
    return NULL;
}

static tutti_status start(tutti__writer *w)
{
    int error;

    w->over = false;
    error = tutti__thread_start(&w->thread, work, w);
    if (error && !w->copies.group)
        return tutti__fail(TUTTI_ERR_MEMORY, "cannot start the thread that writes checkpoints: %s",
                           strerror(error));
    w->busy = true;
    w->threaded = !error;
    if (error) /* the other ranks count on this one */
        work(w);
    return TUTTI_OK;
}

static void join(tutti__writer *w)
{
    if (w->busy && w->threaded)
        pthread_join(w->thread, NULL);
    w->busy = false;
}

/* ---- The caller's side ----------------------------------------------------------------------------------- */

tutti_status tutti__writer_new(tutti__writer **writer_p, tutti_module *module, tutti_optim *optim,
                               tutti_ema *ema, tutti__recorder *recorder)
{
    tutti__writer *w = tutti__alloc(sizeof *w);
    tutti_status status;

    *writer_p = NULL;
    if (!w)
        return TUTTI_ERR_MEMORY;
    w->copies = (tutti__copies){.module = module, .optim = optim, .average = ema};
    w->recorder = recorder;
    w->log_rank = tutti__log_rank();
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    status = tutti_stream_new(&w->stream, module->cx->device);
    if (status == TUTTI_OK)
        status = w->stream->ops->event_new(module->cx->device, &w->ready);
    if (status == TUTTI_OK)
        *writer_p = w;
    else
        tutti__writer_free(w);
    return status;
}

void tutti__writer_free(tutti__writer *w)
{
    if (!w)
        return;
    join(w);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    tutti__copies_free(&w->copies);
    tutti__checksums_drop(&w->checksums);
    json_decref(w->writing.state);
    if (w->ready)
        w->stream->ops->event_free(w->stream->device, w->ready);
    tutti_stream_free(w->stream);
    free(w);
}

tutti_status tutti__writer_divide(tutti__writer *w, tutti_group *group)
{
    return tutti__copies_divide(&w->copies, group);
}

bool tutti__writer_is_divided(const tutti__writer *w)
{
    return w && w->copies.group;
}

/* Makes the folder, into which all ranks write. */
static tutti_status share_folder(tutti__writer *w)
{
    const tutti__writing *it = &w->writing;

    return tutti__shared_begin(&w->shared, w->copies.group, it->dir, it->step, is_owner,
                               it->folder);
}

/* All ranks go on, or none: one that has failed since the folder was made has said so. */
static tutti_status begin_together(tutti__writer *w)
{
    tutti_status status = share_folder(w);

    if (status != TUTTI_OK)
        return status;
    status = tutti__copies_room(&w->copies, w->shared.may);
    if (status == TUTTI_OK)
        status = tutti__group_agree(w->copies.group, copy_buffers(w));
    if (status == TUTTI_OK)
        return start(w);
    tutti__shared_drop(&w->shared);
    return status;
}

tutti_status tutti__writer_begin(tutti__writer *w, const tutti__writing *writing)
{
    json_decref(w->writing.state);
    w->writing = *writing;
    w->taken = w->copied = false;
    tutti__checksums_drop(&w->checksums);
    if (w->copies.group)
        return begin_together(w);
    if (w->copies.average)
        TUTTI_TRY(tutti__ema_prepare(w->copies.average));
    TUTTI_TRY(tutti__copies_room(&w->copies, NULL));
    TUTTI_TRY(copy_buffers(w));
    return start(w);
}

bool tutti__writer_has_copy(const tutti__writer *w)
{
    return w->taken;
}

tutti_status tutti__writer_again(tutti__writer *w)
{
    if (w->copies.group)
        TUTTI_TRY(share_folder(w));
    return start(w);
}

bool tutti__writer_wait_for_copy(tutti__writer *w)
{
    bool waits;

    if (!w || !w->busy)
        return false;
    pthread_mutex_lock(&w->mutex);
    waits = !w->copied;
    while (!w->copied)
        pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
    return waits;
}

uint64_t tutti__writer_step(const tutti__writer *w)
{
    return w->writing.step;
}

bool tutti__writer_is_busy(const tutti__writer *w)
{
    return w && w->busy;
}

bool tutti__writer_is_over(tutti__writer *w)
{
    bool over;

    if (!w || !w->busy)
        return false;
    pthread_mutex_lock(&w->mutex);
    over = w->over;
    pthread_mutex_unlock(&w->mutex);
    return over;
}

tutti_status tutti__writer_end(tutti__writer *w)
{
    if (!w || !w->busy)
        return TUTTI_OK;
    join(w);
    return w->status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(w->status, w->message);
}
