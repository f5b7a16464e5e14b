/* step.c -- a step of the reducer: gradients become ready, buckets are reduced.   SPDX-License-Identifier: MIT
 *
 * Bucket k is launched when all its gradients are ready and bucket k-1 is launched, so every rank issues the same collectives
 * in the same order, in whatever order its own gradients become ready. A plain bucket is one all_reduce; a hook or a sparse
 * gradient is a function that the group runs in the bucket's place in that order. */
#include "reducer/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This rank's own failure, found on the communication thread, replaces the group's error that followed from it. */
tutti_status tutti__step_keep(tutti_reducer *r, tutti_status status)
{
    if (r->status == TUTTI_OK || (tutti_status_scope(r->status) == TUTTI_SCOPE_GROUP &&
                                  tutti_status_scope(status) != TUTTI_SCOPE_GROUP)) {
        r->status = status;
        snprintf(r->message, sizeof r->message, "%s", tutti_last_error());
    }
    return status;
}

static void keep_failure(tutti_reducer *r, tutti_status status)
{
    if (status != TUTTI_OK)
        tutti__step_keep(r, status);
}

/* Adds to a peer's failure which bucket it hit. */
static tutti_status name_bucket(const tutti_reducer *r, size_t i, tutti_status status)
{
    const tutti_bucket_info *info = &r->buckets[i].info;

    if (tutti_status_scope(status) != TUTTI_SCOPE_GROUP)
        return status;
    return tutti__fail(status, "bucket %zu of %zu (\"%.100s\" to \"%.100s\"), step %llu: %s", i,
                       r->n_buckets, r->gradients[r->order[info->first]].name,
                       r->gradients[r->order[info->first + info->n - 1]].name,
                       (unsigned long long)r->step, tutti_last_error());
}

/* Marks this thread's calls on the group as for a bucket (1 + its number; 0: none). Ranks compare reducer, step and bucket: two
 * models swapped on one rank differ in the reducer; a backward that one rank pauses or leaves out, in the step. With DDP the
 * step counts the training steps begun, also paused ones; else the reducer's averaged steps. */
void tutti__step_label(const tutti_reducer *r, size_t bucket)
{
    tutti__group_label(r->group, 1 + (unsigned)(r->number % 0xffffu), bucket,
                       r->common_step ? r->common_step : r->step);
}

void tutti__step_unlabel(const tutti_reducer *r)
{
    tutti__group_label(r->group, 0, 0, 0);
}

void tutti__reducer_set_common_step(tutti_reducer *r, uint64_t step)
{
    r->common_step = step;
}

tutti_status tutti_reducer_begin(tutti_reducer *r)
{
    TUTTI_TRY(TUTTI__NOT_NULL(r));
    if (r->in_step)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "tutti_reducer_begin: step %llu is still open; call tutti_reducer_finish first",
            (unsigned long long)r->step);
    if (!r->group)
        return tutti__fail(TUTTI_ERR_STATE, "tutti_reducer_begin: the reducer is in no group; call "
                                            "tutti_reducer_regroup first");
    TUTTI_TRY(r->exact ? tutti__exact_begin(r) : tutti__begin_finite(r));
    r->in_step = true;
    r->step++;
    r->turn++;
    r->begin_ns = tutti__now_ns();
    r->next = 0;
    r->asked = false;
    tutti__late_begin(r);
    r->status = TUTTI_OK;
    for (size_t b = 0; b < r->n_buckets; b++) {
        r->buckets[b].pending = r->buckets[b].info.n;
        r->buckets[b].info.ready_ms = r->buckets[b].info.begin_ms = r->buckets[b].info.done_ms = 0;
    }
    return TUTTI_OK;
}

static tutti_status run_hook(tutti_reducer *r, tutti__bucket *b)
{
    if (b->sparse)
        return tutti__reduce_rows(r->group, &r->gradients[r->order[b->info.first]], b->view.buf);
    if (r->exact)
        return tutti__exact_reduce(r, b);
    return r->hook.run(r->hook.self, r->group, &b->view);
}

/* In the communication thread's stream: waits for the gradients first, and for the means at the end. */
static tutti_status run_hook_on_device(tutti_reducer *r, tutti__bucket *b)
{
    TUTTI_TRY(tutti__group_await(r->group, r->own, b->ready, "a bucket's gradients"));
    TUTTI_TRY(run_hook(r, b));
    TUTTI_TRY(r->own->ops->event_record(b->ready, r->own));
    return tutti__group_await(r->group, r->own, b->ready, "what a hook does to a bucket");
}

