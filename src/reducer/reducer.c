/* reducer.c -- gradients in buckets: construction, order, memory.   SPDX-License-Identifier: MIT
 *
 * All gradients are in one block that the group can reduce in place, in the order in which they become ready:
 *
 *     block   |<-- bucket 0 ------------------->|<-- bucket 1 -------------- ... ->|<-- local ->|
 *             | fc2.bias .. | fc2.weight ...... | fc1.bias .. | fc1.weight ......  | ...        |   .. zeros to 64 bytes
 *
 * Nothing is copied in or out: a bucket is a range of the block, padding included. The last bucket cannot overlap with
 * backward, so it is kept small, and the gradients that would have waited in it are sent earlier. */
#include "reducer/internal.h"

#include "device/planned/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT ((size_t)64)
#define MIB       1048576.0

void tutti__abort_peers(tutti_group *group, tutti_status status, const char *message)
{
    if (tutti_group_size(group) > 1 && status != TUTTI_ERR_MISMATCH)
        tutti__group_abort_with(group, status, message);
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

/* ---- Parameters and options -------------------------------------------------------------------------------------------- */

static tutti_status check_parameter(const tutti_reducer_parameter *p, size_t i)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_reducer_parameter, p));
    if (!p->name)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_reducer_new: parameter %zu has no name", i);
    if (p->dtype != TUTTI_F32 && p->dtype != TUTTI_F64 && p->dtype != TUTTI_F16 &&
        p->dtype != TUTTI_BF16)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "tutti_reducer_new: parameter %zu, \"%s\", is %s; gradients are averaged "
            "in F32, F64, F16 or BF16",
            i, p->name, tutti_dtype_name(p->dtype));
    if (p->count > PTRDIFF_MAX / 2 / tutti_dtype_size(p->dtype))
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_reducer_new: parameter %zu, \"%s\", has %zu elements, more than "
                           "memory can hold",
                           i, p->name, p->count);
    if (p->rows > 0 && p->count % p->rows != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_reducer_new: parameter %zu, \"%s\", has %zu elements, which are "
                           "not %zu rows",
                           i, p->name, p->count, p->rows);
    if (p->sparse && (p->rows == 0 || p->dtype != TUTTI_F32))
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_reducer_new: parameter %zu, \"%s\", is sparse and %s with %zu "
                           "rows; a sparse gradient is F32 and has rows",
                           i, p->name, tutti_dtype_name(p->dtype), p->rows);
    return TUTTI_OK;
}

tutti_status tutti__bucket_sizes(const char *call, const tutti_reducer_opts *opts,
                                 tutti__bucket_limits *limits)
{
    const double sizes[] = {tutti__or(opts->first_bucket_mb, 1), tutti__or(opts->bucket_mb, 25)};
    const char *names[] = {"first_bucket_mb", "bucket_mb"};
    bool listed = opts->bucket_mb_list && opts->n_bucket_mb_list > 0;

    if (!opts->bucket_mb_list && opts->n_bucket_mb_list > 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: bucket_mb_list is NULL with n_bucket_mb_list %zu",
                           call, opts->n_bucket_mb_list);
    limits->n = listed ? opts->n_bucket_mb_list : 2;
    if (limits->n > TUTTI__MAX_BUCKET_LIMITS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: bucket_mb_list has %zu sizes, expected at most %d (the last "
                           "repeats)",
                           call, limits->n, TUTTI__MAX_BUCKET_LIMITS);
    for (size_t i = 0; i < limits->n; i++) {
        limits->mb[i] = listed ? opts->bucket_mb_list[i] : sizes[i];
        if (!(limits->mb[i] >= 0 && limits->mb[i] < 1e6))
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s: %s %g; expected 0 (the default) to less than a million MiB, or "
                               "TUTTI_ZERO for a bucket of each gradient",
                               call, listed ? "bucket_mb_list:" : names[i], limits->mb[i]);
    }
    limits->shortens_last = !listed;
    return TUTTI_OK;
}

/* opts->order, or the last parameter first. */
static tutti_status check_order(tutti_reducer *r, const size_t *order)
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
        if (r->gradients[r->order[i]].ready_turn++)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "tutti_reducer_new: parameter %zu, \"%s\", is in the order twice; the order is "
                "a permutation of 0..%zu",
                r->order[i], r->gradients[r->order[i]].name, r->n - 1);
    }
    for (size_t i = 0; i < r->n; i++)
        r->gradients[i].ready_turn = 0;
    return TUTTI_OK;
}

