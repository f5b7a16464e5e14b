/* memory.c -- device memory, accessible only while work runs, and pinned host memory.   SPDX-License-Identifier: MIT */
#include "standin/cudart/cudart.h"

#include <sys/mman.h>

#define RESERVED ((size_t)64 << 30) /* addresses */
#define PAGE     ((size_t)4096)
#define HUGE     ((size_t)2 << 20)
#define POISON   0xff
#define FENCE    0xc5

enum { FENCE_BYTES = 256, MOST_POISON = 64 << 20 };

/* ---- Memory ---------------------------------------------------------------------------------------------- */

/* Huge pages, where the kernel has them: protecting takes time for each page. */
void standin_reserve(void)
{
    unsigned char *p =
        mmap(NULL, RESERVED + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED) {
        fprintf(stderr, "standin cuda: cannot reserve addresses\n");
        abort();
    }
    s.region = p + (HUGE - (uintptr_t)p % HUGE) % HUGE;
    (void)madvise(s.region, RESERVED, MADV_HUGEPAGE);
}

/* What is used of the region, in whole huge pages, which are not to be split. */
static size_t used(void)
{
    return (s.top + HUGE - 1) / HUGE * HUGE;
}

static void protect(int protection)
{
    if (s.top > 0 && mprotect(s.region, used(), protection) != 0)
        abort(); /* the kernel is out of memory for page tables */
    standin_protect_pages(protection);
}

void standin_open_memory(void)
{
    if (s.open++ == 0)
        protect(PROT_READ | PROT_WRITE);
}

void standin_close_memory(void)
{
    if (--s.open > 0)
        return;
    protect(PROT_NONE);
    if (s.ending)
        pthread_cond_broadcast(&s.done);
}

piece *standin_holder_of(piece *list, const void *p)
{
    for (; list; list = list->next)
        if (list->device >= 0 && (const unsigned char *)p >= list->p &&
            (const unsigned char *)p < list->p + list->bytes)
            return list;
    return NULL;
}

/* Whether p[bytes] is memory that `list` holds. */
bool standin_holds(piece *list, const void *p, size_t bytes)
{
    piece *x = standin_holder_of(list, p);

    return x && bytes <= x->bytes - (size_t)((const unsigned char *)p - x->p);
}

/* The first free piece of the region that is large enough. */
static piece *take_piece(size_t bytes)
{
    size_t room = (bytes + FENCE_BYTES + PAGE - 1) / PAGE * PAGE, at = 0;
    piece **link = &s.pieces, *x;

    for (; *link; link = &(*link)->next) {
        if ((*link)->device < 0 && (*link)->room >= room)
            return *link;
        at = (size_t)((*link)->p - s.region) + (*link)->room;
    }
    if (room > RESERVED - at)
        return NULL;
    x = calloc(1, sizeof *x);
    if (x)
        *x = (piece){.p = s.region + at, .room = room, .device = -1};
    *link = x;
    return x;
}

static void check_fence(const piece *x)
{
    standin_open_memory();
    for (size_t i = 0; i < FENCE_BYTES; i++)
        if (x->p[x->bytes + i] != FENCE) {
            fprintf(stderr,
                    "standin cuda: work has written %zu bytes behind the end of %zu bytes of "
                    "device %d\n",
                    i, x->bytes, x->device);
            abort();
        }
    standin_close_memory();
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t error;
    piece *x;

    standin_enter();
    standin_count_wait("cudaMalloc");
    error = standin_broken(standin_current);
    if (error != cudaSuccess)
        return standin_leave(error);
    x = bytes <= s.memory - s.device[standin_current].used ? take_piece(bytes) : NULL;
    if (!x)
        return standin_leave(cudaErrorMemoryAllocation);
    x->bytes = bytes;
    x->device = standin_current;
    s.device[standin_current].used += bytes;
    if (s.top < (size_t)(x->p - s.region) + x->room) {
        size_t before = used();

        s.top = (size_t)(x->p - s.region) + x->room;
        if (s.open > 0 && used() > before)
            mprotect(s.region + before, used() - before, PROT_READ | PROT_WRITE);
    }
    standin_open_memory();
    memset(x->p, POISON, bytes < MOST_POISON ? bytes : MOST_POISON);
    memset(x->p + bytes, FENCE, FENCE_BYTES);
    standin_close_memory();
    *p = x->p;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaFree(void *p)
{
    cudaError_t error;
    piece *x;

    standin_enter();
    standin_count_wait("cudaFree");
    x = standin_holder_of(s.pieces, p);
    if (!p || !x || x->p != p)
        return standin_leave(p ? cudaErrorInvalidValue : cudaSuccess);
    error = standin_broken(x->device);
    standin_wait_for_device(x->device);
    check_fence(x);
    s.device[x->device].used -= x->bytes;
    x->device = -1;
    madvise(x->p, x->room, MADV_DONTNEED);
    return standin_leave(error);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    cudaError_t error;

    standin_enter();
    error = standin_broken(standin_current);
    *total = s.memory;
    *unused = error == cudaSuccess ? s.memory - s.device[standin_current].used : 0;
    return standin_leave(error);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    cudaError_t error;
    piece *x = calloc(1, sizeof *x);

    (void)flags;
    standin_enter();
    standin_count_wait("cudaHostAlloc");
    error = standin_broken(standin_current);
    if (!x || error != cudaSuccess || posix_memalign(p, PAGE, bytes ? bytes : 1) != 0) {
        free(x);
        return standin_leave(error != cudaSuccess ? error : cudaErrorMemoryAllocation);
    }
    memset(*p, POISON, bytes);
    *x = (piece){.next = s.pinned, .p = *p, .bytes = bytes, .device = 0};
    s.pinned = x;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaFreeHost(void *p)
{
    standin_enter();
    standin_count_wait("cudaFreeHost");
    for (piece **link = &s.pinned; *link; link = &(*link)->next) {
        piece *x = *link;

        if (x->p != p)
            continue;
        for (int i = 0; i < s.devices; i++)
            standin_wait_for_device(i);
        *link = x->next;
        free(x->p);
        free(x);
        return standin_leave(cudaSuccess);
    }
    return standin_leave(p ? cudaErrorInvalidValue : cudaSuccess);
}
