/* plain_memory.c -- a list of mappings.   SPDX-License-Identifier: MIT */
#include "comm/transport/plain_memory.h"

#include "comm/transport/take_back.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct tutti__plain_mapping {
    struct tutti__plain_mapping *next;
    char *p, *second; /* NULL: it is mapped once */
    size_t bytes;
} tutti__plain_mapping;

void tutti__plain_init(tutti__plain_memory *memory, bool twice)
{
    pthread_mutex_init(&memory->lock, NULL);
    memory->first = NULL;
    memory->twice = twice;
}

/* Without it the memory is as good, only copied. */
static char *map_again(char *p, size_t bytes)
{
    void *second = mremap(p, 0, bytes, MREMAP_MAYMOVE); /* an old size of 0 copies the mapping */

    if (second == MAP_FAILED)
        return NULL;
    madvise(second, bytes, MADV_HUGEPAGE);
    return second;
}

tutti_status tutti__plain_alloc(tutti__plain_memory *memory, const tutti__operation *op)
{
    tutti__plain_mapping *plain = malloc(sizeof *plain);
    size_t bytes = op->signature.count ? (size_t)op->signature.count : 1;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                   (memory->twice ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);

    if (!plain || p == MAP_FAILED) {
        if (p != MAP_FAILED)
            munmap(p, bytes);
        free(plain);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    pthread_mutex_lock(&memory->lock);
    *plain =
        (tutti__plain_mapping){memory->first, p, memory->twice ? map_again(p, bytes) : NULL, bytes};
    memory->first = plain;
    pthread_mutex_unlock(&memory->lock);
    *(void **)op->dst = p;
    return TUTTI_OK;
}

static tutti__plain_mapping *take(tutti__plain_memory *memory, const void *p)
{
    tutti__plain_mapping **place, *plain;

    pthread_mutex_lock(&memory->lock);
    for (place = &memory->first; *place && p && (*place)->p != p;)
        place = &(*place)->next;
    plain = *place;
    if (plain)
        *place = plain->next;
    pthread_mutex_unlock(&memory->lock);
    return plain;
}

static void drop(tutti__plain_mapping *plain, bool kept)
{
    munmap(plain->p, plain->bytes);
    if (plain->second && !kept)
        munmap(plain->second, plain->bytes);
    free(plain);
}

void tutti__plain_release(tutti__plain_memory *memory, const tutti__comm *comm, void *p)
{
    tutti__plain_mapping *plain = take(memory, p);

    if (plain)
        drop(plain, atomic_load(&comm->failed));
    else
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "tutti_group_release: %p is not from tutti_group_alloc of group \"%s\"", p,
                  comm->name);
}

void tutti__plain_destroy(tutti__plain_memory *memory, bool kept)
{
    tutti__plain_mapping *plain;

    while ((plain = take(memory, NULL)) != NULL)
        drop(plain, kept);
    pthread_mutex_destroy(&memory->lock);
}

/* ---- The second mapping ------------------------------------------------------------------------------------------ */

char *tutti__plain_second(tutti__plain_memory *memory, const void *p, size_t bytes)
{
    const char *at = p;
    char *second = NULL;

    if (!memory->twice)
        return NULL;
    pthread_mutex_lock(&memory->lock);
    for (const tutti__plain_mapping *m = memory->first; m && !second; m = m->next)
        if (m->second && at >= m->p && at + bytes <= m->p + m->bytes)
            second = m->second + (at - m->p);
    pthread_mutex_unlock(&memory->lock);
    return second;
}

void tutti__plain_take_back(tutti__plain_memory *memory, const tutti__comm *comm, const void *p,
                            size_t bytes)
{
    const char *from = p;

    pthread_mutex_lock(&memory->lock);
    for (const tutti__plain_mapping *m = memory->first; m; m = m->next) {
        const char *begin = from > m->p ? from : m->p,
                   *end = from + bytes < m->p + m->bytes ? from + bytes : m->p + m->bytes;

        if (m->second && begin < end)
            tutti__take_back(comm, begin, (size_t)(end - begin));
    }
    pthread_mutex_unlock(&memory->lock);
}