/* Local ones go to the end. */
static tutti_status set_order(tutti_reducer *r, const size_t *order)
{
    size_t *locals, n_locals = 0;

    TUTTI_TRY(check_order(r, order));
    locals = tutti__alloc((r->n + 1) * sizeof *locals);
    if (!locals)
        return TUTTI_ERR_MEMORY;
    r->n_reduced = 0;
    for (size_t place = 0; place < r->n; place++)
        if (r->gradients[r->order[place]].local)
            locals[n_locals++] = r->order[place];
        else
            r->order[r->n_reduced++] = r->order[place];
    memcpy(r->order + r->n_reduced, locals, n_locals * sizeof *locals);
    free(locals);
    return TUTTI_OK;
}

static tutti_status copy_parameters(tutti_reducer *r, const tutti_reducer_parameter *parameters)
{
    for (size_t i = 0; i < r->n; i++) {
        const tutti_reducer_parameter *p = &parameters[i];
        tutti__gradient *g = &r->gradients[i];

        TUTTI_TRY(check_parameter(p, i));
        g->count = p->count;
        g->rows = p->rows;
        g->dtype = p->dtype;
        g->sparse = p->sparse && !p->local;
        g->local = p->local;
        g->name = tutti__alloc(strlen(p->name) + 1);
        g->touched = g->sparse ? tutti__alloc(g->rows) : NULL;
        if (!g->name || (g->sparse && !g->touched))
            return TUTTI_ERR_MEMORY;
        memcpy(g->name, p->name, strlen(p->name) + 1);
    }
    return TUTTI_OK;
}

/* ---- Agreement ------------------------------------------------------------------------------------------------------- */

static tutti_status agree_on_parameters(const tutti_reducer *r, tutti_status local,
                                        tutti__item *items)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n && local == TUTTI_OK; i++) {
        const tutti__gradient *g = &r->gradients[i];

        if (!g->local)
            snprintf(items[n++].text, sizeof items->text, "\"%.160s\" [%zu] %s%s", g->name,
                     g->count, tutti_dtype_name(g->dtype),
                     g->sparse ? " sparse"
                     : g->late ? " with late rows"
                               : "");
    }
    return tutti__agree_after(r->group, local, "models", "parameter", items, n);
}

static tutti_status agree_on_order(const tutti_reducer *r, tutti__item *items)
{
    for (size_t i = 0; i < r->n_reduced; i++)
        snprintf(items[i].text, sizeof items->text, "\"%.160s\"", r->gradients[r->order[i]].name);
    return tutti__agree(r->group, "orders of gradients", "place", items, r->n_reduced);
}

static tutti_status agree_on_options(const tutti_reducer *r, tutti__item *items)
{
    const tutti__bucket_limits *limits = &r->limits;
    const bool flags[] = {r->find_unused, r->static_graph};
    const char *names[] = {"find_unused", "static_graph"};

    for (size_t i = 0; i < limits->n; i++)
        snprintf(items[i].text, sizeof items->text, "%g MiB", limits->mb[i]);
    TUTTI_TRY(tutti__agree(r->group, "bucket sizes", "size", items, limits->n));
    memset(items, 0, limits->n * sizeof *items);
    for (size_t i = 0; i < TUTTI__COUNT_OF(flags); i++)
        snprintf(items[i].text, sizeof items->text, "%s %s", names[i], flags[i] ? "true" : "false");
    return tutti__agree(r->group, "options", "option", items,
                        TUTTI__COUNT_OF(flags) +
                            tutti__exact_describe(r, items + TUTTI__COUNT_OF(flags)));
}

/* `local`: this rank's status so far. */
static tutti_status agree(const tutti_reducer *r, tutti_status local)
{
    size_t bytes = (r->n + TUTTI__MAX_BUCKET_LIMITS) * sizeof(tutti__item);
    tutti__item *items = local == TUTTI_OK ? tutti__alloc(bytes) : NULL;
    tutti_status status;

    if (local == TUTTI_OK && !items)
        local = TUTTI_ERR_MEMORY;
    status = agree_on_parameters(r, local, items);
    if (status == TUTTI_OK) {
        memset(items, 0, bytes);
        status = agree_on_order(r, items);
    }
    if (status == TUTTI_OK) {
        memset(items, 0, bytes);
        status = agree_on_options(r, items);
    }
    free(items);
    return status;
}

/* ---- Buckets --------------------------------------------------------------------------------------------------------- */

