/* reducer.c -- gradients in buckets, each bucket averaged over all ranks as soon as it is full.
 * SPDX-License-Identifier: MIT
 *
 * All gradients lie in one block that the group can reduce in place, in the order in which they get ready:
 *
 *     block   |<-- bucket 0 ------------------->|<-- bucket 1 -------------- ... ->|
 *             | fc2.bias .. | fc2.weight ...... | fc1.bias .. | fc1.weight ......  |     .. zeros up to 64 bytes
 *
 * Nothing is copied in or out: a bucket is a range of the block, padding included, and one all_reduce. Bucket k is
 * launched when all its gradients are there and bucket k-1 is launched, so every rank issues the same collectives in the
 * same order, whatever the order in which its own gradients come. */
#include "ddp/ddp.h"
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT ((size_t)64)
#define MIB       1048576.0

typedef struct gradient {
    char *name;
    size_t count, offset, bucket; /* offset: bytes in the block */
    tutti_dtype dtype;
    uint64_t ready_step; /* the last step in which it got ready */
} gradient;

typedef struct bucket {
    size_t offset, span,
        pending;      /* bytes in the block, padding included; gradients still to come */
    tutti_work *work; /* while in flight */
    uint64_t ready_ns;
    tutti_bucket_info info;
} bucket;

struct tutti_reducer {
    tutti_group *group;
    size_t n, n_buckets, bytes;
    gradient *gradients; /* by parameter */
    size_t *order;       /* parameter at each place; a bucket's places are adjacent */
    bucket *buckets;
    unsigned char *block;
    tutti__recorder *recorder;
    bool in_step;
    uint64_t step, begin_ns;
    size_t next;         /* bucket to launch */
    tutti_status status; /* the step's first failure, and its words */
    char message[2048];
};

void tutti__abort_peers(tutti_group *group, tutti_status status, const char *message)
{
    if (tutti_group_size(group) > 1 && tutti_status_scope(status) != TUTTI_SCOPE_GROUP)
        tutti_group_abort(group, "%s", message);
}

void tutti__names_add(tutti__names *names, const char *name)
{
    size_t used = strlen(names->text);

    if (names->n++ < 8)
        snprintf(names->text + used, sizeof names->text - used, "%s\"%.100s\"", used ? ", " : "",
                 name);
}

const char *tutti__names_end(tutti__names *names)
{
    size_t used = strlen(names->text);

    if (names->n > 8)
        snprintf(names->text + used, sizeof names->text - used, " and %zu more", names->n - 8);
    return names->text;
}

/* ---- Making one ------------------------------------------------------------------------------------------------------ */

static tutti_status check_parameters(const tutti_reducer_parameter *parameters, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const tutti_reducer_parameter *p = &parameters[i];

        if (!p->name)
            return tutti__fail(TUTTI_ERR_ARG, "tutti_reducer_new: parameter %zu has no name", i);
        if (p->dtype != TUTTI_F32 && p->dtype != TUTTI_F64 && p->dtype != TUTTI_F16 &&
            p->dtype != TUTTI_BF16)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "tutti_reducer_new: parameter %zu, \"%s\", is %s; gradients are averaged in "
                "F32, F64, F16 or BF16",
                i, p->name, tutti_dtype_name(p->dtype));
        if (p->count > PTRDIFF_MAX / 2 / tutti_dtype_size(p->dtype))
            return tutti__fail(
                TUTTI_ERR_ARG,
                "tutti_reducer_new: parameter %zu, \"%s\", has %zu elements, more than memory "
                "can hold",
                i, p->name, p->count);
    }
    return TUTTI_OK;
}

tutti_status tutti__bucket_sizes(const char *call, double *first_mb, double *mb)
{
    if (*first_mb == 0)
        *first_mb = 1;
    if (*mb == 0)
        *mb = 25;
    if (*first_mb > 0 && *first_mb < 1e6 && *mb > 0 && *mb < 1e6)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "%s: first_bucket_mb %g and bucket_mb %g; expected more than 0 and less than a million "
        "MiB, or 0 for the defaults, 1 and 25",
        call, *first_mb, *mb);
}

