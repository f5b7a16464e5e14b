/* late_rows.c -- a gradient that is final early, but for a few of its rows.   SPDX-License-Identifier: MIT
 *
 * Of a table that a loss reads first by rows (an embedding) and last as a matrix (the head that is tied to it) backward computes the
 * matrix's part at its start and the rows' part at its end. So that the table does not wait for that:
 *
 *     block   |== the matrix's part ==|    is reduced when it is there, in a bucket of its own
 *     values  | rows of any rank |         are copied from it before that; the rows' part is added to the copy, whose means, at the
 *                                          end of the step, replace those rows of the block
 *
 * Each element is the mean of the same sums in the same order as if all had waited for the end, so it has the same bits. In host
 * memory only. */
#include "reducer/internal.h"

#include <stdlib.h>
#include <string.h>

static size_t width_of(const tutti__gradient *g)
{
    return g->count / g->rows;
}

tutti_status tutti__late_new(tutti_reducer *r, const bool *late)
{
    size_t n = 0;

    for (size_t i = 0; late && i < r->n; i++)
        n += late[i];
    if (n == 0)
        return TUTTI_OK;
    r->late = tutti__alloc(n * sizeof *r->late);
    if (!r->late)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < r->n; i++) {
        tutti__gradient *g = &r->gradients[i];
        tutti__late *l = &r->late[r->n_late];

        if (!late[i])
            continue;
        if (g->local || g->sparse || g->rows == 0 || g->dtype != TUTTI_F32)
            return tutti__fail(TUTTI_ERR_INTERNAL, "\"%s\" cannot have late rows", g->name);
        *l = (tutti__late){.reducer = r, .gradient = g};
        g->late = l;
        r->n_late++;
        l->touched = tutti__alloc(g->rows);
        l->place = tutti__alloc(g->rows * sizeof *l->place);
        if (!l->touched || !l->place)
            return TUTTI_ERR_MEMORY;
    }
    return TUTTI_OK;
}

static tutti_status wait_for(tutti_work **work_p)
{
    tutti_work *work = *work_p;

    *work_p = NULL;
    return work ? tutti_work_wait(work) : TUTTI_OK;
}

void tutti__late_abandon(tutti_reducer *r)
{
    for (size_t k = 0; k < r->n_late; k++) {
        (void)!wait_for(&r->late[k].gather);
        (void)!wait_for(&r->late[k].work);
    }
}

void tutti__late_free(tutti_reducer *r)
{
    for (size_t k = 0; k < r->n_late; k++) {
        free(r->late[k].touched);
        free(r->late[k].place);
        free(r->late[k].values);
    }
    free(r->late);
}

void tutti__late_begin(tutti_reducer *r)
{
    r->next_late = 0;
    for (size_t k = 0; k < r->n_late; k++) {
        r->late[k].ready = r->late[k].begun = r->late[k].left = false;
        memset(r->late[k].touched, 0, r->late[k].gradient->rows);
    }
}

/* ---- On the communication thread ------------------------------------------------------------------------ */

/* Finds the rows that are late on any rank, and copies this rank's. */
static tutti_status gather(tutti__late *l)
{
    const tutti__gradient *g = l->gradient;
    const size_t width = width_of(g);
    const float *from = (const float *)(const void *)(l->reducer->block + g->offset);
    float *values;

    TUTTI_TRY(tutti_all_reduce(l->reducer->group, TUTTI_BUF(l->touched, g->rows, TUTTI_U8),
                               TUTTI_MAX, NULL));
    l->n = 0;
    for (size_t row = 0; row < g->rows; row++)
        l->place[row] = l->touched[row] ? (int32_t)l->n++ : -1;
    if (l->n > l->room) {
        values = realloc(l->values, l->n * width * sizeof *values);
        if (!values)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu rows of \"%s\"", l->n, g->name);
        l->values = values;
        l->room = l->n;
    }
    for (size_t row = 0; row < g->rows; row++)
        if (l->touched[row])
            memcpy(l->values + (size_t)l->place[row] * width, from + row * width,
                   width * sizeof *from);
    return TUTTI_OK;
}

static tutti_status run(tutti__late *l, tutti_status (*part)(tutti__late *l))
{
    tutti_reducer *r = l->reducer;
    const uint64_t bytes = tutti__group_bytes(r->group);
    tutti_status status;

    tutti__step_label(r, 1 + l->gradient->bucket);
    status = part(l);
    tutti__step_unlabel(r);
    l->wire_bytes += tutti__group_bytes(r->group) - bytes;
    if (status != TUTTI_OK)
        tutti__abort_peers(r->group, status, tutti_last_error());
    return status;
}