/* If the last bucket is larger than the first limit, moves its end to another bucket: as much as the limit allows, at least one
 * gradient. */
static void shorten_last(tutti_reducer *r, const tutti_bucket_item *items, size_t limit,
                         size_t *bucket_of)
{
    size_t last = r->n_buckets - 1, bytes = 0, first = r->n_reduced, tail = 0;

    for (size_t i = r->n_reduced; i-- > 0;)
        if (bucket_of[i] == last) {
            first = i;
            bytes += items[i].bytes;
        }
    for (size_t i = r->n_reduced - 1; bytes > limit && i > first; i--) {
        if (bucket_of[i] != last)
            continue;
        tail += items[i].bytes;
        if (tail > limit && r->n_buckets > last + 1)
            return;
        bucket_of[i] = last + 1;
        r->n_buckets = last + 2;
    }
}

/* Reorders so that each bucket's gradients are adjacent. */
static void group_by_bucket(tutti_reducer *r, const tutti_bucket_item *items,
                            const size_t *bucket_of, const size_t *old_order)
{
    size_t place = 0;

    for (size_t i = 0; i < r->n_reduced; i++) {
        tutti__bucket *bucket = &r->buckets[bucket_of[i]];

        bucket->info.n++;
        bucket->info.bytes += items[i].bytes;
        bucket->sparse |= r->gradients[old_order[i]].sparse;
    }
    for (size_t b = 0; b < r->n_buckets; b++) {
        r->buckets[b].reducer = r;
        r->buckets[b].info.first = place;
        place += r->buckets[b].info.n;
    }
    /* pending: used here to count the bucket's gradients placed so far */
    for (size_t i = 0; i < r->n_reduced; i++) {
        tutti__bucket *bucket = &r->buckets[bucket_of[i]];

        r->order[bucket->info.first + bucket->pending++] = old_order[i];
        r->gradients[old_order[i]].bucket = bucket_of[i];
    }
}