/* opts->order, or the last parameter first. */
static tutti_status set_order(tutti_reducer *r, const size_t *order)
{
    for (size_t i = 0; i < r->n; i++)
        r->order[i] = order ? order[i] : r->n - 1 - i;
    for (size_t i = 0; i < r->n; i++) {
        if (r->order[i] >= r->n)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "tutti_reducer_new: place %zu of the order is parameter %zu, but there are "
                "only %zu",
                i, r->order[i], r->n);
        if (r->gradients[r->order[i]].ready_step++)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "tutti_reducer_new: parameter %zu, \"%s\", is in the order twice; the order is "
                "a permutation of 0..%zu",
                r->order[i], r->gradients[r->order[i]].name, r->n - 1);
    }
    for (size_t i = 0; i < r->n; i++)
        r->gradients[i].ready_step = 0;
    return TUTTI_OK;
}

static tutti_status copy_parameters(tutti_reducer *r, const tutti_reducer_parameter *parameters)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t bytes = strlen(parameters[i].name) + 1;
        gradient *g = &r->gradients[i];

        g->count = parameters[i].count;
        g->dtype = parameters[i].dtype;
        g->name = tutti__alloc(bytes);
        if (!g->name)
            return TUTTI_ERR_MEMORY;
        memcpy(g->name, parameters[i].name, bytes);
    }
    return TUTTI_OK;
}

static tutti_status agree(const tutti_reducer *r, double first_mb, double mb)
{
    tutti__item *items = tutti__alloc((r->n + 2) * sizeof *items);
    tutti_status status;

    if (!items)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < r->n; i++) {
        const gradient *g = &r->gradients[i];

        snprintf(items[i].text, sizeof items[i].text, "\"%.160s\" [%zu] %s", g->name, g->count,
                 tutti_dtype_name(g->dtype));
    }
    status = tutti__agree(r->group, "models", "parameter", items, r->n);
    memset(items, 0, (r->n + 2) * sizeof *items);
    for (size_t i = 0; i < r->n; i++)
        snprintf(items[i].text, sizeof items[i].text, "\"%.160s\"", r->gradients[r->order[i]].name);
    if (status == TUTTI_OK)
        status = tutti__agree(r->group, "orders of gradients", "place", items, r->n);
    memset(items, 0, (r->n + 2) * sizeof *items);
    snprintf(items[0].text, sizeof items[0].text, "%g MiB", first_mb);
    snprintf(items[1].text, sizeof items[1].text, "%g MiB", mb);
    if (status == TUTTI_OK)
        status = tutti__agree(r->group, "bucket sizes", "size", items, 2);
    free(items);
    return status;
}

