/* asan.h -- marks parts of an allocation as unusable for AddressSanitizer.   SPDX-License-Identifier: MIT
 *
 * Without AddressSanitizer these do nothing. Its granularity is 8 bytes. */
#ifndef TUTTI__ASAN_H
#define TUTTI__ASAN_H

#include "base/base.h"

#ifdef TUTTI__ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Until tutti__memory_taken, AddressSanitizer reports any access. */
static inline void tutti__memory_gone(void *p, size_t bytes)
{
#ifdef TUTTI__ASAN
    __asan_poison_memory_region(p, bytes);
#else
    (void)p;
    (void)bytes;
#endif
}

static inline void tutti__memory_taken(void *p, size_t bytes)
{
#ifdef TUTTI__ASAN
    __asan_unpoison_memory_region(p, bytes);
#else
    (void)p;
    (void)bytes;
#endif
}

#endif
