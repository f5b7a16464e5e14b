/* segment.c -- memory of tutti_group_alloc: one part a rank, mapped by all.   SPDX-License-Identifier: MIT */
#include "comm/transport/shared_memory/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* In the mapping's first page: its users, for ranks that are threads and share the mapping itself. */
typedef struct segment_head {
    _Atomic uint32_t users;
} segment_head;

const tutti__shm_segment *tutti__shm_segment_of(tutti__shm *shm, const void *p, size_t bytes)
{
    const tutti__shm_segment *s;

    pthread_mutex_lock(&shm->segments_lock);
    for (s = shm->segments; s; s = s->next) {
        const char *part = s->base + (size_t)shm->comm->rank * s->stride;

        if ((const char *)p >= part && (const char *)p + bytes <= part + s->stride)
            break;
    }
    pthread_mutex_unlock(&shm->segments_lock);
    return s;
}

bool tutti__shm_find(void *self, const void *p, size_t bytes, uint64_t *segment, uint64_t *offset)
{
    tutti__shm *shm = self;
    const tutti__shm_segment *s = tutti__shm_segment_of(shm, p, bytes);

    if (!s)
        return false;
    *segment = s->number;
    *offset = (uint64_t)((const char *)p - s->base) - (size_t)shm->comm->rank * s->stride;
    return true;
}

bool tutti__shm_copy(void *self, int outer_rank, uint64_t segment, uint64_t offset, void *to,
                     size_t bytes)
{
    tutti__shm *shm = self;
    const tutti__shm_segment *s;
    int rank = 0;

    while (tutti__comm_outer_rank(shm->comm, rank) != outer_rank)
        rank++;
    pthread_mutex_lock(&shm->segments_lock); /* keeps it from being released meanwhile */
    for (s = shm->segments; s && s->number != segment; s = s->next)
        ;
    if (s)
        memcpy(to, s->base + (size_t)rank * s->stride + offset, bytes);
    pthread_mutex_unlock(&shm->segments_lock);
    return s != NULL;
}

static char *find_in_segments(const tutti__shm *shm, const tutti__shm_call *call, int rank)
{
    if (call->segment == TUTTI__SHM_HERE || call->segment == TUTTI__CMA)
        return (char *)(uintptr_t)call->at;
    for (const tutti__shm_segment *s = shm->segments; s; s = s->next)
        if (s->number == call->segment)
            return s->base + (size_t)rank * s->stride + call->at;
    return NULL;
}

tutti_status tutti__shm_find_contributions(tutti__shm *shm, int first, int last, char **at)
{
    int lost = -1;

    pthread_mutex_lock(&shm->segments_lock);
    for (int r = first; r < last; r++) {
        const tutti__shm_call *call = tutti__shm_call_of(shm, r);

        at[r] = NULL;
        if (call->segment == TUTTI__SHM_STAGED)
            continue;
        at[r] = find_in_segments(shm, call, r);
        lost = at[r] ? lost : r;
    }
    pthread_mutex_unlock(&shm->segments_lock);
    if (lost >= 0)
        return tutti__comm_fail(
            shm->comm, TUTTI_ERR_MISMATCH, lost,
            "rank %d uses memory of tutti_group_alloc that rank %d has released", lost,
            shm->comm->rank);
    return TUTTI_OK;
}

static void drop_mapping(const tutti__shm *shm, const tutti__shm_segment *segment)
{
    segment_head *head = segment->mapping;

    if (!shm->memory->one_process || atomic_fetch_sub(&head->users, 1) == 1)
        munmap(segment->mapping, segment->bytes);
}

static void drop_segment(const tutti__shm *shm, tutti__shm_segment *segment)
{
    drop_mapping(shm, segment);
    free(segment);
}

