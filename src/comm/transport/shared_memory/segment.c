/* local.c -- operations of ranks that share memory: what each calls, and the memory that all see.   SPDX-License-Identifier: MIT */
#include "comm/transport/shared_memory/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK_BYTES = 256 << 10 };

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t tutti__shm_chunk_bytes(const tutti_group *group)
{
    size_t bytes = tutti__comm_chunk_bytes(&group->comm, CHUNK_BYTES);
    size_t least = 64 * (size_t)group->comm.size; /* an element for each rank, of any type */

    return bytes > least ? bytes : least;
}

size_t tutti__shm_block_bytes(int size, size_t chunk_bytes)
{
    size_t n = (size_t)size, counts = 2 * n * 2 * n * sizeof(uint64_t);

    return round_up(sizeof(tutti__shm_block) + n * sizeof(tutti__shm_slot) + counts, 4096) +
           n * TUTTI__SHM_STAGES * chunk_bytes;
}

uint64_t *tutti__shm_counts_of(tutti_group *group, uint64_t sequence, int rank)
{
    const tutti__shm *local = group->transport_state;
    size_t n = (size_t)group->comm.size;

    return (uint64_t *)(void *)&local->control->slots[n] +
           ((size_t)(sequence & 1) * n + (size_t)rank) * 2 * n;
}

void tutti__shm_announce(tutti_group *group, tutti__cause *cause)
{
    tutti__shm *local = group->transport_state;
    tutti__shm_slot *slots = local->control->slots;
    uint32_t first = 0;

    /* Two threads of a rank may come here; the first to fill the slot counts. */
    pthread_mutex_lock(&group->comm.failure_lock);
    if (slots[group->comm.rank].cause.status == TUTTI_OK)
        slots[group->comm.rank].cause = *cause;
    atomic_compare_exchange_strong(&local->control->first_failed, &first,
                                   (uint32_t)group->comm.rank + 1);
    pthread_mutex_unlock(&group->comm.failure_lock);
    *cause = slots[first ? first - 1 : (uint32_t)group->comm.rank].cause;
    tutti__shm_wake_all(local->control);
}

void tutti__shm_look(tutti_group *group)
{
    tutti__shm *local = group->transport_state;
    uint32_t first = atomic_load(&local->control->first_failed);

    if (first != 0 && first <= (uint32_t)group->comm.size)
        tutti__comm_adopt(&group->comm, &local->control->slots[first - 1].cause);
}

void tutti__shm_see(tutti_group *group)
{
    const tutti__shm *local = group->transport_state;

    for (int r = 0; r < group->comm.size; r++)
        atomic_store(&group->comm.peers[r].seen, atomic_load(&local->control->slots[r].called));
}

/* ---- Segments ------------------------------------------------------------------------------------------ */

/* The mapping's first page says how many still use it, for ranks that share the mapping itself. */
typedef struct segment_head {
    _Atomic uint32_t users;
} segment_head;

/* The segment in whose part of `rank` these bytes lie, or NULL. */
static const tutti__shm_segment *segment_of(tutti__shm *local, const void *p, size_t bytes,
                                            int rank)
{
    const tutti__shm_segment *s;

    pthread_mutex_lock(&local->segments_lock);
    for (s = local->segments; s; s = s->next) {
        const char *part = s->base + (size_t)rank * s->stride;

        if ((const char *)p >= part && (const char *)p + bytes <= part + s->stride)
            break;
    }
    pthread_mutex_unlock(&local->segments_lock);
    return s;
}

static char *find_in_segments(const tutti__shm *local, const tutti__shm_call *call, int rank)
{
    if (call->segment == TUTTI__SHM_HERE || call->segment == TUTTI__CMA)
        return (char *)(uintptr_t)call->at;
    for (const tutti__shm_segment *s = local->segments; s; s = s->next)
        if (s->number == call->segment)
            return s->base + (size_t)rank * s->stride + call->at;
    return NULL;
}