static tutti_status run_gather(void *arg)
{
    return run(arg, gather);
}

static tutti_status reduce(tutti__late *l)
{
    return tutti_all_reduce(l->reducer->group,
                            TUTTI_BUF(l->values, l->n * width_of(l->gradient), TUTTI_F32),
                            l->reducer->divisor ? TUTTI_SUM : TUTTI_AVG, NULL);
}

static tutti_status run_reduce(void *arg)
{
    tutti__late *l = arg;

    return l->n > 0 ? run(l, reduce) : TUTTI_OK;
}

/* ---- On the program's thread ---------------------------------------------------------------------------- */

tutti_status tutti__late_launch_gather(tutti_reducer *r, const tutti__bucket *b)
{
    tutti__late *l = r->gradients[r->order[b->info.first]].late;

    if (!l)
        return TUTTI_OK;
    l->begun = true;
    l->wire_bytes = 0;
    return tutti_group_submit(r->group, run_gather, NULL, l, &l->gather);
}

tutti_status tutti__late_launch(tutti_reducer *r)
{
    for (; r->next_late < r->n_late && r->late[r->next_late].ready; r->next_late++) {
        tutti__late *l = &r->late[r->next_late];

        TUTTI_TRY(tutti_group_submit(r->group, run_reduce, NULL, l, &l->work));
    }
    return TUTTI_OK;
}

tutti_status tutti__reducer_ready_but_rows(tutti_reducer *r, size_t i, const unsigned char *touched)
{
    tutti__late *l = r->gradients[i].late;

    memcpy(l->touched, touched, l->gradient->rows);
    l->left = true;
    return tutti__step_arrive(r, i);
}

tutti_status tutti__reducer_late_rows(tutti_reducer *r, size_t i, float **values_p,
                                      const int32_t **place_p)
{
    tutti__late *l = r->gradients[i].late;

    *values_p = NULL;
    if (!l->begun)
        return TUTTI_OK;
    TUTTI_TRY(wait_for(&l->gather));
    *values_p = l->values;
    *place_p = l->place;
    return TUTTI_OK;
}

static tutti_status check_finite(tutti_reducer *r, const tutti__late *l)
{
    tutti_stream *stream = tutti__stream_or_cpu(NULL);
    int32_t here = 0;

    if (r->nonfinite == TUTTI_NONFINITE_IGNORE || r->nonfinite_step == r->step)
        return TUTTI_OK;
    TUTTI_TRY(stream->ops->flat->find_nonfinite(stream, l->values, l->n * width_of(l->gradient),
                                                TUTTI_F32, &here));
    return here ? tutti__found_nonfinite(r, l->gradient) : TUTTI_OK;
}

tutti_status tutti__reducer_rows_ready(tutti_reducer *r, size_t i)
{
    tutti__late *l = r->gradients[i].late;
    tutti_status status = TUTTI_OK;

    if (l->begun) {
        status = wait_for(&l->gather);
        if (status == TUTTI_OK)
            status = check_finite(r, l);
    } else if (l->left) {
        status = tutti__check_finite(r, i); /* the rows were added to it after the first check */
    }
    l->ready = true;
    if (status == TUTTI_OK && r->status == TUTTI_OK)
        status = tutti__step_launch(r);
    return status == TUTTI_OK ? status : tutti__step_keep(r, status);
}

tutti_status tutti__late_wait(tutti_reducer *r, size_t k)
{
    tutti__late *l = &r->late[k];
    const tutti__gradient *g = l->gradient;
    const size_t width = width_of(g);
    const tutti__bucket *b = &r->buckets[g->bucket]; /* its own */
    const void *src = l->values;
    uint64_t begin_ns, end_ns;

    TUTTI_TRY(wait_for(&l->gather));
    if (!l->work)
        return TUTTI_OK;
    tutti__work_times(l->work, &begin_ns, &end_ns);
    TUTTI_TRY(wait_for(&l->work));
    tutti__record(r->recorder, "comm", "late rows", (int64_t)g->bucket, 1, begin_ns, end_ns);
    if (r->divisor)
        tutti__average(TUTTI_F32, r->divisor, l->values, &src, 1, l->n * width);
    for (size_t row = 0; row < g->rows; row++)
        if (l->place[row] >= 0)
            tutti__keep_copy(b, row * width, l->values + (size_t)l->place[row] * width, width);
    r->traffic.wire_bytes += l->wire_bytes;
    return TUTTI_OK;
}