static tutti_status assign_buckets(tutti_reducer *r)
{
    const tutti__bucket_limits *limits = &r->limits;
    size_t *bucket_of = tutti__alloc((2 * r->n + 1) * sizeof *bucket_of),
           *old_order = bucket_of ? bucket_of + r->n : NULL, bytes[TUTTI__MAX_BUCKET_LIMITS];
    tutti_bucket_item *items = tutti__alloc((r->n + 1) * sizeof *items);
    tutti_status status = TUTTI_ERR_MEMORY;

    for (size_t i = 0; i < limits->n; i++)
        bytes[i] = (size_t)(limits->mb[i] * MIB);
    if (bucket_of && items) {
        for (size_t i = 0; i < r->n_reduced; i++) {
            const tutti__gradient *g = &r->gradients[r->order[i]];

            old_order[i] = r->order[i];
            items[i] = (tutti_bucket_item){g->count * tutti_dtype_size(g->dtype), g->dtype,
                                           g->sparse || g->late}; /* in a bucket of its own */
            if (r->vectors_apart && g->rows > 0 && g->dtype == TUTTI_F32)
                items[i].dtype =
                    TUTTI_BF16; /* another kind; no gradient has it where this is set */
        }
        r->n_buckets =
            tutti_bucket_assignment(items, r->n_reduced, bytes, limits->n, false, bucket_of);
        if (limits->shortens_last && r->n_buckets > 0)
            shorten_last(r, items, bytes[0], bucket_of);
        r->buckets = tutti__alloc((r->n_buckets + 1) * sizeof *r->buckets);
        if (r->buckets) {
            group_by_bucket(r, items, bucket_of, old_order);
            status = TUTTI_OK;
        }
    }
    free(bucket_of);
    free(items);
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------------- */

/* Gives the gradient at `place` the next range of the block. */
static void place_gradient(tutti_reducer *r, size_t place)
{
    tutti__gradient *g = &r->gradients[r->order[place]];
    size_t bytes = g->count * tutti_dtype_size(g->dtype);

    g->place = place;
    g->offset = r->bytes;
    r->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void make_views(tutti_reducer *r)
{
    tutti__bucket *last = NULL;

    for (size_t b = 0; b < r->n_buckets; b++) {
        tutti__bucket *bucket = &r->buckets[b];
        tutti_dtype dtype = r->gradients[r->order[bucket->info.first]].dtype;

        for (size_t k = 0; k < bucket->info.n; k++) {
            const tutti__gradient *g = &r->gradients[r->order[bucket->info.first + k]];

            r->views[g->place] = (tutti_bucket_gradient){.parameter = r->order[g->place],
                                                         .name = g->name,
                                                         .offset = (g->offset - bucket->offset) /
                                                                   tutti_dtype_size(dtype),
                                                         .count = g->count,
                                                         .rows = g->rows};
        }
        bucket->view =
            (tutti_bucket){.index = b,
                           .buf = {r->block + bucket->offset,
                                   bucket->span / tutti_dtype_size(dtype), dtype, r->own},
                           .n = bucket->info.n,
                           .gradients = r->views + bucket->info.first};
        last = bucket->sparse ? last : bucket;
    }
    if (last)
        last->view.is_last = true;
}

/* What a device needs besides the block. */
static tutti_status prepare_device(tutti_reducer *r)
{
    const tutti__device_ops *ops;

    if (!r->stream)
        return TUTTI_OK;
    ops = r->stream->ops;
    TUTTI_TRY(ops->stream_new(&r->own, r->stream->device, NULL));
    r->found = ops->alloc(r->stream->device, (r->n + 1) * sizeof *r->found, true);
    r->seen = ops->host_alloc(r->stream->device, (r->n + 1) * sizeof *r->seen);
    if (!r->found || !r->seen)
        return TUTTI_ERR_MEMORY;
    for (size_t b = 0; b < r->n_buckets; b++)
        TUTTI_TRY(ops->event_new(r->stream->device, &r->buckets[b].ready));
    return TUTTI_OK;
}

static void free_device(tutti_reducer *r)
{
    const tutti__device_ops *ops;

    if (!r->stream)
        return;
    ops = r->stream->ops;
    (void)!ops->stream_wait(r->stream); /* it may still use the block */
    for (size_t b = 0; r->buckets && b < r->n_buckets; b++)
        ops->event_free(r->stream->device, r->buckets[b].ready);
    ops->free(r->stream->device, r->found);
    ops->host_free(r->stream->device, r->seen);
    if (r->own)
        ops->stream_free(r->own);
}

/* Sets each gradient's offset in the block; returns the bytes of local ones, which are at its end. */
static size_t place_all(tutti_reducer *r)
{
    size_t local_bytes;

    for (size_t b = 0; b < r->n_buckets; b++) {
        tutti__bucket *bucket = &r->buckets[b];

        bucket->offset = r->bytes;
        for (size_t k = 0; k < bucket->info.n; k++)
            place_gradient(r, bucket->info.first + k);
        bucket->span = r->bytes - bucket->offset;
    }
    local_bytes = r->bytes;
    for (size_t place = r->n_reduced; place < r->n; place++)
        place_gradient(r, place);
    return r->bytes - local_bytes;
}

/* `local`: this rank's status so far. */
static tutti_status lay_out(tutti_reducer *r, tutti_status local)
{
    int size = tutti_group_size(r->group);
    int64_t most[2] = {0, local == TUTTI_OK ? 0 : size - tutti_group_rank(r->group)};

    if (local == TUTTI_OK) {
        most[0] = (int64_t)place_all(r);
        r->bytes -= (size_t)most[0];
    }
    TUTTI_TRY(tutti_all_reduce(r->group, TUTTI_BUF(most, 2, TUTTI_I64), TUTTI_MAX, NULL));
    if (most[1] > 0)
        return tutti__group_share_failure(r->group, local, size - (int)most[1]);
    r->bytes += (size_t)most[0]; /* the group's memory must have one size on all ranks */
    if (r->kept_in_part)
        TUTTI_TRY(tutti__group_agree(r->group, tutti__keep_alloc(r, r->bytes, true, &r->block)));
    else
        TUTTI_TRY(tutti_group_alloc_on(r->group, r->stream, r->bytes ? r->bytes : ALIGNMENT,
                                       (void **)&r->block));
    make_views(r);
    for (size_t b = 0; b < r->n_buckets; b++)
        tutti__keep_begin(r, &r->buckets[b]);
    return TUTTI_OK;
}

/* With shards: gradients are in private memory, which does not depend on the group. */
static tutti_status lay_out_alone(tutti_reducer *r, const tutti_reducer_opts *opts)
{
    tutti_stream *stream = tutti__stream_or_cpu(opts->stream);

    TUTTI_TRY(assign_buckets(r));
    TUTTI_TRY(prepare_device(r));
    place_all(r);
    r->alone = stream;
    r->planned = opts->stream && opts->stream->ops->plans;
    if (r->kept_in_part)
        TUTTI_TRY(tutti__keep_alloc(r, r->bytes, true, &r->block));
    else
        r->block = stream->ops->alloc(stream->device, r->bytes ? r->bytes : ALIGNMENT, true);
    if (!r->block)
        return TUTTI_ERR_MEMORY;
    make_views(r);
    return tutti__exact_new(r, opts);
}

/* With shards: enters the current group. `local`: this rank's status so far. */
static tutti_status enter(tutti_reducer *r, tutti_status local)
{
    TUTTI_TRY(agree(r, local));
    TUTTI_TRY(tutti__agree_number(r->group, &r->number));
    return tutti__exact_alloc(r);
}

/* The part that needs no other rank. */
static tutti_status take(tutti_reducer *r, const tutti_reducer_parameter *parameters,
                         const tutti_reducer_opts *opts, const bool *late)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_reducer_opts, opts));
    TUTTI_TRY(tutti__bucket_sizes("tutti_reducer_new", opts, &r->limits));
    r->find_unused = opts->find_unused || (opts->shards > 0 && opts->static_graph);
    r->static_graph = opts->static_graph && opts->shards == 0;
    r->nonfinite = opts->nonfinite;
    r->stream = tutti__on_host(opts->stream) ? NULL : opts->stream;
    r->gradients = tutti__alloc((r->n + 1) * sizeof *r->gradients);
    r->order = tutti__alloc((r->n + 1) * sizeof *r->order);
    r->views = tutti__alloc((r->n + 1) * sizeof *r->views);
    r->users = tutti__may_skip(r) ? tutti__alloc((r->n + 1) * sizeof *r->users) : NULL;
    r->first_skips = r->static_graph ? tutti__alloc(r->n + 1) : NULL;
    if (!r->gradients || !r->order || !r->views || (tutti__may_skip(r) && !r->users) ||
        (r->static_graph && !r->first_skips))
        return TUTTI_ERR_MEMORY;
    if (!parameters && r->n > 0)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_reducer_new: parameters is NULL, expected %zu",
                           r->n);
    TUTTI_TRY(copy_parameters(r, parameters));
    TUTTI_TRY(tutti__late_new(r, late));
    return set_order(r, opts->order);
}

