/* coalesce.c -- many collectives as one: noted, then run as one queued function.   SPDX-License-Identifier: MIT
 *
 * all_reduces of small buffers are brought together in memory that peers can read, a part for each dtype and reduction, so
 * that many cost one barrier; each element is summed as it would be alone. The others run one after the other. Each operation
 * bears a digest of all calls, so that ranks which coalesce different ones hear of it in the first. */
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>

/* SMALL_BYTES: of one; the two copies of more cost as much as the barriers that they save. */
enum { SCRATCH_BYTES = 1 << 20, SMALL_BYTES = 16 << 10 };

typedef struct noted {
    tutti__op op;
    size_t *counts; /* its own copy; NULL: none */
    bool done;
} noted;

typedef struct batch {
    struct batch *next;
    tutti_group *group;
    uint64_t id; /* the group's: another may lie there later */
    noted *calls;
    size_t n, capacity;
} batch;

/* Those that this thread has begun, one a group. */
static _Thread_local batch *begun;

static batch **find(const tutti_group *group)
{
    batch **place = &begun;

    while (*place && ((*place)->group != group || (*place)->id != group->comm.id))
        place = &(*place)->next;
    return place;
}

static batch *batch_new(tutti_group *group, size_t capacity)
{
    batch *b = tutti__alloc(sizeof *b);

    if (!b)
        return NULL;
    b->group = group;
    b->id = group->comm.id;
    b->capacity = capacity;
    b->calls = capacity ? tutti__alloc(capacity * sizeof *b->calls) : NULL;
    if (!capacity || b->calls)
        return b;
    free(b);
    return NULL;
}

static void batch_free(void *arg)
{
    batch *b = arg;

    for (size_t i = 0; i < b->n; i++)
        free(b->calls[i].counts);
    free(b->calls);
    free(b);
}

static tutti_status grow(batch *b)
{
    size_t capacity = b->capacity ? 2 * b->capacity : 64;
    noted *calls = realloc(b->calls, capacity * sizeof *calls);

    if (!calls)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu coalesced calls", capacity);
    b->calls = calls;
    b->capacity = capacity;
    return TUTTI_OK;
}

/* The caller's counts are borrowed only until its call returns. */
static tutti_status add(batch *b, const tutti__op *op)
{
    size_t n = (size_t)b->group->comm.size, bytes = n * sizeof *op->dst_counts;
    noted call = {.op = *op};

    if (b->n == b->capacity)
        TUTTI_TRY(grow(b));
    if (op->dst_counts) {
        call.counts = tutti__alloc(2 * bytes);
        if (!call.counts)
            return TUTTI_ERR_MEMORY;
        if (op->src_counts)
            call.op.src_counts = memcpy(call.counts + n, op->src_counts, bytes);
        call.op.dst_counts = memcpy(call.counts, op->dst_counts, bytes);
    }
    b->calls[b->n++] = call;
    return TUTTI_OK;
}

/* ---- Running ----------------------------------------------------------------------------------------- */

static size_t bytes_of(const noted *call)
{
    return tutti__signature_bytes(&call->op.signature);
}

static bool travels_along(const noted *call, const tutti__signature *with)
{
    const tutti__signature *s = &call->op.signature;

    return !call->done && s->op == TUTTI__OP_ALL_REDUCE && bytes_of(call) <= SMALL_BYTES &&
           s->dtype == with->dtype && s->redop == with->redop;
}

/* The first time; calls that differ are found by the call that follows. */
static tutti_status need_scratch(tutti_group *group)
{
    tutti__op alloc = {
        .signature = {.op = TUTTI__OP_ALLOC, .count = SCRATCH_BYTES, .dtype = TUTTI_U8},
        .dst = &group->scratch};
    tutti_status status;

    if (group->scratch)
        return TUTTI_OK;
    status = tutti__submit(group->queue, &alloc, NULL);
    if (tutti_status_scope(status) != TUTTI_SCOPE_GROUP)
        status = tutti__group_agree(group, status);
    if (status != TUTTI_OK) {
        tutti_group_release(group, group->scratch);
        group->scratch = NULL;
    }
    return status;
}