/* On the communication thread. If a hook fails, peers must be told, because they wait for this rank. */
static tutti_status run_bucket(void *arg)
{
    tutti__bucket *b = arg;
    tutti_reducer *r = b->reducer;
    uint64_t bytes = tutti__group_bytes(r->group);
    tutti_status status;

    tutti__step_label(r, 1 + (size_t)(b - r->buckets));
    (void)tutti__fail_again(TUTTI_OK, ""); /* else an old message would seem to be the hook's */
    status = r->own ? run_hook_on_device(r, b) : run_hook(r, b);
    tutti__step_unlabel(r);
    b->info.wire_bytes = tutti__group_bytes(r->group) - bytes;
    if (status != TUTTI_OK && tutti_status_scope(status) != TUTTI_SCOPE_GROUP) {
        /* A hook may fail without having set a message. */
        tutti__fail(status, "communication hook \"%s\" on rank %d: %s",
                    b->sparse  ? "sparse"
                    : r->exact ? "shards"
                               : r->hook.name,
                    tutti_group_rank(r->group),
                    *tutti_last_error() ? tutti_last_error() : tutti_status_text(status));
        tutti__abort_peers(r->group, status, tutti_last_error());
    }
    return status;
}

/* Which ranks have which gradient: reduced after the last bucket, when this rank's are known. With a static graph only until a
 * step in which all ranks take part, usually the first. */
static tutti_status ask_for_users(tutti_reducer *r)
{
    tutti_status status;

    if (!tutti__may_skip(r) || r->graph_known || r->exact)
        return TUTTI_OK;
    for (size_t place = 0; place < r->n_reduced; place++) {
        bool skipped = r->gradients[r->order[place]].skipped;

        r->users[place] = !skipped;
        if (r->static_graph)
            r->first_skips[place] = skipped;
    }
    tutti__step_label(r, 0);
    status = tutti_all_reduce(r->group, TUTTI_BUF(r->users, r->n_reduced, TUTTI_I32), TUTTI_SUM,
                              &r->asking);
    tutti__step_unlabel(r);
    return status;
}

/* Launches a full bucket; on a device, after the work submitted to its stream so far. */
static tutti_status launch_bucket(tutti_reducer *r, size_t i)
{
    tutti__bucket *b = &r->buckets[i];
    tutti_buf buf = b->view.buf;
    tutti_status status;

    if (r->exact)
        TUTTI_TRY(tutti__exact_fill(r, b));
    else if (i + 1 == r->n_buckets)
        TUTTI_TRY(tutti__check_all_finite(r));
    TUTTI_TRY(tutti__late_launch_gather(r, b));
    b->ready_ns = tutti__now_ns();
    b->info.wire_bytes = b->span;
    if (b->sparse || r->exact || r->hook.run) {
        if (r->stream)
            TUTTI_TRY(r->stream->ops->event_record(b->ready, r->stream));
        return tutti_group_submit(r->group, run_bucket, NULL, b, &b->work);
    }
    buf.stream = r->stream;
    tutti__step_label(r, 1 + i);
    /* there is no computation to overlap with the last bucket: the waiting thread may run it itself */
    tutti__group_hold(r->group, i + 1 == r->n_buckets && r->n_late == 0);
    status = tutti_all_reduce(r->group, buf, r->divisor ? TUTTI_SUM : TUTTI_AVG, &b->work);
    tutti__group_hold(r->group, false);
    tutti__step_unlabel(r);
    return status;
}

static void wait_bucket(tutti_reducer *r, size_t i);

tutti_status tutti__step_launch(tutti_reducer *r)
{
    if (r->asked)
        return TUTTI_OK;
    for (; r->next < r->n_buckets && r->buckets[r->next].pending == 0; r->next++) {
        const size_t before = r->in_flight > 0 ? r->next - r->in_flight : SIZE_MAX;
        tutti_status status;

        if (before < r->next && r->buckets[before].work)
            wait_bucket(r, before);
        if (r->status != TUTTI_OK)
            return r->status;
        status = launch_bucket(r, r->next);
        if (status != TUTTI_OK)
            return name_bucket(r, r->next, status);
    }
    if (r->next < r->n_buckets)
        return TUTTI_OK;
    TUTTI_TRY(tutti__late_launch(r));
    r->asked = r->next_late == r->n_late;
    return r->asked ? ask_for_users(r) : TUTTI_OK;
}