/* All of the construction. */
static tutti_status make(tutti_reducer *r, const tutti_reducer_parameter *parameters,
                         const tutti_reducer_opts *opts, const bool *late)
{
    tutti_status status = take(r, parameters, opts, late);

    if (opts->shards > 0) {
        if (status == TUTTI_OK)
            status = lay_out_alone(r, opts);
        return r->group ? enter(r, status) : status;
    }
    TUTTI_TRY(agree(r, status));
    TUTTI_TRY(tutti__agree_number(r->group, &r->number));
    r->planned = tutti__group_is_planned(r->group);
    status = assign_buckets(r);
    if (status == TUTTI_OK)
        status = prepare_device(r);
    return lay_out(r, status);
}

tutti_status tutti__reducer_new_late(tutti_reducer **reducer_p, tutti_group *group,
                                     const tutti_reducer_parameter *parameters, size_t n_parameters,
                                     const tutti_reducer_opts *opts, const bool *late,
                                     bool kept_in_part, bool vectors_apart)
{
    static const tutti_reducer_opts defaults;
    tutti_reducer *r;
    tutti_status status;

    *reducer_p = NULL;
    opts = opts ? opts : &defaults;
    if (group || opts->shards <= 0)
        TUTTI_TRY(tutti__check_group("tutti_reducer_new", group));
    r = tutti__alloc(sizeof *r);
    if (!r)
        return group ? tutti__agree_after(group, TUTTI_ERR_MEMORY, "models", "parameter", NULL, 0)
                     : TUTTI_ERR_MEMORY;
    r->group = group;
    r->n = n_parameters;
    r->kept_in_part = kept_in_part;
    r->vectors_apart = vectors_apart;
    status = make(r, parameters, opts, late);
    if (status != TUTTI_OK) {
        tutti_reducer_free(r);
        return status;
    }
    *reducer_p = r;
    return TUTTI_OK;
}

tutti_status tutti_reducer_new(tutti_reducer **reducer_p, tutti_group *group,
                               const tutti_reducer_parameter *parameters, size_t n_parameters,
                               const tutti_reducer_opts *opts)
{
    return tutti__reducer_new_late(reducer_p, group, parameters, n_parameters, opts, NULL, false,
                                   false);
}

