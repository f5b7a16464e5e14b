/* cuda_pages.c -- addresses on a device whose memory comes and goes.   SPDX-License-Identifier: MIT
 *
 *     reservation   | page | page |      | page | going | going |      |       pages of the driver's granularity, 2 MiB; spaces: no memory
 *
 * Work submitted to a stream may still use a page that is given back. So it stays where it is, GOING, and its batch has a fence; it is
 * unmapped when another page is needed and the fence has passed, and then backs that one. Backed again before that, it was never gone.
 * The host waits for the device only if there is no memory for another page. */
#include "device/cuda/cuda.h"

#include <stdlib.h>

enum state { ABSENT, MAPPED /* not open yet */, BACKED, GOING };

typedef struct batch batch;

typedef struct page {
    enum state state;
    uint64_t native; /* unless ABSENT */
    batch *batch;    /* GOING */
} page;

typedef struct reservation {
    struct reservation *next;
    char *p;
    size_t n;
    page *pages;
} reservation;

/* What was given back by one call. */
struct batch {
    batch *next;
    tutti__cuda_fence fence;
    reservation *of;
    size_t begin, end; /* those of these pages that are still GOING with this batch: n */
    size_t n;
};

struct tutti__cuda_pages {
    size_t bytes; /* of a page */
    reservation *reservations;
    batch *first, **last; /* in order of time */
    uint64_t *spare;
    size_t n_spare, room;
};

static tutti_status failed(const tutti__cuda_device *d, tutti_status status, const char *what)
{
    return tutti__cuda_done((tutti_device){TUTTI_CUDA, d->index}, status, what);
}

/* ---- Memory that is not in use --------------------------------------------------------------------------------- */

/* Room for all pages that could become spare. */
static tutti_status make_room(tutti__cuda_pages *all, size_t more)
{
    size_t n = all->n_spare + more;
    uint64_t *p;

    for (const batch *b = all->first; b; b = b->next)
        n += b->n;
    if (n <= all->room)
        return TUTTI_OK;
    p = realloc(all->spare, n * sizeof *p);
    if (!p)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a list of %zu pages", n);
    all->spare = p;
    all->room = n;
    return TUTTI_OK;
}

static void remove_batch(tutti__cuda_device *d, batch **link)
{
    batch *b = *link;

    *link = b->next;
    if (!b->next)
        d->pages->last = link;
    tutti__cuda_fence_drop(d, &b->fence);
    free(b);
}

/* Unmaps the pages of a batch whose fence has passed; they become spare. */
static tutti_status unmap(tutti__cuda_device *d, batch *b)
{
    const tutti__cuda_runtime *r = tutti__cuda_module()->runtime;
    tutti__cuda_pages *all = d->pages;
    page *pages = b->of->pages;

    TUTTI_TRY(make_room(all, 0));
    for (size_t i = b->begin, end; i < b->end; i = end) {
        for (end = i; end < b->end && pages[end].state == GOING && pages[end].batch == b;)
            end++;
        if (end == i) {
            end++;
            continue;
        }
        TUTTI_TRY(failed(d, r->unmap(d->index, b->of->p + i * all->bytes, (end - i) * all->bytes),
                         "unmapping"));
        for (; i < end; i++) {
            all->spare[all->n_spare++] = pages[i].native;
            pages[i] = (page){.state = ABSENT};
            b->n--;
        }
    }
    return TUTTI_OK;
}

/* Looks for batches that no work uses any more, until there is a spare page; with `all_of_them`, for all. */
static tutti_status collect(tutti__cuda_device *d, bool all_of_them)
{
    tutti__cuda_pages *all = d->pages;

    for (batch **link = &all->first; *link && (all_of_them || all->n_spare == 0);) {
        bool passed = (*link)->n == 0;

        if (!passed)
            TUTTI_TRY(tutti__cuda_fence_passed(d, &(*link)->fence, &passed));
        if (!passed) {
            link = &(*link)->next;
            continue;
        }
        TUTTI_TRY(unmap(d, *link));
        remove_batch(d, link);
    }
    return TUTTI_OK;
}

