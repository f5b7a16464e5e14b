/* asan.h -- tells AddressSanitizer of memory that has been given back within an allocation.   SPDX-License-Identifier: MIT
 *
 * Nothing without it. Memory in units of 8 bytes. */
#ifndef TUTTI__ASAN_H
#define TUTTI__ASAN_H

#include "base/base.h"

#ifdef TUTTI__ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Until it is taken again, reading or writing it is an error. */
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
