/* coalesce.c -- many collectives as one: recorded, then run as one queued function.   SPDX-License-Identifier: MIT
 *
 * all_reduces of small buffers are packed into memory that peers can read, or on their device, one part for each dtype and
 * reduction, so that many cost one barrier; each element is summed as it would be alone. The others run one after another.
 * Each operation carries a digest of all calls, so ranks that coalesce different calls find out in the first. */
#include "comm/recorded_calls.h"

#include <stdlib.h>
#include <string.h>

/* SMALL_BYTES: the largest buffer that is packed; two copies of a larger one cost as much as the barriers that they save. */
enum { SCRATCH_BYTES = 1 << 20, SMALL_BYTES = 16 << 10 };

/* ---- Running ----------------------------------------------------------------------------------------- */

static size_t bytes_of(const tutti__recorded_call *call)
{
    return tutti__signature_bytes(&call->op.signature);
}

static bool on_one_device(const tutti_stream *a, const tutti_stream *b)
{
    return (a && b) ? a->ops == b->ops && a->device.index == b->device.index : a == b;
}

static bool travels_along(const tutti__recorded_call *call, const tutti__operation *with)
{
    const tutti__signature *s = &call->op.signature;

    return !call->done && s->op == TUTTI__OP_ALL_REDUCE && !s->scaled &&
           bytes_of(call) <= SMALL_BYTES && s->dtype == with->signature.dtype &&
           s->redop == with->signature.redop && on_one_device(call->op.stream, with->stream);
}

/* Allocates it the first time. If ranks make different calls, the call that follows finds out. */
static tutti_status need_scratch(tutti_group *group)
{
    tutti__operation alloc = {
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
static tutti_status need_place(tutti_group *group, tutti__operation *together)
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
static tutti_status copy(tutti_group *group, const tutti__recorded_call *call,
                         const tutti__operation *together, void *dst, const void *src)
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
static tutti_status copy_all(tutti__recorded_calls *b, const tutti__operation *together,
                             size_t first, size_t end, bool in)
{
    char *place = together->dst;

    for (size_t i = first; i < end; i++) {
        tutti__recorded_call *call = &b->list[i];

        if (!travels_along(call, together))
            continue;
        TUTTI_TRY(
            copy(b->group, call, together, in ? place : call->op.dst, in ? call->op.src : place));
        place += bytes_of(call);
        call->done = !in;
    }
    return TUTTI_OK;
}

/* Of two time limits; 0: none of its own. */
static int least(int a, int b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Runs the calls from `first` on that can be packed with it: copied in, reduced as one, copied out. */
static tutti_status run_together(tutti__recorded_calls *b, size_t first)
{
    tutti_group *group = b->group;
    tutti__operation together = b->list[first].op;
    size_t bytes = 0, end = first;
    int limit_ms = 0;
    tutti_status status;

    TUTTI_TRY(need_place(group, &together));
    together.signature.count = 0;
    for (; end < b->n && bytes + SMALL_BYTES <= SCRATCH_BYTES; end++)
        if (travels_along(&b->list[end], &together)) {
            bytes += bytes_of(&b->list[end]);
            together.signature.count += b->list[end].op.signature.count;
            limit_ms = least(limit_ms, b->list[end].op.timeout_ms);
        }
    together.timeout_ms = limit_ms ? limit_ms : tutti__queue_timeout(group->queue);
    together.deadline = tutti__now_ms() + together.timeout_ms;
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
    tutti__recorded_calls *b = arg;

    for (size_t i = 0; i < b->n; i++) {
        tutti__recorded_call *call = &b->list[i];

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
static tutti_status record_events(tutti__recorded_calls *b)
{
    const tutti__operation *last = NULL;

    for (size_t i = 0; i < b->n; i++) {
        tutti__recorded_call *call = &b->list[i];

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
static tutti_status submit(tutti__recorded_calls *b, tutti_work **work_p)
{
    uint64_t digest = b->n;
    tutti_status status = record_events(b);

    if (status != TUTTI_OK) {
        tutti__recorded_calls_free(b);
        return status;
    }
    for (size_t i = 0; i < b->n; i++) {
        tutti__signature *s = &b->list[i].op.signature;
        uint64_t words[3];

        tutti__devices_claim(b->group->devices, &b->list[i].op);
        words[0] = digest;
        words[1] = s->count;
        words[2] = (uint64_t)s->root << 32 | (uint64_t)s->scaled << 25 |
                   (uint64_t)s->on_device << 24 | (uint64_t)s->op << 16 | (uint64_t)s->dtype << 8 |
                   s->redop;
        digest = tutti__hash64(words, sizeof words);
    }
    for (size_t i = 0; i < b->n; i++) {
        tutti__signature *s = &b->list[i].op.signature;

        s->coalesced = 1;
        s->tag = (int32_t)(uint32_t)digest;
        if (s->op == TUTTI__OP_ALL_REDUCE)
            s->root = (uint32_t)b->n;
    }
    return tutti__submit_call(b->group->queue, run, tutti__recorded_calls_free, b, 0, work_p);
}

/* ---- The calls ---------------------------------------------------------------------------------------- */

tutti_status tutti_coalesce_begin(tutti_group *group)
{
    TUTTI_TRY(tutti__check_group("coalesce_begin", group));
    return tutti__record_calls(group, 0);
}

tutti_status tutti_coalesce_end(tutti_group *group, tutti_work **work_p)
{
    tutti__recorded_calls *b = tutti__take_recorded_calls(group);

    if (work_p)
        *work_p = NULL;
    if (!group)
        return tutti__check_group("coalesce_end", group);
    if (!b)
        return tutti__fail(TUTTI_ERR_STATE,
                           "coalesce_end without a tutti_coalesce_begin of this group in this "
                           "thread");
    return submit(b, work_p);
}

tutti_status tutti_all_reduce_list(tutti_group *group, const tutti_buf *bufs, size_t n,
                                   tutti_redop redop, tutti_work **work_p)
{
    tutti_status status = TUTTI_OK;
    tutti__recorded_calls *b;

    if (work_p)
        *work_p = NULL;
    TUTTI_TRY(tutti__check_group("all_reduce_list", group));
    if (!bufs && n > 0)
        return tutti__fail(TUTTI_ERR_ARG, "all_reduce_list: bufs is NULL, expected %zu", n);
    TUTTI_TRY(tutti__record_calls(group, n));
    for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
        status = tutti_all_reduce(group, bufs[i], redop, NULL);
        if (status != TUTTI_OK)
            status = tutti__fail(status, "buffer %zu of %zu: %s", i, n, tutti_last_error());
    }
    b = tutti__take_recorded_calls(group);
    if (status == TUTTI_OK)
        return submit(b, work_p);
    tutti__recorded_calls_free(b);
    return status;
}