/* Ends work in flight at once: in a dead group it has failed already, else the group is aborted. */
static void give_up(tutti_reducer *r, const char *what)
{
    if (r->in_step) { /* so that no rank waits for another */
        snprintf(r->message, sizeof r->message, "rank %d %s in the middle of step %llu",
                 tutti_group_rank(r->group), what, (unsigned long long)r->step);
        tutti__abort_peers(r->group, TUTTI_ERR_STATE, r->message);
    }
    r->in_step = false;
    for (size_t b = 0; b < r->n_buckets && r->buckets; b++)
        if (r->buckets[b].work) {
            (void)!tutti_work_wait(r->buckets[b].work); /* the block must not be written any more */
            r->buckets[b].work = NULL;
        }
    tutti__late_abandon(r);
    if (r->asking)
        (void)!tutti_work_wait(r->asking);
    r->asking = NULL;
    tutti__exact_abandon(r);
}

tutti_status tutti_reducer_regroup(tutti_reducer *r, tutti_group *group)
{
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(r));
    if (!r->exact)
        return tutti__fail(TUTTI_ERR_STATE, "tutti_reducer_regroup: the reducer was made without "
                                            "shards, and its memory is its group's");
    if (r->group) {
        give_up(r, "left its group");
        tutti__exact_release(r);
    }
    r->group = group;
    r->step = r->nonfinite_step = 0; /* as on ranks that are new */
    if (!group)
        return TUTTI_OK;
    status = tutti__check_group("tutti_reducer_regroup", group);
    if (status == TUTTI_OK)
        status = enter(r, TUTTI_OK);
    if (status != TUTTI_OK) {
        tutti__exact_release(r);
        r->group = NULL;
    }
    return status;
}

void tutti_reducer_free(tutti_reducer *r)
{
    if (!r)
        return;
    if (r->group) {
        give_up(r, "freed its reducer");
        tutti__exact_release(r);
    }
    if (r->hook.free)
        r->hook.free(r->hook.self);
    free_device(r);
    if (r->kept_in_part) {
        tutti__keep_free(r, r->block, r->bytes);
    } else if (r->alone) {
        r->alone->ops->free(r->alone->device, r->block);
    } else if (r->block) {
        tutti_group_release(r->group, r->block);
    }
    tutti__exact_free(r);
    tutti__late_free(r);
    for (size_t i = 0; r->gradients && i < r->n; i++) {
        free(r->gradients[i].name);
        free(r->gradients[i].touched);
    }
    free(r->gradients);
    free(r->order);
    free(r->buckets);
    free(r->views);
    free(r->users);
    free(r->first_skips);
    free(r);
}

/* ---- Getters ------------------------------------------------------------------------------------------------------ */

size_t tutti_reducer_n_buckets(const tutti_reducer *r)
{
    return r ? r->n_buckets : 0;
}

size_t tutti_reducer_at(const tutti_reducer *r, size_t place)
{
    return r && place < r->n_reduced ? r->order[place] : SIZE_MAX;
}

const char *tutti_reducer_name(const tutti_reducer *r, size_t i)
{
    return r && i < r->n ? r->gradients[i].name : NULL;
}

tutti_bucket_info tutti_reducer_bucket(const tutti_reducer *r, size_t i)
{
    return r && i < r->n_buckets ? r->buckets[i].info : (tutti_bucket_info){0};
}

tutti_traffic tutti_reducer_traffic(const tutti_reducer *r)
{
    return r ? r->traffic : (tutti_traffic){0};
}

int tutti_reducer_users(const tutti_reducer *r, size_t i)
{
    if (!r || i >= r->n || r->gradients[i].local)
        return 0;
    return r->users   ? (int)r->users[r->gradients[i].place]
           : r->exact ? tutti__exact_count(r)
                      : tutti_group_size(r->group);
}

void *tutti_reducer_grad(tutti_reducer *r, size_t i)
{
    return r && i < r->n ? r->block + r->gradients[i].offset : NULL;
}

const size_t *tutti__reducer_order(const tutti_reducer *r)
{
    return r->order;
}

void tutti__reducer_set_recorder(tutti_reducer *r, tutti__recorder *recorder)
{
    r->recorder = recorder;
}

uint64_t tutti__reducer_begin_ns(const tutti_reducer *r)
{
    return r->begin_ns;
}

const char *tutti__reducer_nonfinite(const tutti_reducer *r, uint64_t *steps_p)
{
    *steps_p = r->nonfinite_steps;
    return r->nonfinite_parameter;
}