tutti_status tutti__shm_find_contributions(tutti_group *group, int first, int last, char **at)
{
    tutti__shm *local = group->transport_state;
    int lost = -1;

    pthread_mutex_lock(&local->segments_lock);
    for (int r = first; r < last; r++) {
        const tutti__shm_call *call = tutti__shm_call_of(local, r);

        at[r] = NULL;
        if (call->segment == TUTTI__SHM_STAGED)
            continue;
        at[r] = find_in_segments(local, call, r);
        lost = at[r] ? lost : r;
    }
    pthread_mutex_unlock(&local->segments_lock);
    if (lost >= 0)
        return tutti__comm_fail(
            &group->comm, TUTTI_ERR_MISMATCH, lost,
            "rank %d uses memory of tutti_group_alloc that rank %d has released", lost,
            group->comm.rank);
    return TUTTI_OK;
}

static void drop_segment(tutti_group *group, tutti__shm_segment *segment)
{
    tutti__shm *local = group->transport_state;
    segment_head *head = segment->mapping;

    if (!local->memory->one_process || atomic_fetch_sub(&head->users, 1) == 1)
        munmap(segment->mapping, segment->bytes);
    free(segment);
}

void tutti__shm_release(tutti_group *group, void *p)
{
    tutti__shm *local = group->transport_state;
    tutti__shm_segment **place, *found = NULL;

    pthread_mutex_lock(&local->segments_lock);
    for (place = &local->segments; *place && !found;)
        if ((*place)->base + (size_t)group->comm.rank * (*place)->stride == (char *)p) {
            found = *place;
            *place = found->next;
        } else {
            place = &(*place)->next;
        }
    pthread_mutex_unlock(&local->segments_lock);
    if (found)
        drop_segment(group, found);
    else
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "tutti_group_release: %p is not from tutti_group_alloc of group \"%s\"", p,
                  group->comm.name);
}

/* Rank 0 makes the mapping before it comes to the meeting, so that afterwards the others only take it. */
static tutti_status share_segment(tutti_group *group, const tutti__op *op, tutti__shm_call *ours,
                                  tutti__shm_segment *s)
{
    tutti__shm *local = group->transport_state;
    const tutti__shm_call *zeroth = tutti__shm_call_of(local, 0);
    int error;

    if (group->comm.rank == 0) {
        ours->error = local->memory->make(group, s->bytes, &s->mapping, &ours->at);
        if (!ours->error)
            atomic_store(&((segment_head *)s->mapping)->users, (uint32_t)group->comm.size);
    }
    TUTTI_TRY(tutti__shm_enter(group, op));
    if (zeroth->error)
        return tutti__fail_errno(zeroth->error, "rank 0 cannot share %zu bytes with %d ranks",
                                 s->bytes, group->comm.size);
    error =
        group->comm.rank == 0 ? 0 : local->memory->take(group, s->bytes, zeroth->at, &s->mapping);
    if (error)
        return tutti__comm_fail(&group->comm, TUTTI_ERR_MEMORY, group->comm.rank,
                                "rank %d cannot map %zu shared bytes: %s", group->comm.rank,
                                s->bytes, strerror(error));
    return tutti__shm_barrier(group, op);
}

static tutti_status alloc_segment(tutti_group *group, const tutti__op *op, tutti__shm_call *ours)
{
    tutti__shm *local = group->transport_state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size_t)group->comm.size;
    tutti__shm_segment *s = tutti__alloc(sizeof *s);
    tutti_status status;

    if (!s)
        return tutti__comm_fail(&group->comm, TUTTI_ERR_MEMORY, group->comm.rank,
                                "rank %d has no memory", group->comm.rank);
    s->stride = round_up(op->signature.count ? op->signature.count : 1, page);
    s->bytes = page + n * s->stride;
    s->number = local->n_segments++;
    status = share_segment(group, op, ours, s);
    if (status != TUTTI_OK) {
        if (s->mapping)
            drop_segment(group, s);
        else
            free(s);
        return status;
    }
    s->base = (char *)s->mapping + page;
    madvise(s->base, n * s->stride, MADV_HUGEPAGE);
    pthread_mutex_lock(&local->segments_lock);
    s->next = local->segments;
    local->segments = s;
    pthread_mutex_unlock(&local->segments_lock);
    *(void **)op->dst = s->base + (size_t)group->comm.rank * s->stride;
    return TUTTI_OK;
}

