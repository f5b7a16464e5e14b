/* copy.h -- copying from one core's cache to another's.   SPDX-License-Identifier: MIT
 *
 * All do what memcpy does. Which is quicker depends on the processor: on some, string instructions take lines over without
 * fetching what is overwritten, on others they store past the cache from which a peer is about to read. */
#ifndef TUTTI_COMM_CORE_COPY_H
#define TUTTI_COMM_CORE_COPY_H

#include <stddef.h>

/* By loads and stores: leaves what it has copied in the cache. */
void tutti__copy(void *restrict to, const void *restrict from, size_t bytes);
/* By the processor's string instruction; where it has none, the same. */
void tutti__copy_string(void *restrict to, const void *restrict from, size_t bytes);
/* Stores past the cache, where the processor can: of more than it holds, whose lines would be fetched only to be overwritten, and
 * put out what it held. */
void tutti__copy_past(void *restrict to, const void *restrict from, size_t bytes);

#endif