/* STATE if `call` is not allowed for gradient i now. */
static tutti_status check_arrival(tutti_reducer *r, size_t i, const char *call)
{
    const tutti__gradient *g = &r->gradients[i < r->n ? i : 0];

    if (!r->in_step)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s(%zu) outside a step; call tutti_reducer_begin first", call, i);
    if (r->exact && !tutti__exact_open(r))
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s(%zu) outside a shard; call tutti_reducer_begin_shard first", call,
                           i);
    if (i >= r->n)
        return tutti__step_keep(r, tutti__fail(TUTTI_ERR_ARG,
                                               "%s: there is no gradient %zu, only %zu in all",
                                               call, i, r->n));
    if (g->local)
        return tutti__step_keep(
            r, tutti__fail(TUTTI_ERR_ARG, "%s: gradient %zu, \"%s\", is local: it is not averaged",
                           call, i, g->name));
    if (g->ready_turn == r->turn)
        return tutti__step_keep(
            r, tutti__fail(TUTTI_ERR_STATE,
                           "gradient %zu, \"%s\", was ready twice in step %llu on rank %d; call "
                           "tutti_reducer_ready once, when it is final",
                           i, g->name, (unsigned long long)r->step, tutti_group_rank(r->group)));
    return TUTTI_OK;
}

static tutti_status fail_changed(const tutti_reducer *r, const tutti__gradient *g, bool skipped)
{
    return tutti__fail(TUTTI_ERR_STATE,
                       "the graph has changed: \"%s\" has %s gradient in step %llu on rank %d, and "
                       "had %s in step 1; static_graph promises the same in every step, use "
                       "find_unused instead",
                       g->name, skipped ? "no" : "a", (unsigned long long)r->step,
                       tutti_group_rank(r->group), skipped ? "one" : "none");
}

/* Gradient i is ready, or skipped. */
static tutti_status arrive(tutti_reducer *r, size_t i, bool skipped)
{
    tutti__gradient *g = &r->gradients[i];
    tutti_status status = TUTTI_OK;
    bool leaves = true;

    g->ready_turn = r->turn;
    g->skipped = skipped;
    if (r->exact)
        status = tutti__exact_take(r, i, skipped, &leaves);
    if (!leaves)
        return status == TUTTI_OK ? status : tutti__step_keep(r, status);
    r->buckets[g->bucket].pending--;
    if (r->graph_known && !r->shadow && skipped != r->first_skips[g->place])
        return tutti__step_keep(r, fail_changed(r, g, skipped));
    if (!skipped && !r->exact)
        status = tutti__check_finite(r, i);
    if (status != TUTTI_OK)
        return tutti__step_keep(r, status);
    if (r->status != TUTTI_OK)
        return TUTTI_OK; /* the step has failed, which finish reports: no more buckets are sent */
    status = tutti__step_launch(r);
    return status == TUTTI_OK ? status : tutti__step_keep(r, status);
}

tutti_status tutti__step_arrive(tutti_reducer *r, size_t i)
{
    TUTTI_TRY(check_arrival(r, i, "tutti_reducer_ready"));
    return arrive(r, i, false);
}

/* Gradient i is ready, or skipped, with all its rows. */
static tutti_status arrive_whole(tutti_reducer *r, size_t i, bool skipped)
{
    TUTTI_TRY(arrive(r, i, skipped));
    return r->gradients[i].late ? tutti__reducer_rows_ready(r, i) : TUTTI_OK;
}

tutti_status tutti_reducer_ready(tutti_reducer *r, size_t i)
{
    TUTTI_TRY(TUTTI__NOT_NULL(r));
    TUTTI_TRY(check_arrival(r, i, "tutti_reducer_ready"));
    if (r->gradients[i].sparse)
        memset(r->gradients[i].touched, 1, r->gradients[i].rows); /* any row may be non-zero */
    return arrive_whole(r, i, false);
}

unsigned char *tutti__reducer_touched(tutti_reducer *r, size_t i)
{
    return i < r->n ? r->gradients[i].touched : NULL;
}

tutti_status tutti__reducer_ready_touched(tutti_reducer *r, size_t i)
{
    TUTTI_TRY(check_arrival(r, i, "tutti_reducer_ready_rows"));
    return arrive(r, i, false);
}

