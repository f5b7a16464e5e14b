/* plain_memory.c -- a list of mappings.   SPDX-License-Identifier: MIT */
#include "comm/transport/plain_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct tutti__plain_mapping {
    struct tutti__plain_mapping *next;
    void *p;
    size_t bytes;
} tutti__plain_mapping;

void tutti__plain_init(tutti__plain_memory *memory)
{
    pthread_mutex_init(&memory->lock, NULL);
    memory->first = NULL;
}

tutti_status tutti__plain_alloc(tutti__plain_memory *memory, const tutti__operation *op)
{
    tutti__plain_mapping *plain = malloc(sizeof *plain);
    size_t bytes = op->signature.count ? (size_t)op->signature.count : 1;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (!plain || p == MAP_FAILED) {
        if (p != MAP_FAILED)
            munmap(p, bytes);
        free(plain);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu bytes", bytes);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    pthread_mutex_lock(&memory->lock);
    *plain = (tutti__plain_mapping){memory->first, p, bytes};
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

static void drop(tutti__plain_mapping *plain)
{
    munmap(plain->p, plain->bytes);
    free(plain);
}

void tutti__plain_release(tutti__plain_memory *memory, const tutti__comm *comm, void *p)
{
    tutti__plain_mapping *plain = take(memory, p);

    if (plain)
        drop(plain);
    else
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "tutti_group_release: %p is not from tutti_group_alloc of group \"%s\"", p,
                  comm->name);
}

void tutti__plain_destroy(tutti__plain_memory *memory)
{
    tutti__plain_mapping *plain;

    while ((plain = take(memory, NULL)) != NULL)
        drop(plain);
    pthread_mutex_destroy(&memory->lock);
}