void tutti__cuda_pages_shrink(tutti__cuda_device *d)
{
    tutti__cuda_pages *all = d->pages;

    if (!all)
        return;
    (void)collect(d, true);
    while (all->n_spare > 0) {
        (void)tutti__cuda_module()->runtime->page_free(d->index, all->spare[--all->n_spare]);
        d->memory.usage.kept -= all->bytes;
    }
}

static tutti_status new_page(tutti__cuda_device *d, uint64_t *native_p)
{
    const tutti_status status =
        tutti__cuda_module()->runtime->page_new(d->index, d->pages->bytes, native_p);

    if (status == TUTTI_OK) {
        d->memory.usage.grown++;
        d->memory.usage.kept += d->pages->bytes;
    }
    return status;
}

/* Does not wait as long as there is memory; then waits for what was given back, and at last returns cached memory to CUDA. */
static tutti_status take(tutti__cuda_device *d, uint64_t *native_p)
{
    tutti__cuda_pages *all = d->pages;
    tutti_status status;

    TUTTI_TRY(collect(d, false));
    if (all->n_spare == 0) {
        status = new_page(d, native_p);
        if (status != TUTTI_ERR_MEMORY)
            return failed(d, status, "asking for memory");
        d->memory.usage.waited++;
        TUTTI_TRY(failed(d, tutti__cuda_wait_for_all(d), "waiting for memory"));
        TUTTI_TRY(collect(d, false));
    }
    if (all->n_spare == 0) {
        tutti__cuda_pool_shrink(d, &d->memory);
        status = new_page(d, native_p);
        if (status == TUTTI_ERR_MEMORY)
            tutti__cuda_out_of_memory(d, &d->memory, all->bytes);
        return status == TUTTI_ERR_MEMORY ? status : failed(d, status, "asking for memory");
    }
    *native_p = all->spare[--all->n_spare];
    return TUTTI_OK;
}

/* ---- Reservations ------------------------------------------------------------------------------------------------- */

