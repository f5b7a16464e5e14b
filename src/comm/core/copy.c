/* copy.c -- copying from one core's cache to another's.   SPDX-License-Identifier: MIT */
#include "comm/core/copy.h"

#include "base/base.h"

#include <string.h>

enum { AHEAD = 2048 }; /* bytes that a copy fetches ahead */

/* Not memcpy, which stores this much past the cache on some processors. Prefetchers stop at the end of a page; what this
 * fetches goes on. */
TUTTI__CLONES void tutti__copy(void *restrict to, const void *restrict from, size_t bytes)
{
    typedef uint64_t lines __attribute__((vector_size(256), aligned(1), may_alias));
    const char *x = from;
    char *y = to;
    size_t at = 0;

    for (; bytes - at >= sizeof(lines); at += sizeof(lines)) {
        for (size_t line = 0; line < sizeof(lines); line += 64)
            __builtin_prefetch((const void *)((uintptr_t)(x + at) + AHEAD + line));
        *(lines *)(void *)(y + at) = *(const lines *)(const void *)(x + at);
        __asm__ volatile("" ::: "memory"); /* or the compiler makes it a memcpy */
    }
    memcpy(y + at, x + at, bytes - at);
}

void tutti__copy_string(void *restrict to, const void *restrict from, size_t bytes)
{
#if defined(__x86_64__) && !defined(TUTTI__SANITIZED)
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
#else
    tutti__copy(to, from, bytes);
#endif
}