/* Cuts the order into buckets, whose places become adjacent. */
static tutti_status assign_buckets(tutti_reducer *r, double first_mb, double mb)
{
    const size_t limits[] = {(size_t)(first_mb * MIB), (size_t)(mb * MIB)};
    size_t *scratch = tutti__alloc((3 * r->n + 1) * sizeof *scratch);
    tutti_dtype *dtypes = tutti__alloc((r->n + 1) * sizeof *dtypes);
    size_t *bytes = scratch, *bucket_of = scratch ? scratch + r->n : NULL,
           *old_order = scratch ? scratch + 2 * r->n : NULL, place = 0;

    if (!scratch || !dtypes) {
        free(scratch);
        free(dtypes);
        return TUTTI_ERR_MEMORY;
    }
    for (size_t i = 0; i < r->n; i++) {
        const gradient *g = &r->gradients[r->order[i]];

        old_order[i] = r->order[i];
        dtypes[i] = g->dtype;
        bytes[i] = g->count * tutti_dtype_size(g->dtype);
    }
    r->n_buckets = tutti_bucket_assignment(bytes, dtypes, r->n, limits, 2, false, bucket_of);
    r->buckets = tutti__alloc((r->n_buckets + 1) * sizeof *r->buckets);
    for (size_t b = 0; r->buckets && b < r->n_buckets; b++) {
        tutti_bucket_info *info = &r->buckets[b].info;

        info->first = place;
        for (size_t i = 0; i < r->n; i++)
            if (bucket_of[i] == b) {
                r->order[place++] = old_order[i];
                r->gradients[old_order[i]].bucket = b;
                info->bytes += bytes[i];
            }
        info->n = place - info->first;
    }
    free(scratch);
    free(dtypes);
    return r->buckets ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status lay_out(tutti_reducer *r)
{
    for (size_t b = 0; b < r->n_buckets; b++) {
        bucket *cut = &r->buckets[b];

        cut->offset = r->bytes;
        for (size_t place = 0; place < cut->info.n; place++) {
            gradient *g = &r->gradients[r->order[cut->info.first + place]];
            size_t bytes = g->count * tutti_dtype_size(g->dtype);

            g->offset = r->bytes;
            r->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
        cut->span = r->bytes - cut->offset;
    }
    return tutti_group_alloc(r->group, r->bytes ? r->bytes : ALIGNMENT, (void **)&r->block);
}

static tutti_status build(tutti_reducer *r, const tutti_reducer_parameter *parameters,
                          const tutti_reducer_opts *opts)
{
    double first_mb = opts ? opts->first_bucket_mb : 0, mb = opts ? opts->bucket_mb : 0;

    TUTTI_TRY(check_parameters(parameters, r->n));
    TUTTI_TRY(tutti__bucket_sizes("tutti_reducer_new", &first_mb, &mb));
    r->gradients = tutti__alloc((r->n + 1) * sizeof *r->gradients);
    r->order = tutti__alloc((r->n + 1) * sizeof *r->order);
    if (!r->gradients || !r->order)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(copy_parameters(r, parameters));
    TUTTI_TRY(set_order(r, opts ? opts->order : NULL));
    TUTTI_TRY(agree(r, first_mb, mb));
    TUTTI_TRY(assign_buckets(r, first_mb, mb));
    return lay_out(r);
}

tutti_status tutti_reducer_new(tutti_reducer **reducer_p, tutti_group *group,
                               const tutti_reducer_parameter *parameters, size_t n_parameters,
                               const tutti_reducer_opts *opts)
{
    tutti_reducer *r = tutti__alloc(sizeof *r);
    tutti_status status;

    *reducer_p = NULL;
    if (!r)
        return TUTTI_ERR_MEMORY;
    r->group = group;
    r->n = n_parameters;
    status = build(r, parameters, opts);
    if (tutti_status_scope(status) ==
        TUTTI_SCOPE_PROCESS) /* this rank's alone: the others wait for it */
        tutti__abort_peers(group, status, tutti_last_error());
    if (status != TUTTI_OK) {
        tutti_reducer_free(r);
        return status;
    }
    *reducer_p = r;
    return TUTTI_OK;
}

void tutti_reducer_free(tutti_reducer *r)
{
    if (!r)
        return;
    if (r->in_step) { /* so that neither side waits for the other */
        snprintf(r->message, sizeof r->message,
                 "rank %d freed its reducer in the middle of step %llu", tutti_group_rank(r->group),
                 (unsigned long long)r->step);
        tutti__abort_peers(r->group, TUTTI_ERR_STATE, r->message);
    }
    for (size_t b = 0; b < r->n_buckets && r->buckets; b++)
        if (r->buckets[b].work)
            (void)!tutti_work_wait(
                r->buckets[b].work); /* nobody may write into the block any more */
    if (r->block)
        tutti_group_release(r->group, r->block);
    for (size_t i = 0; r->gradients && i < r->n; i++)
        free(r->gradients[i].name);
    free(r->gradients);
    free(r->order);
    free(r->buckets);
    free(r);
}

/* ---- A step ---------------------------------------------------------------------------------------------------------- */

/* Keeps the step's first failure: finish reports it. The thread's message is its words. */
static tutti_status keep(tutti_reducer *r, tutti_status status)
{
    if (r->status == TUTTI_OK) {
        r->status = status;
        snprintf(r->message, sizeof r->message, "%s", tutti_last_error());
    }
    return status;
}

/* Says which bucket a peer's failure hit. */
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

void *tutti_reducer_grad(tutti_reducer *r, size_t i)
{
    return i < r->n ? r->block + r->gradients[i].offset : NULL;
}

tutti_status tutti_reducer_begin(tutti_reducer *r)
{
    if (r->in_step)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "tutti_reducer_begin: step %llu is still open; call tutti_reducer_finish first",
            (unsigned long long)r->step);
    r->in_step = true;
    r->step++;
    r->begin_ns = tutti__now_ns();
    r->next = 0;
    r->status = TUTTI_OK;
    for (size_t b = 0; b < r->n_buckets; b++) {
        r->buckets[b].pending = r->buckets[b].info.n;
        r->buckets[b].info.ready_ms = r->buckets[b].info.done_ms = 0;
    }
    return TUTTI_OK;
}

/* Starts every bucket whose turn it is. */
static tutti_status launch(tutti_reducer *r)
{
    for (; r->next < r->n_buckets && r->buckets[r->next].pending == 0; r->next++) {
        bucket *b = &r->buckets[r->next];
        tutti_dtype dtype = r->gradients[r->order[b->info.first]].dtype;
        tutti_buf buf = {r->block + b->offset, b->span / tutti_dtype_size(dtype), dtype};
        tutti_status status;

        b->ready_ns = tutti__now_ns();
        status = tutti_all_reduce(r->group, buf, TUTTI_AVG, &b->work);
        if (status != TUTTI_OK)
            return name_bucket(r, r->next, status);
    }
    return TUTTI_OK;
}

tutti_status tutti_reducer_ready(tutti_reducer *r, size_t i)
{
    gradient *g = &r->gradients[i < r->n ? i : 0];
    tutti_status status;

    if (!r->in_step)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "tutti_reducer_ready(%zu) outside a step; call tutti_reducer_begin first", i);
    if (i >= r->n)
        return keep(r, tutti__fail(TUTTI_ERR_ARG,
                                   "tutti_reducer_ready: there is no gradient %zu, only %zu in all",
                                   i, r->n));
    if (g->ready_step == r->step)
        return keep(
            r, tutti__fail(TUTTI_ERR_STATE,
                           "gradient %zu, \"%s\", got ready twice in step %llu on rank %d; call "
                           "tutti_reducer_ready once, when it is final",
                           i, g->name, (unsigned long long)r->step, tutti_group_rank(r->group)));
    g->ready_step = r->step;
    r->buckets[g->bucket].pending--;
    if (r->status != TUTTI_OK)
        return TUTTI_OK; /* the step has failed and finish will say so: nothing more is sent */
    status = launch(r);
    return status == TUTTI_OK ? status : keep(r, status);
}

