/* pool.c -- memory that peers can read directly, handed out without communication.   SPDX-License-Identifier: MIT
 *
 * The blocks of the reservation, used and free, in an array in the order of their addresses; two neighbours are never both free.
 * The lowest free block that is large enough is taken, so that the pages in use stay the same from step to step. What describes
 * the blocks is not in the shared memory, where a peer could damage it. */
#include "comm/group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, PAGE = 4096 };

typedef struct block {
    size_t at, bytes;
    bool used;
} block;

struct tutti_pool {
    tutti_group *group;
    char *memory;
    pthread_mutex_t lock;
    block *blocks;
    size_t n, capacity;
};

/* Whole cache lines, so that no two pieces share one. */
static size_t round_up(size_t bytes)
{
    return bytes == 0 ? LINE : (bytes + LINE - 1) / LINE * LINE;
}

static bool has_room_for_one_more(tutti_pool *pool)
{
    const size_t capacity = pool->capacity ? 2 * pool->capacity : 64;
    block *blocks;

    if (pool->n < pool->capacity)
        return true;
    blocks = realloc(pool->blocks, capacity * sizeof *blocks);
    if (!blocks)
        return false;
    pool->blocks = blocks;
    pool->capacity = capacity;
    return true;
}

tutti_status tutti_pool_new(tutti_pool **pool_p, tutti_group *group, size_t bytes)
{
    tutti_pool *pool = tutti__alloc(sizeof *pool);
    tutti_status status = TUTTI_OK;
    void *memory = NULL;

    bytes = bytes < SIZE_MAX - PAGE ? (bytes + PAGE - 1) / PAGE * PAGE : bytes;
    *pool_p = NULL;
    if (!pool || !has_room_for_one_more(pool))
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for a pool of %zu bytes", bytes);
    if (tutti__check_group("pool_new", group) != TUTTI_OK)
        status = TUTTI_ERR_ARG;
    else
        status = tutti__group_agree(group, status);
    if (status == TUTTI_OK)
        status = tutti_group_alloc(group, bytes, &memory);
    if (status != TUTTI_OK) {
        free(pool ? pool->blocks : NULL);
        free(pool);
        return status;
    }
    pool->group = group;
    pool->memory = memory;
    pthread_mutex_init(&pool->lock, NULL);
    pool->blocks[pool->n++] = (block){0, bytes, false};
    *pool_p = pool;
    return TUTTI_OK;
}

/* Takes the block i, or its beginning. */
static void *take(tutti_pool *pool, size_t i, size_t bytes)
{
    block *b = &pool->blocks[i];

    if (b->bytes > bytes) {
        memmove(b + 2, b + 1, (pool->n - i - 1) * sizeof *b);
        b[1] = (block){b->at + bytes, b->bytes - bytes, false};
        pool->n++;
        b->bytes = bytes;
    }
    b->used = true;
    return pool->memory + b->at;
}

void *tutti_pool_alloc(tutti_pool *pool, size_t bytes)
{
    const size_t most = SIZE_MAX - LINE, wanted = bytes < most ? round_up(bytes) : SIZE_MAX;
    void *p = NULL;

    if (!pool)
        return NULL;
    pthread_mutex_lock(&pool->lock);
    if (has_room_for_one_more(pool))
        for (size_t i = 0; i < pool->n && !p; i++)
            if (!pool->blocks[i].used && pool->blocks[i].bytes >= wanted)
                p = take(pool, i, wanted);
    pthread_mutex_unlock(&pool->lock);
    return p;
}

/* The place of the block that begins at the offset; n: none. */
static size_t find(const tutti_pool *pool, size_t at)
{
    size_t low = 0, high = pool->n;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (pool->blocks[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pool->n && pool->blocks[low].at == at ? low : pool->n;
}

/* Joins the block i with the next one, if both are free. */
static void join(tutti_pool *pool, size_t i)
{
    block *b = &pool->blocks[i];

    if (i + 1 >= pool->n || b[0].used || b[1].used)
        return;
    b[0].bytes += b[1].bytes;
    memmove(b + 1, b + 2, (pool->n - i - 2) * sizeof *b);
    pool->n--;
}

void tutti_pool_release(tutti_pool *pool, void *p)
{
    size_t i;
    bool known;

    if (!pool || !p)
        return;
    pthread_mutex_lock(&pool->lock);
    i = (char *)p >= pool->memory ? find(pool, (size_t)((char *)p - pool->memory)) : pool->n;
    known = i < pool->n && pool->blocks[i].used;
    if (known) {
        pool->blocks[i].used = false;
        join(pool, i);
        if (i > 0)
            join(pool, i - 1);
    }
    pthread_mutex_unlock(&pool->lock);
    if (!known)
        tutti_log(TUTTI_LOG_WARN, "comm", "tutti_pool_release: %p is not a piece of this pool", p);
}

void tutti_pool_free(tutti_pool *pool)
{
    if (!pool)
        return;
    if (!tutti__group_is_parents(pool->group))
        tutti_group_release(pool->group, pool->memory);
    pthread_mutex_destroy(&pool->lock);
    free(pool->blocks);
    free(pool);
}