static tutti_status open_pages(tutti__cuda_device *d)
{
    tutti__cuda_pages *all;
    tutti_status status;

    if (d->pages)
        return TUTTI_OK;
    all = tutti__alloc(sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    status = tutti__cuda_module()->runtime->page_bytes(d->index, &all->bytes);
    if (status != TUTTI_OK) {
        free(all);
        return failed(d, status, "memory that comes and goes (zero 2 and 3)");
    }
    all->last = &all->first;
    d->pages = all;
    return TUTTI_OK;
}

void *tutti__cuda_pages_reserve(tutti__cuda_device *d, size_t bytes)
{
    tutti__cuda_pages *all;
    reservation *r;
    void *p = NULL;

    if (open_pages(d) != TUTTI_OK)
        return NULL;
    all = d->pages;
    r = tutti__alloc(sizeof *r);
    if (!r)
        return NULL;
    r->n = bytes ? (bytes + all->bytes - 1) / all->bytes : 1;
    r->pages = tutti__alloc(r->n * sizeof *r->pages);
    if (r->pages &&
        failed(d, tutti__cuda_module()->runtime->reserve(d->index, r->n * all->bytes, &p),
               "reserving addresses") == TUTTI_OK) {
        r->p = p;
        r->next = all->reservations;
        all->reservations = r;
        return p;
    }
    free(r->pages);
    free(r);
    return NULL;
}

static reservation **holder_of(tutti__cuda_pages *all, const void *p)
{
    reservation **link = &all->reservations;

    while (*link && !((const char *)p >= (*link)->p &&
                      (const char *)p < (*link)->p + (*link)->n * all->bytes))
        link = &(*link)->next;
    return link;
}

/* All work that may use it is waited for; what it had goes back to CUDA. */
void tutti__cuda_pages_unreserve(tutti__cuda_device *d, void *p)
{
    tutti__cuda_pages *all = d->pages;
    reservation **link = all && p ? holder_of(all, p) : NULL, *r = link ? *link : NULL;
    const tutti__cuda_runtime *runtime = tutti__cuda_module()->runtime;

    if (!r)
        return;
    tutti__cuda_pages_give_back(d, p, r->n * all->bytes);
    (void)tutti__cuda_wait_for_all(d);
    tutti__cuda_pages_shrink(d);
    for (batch **b = &all->first; *b;) /* if the device has failed, fences do not pass */
        if ((*b)->of == r)
            remove_batch(d, b);
        else
            b = &(*b)->next;
    (void)runtime->unreserve(d->index, r->p, r->n * all->bytes);
    *link = r->next;
    free(r->pages);
    free(r);
}

/* ---- Memory for addresses ------------------------------------------------------------------------------------------- */

static tutti_status map(tutti__cuda_device *d, const reservation *r, size_t i)
{
    uint64_t native;
    tutti_status status;

    TUTTI_TRY(take(d, &native));
    status = failed(d,
                    tutti__cuda_module()->runtime->map(d->index, r->p + i * d->pages->bytes,
                                                       d->pages->bytes, native),
                    "mapping memory");
    if (status != TUTTI_OK) {
        d->memory.usage.kept -= d->pages->bytes;
        (void)tutti__cuda_module()->runtime->page_free(d->index, native);
        return status;
    }
    tutti__cuda_use_kept(&d->memory.usage, d->pages->bytes);
    r->pages[i] = (page){.state = MAPPED, .native = native};
    return TUTTI_OK;
}

/* Neighbours that were mapped are opened together. */
static tutti_status open_mapped(const tutti__cuda_device *d, const reservation *r, size_t begin,
                                size_t end)
{
    const size_t each = d->pages->bytes;

    for (size_t i = begin, first; i < end; i++) {
        for (first = i; i < end && r->pages[i].state == MAPPED; i++)
            r->pages[i].state = BACKED;
        if (first < i)
            TUTTI_TRY(failed(d,
                             tutti__cuda_module()->runtime->open(d->index, r->p + first * each,
                                                                 (i - first) * each),
                             "opening memory"));
    }
    return TUTTI_OK;
}

/* Still here. */
static void keep(tutti__cuda_device *d, page *q)
{
    q->batch->n--;
    *q = (page){.state = BACKED, .native = q->native};
    tutti__cuda_use_kept(&d->memory.usage, d->pages->bytes);
}

tutti_status tutti__cuda_pages_back(tutti__cuda_device *d, void *p, size_t bytes)
{
    const reservation *r = bytes ? *holder_of(d->pages, p) : NULL;
    const size_t each = d->pages->bytes, at = r ? (size_t)((char *)p - r->p) : 0;
    const size_t begin = at / each, end = r ? (at + bytes + each - 1) / each : 0;
    tutti_status status = TUTTI_OK, opened;

    for (size_t i = begin; i < end; i++)
        if (r->pages[i].state == GOING)
            keep(d, &r->pages[i]);
    for (size_t i = begin; i < end && status == TUTTI_OK; i++)
        if (r->pages[i].state == ABSENT)
            status = map(d, r, i);
    if (begin >= end)
        return TUTTI_OK;
    opened = open_mapped(d, r, begin, end);
    return status == TUTTI_OK ? opened : status;
}

void tutti__cuda_pages_give_back(tutti__cuda_device *d, void *p, size_t bytes)
{
    tutti__cuda_pages *all = d->pages;
    reservation *r = bytes ? *holder_of(all, p) : NULL;
    const size_t at = r ? (size_t)((char *)p - r->p) : 0;
    const size_t begin = (at + all->bytes - 1) / all->bytes, end = (at + bytes) / all->bytes;
    batch *b = begin < end ? tutti__alloc(sizeof *b) : NULL;

    if (!b)
        return; /* what is kept can be used all the same */
    *b = (batch){.of = r, .begin = begin, .end = end};
    for (size_t i = begin; i < end; i++)
        if (r->pages[i].state == BACKED) {
            r->pages[i].state = GOING;
            r->pages[i].batch = b;
            b->n++;
        }
    d->memory.usage.used -= b->n * all->bytes;
    d->memory.usage.kept += b->n * all->bytes;
    tutti__cuda_fence_set(d, &b->fence);
    *all->last = b;
    all->last = &b->next;
}