static tutti_status fail_missing(const tutti_reducer *r)
{
    tutti__names names = {0};

    for (size_t place = 0; place < r->n; place++)
        if (r->gradients[r->order[place]].ready_step != r->step)
            tutti__names_add(&names, r->gradients[r->order[place]].name);
    return tutti__fail(TUTTI_ERR_STATE,
                       "gradients that never got ready in step %llu on rank %d: %s; call "
                       "tutti_reducer_ready for each in every step (a gradient may be zero)",
                       (unsigned long long)r->step, tutti_group_rank(r->group),
                       tutti__names_end(&names));
}

static void wait_bucket(tutti_reducer *r, size_t i)
{
    bucket *b = &r->buckets[i];
    uint64_t begin_ns, end_ns;
    tutti_status status;

    tutti__work_times(b->work, &begin_ns, &end_ns);
    status = tutti_work_wait(b->work);
    b->work = NULL;
    if (status != TUTTI_OK) {
        keep(r, name_bucket(r, i, status));
        return;
    }
    b->info.ready_ms = (double)(b->ready_ns - r->begin_ns) * 1e-6;
    b->info.done_ms = (double)(end_ns - r->begin_ns) * 1e-6;
    tutti__record(r->recorder, "comm", "all_reduce", (int64_t)i, 1, begin_ns, end_ns);
}

tutti_status tutti_reducer_finish(tutti_reducer *r)
{
    if (!r->in_step)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_reducer_finish outside a step; call tutti_reducer_begin first");
    r->in_step = false;
    if (r->status == TUTTI_OK && r->next < r->n_buckets)
        keep(r, fail_missing(r));
    if (r->status != TUTTI_OK)
        tutti__abort_peers(r->group, r->status, r->message);
    for (size_t b = 0; b < r->n_buckets; b++)
        if (r->buckets[b].work)
            wait_bucket(r, b);
    return r->status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(r->status, r->message);
}

void tutti__reducer_fail(tutti_reducer *r, tutti_status status)
{
    keep(r, status);
}

/* ---- Looking in ------------------------------------------------------------------------------------------------------ */

size_t tutti_reducer_n_buckets(const tutti_reducer *r)
{
    return r->n_buckets;
}

tutti_bucket_info tutti_reducer_bucket(const tutti_reducer *r, size_t i)
{
    return i < r->n_buckets ? r->buckets[i].info : (tutti_bucket_info){0};
}

void tutti__reducer_set_recorder(tutti_reducer *r, tutti__recorder *recorder)
{
    r->recorder = recorder;
}