void tutti__shm_release(tutti__shm *shm, void *p)
{
    tutti__shm_segment **place, *found = NULL;

    pthread_mutex_lock(&shm->segments_lock);
    for (place = &shm->segments; *place && !found;)
        if ((*place)->base + (size_t)shm->comm->rank * (*place)->stride == (char *)p) {
            found = *place;
            *place = found->next;
        } else {
            place = &(*place)->next;
        }
    pthread_mutex_unlock(&shm->segments_lock);
    if (found)
        drop_segment(shm, found);
    else
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "tutti_group_release: %p is not from tutti_group_alloc of group \"%s\"", p,
                  shm->comm->name);
}

/* Threads count themselves as users while rank 0 cannot have dropped the mapping: that is an access. */
static tutti_status take_mapping(tutti__shm *shm, uint64_t handle, tutti__shm_segment *s)
{
    tutti_status status;

    TUTTI_TRY(tutti__shm_access_begin(shm));
    status = shm->memory->take(shm, s->bytes, handle, &s->mapping);
    if (status == TUTTI_OK && shm->memory->one_process)
        atomic_fetch_add(&((segment_head *)s->mapping)->users, 1);
    tutti__shm_access_end(shm);
    return status;
}

/* Rank 0 makes the mapping before the barrier, so that afterwards the others only take it. Errors of this rank alone
 * (scope CALL) are returned after the last barrier: the others have their mapping. */
static tutti_status share_mapping(tutti__shm *shm, const tutti__operation *op,
                                  tutti__shm_segment *s)
{
    const tutti__shm_call *zeroth = tutti__shm_call_of(shm, 0);
    tutti__shm_call *ours = tutti__shm_call_of(shm, shm->comm->rank);
    tutti_status status = TUTTI_OK;

    if (shm->comm->rank == 0) {
        ours->error = shm->memory->make(shm, s->bytes, &s->mapping, &ours->at);
        if (!ours->error)
            atomic_store(&((segment_head *)s->mapping)->users, 1);
    }
    TUTTI_TRY(tutti__shm_enter(shm, op));
    if (zeroth->error)
        return tutti__fail_errno(zeroth->error, "cannot share %zu bytes with %d ranks", s->bytes,
                                 shm->comm->size);
    if (shm->comm->rank != 0)
        status = take_mapping(shm, zeroth->at, s);
    if (!tutti__comm_failed(shm->comm))
        TUTTI_TRY(tutti__shm_barrier(shm, op));
    return status;
}

static void add_segment(tutti__shm *shm, tutti__shm_segment *s)
{
    pthread_mutex_lock(&shm->segments_lock);
    s->next = shm->segments;
    shm->segments = s;
    pthread_mutex_unlock(&shm->segments_lock);
}

tutti_status tutti__shm_alloc(tutti__shm *shm, const tutti__operation *op)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size_t)shm->comm->size;
    tutti__shm_segment made = {.number = shm->n_segments++,
                               .stride =
                                   round_up(op->signature.count ? op->signature.count : 1, page)},
                       *s = NULL;
    tutti_status status;

    made.bytes = page + n * made.stride;
    (void)tutti__shm_publish(shm, op);
    status = share_mapping(shm, op, &made);
    if (status == TUTTI_OK && !(s = malloc(sizeof *s)))
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for a segment's place");
    if (status != TUTTI_OK) {
        tutti__shm_leave(shm); /* no rank takes the mapping any more */
        if (made.mapping)
            drop_mapping(shm, &made);
        return status;
    }
    made.base = (char *)made.mapping + page;
    madvise(made.base, n * made.stride, MADV_HUGEPAGE);
    *s = made;
    add_segment(shm, s);
    *(void **)op->dst = made.base + (size_t)shm->comm->rank * made.stride;
    return TUTTI_OK;
}

void tutti__shm_release_all(tutti__shm *shm)
{
    while (shm->segments) {
        tutti__shm_segment *s = shm->segments;

        shm->segments = s->next;
        drop_segment(shm, s);
    }
}