tutti_status tutti_reducer_ready_rows(tutti_reducer *r, size_t i, const int64_t *rows,
                                      size_t n_rows)
{
    tutti__gradient *g;

    TUTTI_TRY(TUTTI__NOT_NULL(r));
    TUTTI_TRY(check_arrival(r, i, "tutti_reducer_ready_rows"));
    g = &r->gradients[i];
    if (!g->sparse)
        return tutti__step_keep(
            r, tutti__fail(TUTTI_ERR_ARG,
                           "tutti_reducer_ready_rows: gradient %zu, \"%s\", is not sparse; "
                           "call tutti_reducer_ready",
                           i, g->name));
    memset(g->touched, 0, g->rows);
    for (size_t k = 0; k < n_rows; k++) {
        if (rows[k] < 0 || rows[k] >= (int64_t)g->rows)
            return tutti__step_keep(
                r, tutti__fail(TUTTI_ERR_ARG,
                               "tutti_reducer_ready_rows: \"%s\" has %zu rows, and no row "
                               "%lld",
                               g->name, g->rows, (long long)rows[k]));
        g->touched[rows[k]] = 1;
    }
    return arrive(r, i, false);
}

void tutti__reducer_set_join(tutti_reducer *r, bool shadow, bool partial, int divisor)
{
    r->shadow = shadow;
    r->partial = partial;
    r->divisor = (size_t)divisor;
}

/* This rank contributes zeros for gradient i. */
static tutti_status bring_zeros(tutti_reducer *r, size_t i)
{
    tutti__gradient *g = &r->gradients[i];
    tutti_stream *stream = tutti__stream_or_cpu(r->stream);
    tutti_status status = r->exact ? TUTTI_OK : tutti__reducer_bring(r, i);

    if (status == TUTTI_OK && !r->exact) /* with shards zeros need not be added */
        status =
            stream->ops->zero(stream, r->block + g->offset, g->count * tutti_dtype_size(g->dtype));
    if (status != TUTTI_OK)
        return tutti__step_keep(r, status);
    if (g->sparse)
        memset(g->touched, 0, g->rows);
    return arrive_whole(r, i, true);
}

void tutti__reducer_bring_zeros(tutti_reducer *r, size_t i)
{
    bring_zeros(r, i);
}

tutti_status tutti_reducer_skip(tutti_reducer *r, size_t i)
{
    tutti__gradient *g;

    TUTTI_TRY(TUTTI__NOT_NULL(r));
    TUTTI_TRY(check_arrival(r, i, "tutti_reducer_skip"));
    g = &r->gradients[i];
    if (!tutti__may_skip(r))
        return tutti__step_keep(
            r, tutti__fail(TUTTI_ERR_STATE,
                           "gradient %zu, \"%s\", is skipped in step %llu on rank %d, which "
                           "needs find_unused or static_graph",
                           i, g->name, (unsigned long long)r->step, tutti_group_rank(r->group)));
    return bring_zeros(r, i);
}

tutti_status tutti__step_fail_missing(const tutti_reducer *r)
{
    tutti__names names = {0};

    for (size_t place = 0; place < r->n_reduced; place++)
        if (r->gradients[r->order[place]].ready_turn != r->turn)
            tutti__names_add(&names, r->gradients[r->order[place]].name);
    for (size_t k = 0; names.n == 0 && k < r->n_late; k++)
        if (!r->late[k].ready)
            tutti__names_add(&names, r->late[k].gradient->name);
    return tutti__fail(
        TUTTI_ERR_STATE,
        "gradients that were never ready in step %llu on rank %d: %s; call "
        "tutti_reducer_ready for each in every step (a gradient may be zero), or set "
        "find_unused",
        (unsigned long long)r->step, tutti_group_rank(r->group), tutti__names_end(&names));
}

static tutti_status divide_sum(const tutti_reducer *r, tutti_buf buf)
{
    const size_t bytes = buf.count * tutti_dtype_size(buf.dtype);
    void *here = r->stream ? tutti__alloc_unset(bytes) : buf.p;
    const void *src = here;
    tutti_status status = here ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (!r->stream) {
        tutti__average(buf.dtype, r->divisor, here, &src, 1, buf.count);
        return TUTTI_OK;
    }
    if (status == TUTTI_OK) /* on the host, so that the bits are the host's; this is rare */
        status = tutti__read(r->stream, here, buf.p, bytes);
    if (status == TUTTI_OK) {
        tutti__average(buf.dtype, r->divisor, here, &src, 1, buf.count);
        status = tutti__copy_in(r->stream, buf.p, here, bytes);
    }
    free(here);
    return status;
}

