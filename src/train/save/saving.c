/* saving.c -- how checkpoints are written, and what happens if that fails.   SPDX-License-Identifier: MIT */
#include "train/save/saving.h"

#include "base/pages.h"
#include "checkpoint/checkpoint_folder.h"
#include "comm/comm.h"
#include "optim/optim.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"
#include "train/output/trace.h"
#include "train/config/agreement.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOOK_TAG = 1 };

/* ---- State of each rank: PowerSGD's ----------------------------------------------------------- */

/* Gathers all ranks' state on rank 0, because it changes in the next backward. All have the same buckets, hence the same size. */
static tutti_status collect_hooks(tutti__saving *s, size_t bytes)
{
    const size_t all = bytes * (size_t)s->session->size;

    if (all > s->hooks_bytes) {
        free(s->hooks);
        s->hooks = tutti__alloc(all);
        s->hooks_bytes = s->hooks ? all : 0;
    }
    if (!s->hooks) { /* else the others would wait for this rank */
        tutti_group_abort(s->session->group, "%s", tutti_last_error());
        return TUTTI_ERR_MEMORY;
    }
    tutti__powersgd_save(&s->session->hook, s->hooks);
    for (int r = 1; r < s->session->size; r++)
        TUTTI_TRY(tutti_recv(s->session->group,
                             TUTTI_BUF(s->hooks + (size_t)r * bytes, bytes, TUTTI_U8), r, HOOK_TAG,
                             NULL));
    return TUTTI_OK;
}

static tutti_status send_hook(tutti__saving *s, size_t bytes)
{
    void *p = tutti__alloc(bytes);
    tutti_status status;

    if (!p) {
        tutti_group_abort(s->session->group, "%s", tutti_last_error());
        return TUTTI_ERR_MEMORY;
    }
    tutti__powersgd_save(&s->session->hook, p);
    status = tutti_send(s->session->group, TUTTI_CONST_BUF(p, bytes, TUTTI_U8), 0, HOOK_TAG, NULL);
    free(p);
    return status;
}

/* ---- Failures ----------------------------------------------------------------------------------------------- */

