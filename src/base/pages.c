/* pages.c -- memory by pages: reserved, backed, given back, counted.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define HUGE_PAGE ((size_t)2 << 20)

/* The whole pages of a range; 0: none. */
static size_t whole_pages(void **p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)*p;
    const uintptr_t begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;

    *p = (void *)begin;
    return end > begin ? end - begin : 0;
}

void tutti__memory_discard(void *p, size_t bytes)
{
    const size_t n = whole_pages(&p, bytes);

    if (n > 0)
        (void)!madvise(p, n, MADV_DONTNEED);
}

size_t tutti__memory_resident(const void *p, size_t bytes)
{
    enum { AT_ONCE = 4096 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)p / page * page, end = (uintptr_t)p + bytes;
    unsigned char in[AT_ONCE];
    size_t n = 0;

    for (; at < end; at += AT_ONCE * page) {
        const size_t left = (end - at + page - 1) / page, pages = left < AT_ONCE ? left : AT_ONCE;

        if (mincore((void *)at, pages * page, in) != 0)
            return bytes;
        for (size_t i = 0; i < pages; i++)
            n += in[i] & 1;
    }
    return n * page;
}

/* Of a reservation: whole pages, at least one. */
static size_t used(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return bytes ? (bytes + page - 1) / page * page : page;
}

/* Aligned to large pages. */
void *tutti__memory_reserve(size_t bytes)
{
    const size_t n = used(bytes);
    char *p =
        mmap(NULL, n + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (p == MAP_FAILED) {
        tutti__fail(TUTTI_ERR_MEMORY, "no addresses for %zu bytes (ulimit -v)", bytes);
        return NULL;
    }
    before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(p, before);
    munmap(p + before + n, HUGE_PAGE - before);
    return p + before;
}

void tutti__memory_unreserve(void *p, size_t bytes)
{
    if (p)
        munmap(p, used(bytes));
}

tutti_status tutti__memory_open(void *p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p / page * page;
    const size_t n = ((uintptr_t)p + bytes + page - 1) / page * page - begin;

    if (n > 0 && mprotect((void *)begin, n, PROT_READ | PROT_WRITE) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory for %zu bytes (ulimit -d, or too many mappings)", n);
    return TUTTI_OK;
}

tutti_status tutti__memory_back(void *p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p / page * page;
    const size_t n = ((uintptr_t)p + bytes + page - 1) / page * page - begin;

    if (bytes == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__memory_open(p, bytes));
    /* at once rather than page by page; an older kernel does not know it */
    if (madvise((void *)begin, n, MADV_POPULATE_WRITE) != 0 && errno == ENOMEM)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", n);
    return TUTTI_OK;
}

/* Only those that lie wholly in the bytes: a part of a large page that is given back may keep all of its memory. */
void tutti__memory_together(void *p, size_t bytes)
{
    const uintptr_t begin = ((uintptr_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const uintptr_t end = ((uintptr_t)p + bytes) / HUGE_PAGE * HUGE_PAGE;

    if (begin < end)
        (void)!madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

void tutti__memory_give_back(void *p, size_t bytes)
{
    const size_t n = whole_pages(&p, bytes);

    if (n == 0)
        return;
    (void)!madvise(p, n, MADV_DONTNEED);
    (void)!mprotect(p, n, PROT_NONE);
}
