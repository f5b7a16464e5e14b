/* pages.c -- memory by pages: reserved, backed, given back, counted.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

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

    /* The first is for shared memory, in which the second would leave the pages to the other processes. */
    if (n > 0 && madvise(p, n, MADV_REMOVE) != 0)
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

void *tutti__memory_reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    if (p != MAP_FAILED)
        return p;
    tutti__fail(TUTTI_ERR_MEMORY, "no addresses for %zu bytes (ulimit -v)", bytes);
    return NULL;
}

void tutti__memory_unreserve(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes ? bytes : 1);
}

tutti_status tutti__memory_back(void *p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p / page * page;
    const size_t n = ((uintptr_t)p + bytes + page - 1) / page * page - begin;

    if (bytes == 0)
        return TUTTI_OK;
    if (mprotect((void *)begin, n, PROT_READ | PROT_WRITE) != 0)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "no memory for %zu bytes (ulimit -d, or too many mappings)", n);
    /* at once rather than page by page; an older kernel does not know it */
    if (madvise((void *)begin, n, MADV_POPULATE_WRITE) != 0 && errno == ENOMEM)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", n);
    return TUTTI_OK;
}

void tutti__memory_give_back(void *p, size_t bytes)
{
    const size_t n = whole_pages(&p, bytes);

    if (n == 0)
        return;
    (void)!madvise(p, n, MADV_DONTNEED);
    (void)!mprotect(p, n, PROT_NONE);
}
