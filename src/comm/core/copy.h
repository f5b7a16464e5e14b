/* copy.h -- copying from one core's cache to another's.   SPDX-License-Identifier: MIT
 *
 * All do what memcpy does. Which is faster depends on the processor: on some, string instructions take lines over without
 * fetching what is overwritten; on others they bypass the cache from which a peer is about to read. */
#ifndef TUTTI_COMM_CORE_COPY_H
#define TUTTI_COMM_CORE_COPY_H

#include <stddef.h>

/* By loads and stores: leaves the copy in the cache. */
void tutti__copy(void *restrict to, const void *restrict from, size_t bytes);
/* By rep movsb; without it, the same as tutti__copy. */
void tutti__copy_string(void *restrict to, const void *restrict from, size_t bytes);
/* By non-temporal stores, if the processor has them: for more than the cache holds, whose lines would be fetched only to
 * be overwritten and would evict others. */
void tutti__copy_past(void *restrict to, const void *restrict from, size_t bytes);

#endif
