/* planned.h -- a device that has addresses, but neither memory nor arithmetic, for planning.   SPDX-License-Identifier: MIT
 *
 *   a context on it        memory is address space, counted, of which nothing is used; copies and flat.h do nothing;
 *                          tutti__parallel runs no job, plain C is not called
 *   everything else        as on the CPU: the tape, layouts, lazy tensors, kernels' scratch, who releases what, and when
 *
 * So a step of a model on it takes the memory of a real one, as numbers. Elements read as 0. What computes all the same, outside
 * of tutti__parallel, works: it then uses memory, until tutti__planned_drop. One thread plans at a time in a process. */
#ifndef TUTTI_DEVICE_PLANNED_H
#define TUTTI_DEVICE_PLANNED_H

#include "device/device.h"

#define TUTTI__PLANNED                                                                             \
    ((tutti_device_kind)0x706c616e) /* not of <tutti/device.h>: no program asks for it */

/* Waits until no other thread plans; counts begin at 0. */
void tutti__planned_begin(void);
void tutti__planned_end(void);

/* Bytes that are allocated, and the most at one time since the last tutti__planned_mark. */
typedef struct tutti__planned_bytes {
    size_t now, most;
} tutti__planned_bytes;
tutti__planned_bytes tutti__planned_count(void);
void tutti__planned_mark(void);

/* Counted exactly, as memory of a group; memory of the device is counted in the pages that tutti__alloc takes. */
void *tutti__planned_plain(size_t bytes);
/* Address space that is not counted: for arenas, which know how much of it they use. NULL with the message set. */
void *tutti__planned_space(size_t bytes);
/* Reserved memory, as that of tutti__memory_reserve: a page is counted from when it is touched (backed, or written) until it is given
 * back. touch and give_back: bytes of other memory are left alone; the whole pages are those of tutti__memory_back and _give_back. */
void *tutti__planned_reserve(size_t bytes);
void tutti__planned_touch(const void *p, size_t bytes);
void tutti__planned_give_back(const void *p, size_t bytes);
/* What is counted of the memory in which p is, and the most so far. */
tutti__planned_bytes tutti__planned_backed(const void *p);
/* NULL is fine. Returns how many bytes are no longer counted. */
size_t tutti__planned_free(void *p);
/* Whether p is in memory of the device. */
bool tutti__planned_owns(const void *p);
/* Gives back the memory that stray accesses have taken; contents are lost. */
void tutti__planned_drop(void);

#endif
