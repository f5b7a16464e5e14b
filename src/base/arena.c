/* arena.c -- a bump allocator that keeps its blocks, so that equal rounds stop allocating.   SPDX-License-Identifier: MIT
 *
 *   warming up:      [block 1 ####][block 2 ######][block 3 ##  ]
 *   later:           [block 1 ####][block 2 ###   ][block 3     ]   the same blocks in order: their pages are there
 *   having grown:    [block 1                                            ]   joined: unequal rounds leave no small pieces */
#include "base/base.h"
#include "base/asan.h"

#include <stdlib.h>

#define ALIGNMENT   64
#define FIRST_BLOCK ((size_t)1 << 20)
#define LARGE       ((size_t)4 << 20) /* tutti__alloc_unset's */

struct tutti__arena_block {
    tutti__arena_block *next;
    size_t bytes, used;
    size_t most;         /* the largest `used` of a round that has ended */
    unsigned char *data; /* may be device memory: never accessed here */
};

static unsigned char *get(tutti__arena *arena, size_t bytes)
{
    unsigned char *p;

    if (arena->get)
        return arena->get(arena->self, bytes);
    p = tutti__alloc_unset(bytes);
    if (!p)
        tutti__fail(TUTTI_ERR_MEMORY, "arena: no memory for another %zu bytes (%zu in use)", bytes,
                    arena->used);
    return p;
}

static void put(const tutti__arena *arena, void *p)
{
    if (arena->put)
        arena->put(arena->self, p);
    else
        free(p);
}

static tutti__arena_block *block_new(tutti__arena *arena, size_t bytes)
{
    tutti__arena_block *block = tutti__alloc(sizeof *block);

    if (block)
        block->data = get(arena, bytes + ALIGNMENT); /* so that no two blocks touch */
    if (!block || !block->data) {
        free(block);
        return NULL;
    }
    block->bytes = bytes;
    block->used = block->most = 0;
    block->next = NULL;
    *(arena->last ? &arena->last->next : &arena->blocks) = block;
    arena->last = block;
    arena->capacity += bytes;
    arena->allocations++;
    return block;
}

/* The first block with room , starting at the one in use: earlier ones are not tried again in this round. */
static tutti__arena_block *block_with(const tutti__arena *arena, size_t bytes)
{
    tutti__arena_block *block = arena->in_use ? arena->in_use : arena->blocks;

    while (block && block->bytes - block->used < bytes)
        block = block->next;
    return block;
}

void *tutti__arena_alloc(tutti__arena *arena, size_t bytes)
{
    tutti__arena_block *block;
    void *p;

    if (bytes > SIZE_MAX / 2) {
        tutti__fail(TUTTI_ERR_MEMORY, "arena: cannot allocate %zu bytes", bytes);
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block = block_with(arena, bytes);
    if (!block) {
        size_t grow = arena->capacity > FIRST_BLOCK ? arena->capacity / 2 : FIRST_BLOCK;

        block =
            block_new(arena, bytes > grow ? bytes : (grow + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
        if (!block)
            return NULL;
    }
    arena->in_use = block;
    p = block->data + block->used;
    block->used += bytes;
    arena->used += bytes;
    tutti__memory_taken(p, bytes);
    return p;
}

static void free_blocks(tutti__arena *arena)
{
    while (arena->blocks) {
        tutti__arena_block *next = arena->blocks->next;

        tutti__memory_taken(arena->blocks->data, arena->blocks->bytes);
        put(arena, arena->blocks->data);
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->last = arena->in_use = NULL;
    arena->capacity = 0;
}

/* What of a block is resident: of a large one whole huge pages. */
static size_t pages_of(const tutti__arena_block *block)
{
    return block->bytes < LARGE ? block->most : tutti__alloc_takes(block->most + LARGE) - LARGE;
}

/* Pages that were used stay, whether the next round comes to them or not. */
static void note_most(tutti__arena *arena)
{
    size_t all = 0;

    for (tutti__arena_block *block = arena->blocks; block; block = block->next) {
        if (block->used > block->most)
            block->most = block->used;
        all += pages_of(block);
    }
    if (all > arena->most)
        arena->most = all;
}

void tutti__arena_reset(tutti__arena *arena)
{
    const bool grew = arena->allocations != arena->settled;

    note_most(arena);
    if (grew && arena->settled > 0) {
        size_t capacity = arena->capacity;

        free_blocks(arena);
        block_new(arena, capacity); /* if this fails, the next allocation reports it */
    }
    for (tutti__arena_block *block = arena->blocks; block; block = block->next)
        block->used = 0;
    arena->in_use = NULL;
    arena->used = 0;
    arena->settled = arena->allocations;
}

void tutti__arena_destroy(tutti__arena *arena)
{
    free_blocks(arena);
    arena->used = 0;
}
