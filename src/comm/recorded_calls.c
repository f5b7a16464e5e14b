/* recorded_calls.c -- submits a collective, or records it.   SPDX-License-Identifier: MIT */
#include "comm/recorded_calls.h"

#include <stdlib.h>
#include <string.h>

/* What this thread records, by group; the last beginning first. */
static _Thread_local tutti__recorded_calls *begun;

static tutti__recorded_calls **find(const tutti_group *group)
{
    tutti__recorded_calls **place = &begun;

    while (*place && ((*place)->group != group || (*place)->id != group->comm.id))
        place = &(*place)->next;
    return place;
}

tutti_status tutti__record_calls(tutti_group *group, size_t capacity)
{
    tutti__recorded_calls *calls = tutti__alloc(sizeof *calls);

    if (!calls)
        return TUTTI_ERR_MEMORY;
    *calls = (tutti__recorded_calls){
        .next = begun, .group = group, .id = group->comm.id, .capacity = capacity};
    calls->list = capacity ? tutti__alloc(capacity * sizeof *calls->list) : NULL;
    if (capacity && !calls->list) {
        free(calls);
        return TUTTI_ERR_MEMORY;
    }
    begun = calls;
    return TUTTI_OK;
}

tutti__recorded_calls *tutti__take_recorded_calls(const tutti_group *group)
{
    tutti__recorded_calls **place = find(group), *calls = *place;

    if (calls)
        *place = calls->next;
    return calls;
}

void tutti__recorded_calls_free(void *arg)
{
    tutti__recorded_calls *calls = arg;

    if (!calls)
        return;
    for (size_t i = 0; i < calls->n; i++) {
        tutti__devices_release_event(calls->group->devices, calls->list[i].event);
        free(calls->list[i].counts);
    }
    free(calls->list);
    free(calls);
}

bool tutti__coalescing(const tutti_group *group)
{
    return begun && *find(group);
}

void tutti__coalesce_forget(const tutti_group *group)
{
    tutti__recorded_calls_free(tutti__take_recorded_calls(group));
}

static tutti_status grow(tutti__recorded_calls *calls)
{
    size_t capacity = calls->capacity ? 2 * calls->capacity : 64;
    tutti__recorded_call *list = realloc(calls->list, capacity * sizeof *list);

    if (!list)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu coalesced calls", capacity);
    calls->list = list;
    calls->capacity = capacity;
    return TUTTI_OK;
}

/* Copies the counts, which are borrowed only until the call returns. */
static tutti_status add(tutti__recorded_calls *calls, const tutti__operation *op)
{
    size_t n = (size_t)calls->group->comm.size, bytes = n * sizeof *op->dst_counts;
    tutti__recorded_call call = {.op = *op};

    if (calls->n == calls->capacity)
        TUTTI_TRY(grow(calls));
    if (op->dst_counts) {
        call.counts = tutti__alloc(2 * bytes);
        if (!call.counts)
            return TUTTI_ERR_MEMORY;
        if (op->src_counts)
            call.op.src_counts = memcpy(call.counts + n, op->src_counts, bytes);
        call.op.dst_counts = memcpy(call.counts, op->dst_counts, bytes);
    }
    calls->list[calls->n++] = call;
    return TUTTI_OK;
}

tutti_status tutti__submit_or_record(tutti_group *group, tutti__operation *op, tutti_work **work_p)
{
    tutti__recorded_calls *calls = begun ? *find(group) : NULL;

    if (!calls)
        return tutti__submit(group->queue, op, work_p);
    if (work_p)
        return tutti__fail(TUTTI_ERR_STATE,
                           "%s between tutti_coalesce_begin and tutti_coalesce_end has no work "
                           "handle of its own: pass NULL, and use that of tutti_coalesce_end",
                           tutti__op_name((tutti__op_kind)op->signature.op));
    return add(calls, op);
}
