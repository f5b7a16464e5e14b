/* coalesce.c -- many collectives as one: recorded, then run as one queued function.   SPDX-License-Identifier: MIT
 *
 * all_reduces of small buffers are packed into memory that peers can read, or on their device, one part for each dtype and
 * reduction, so that many cost one barrier; each element is summed as it would be alone. The others run one after another.
 * Each operation carries a digest of all calls, so ranks that coalesce different calls find out in the first. */
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>

/* SMALL_BYTES: the largest buffer that is packed; two copies of a larger one cost as much as the barriers that they save. */
enum { SCRATCH_BYTES = 1 << 20, SMALL_BYTES = 16 << 10 };

typedef struct noted {
    tutti__op op;
    size_t *counts;             /* its own copy; NULL: none */
    tutti__pooled_event *event; /* of op, if it is the first on its stream */
    bool done;
} noted;

typedef struct batch {
    struct batch *next;
    tutti_group *group;
    uint64_t id; /* of the group: another may later have the same address */
    noted *calls;
    size_t n, capacity;
} batch;

/* The batches that this thread has begun, one a group. */
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

    for (size_t i = 0; i < b->n; i++) {
        tutti__devices_release_event(b->group->devices, b->calls[i].event);
        free(b->calls[i].counts);
    }
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

/* Copies the counts, which are borrowed only until the call returns. */
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

static bool on_one_device(const tutti_stream *a, const tutti_stream *b)
{
    return (a && b) ? a->ops == b->ops && a->device.index == b->device.index : a == b;
}

static bool travels_along(const noted *call, const tutti__op *with)
{
    const tutti__signature *s = &call->op.signature;

    return !call->done && s->op == TUTTI__OP_ALL_REDUCE && bytes_of(call) <= SMALL_BYTES &&
           s->dtype == with->signature.dtype && s->redop == with->signature.redop &&
           on_one_device(call->op.stream, with->stream);
}

/* Allocates it the first time. If ranks make different calls, the call that follows finds out. */
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

/* The memory in which they are packed; for a device also the group's stream there. */
static tutti_status need_place(tutti_group *group, tutti__op *together)
{
    void *p = NULL;

    if (!together->signature.on_device) { /* other ranks' buffers may be on the host */
        TUTTI_TRY(need_scratch(group));
        p = group->scratch;
    }
    if (together->stream)
        TUTTI_TRY(tutti__devices_scratch(group->devices, together->stream, SCRATCH_BYTES, &p,
                                         &together->stream));
    together->src = together->dst = p;
    together->after = NULL;
    return TUTTI_OK;
}

/* dst = src, of one call; on a device on the group's stream, after the call's event. */
static tutti_status copy(tutti_group *group, const noted *call, const tutti__op *together,
                         void *dst, const void *src)
{
    size_t bytes = bytes_of(call);
    tutti_stream *own = together->stream;

    if (bytes > 0 && !own)
        memcpy(dst, src, bytes);
    if (bytes == 0 || !own)
        return TUTTI_OK;
    TUTTI_TRY(tutti__devices_reach(&group->comm, together, call->op.after));
    return tutti__copy(own, dst, src, bytes) == TUTTI_OK ? TUTTI_OK
                                                         : tutti__devices_fail(&group->comm);
}

/* Copies between the packed calls of `first` to `end` and the memory in which they are packed. */
static tutti_status copy_all(batch *b, const tutti__op *together, size_t first, size_t end, bool in)
{
    char *place = together->dst;

    for (size_t i = first; i < end; i++) {
        noted *call = &b->calls[i];

        if (!travels_along(call, together))
            continue;
        TUTTI_TRY(
            copy(b->group, call, together, in ? place : call->op.dst, in ? call->op.src : place));
        place += bytes_of(call);
        call->done = !in;
    }
    return TUTTI_OK;
}

/* Runs the calls from `first` on that can be packed with it: copied in, reduced as one, copied out. */
static tutti_status run_together(batch *b, size_t first)
{
    tutti_group *group = b->group;
    tutti__op together = b->calls[first].op;
    size_t bytes = 0, end = first;
    tutti_status status;

    TUTTI_TRY(need_place(group, &together));
    together.timeout_ms = tutti__queue_timeout(group->queue);
    together.deadline = tutti__now_ms() + together.timeout_ms;
    together.signature.count = 0;
    for (; end < b->n && bytes + SMALL_BYTES <= SCRATCH_BYTES; end++)
        if (travels_along(&b->calls[end], &together)) {
            bytes += bytes_of(&b->calls[end]);
            together.signature.count += b->calls[end].op.signature.count;
        }
    status = copy_all(b, &together, first, end, true);
    if (status == TUTTI_OK)
        status = tutti__submit(group->queue, &together, NULL);
    if (status == TUTTI_OK)
        status = copy_all(b, &together, first, end, false);
    if (together.stream) /* also after a failure: then the device uses the buffers no more */
        TUTTI_TRY(tutti__devices_settle(group->devices, &together));
    return status;
}

static tutti_status run(void *arg)
{
    batch *b = arg;

    for (size_t i = 0; i < b->n; i++) {
        noted *call = &b->calls[i];

        if (call->done)
            continue;
        if (b->group->comm.size > 1 && travels_along(call, &call->op))
            TUTTI_TRY(run_together(b, i));
        else
            TUTTI_TRY(tutti__submit(b->group->queue, &call->op, NULL));
    }
    return TUTTI_OK;
}

/* Records the streams' positions. Successive calls on one stream share an event. */
static tutti_status record_events(batch *b)
{
    const tutti__op *last = NULL;

    for (size_t i = 0; i < b->n; i++) {
        noted *call = &b->calls[i];

        if (!call->op.stream)
            continue;
        if (!last || last->stream != call->op.stream)
            TUTTI_TRY(tutti__devices_record(b->group->devices, call->op.stream, &call->event));
        call->op.after = call->event ? call->event : last->after;
        last = &call->op;
    }
    return TUTTI_OK;
}

/* Takes ownership of the batch. */
static tutti_status submit(batch *b, tutti_work **work_p)
{
    uint64_t digest = b->n;
    tutti_status status = record_events(b);

    if (status != TUTTI_OK) {
        batch_free(b);
        return status;
    }
    for (size_t i = 0; i < b->n; i++) {
        tutti__signature *s = &b->calls[i].op.signature;
        uint64_t words[3];

        tutti__devices_claim(b->group->devices, &b->calls[i].op);
        words[0] = digest;
        words[1] = s->count;
        words[2] = (uint64_t)s->root << 32 | (uint64_t)s->on_device << 24 | (uint64_t)s->op << 16 |
                   (uint64_t)s->dtype << 8 | s->redop;
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

tutti_status tutti__coalesce(tutti_group *group, tutti__op *op, tutti_work **work_p)
{
    batch *b = begun ? *find(group) : NULL;

    if (!b)
        return tutti__submit(group->queue, op, work_p);
    if (work_p)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s between tutti_coalesce_begin and tutti_coalesce_end has no work "
                           "handle of its own: pass NULL, and use that of tutti_coalesce_end",
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
    b->next = begun; /* the calls below are recorded in it */
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
