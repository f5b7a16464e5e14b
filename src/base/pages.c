/* pages.c -- memory by pages: reserved, backed, given back, counted.   SPDX-License-Identifier: MIT */
#include "base/pages.h"

#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define HUGE_PAGE ((size_t)2 << 20)

/* Memory that was given back, for the next that is lent: its pages change their address, which costs a system call, and are not zeroed.
 * Places are addresses of a large page each; the first `full` have memory. There are never more than were lent at the same time. */
static struct {
    pthread_mutex_t lock;
    char **places;
    size_t full, n, room;
    size_t lent;         /* large pages that have not come back */
    size_t reservations; /* with the last one, the places go */
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The whole pages of a range; 0: none. */
static size_t whole_pages(void **p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)*p;
    const uintptr_t begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;

    *p = (void *)begin;
    return end > begin ? end - begin : 0;
}

/* Of whole pages. */
static void drop(void *begin, const void *end)
{
    const size_t n = whole_pages(&begin, (size_t)((const char *)end - (const char *)begin));

    if (n > 0)
        (void)!madvise(begin, n, MADV_DONTNEED);
}

/* Of a reservation: whole pages, at least one. */
static size_t used(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return bytes ? (bytes + page - 1) / page * page : page;
}

/* Addresses aligned to large pages; NULL. */
static char *aligned_addresses(size_t n)
{
    char *p =
        mmap(NULL, n + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (p == MAP_FAILED)
        return NULL;
    before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(p, before);
    munmap(p + before + n, HUGE_PAGE - before);
    return p + before;
}

void *tutti__memory_reserve(size_t bytes)
{
    void *p = aligned_addresses(used(bytes));

    if (!p) {
        tutti__fail(TUTTI_ERR_MEMORY, "no addresses for %zu bytes (ulimit -v)", bytes);
        return NULL;
    }
    pthread_mutex_lock(&spare.lock);
    spare.reservations++;
    pthread_mutex_unlock(&spare.lock);
    return p;
}

void tutti__memory_unreserve(void *p, size_t bytes)
{
    if (!p)
        return;
    munmap(p, used(bytes));
    pthread_mutex_lock(&spare.lock);
    if (--spare.reservations == 0) {
        for (size_t i = 0; i < spare.n; i++)
            munmap(spare.places[i], HUGE_PAGE);
        free(spare.places);
        spare.places = NULL;
        spare.full = spare.n = spare.room = spare.lent = 0;
    }
    pthread_mutex_unlock(&spare.lock);
}

/* ---- Large pages that change their address ---------------------------------------------------------------------- */

/* The large pages that lie wholly in the bytes. */
static char *large_pages(void *p, size_t bytes, char **end_p)
{
    const uintptr_t begin = ((uintptr_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const uintptr_t end = ((uintptr_t)p + bytes) / HUGE_PAGE * HUGE_PAGE;

    *end_p = (char *)(end > begin ? end : begin);
    return (char *)begin;
}

/* The addresses that the pages leave stay mapped, so that no other thread gets them. False: not with this kernel (before 5.7), or limit. */
static bool move(char *from, char *to)
{
    return mremap(from, HUGE_PAGE, HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                  to) == to;
}

/* A place without memory is at spare.full. */
static bool have_place(void)
{
    char **places, *place;

    if (spare.full < spare.n)
        return true;
    if (spare.n == spare.room) {
        places = realloc(spare.places, (2 * spare.room + 16) * sizeof *places);
        if (!places)
            return false;
        spare.places = places;
        spare.room = 2 * spare.room + 16;
    }
    if (!(place = aligned_addresses(HUGE_PAGE)))
        return false;
    spare.places[spare.n++] = place;
    return true;
}

static bool put_aside(char *p)
{
    bool moved = false;

    pthread_mutex_lock(&spare.lock);
    if (spare.lent > 0) {
        spare.lent--;
        moved = have_place() && move(p, spare.places[spare.full]);
    }
    spare.full += moved;
    pthread_mutex_unlock(&spare.lock);
    return moved;
}

/* Lends memory; false: it has to be made. */
static bool lend(char *p)
{
    bool moved;

    pthread_mutex_lock(&spare.lock);
    spare.lent++;
    moved = spare.full > 0 && move(spare.places[spare.full - 1], p);
    if (moved) /* the limit of private memory counts what can be written, with memory or without */
        (void)!mprotect(spare.places[--spare.full], HUGE_PAGE, PROT_NONE);
    pthread_mutex_unlock(&spare.lock);
    return moved;
}

/* ---- Memory for addresses --------------------------------------------------------------------------------------- */

tutti_status tutti__memory_open(void *p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p / page * page;
    const size_t n = ((uintptr_t)p + bytes + page - 1) / page * page - begin;

    if (n > 0 && mprotect((void *)begin, n, PROT_READ | PROT_WRITE) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory for %zu bytes (ulimit -d, or too many mappings)", n);
    return TUTTI_OK;
}

/* At once rather than page by page; an older kernel does not know it. */
static tutti_status populate(char *begin, char *end)
{
    if (begin < end && madvise(begin, (size_t)(end - begin), MADV_POPULATE_WRITE) != 0 &&
        errno == ENOMEM)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", (size_t)(end - begin));
    return TUTTI_OK;
}

tutti_status tutti__memory_back(void *p, size_t bytes, bool stays)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *end = (char *)(((uintptr_t)p + bytes + page - 1) / page * page);
    char *begin = (char *)((uintptr_t)p / page * page), *last, *at = large_pages(p, bytes, &last);

    if (bytes == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__memory_open(p, bytes));
    if (stays || at == last)
        return populate(begin, end);
    for (; at < last; at += HUGE_PAGE)
        if (lend(at)) {
            TUTTI_TRY(populate(begin, at));
            begin = at + HUGE_PAGE;
        }
    return populate(begin, end);
}

/* Only those that lie wholly in the bytes: a part of a large page that is given back may keep all of its memory. */
void tutti__memory_together(void *p, size_t bytes)
{
    char *end, *begin = large_pages(p, bytes, &end);

    if (begin < end)
        (void)!madvise(begin, (size_t)(end - begin), MADV_HUGEPAGE);
}

void tutti__memory_discard(void *p, size_t bytes)
{
    char *begin = p, *last, *at = large_pages(p, bytes, &last);
    char *end = begin + bytes;

    if (at == last) {
        drop(begin, end);
        return;
    }
    drop(begin, at);
    for (; at < last; at += HUGE_PAGE)
        if (!put_aside(at))
            drop(at, at + HUGE_PAGE);
    drop(last, end);
}

void tutti__memory_give_back(void *p, size_t bytes)
{
    size_t n;

    tutti__memory_discard(p, bytes);
    n = whole_pages(&p, bytes);
    if (n > 0)
        (void)!mprotect(p, n, PROT_NONE);
}

void tutti__memory_trim(void)
{
    pthread_mutex_lock(&spare.lock);
    while (spare.full > 0) {
        char *place = spare.places[--spare.full];

        (void)!madvise(place, HUGE_PAGE, MADV_DONTNEED);
        (void)!mprotect(place, HUGE_PAGE, PROT_NONE);
    }
    pthread_mutex_unlock(&spare.lock);
}