/* ---- Operations ---------------------------------------------------------------------------------------- */

bool tutti__shm_declare(tutti_group *group, const tutti__op *op, const void *p, size_t bytes)
{
    tutti__shm *local = group->transport_state;
    tutti__shm_call *ours;
    const tutti__shm_segment *s;
    /* Inside another group a rank may learn of a failure, and free its memory, while others still read it. */
    bool anywhere = local->memory->one_process && !group->comm.outer;

    local->calls++;
    atomic_store_explicit(&local->control->slots[group->comm.rank].called,
                          op->signature.sequence + 1, memory_order_relaxed);
    ours = tutti__shm_call_of(local, group->comm.rank);
    ours->signature = op->signature;
    ours->segment = TUTTI__SHM_STAGED;
    ours->error = 0;
    if (group->comm.tuning.stage_all || bytes == 0)
        return false;
    if (anywhere) {
        ours->segment = TUTTI__SHM_HERE;
        ours->at = (uint64_t)(uintptr_t)p;
        return true;
    }
    s = segment_of(local, p, bytes, group->comm.rank);
    if (!s)
        return false;
    ours->segment = s->number;
    ours->at = (uint64_t)((const char *)p - s->base) - (size_t)group->comm.rank * s->stride;
    return true;
}

tutti_status tutti__shm_run(tutti_group *group, tutti__op *op)
{
    tutti__shm *local = group->transport_state;
    size_t bytes = tutti__op_given(group->comm.rank, group->comm.size, op) *
                   tutti_dtype_size((tutti_dtype)op->signature.dtype);
    bool direct;

    tutti__cma_agree(group);
    if (op->signature.op == TUTTI__OP_ALLOC) {
        tutti__shm_declare(group, op, NULL, 0);
        return alloc_segment(group, op, tutti__shm_call_of(local, group->comm.rank));
    }
    direct = tutti__shm_declare(group, op, op->src, bytes);
    if (tutti__op_is_empty(op))
        return tutti__shm_enter(group, op);
    if (tutti__op_traits_of(op)->reduces)
        return tutti__shm_reduce(group, op);
    if (!direct)
        tutti__cma_offer(group, op, bytes);
    return tutti__shm_move(group, op);
}

/* ---- Coming and going ------------------------------------------------------------------------------------ */

tutti_status tutti__shm_open(tutti_group *group, const tutti__transport *transport,
                             const tutti__shm_memory_ops *memory, tutti__shm_block *control)
{
    tutti__shm *local = tutti__alloc(sizeof *local);

    if (!local) {
        memory->drop_control(group, control);
        return TUTTI_ERR_MEMORY;
    }
    local->control = control;
    local->staging = (char *)control + tutti__shm_block_bytes(group->comm.size, 0);
    local->memory = memory;
    pthread_mutex_init(&local->segments_lock, NULL);
    group->transport_state = local;
    tutti__shm_barrier_open(group);
    group->transport = transport;
    tutti__cma_open(group);
    return TUTTI_OK;
}

void tutti__shm_close(tutti_group *group)
{
    tutti__shm *local = group->transport_state;

    while (local->segments) {
        tutti__shm_segment *s = local->segments;

        local->segments = s->next;
        drop_segment(group, s);
    }
    local->memory->drop_control(group, local->control);
    pthread_mutex_destroy(&local->segments_lock);
    free(local);
    group->transport_state = NULL;
}