/* Those of the calls from `first` on that travel along with it: copied in, reduced as one, copied out. */
static tutti_status run_together(batch *b, size_t first)
{
    tutti_group *group = b->group;
    tutti__op together = b->calls[first].op;
    size_t bytes = 0, end = first, at = 0;

    TUTTI_TRY(need_scratch(group));
    together.src = together.dst = group->scratch;
    together.signature.count = 0;
    for (; end < b->n && bytes + SMALL_BYTES <= SCRATCH_BYTES; end++) {
        noted *call = &b->calls[end];

        if (!travels_along(call, &together.signature))
            continue;
        if (bytes_of(call) > 0)
            memcpy((char *)group->scratch + bytes, call->op.src, bytes_of(call));
        bytes += bytes_of(call);
        together.signature.count += call->op.signature.count;
    }
    TUTTI_TRY(tutti__submit(group->queue, &together, NULL));
    for (size_t i = first; i < end; i++) {
        noted *call = &b->calls[i];

        if (!travels_along(call, &together.signature))
            continue;
        if (bytes_of(call) > 0)
            memcpy(call->op.dst, (const char *)group->scratch + at, bytes_of(call));
        at += bytes_of(call);
        call->done = true;
    }
    return TUTTI_OK;
}

static tutti_status run(void *arg)
{
    batch *b = arg;

    for (size_t i = 0; i < b->n; i++) {
        noted *call = &b->calls[i];

        if (call->done)
            continue;
        if (b->group->comm.size > 1 && travels_along(call, &call->op.signature))
            TUTTI_TRY(run_together(b, i));
        else
            TUTTI_TRY(tutti__submit(b->group->queue, &call->op, NULL));
    }
    return TUTTI_OK;
}

/* Takes the batch over. */
static tutti_status submit(batch *b, tutti_work **work_p)
{
    uint64_t digest = b->n;

    for (size_t i = 0; i < b->n; i++) {
        const tutti__signature *s = &b->calls[i].op.signature;
        const uint64_t words[] = {digest, s->count,
                                  (uint64_t)s->root << 32 | (uint64_t)s->op << 16 |
                                      (uint64_t)s->dtype << 8 | s->redop};

        digest = tutti__hash64(words, sizeof words);
    }
    for (size_t i = 0; i < b->n; i++) {
        tutti__signature *s = &b->calls[i].op.signature;

        s->coalesced = 1;
        s->tag = (int32_t)(uint32_t)digest;
        if (s->op == TUTTI__OP_ALL_REDUCE)
            s->root = (uint32_t)b->n;
    }
    return tutti__submit_call(b->group->queue, run, batch_free, b, work_p);
}

/* ---- The calls ---------------------------------------------------------------------------------------- */

bool tutti__coalescing(const tutti_group *group)
{
    return begun && *find(group);
}

void tutti__coalesce_forget(const tutti_group *group)
{
    batch **place = find(group), *b = *place;

    if (!b)
        return;
    *place = b->next;
    batch_free(b);
}

tutti_status tutti__coalesce(tutti_group *group, const tutti__op *op, tutti_work **work_p)
{
    batch *b = begun ? *find(group) : NULL;

    if (!b)
        return tutti__submit(group->queue, op, work_p);
    if (work_p)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s between tutti_coalesce_begin and tutti_coalesce_end has no work of "
                           "its own: give NULL, and take that of tutti_coalesce_end",
                           tutti__op_name((tutti__op_kind)op->signature.op));
    return add(b, op);
}

tutti_status tutti_coalesce_begin(tutti_group *group)
{
    batch *b;

    TUTTI_TRY(tutti__check_group("coalesce_begin", group));
    b = batch_new(group, 0);
    if (!b)
        return TUTTI_ERR_MEMORY;
    b->next = begun;
    begun = b;
    return TUTTI_OK;
}

tutti_status tutti_coalesce_end(tutti_group *group, tutti_work **work_p)
{
    batch **place = find(group), *b = *place;

    if (work_p)
        *work_p = NULL;
    if (!group)
        return tutti__check_group("coalesce_end", group);
    if (!b)
        return tutti__fail(TUTTI_ERR_STATE,
                           "coalesce_end without a tutti_coalesce_begin of this group in this "
                           "thread");
    *place = b->next;
    return submit(b, work_p);
}

tutti_status tutti_all_reduce_list(tutti_group *group, const tutti_buf *bufs, size_t n,
                                   tutti_redop redop, tutti_work **work_p)
{
    tutti_status status = TUTTI_OK;
    batch *b;

    if (work_p)
        *work_p = NULL;
    TUTTI_TRY(tutti__check_group("all_reduce_list", group));
    if (!bufs && n > 0)
        return tutti__fail(TUTTI_ERR_ARG, "all_reduce_list: bufs is NULL, expected %zu", n);
    b = batch_new(group, n);
    if (!b)
        return TUTTI_ERR_MEMORY;
    b->next = begun; /* the calls below are noted in it */
    begun = b;
    for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
        status = tutti_all_reduce(group, bufs[i], redop, NULL);
        if (status != TUTTI_OK)
            status = tutti__fail(status, "buffer %zu of %zu: %s", i, n, tutti_last_error());
    }
    begun = b->next;
    if (status == TUTTI_OK)
        return submit(b, work_p);
    batch_free(b);
    return status;
}
