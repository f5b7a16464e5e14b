/* copy.c -- copying from one core's cache to another's.   SPDX-License-Identifier: MIT */
#include "comm/core/copy.h"

#include "base/base.h"

#include <string.h>

#if defined(__x86_64__) && !defined(TUTTI__SANITIZED)
#include <emmintrin.h>
#endif

enum { AHEAD = 2048 }; /* prefetch distance of a copy, in bytes */

/* Not memcpy, which uses non-temporal stores for such sizes on some processors. Hardware prefetchers stop at page
 * boundaries; these prefetches cross them. */
TUTTI__CLONES static void copy(void *restrict to, const void *restrict from, size_t bytes)
{
    typedef uint64_t lines __attribute__((vector_size(256), aligned(1), may_alias));
    const char *x = from;
    char *y = to;
    size_t at = 0;

    for (; bytes - at >= sizeof(lines); at += sizeof(lines)) {
        for (size_t line = 0; line < sizeof(lines); line += 64)
            __builtin_prefetch((const void *)((uintptr_t)(x + at) + AHEAD + line));
        *(lines *)(void *)(y + at) = *(const lines *)(const void *)(x + at);
        __asm__ volatile("" ::: "memory"); /* keeps the compiler from making it a memcpy */
    }
    memcpy(y + at, x + at, bytes - at);
}

/* A wrapper, because clang 14 gives clones of an external function another name. */
void tutti__copy(void *restrict to, const void *restrict from, size_t bytes)
{
    copy(to, from, bytes);
}

void tutti__copy_string(void *restrict to, const void *restrict from, size_t bytes)
{
#if defined(__x86_64__) && !defined(TUTTI__SANITIZED)
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
#else
    tutti__copy(to, from, bytes);
#endif
}

#if defined(__x86_64__) && !defined(TUTTI__SANITIZED)
enum { LINE = 64, BLOCK = 4096 };

static inline void stream(char *restrict to, const char *restrict from, size_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)from + ahead));
    for (size_t i = 0; i < LINE; i += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}
#endif

void tutti__copy_past(void *restrict to, const void *restrict from, size_t bytes)
{
#if defined(__x86_64__) && !defined(TUTTI__SANITIZED)
    const char *x = from;
    char *y = to;
    size_t at = (LINE - (uintptr_t)to % LINE) % LINE;

    at = at < bytes ? at : bytes;
    memcpy(to, from, at);
    /* Two blocks at once: the address of one is translated while the other is copied. */
    for (; bytes - at >= 2 * BLOCK; at += 2 * BLOCK)
        for (size_t i = at; i < at + BLOCK; i += LINE) {
            stream(y + i, x + i, 2 * BLOCK);
            stream(y + i + BLOCK, x + i + BLOCK, 2 * BLOCK);
        }
    for (; bytes - at >= LINE; at += LINE)
        stream(y + at, x + at, AHEAD);
    memcpy(y + at, x + at, bytes - at);
    _mm_sfence(); /* non-temporal stores are weakly ordered */
#else
    tutti__copy(to, from, bytes);
#endif
}