/* Turns the sum, or the mean over all ranks, into the mean over `divisor` ranks. */
static tutti_status divide(const tutti_reducer *r, const tutti__bucket *b)
{
    const tutti_buf buf = b->view.buf;
    const float factor = (float)((double)tutti_group_size(r->group) / (double)r->divisor);
    tutti_stream *stream = tutti__stream_or_cpu(r->stream);

    if (!b->sparse && !r->hook.run)
        return divide_sum(r, buf);
    if (buf.dtype != TUTTI_F32)
        return TUTTI_OK;
    return stream->ops->flat->scale(stream, buf.p, buf.count, factor);
}

static void wait_bucket(tutti_reducer *r, size_t i)
{
    tutti__bucket *b = &r->buckets[i];
    uint64_t begin_ns, end_ns;
    tutti_status status;

    tutti__work_times(b->work, &begin_ns, &end_ns);
    status = tutti_work_wait(b->work);
    b->work = NULL;
    if (status != TUTTI_OK) {
        tutti__step_keep(r, name_bucket(r, i, status));
        return;
    }
    tutti__keep_planned(r, b);
    if (r->divisor)
        keep_failure(r, divide(r, b));
    b->info.ready_ms = (double)(b->ready_ns - r->begin_ns) * 1e-6;
    b->info.begin_ms = (double)(begin_ns - r->begin_ns) * 1e-6;
    b->info.done_ms = (double)(end_ns - r->begin_ns) * 1e-6;
    r->traffic.wire_bytes += b->info.wire_bytes;
    r->traffic.gradient_bytes += b->span;
    tutti__record(r->recorder, "comm",
                  b->sparse     ? "sparse"
                  : r->exact    ? "shards"
                  : r->hook.run ? r->hook.name
                                : "all_reduce",
                  (int64_t)i, 1, begin_ns, end_ns);
}

tutti_status tutti__step_relaunch(tutti_reducer *r)
{
    for (size_t b = 0; b < r->n_buckets && r->status == TUTTI_OK; b++) {
        tutti_status status = launch_bucket(r, b);

        if (status != TUTTI_OK)
            tutti__step_keep(r, name_bucket(r, b, status));
    }
    for (size_t b = 0; b < r->n_buckets; b++)
        if (r->buckets[b].work)
            wait_bucket(r, b);
    return r->status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(r->status, r->message);
}

static void wait_users(tutti_reducer *r)
{
    tutti_status status;

    if (!r->asking)
        return;
    status = tutti_work_wait(r->asking);
    r->asking = NULL;
    if (status != TUTTI_OK)
        tutti__step_keep(r, status);
}

tutti_status tutti_reducer_finish(tutti_reducer *r)
{
    TUTTI_TRY(TUTTI__NOT_NULL(r));
    if (!r->in_step)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_reducer_finish outside a step; call tutti_reducer_begin first");
    if (r->exact)
        keep_failure(r, tutti__exact_close(r));
    for (size_t place = 0; !r->exact && tutti__may_skip(r) && place < r->n_reduced; place++)
        if (r->gradients[r->order[place]].ready_turn != r->turn)
            tutti_reducer_skip(r, r->order[place]);
    r->in_step = false;
    if (r->status == TUTTI_OK && (r->next < r->n_buckets || r->next_late < r->n_late))
        tutti__step_keep(r, tutti__step_fail_missing(r));
    if (r->status != TUTTI_OK)
        tutti__abort_peers(r->group, r->status, r->message);
    for (size_t b = 0; b < r->n_buckets; b++)
        if (r->buckets[b].work)
            wait_bucket(r, b);
    for (size_t k = 0; k < r->n_late; k++)
        keep_failure(r, tutti__late_wait(r, k));
    wait_users(r);
    if (r->exact)
        keep_failure(r, tutti__exact_end(r));
    else if (r->status == TUTTI_OK)
        keep_failure(r, tutti__end_finite(r));
    r->graph_known |= r->static_graph && !r->partial;
    return r->status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(r->status, r->message);
}

void tutti__reducer_fail(tutti_reducer *r, tutti_status status)
{
    tutti__step_keep(r, status);
}