static void print_error(tutti__saving *s, const char *format, ...) TUTTI_PRINTF(2, 3);
static void print_error(tutti__saving *s, const char *format, ...)
{
    char text[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tutti__progress_clear(s->progress);
    tutti__print_line(stderr, "%s: %s", s->session->parts->title, text);
}

/* "; checkpoints/step-00000120 is intact" */
static void whole_text(const tutti__saving *s, char text[TUTTI__CHECKPOINT_PATH + 64])
{
    char dir[4096], path[TUTTI__CHECKPOINT_PATH];
    uint64_t *steps = NULL;
    size_t n = 0;

    strcpy(text, "");
    if (tutti__run_folder_checkpoints(s->folder, dir) == TUTTI_OK &&
        tutti__checkpoint_list(dir, &steps, &n) == TUTTI_OK && n > 0 &&
        tutti__checkpoint_path(dir, steps[0], path) == TUTTI_OK)
        snprintf(text, TUTTI__CHECKPOINT_PATH + 64, "; %s is intact", path);
    free(steps);
}

/* Notes that the state of `step` is not saved, because of the thread's error. */
static void note_failure(tutti__saving *s, uint64_t step)
{
    char whole[TUTTI__CHECKPOINT_PATH + 64], text[2048];

    snprintf(text, sizeof text, "%s", tutti_last_error());
    whole_text(s, whole);
    snprintf(s->unsaved, sizeof s->unsaved, "the state of step %llu is not saved: %.1200s%.700s",
             (unsigned long long)step, text, whole);
}

/* The same while training: OK if it continues. */
static tutti_status fail(tutti__saving *s, uint64_t step)
{
    note_failure(s, step);
    if (strcmp(s->session->config->checkpoint_failure, "stop") == 0) {
        s->failure = TUTTI_ERR_DISK;
        s->session->stop.cannot_save = true;
        return tutti__fail_again(s->failure, s->unsaved);
    }
    print_error(s, "%s; training continues, and tries again at the next checkpoint", s->unsaved);
    return TUTTI_OK;
}

/* The group's failure, which is that of the run. */
static bool is_lost(tutti_status status)
{
    return status != TUTTI_OK && tutti_status_scope(status) == TUTTI_SCOPE_GROUP;
}

/* Waits for the previous write, and handles its result; of other ranks than 0, which hear the same, rank 0 does. */
static tutti_status settle(tutti__saving *s)
{
    const bool busy = tutti__writer_is_busy(s->writer);
    tutti_status status = tutti__writer_end(s->writer);

    if (is_lost(status))
        return status;
    if (s->session->rank != 0)
        return TUTTI_OK;
    if (status == TUTTI_OK && busy)
        s->unsaved[0] = '\0';
    return status == TUTTI_OK ? TUTTI_OK : fail(s, tutti__writer_step(s->writer));
}

bool tutti__saving_make_room(tutti__saving *s, tutti_status status)
{
    char dir[4096];
    uint64_t *steps = NULL;
    size_t n = 0;
    char reason[2048];

    snprintf(reason, sizeof reason, "%s", tutti_last_error());
    if (status != TUTTI_ERR_DISK || s->session->config->keep_checkpoints == 0)
        return false;
    if (tutti__run_folder_checkpoints(s->folder, dir) != TUTTI_OK ||
        tutti__checkpoint_list(dir, &steps, &n) != TUTTI_OK)
        return false;
    free(steps);
    if (n < 2)
        return false;
    print_error(s, "%s: all checkpoints but the newest are removed to make room", reason);
    if (tutti__checkpoint_keep(dir, 1) == TUTTI_OK)
        return true;
    tutti_log(TUTTI_LOG_WARN, "train", "%s", tutti_last_error());
    return false;
}

/* Whether ranks write parts of the checkpoint, so that all of them take part in what rank 0 does. */
static bool is_divided(const tutti__saving *s)
{
    return tutti__writer_is_divided(s->writer);
}

/* Whether the last checkpoint, whose write has failed, is tried once more: rank 0's answer, if all ranks have what they write. Ranks
 * copy together, and one that has its copy would not take part. */
static tutti_status ask_again(tutti__saving *s, tutti_status status, bool *again_p)
{
    const bool divided = is_divided(s);
    int64_t again = !divided || tutti__writer_has_copy(s->writer);

    if (again && s->session->rank == 0)
        again = status != TUTTI_ERR_DISK || tutti__saving_make_room(s, status);
    if (divided)
        TUTTI_TRY(
            tutti_all_reduce(s->session->group, TUTTI_BUF(&again, 1, TUTTI_I64), TUTTI_MIN, NULL));
    *again_p = again != 0;
    return TUTTI_OK;
}

/* The last checkpoint could not be written. There is no more training to stop: the other results are written anyway, and the
 * end reports it. */
static tutti_status try_again(tutti__saving *s, tutti_status status)
{
    char message[2048];
    bool again;

    snprintf(message, sizeof message, "%s", tutti_last_error());
    TUTTI_TRY(ask_again(s, status, &again));
    if (again) {
        status = tutti__writer_again(s->writer);
        if (status == TUTTI_OK)
            status = tutti__writer_end(s->writer);
    } else
        tutti__fail_again(status, message);
    if (s->session->rank != 0)
        return TUTTI_OK;
    if (status == TUTTI_OK)
        s->unsaved[0] = '\0';
    else
        note_failure(s, s->position->at.step);
    return TUTTI_OK;
}

/* ---- Writing a checkpoint ---------------------------------------------------------------------------------------------- */

static tutti_status make_writer(tutti__saving *s)
{
    if (s->writer)
        return TUTTI_OK;
    return tutti__writer_new(&s->writer, s->session->module, s->session->optim, s->session->ema,
                             s->session->cx->recorder);
}

static tutti_status describe(tutti__saving *s, tutti__writing *writing)
{
    if (s->session->rank != 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__run_folder_checkpoints(s->folder, writing->dir));
    writing->state = tutti__state_json(s);
    return writing->state ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status begin(tutti__saving *s, tutti__writing *writing)
{
    tutti_status status = make_writer(s);

    if (status == TUTTI_OK)
        status = describe(s, writing);
    if (is_divided(s))
        status = tutti__group_agree(s->session->group, status);
    if (status != TUTTI_OK) {
        json_decref(writing->state);
        return status;
    }
    TUTTI_TRY(tutti__writer_begin(s->writer, writing));
    /* The first backward moves parameters. */
    if (!tutti_ddp_reducer(s->session->ddp))
        tutti__writer_wait_for_copy(s->writer);
    return TUTTI_OK;
}

/* After the other ranks' state was gathered: rank 0's part, or if they write parts, every rank's. last: the end of the run, so it
 * waits. */
static tutti_status write_one(tutti__saving *s)
{
    const bool last = s->position->stop || tutti__plan_finishes(s->plan, s->position);
    const bool first = s->session->rank == 0;
    tutti__writing writing = {.step = s->position->at.step,
                              .folder = first ? s->folder : NULL,
                              .keep = (size_t)s->session->config->keep_checkpoints,
                              .best = tutti__best_is_kept(s->session->config) &&
                                      s->position->best.step == s->position->at.step,
                              .checksums = s->checksums,
                              .ddp = s->session->ddp,
                              .rank = s->session->rank,
                              .hook_bytes = tutti__powersgd_bytes(&s->session->hook),
                              .ranks = s->session->size};
    tutti_status status;

    writing.hooks = writing.hook_bytes > 0 && first ? s->hooks : NULL;
    if (last) { /* before the copy of the state is allocated: this keeps the peak of memory that of the steps */
        tutti__step_memory_release(s->session->cx);
        tutti__memory_trim();
    }
    status = begin(s, &writing);
    if (is_lost(status))
        return status;
    if (status != TUTTI_OK && !first)
        return TUTTI_OK;
    if (status != TUTTI_OK && last)
        note_failure(s, s->position->at.step);
    if (status != TUTTI_OK)
        return last ? TUTTI_OK : fail(s, s->position->at.step);
    if (!last)
        return s->session->config->checkpoint_background ? TUTTI_OK : settle(s);
    status = tutti__writer_end(s->writer);
    if (status != TUTTI_OK)
        return is_lost(status) ? status : try_again(s, status);
    if (first)
        s->unsaved[0] = '\0';
    return TUTTI_OK;
}

/* With a layout that divides what is saved, finds what each rank writes. Collective; before: of rank 0's previous checkpoint. */
static tutti_status divide(tutti__saving *s, tutti_status before)
{
    if (!tutti__session_is_divided(s->session))
        return before;
    TUTTI_TRY(tutti__group_agree(s->session->group, before == TUTTI_OK ? make_writer(s) : before));
    TUTTI_TRY(tutti__optim_load_now(s->session->optim)); /* without a step since the resume */
    return tutti__writer_divide(s->writer, s->session->group);
}

static tutti_status save(tutti__saving *s)
{
    const size_t bytes = tutti__powersgd_bytes(&s->session->hook);
    const bool first = s->session->rank == 0;
    tutti_status status = TUTTI_OK, before;
    char why[2048];

    before = s->failure == TUTTI_OK ? settle(s) : tutti__fail_again(s->failure, s->unsaved);
    snprintf(why, sizeof why, "%s", tutti_last_error());
    if (bytes > 0)
        status = first ? collect_hooks(s, bytes) : send_hook(s, bytes);
    if (status != TUTTI_OK)
        return status;
    status = divide(s, before);
    if (status != TUTTI_OK)
        return first && before != TUTTI_OK ? tutti__fail_again(before, why) : status;
    if (s->session->zero && !is_divided(s)) /* a share may be all of it */
        TUTTI_TRY(tutti_zero_consolidate(s->session->zero, s->session->optim, 0));
    return first || is_divided(s) ? write_one(s) : TUTTI_OK;
}

static void count_stall(tutti__saving *s, uint64_t begin_ns)
{
    const double seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;

    tutti__ledger_add(&s->totals->ledger, TUTTI__TIME_CHECKPOINT, seconds);
    tutti__record(s->session->cx->recorder, "step", "checkpoint", (int64_t)s->position->at.step,
                  TUTTI__THREAD_MAIN, begin_ns, tutti__now_ns());
}

/* The collective part is over; writing goes on. */
static void note_checkpoint(tutti__saving *s, uint64_t begin_ns)
{
    s->n++;
    count_stall(s, begin_ns);
}

tutti_status tutti__saving_alone(tutti__saving *s)
{
    uint64_t begin_ns = tutti__now_ns();
    tutti_status status = save(s);

    note_checkpoint(s, begin_ns);
    return status;
}

tutti_status tutti__saving_together(tutti__saving *s)
{
    uint64_t begin_ns = tutti__now_ns();
    tutti_status status = tutti__fail_together(s->session->group, save(s));

    s->session->reported = status != TUTTI_OK;
    note_checkpoint(s, begin_ns);
    return status;
}

void tutti__saving_copied(tutti__saving *s)
{
    uint64_t begin_ns = tutti__now_ns();

    s->step_stall_s = 0;
    if (!tutti__writer_is_busy(s->writer))
        return;
    if (tutti__writer_is_over(s->writer) && settle(s) != TUTTI_OK)
        return; /* s->failure is set: the next step's exchange tells all ranks */
    if (tutti__writer_wait_for_copy(s->writer)) {
        count_stall(s, begin_ns);
        s->step_stall_s = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    }
}

/* A write by all ranks that the group's failure, the thread's error, has ended. */
static void give_up(tutti__saving *s)
{
    tutti_group *group = s->session->group;
    const int culprit = tutti_group_culprit(group);
    char who[64] = "one of them";

    tutti_log(TUTTI_LOG_DEBUG, "train", "%s", tutti_last_error());
    if (culprit >= 0)
        snprintf(who, sizeof who, "rank %d of %d", culprit, tutti_group_size(group));
    tutti__fail(TUTTI_ERR_PEER, "all ranks were writing their parts of it, and %s was lost", who);
    note_failure(s, tutti__writer_step(s->writer));
    print_error(s,
                "%s; training continues, and writes it again if its step is still the last one, "
                "else the next one",
                s->unsaved);
}

/* The rank that says what has become of a checkpoint: 0, or, if that is the one that was lost, the next. */
static int speaker(const tutti__saving *s)
{
    return tutti_group_culprit(s->session->group) == 0 ? 1 : 0;
}

bool tutti__saving_leave(tutti__saving *s)
{
    bool complete;

    tutti__writer_wait_for_copy(s->writer);
    if (!is_divided(s)) /* rank 0 goes on alone */
        return true;
    complete = !is_lost(settle(s));
    if (!complete && s->session->rank == speaker(s))
        give_up(s);
    (void)!tutti__writer_divide(s->writer, NULL);
    return complete;
}

/* A failed run may have a write in flight, whose result only this reports. */
void tutti__saving_close(tutti__saving *s)
{
    if (tutti__writer_end(s->writer) != TUTTI_OK && s->session->rank == 0) {
        note_failure(s, tutti__writer_step(s->writer));
        print_error(s, "%s", s->unsaved);
    }
    tutti__writer_free(s->writer);
    free(s->hooks);
    s->writer = NULL;
    s->hooks = NULL;
}
