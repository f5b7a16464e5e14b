/* allocator.c -- a caching allocator for device memory.   SPDX-License-Identifier: MIT
 *
 * CUDA's own allocation and free wait for the device, so they are for warm-up. A freed block may still be used by work submitted
 * to a stream before. Its fence is an event in each of the device's streams; the block is allocated again only after all of them
 * have passed. Nobody waits for that, unless memory is exhausted. */
#include "device/cuda/cuda.h"

#include <stdlib.h>

enum { MIN_BYTES = 512, MAX_STEP = 2 << 20 };

struct tutti__cuda_block {
    void *p;
    size_t bytes;
    bool used;
    tutti__cuda_fence fence; /* of a free block */
};

/* Sizes come in steps of an eighth of the power of two below, at most 2 MiB, so that nearly equal sizes reuse the same blocks. */
static size_t round_up(size_t bytes)
{
    size_t step = MIN_BYTES;

    while (step < MAX_STEP && step * 16 <= bytes)
        step *= 2;
    return bytes ? (bytes + step - 1) / step * step : step;
}

/* Room for one more element in an array that grows. */
static bool reserve(void **array, size_t n, size_t *capacity, size_t size)
{
    size_t wanted = *capacity ? 2 * *capacity : 16;
    void *grown;

    if (n < *capacity)
        return true;
    grown = realloc(*array, wanted * size);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

/* ---- Fences -------------------------------------------------------------------------------------------------- */

static void give_event(tutti__cuda_device *d, void *event)
{
    if (reserve((void **)&d->spare, d->n_spare, &d->spare_capacity, sizeof *d->spare))
        d->spare[d->n_spare++] = event;
    else
        (void)tutti__cuda_module()->runtime->event_free(event);
}

static tutti_status take_event(tutti__cuda_device *d, void **event_p)
{
    if (d->n_spare == 0)
        return tutti__cuda_module()->runtime->event_new(d->index, event_p);
    *event_p = d->spare[--d->n_spare];
    return TUTTI_OK;
}

/* Adds an event after all work submitted to the stream so far. */
static tutti_status add_to_fence(tutti__cuda_device *d, tutti__cuda_fence *f, void *stream)
{
    void *event;
    tutti_status status;

    if (!reserve((void **)&f->events, f->n, &f->capacity, sizeof *f->events))
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(take_event(d, &event));
    status = tutti__cuda_module()->runtime->event_record(d->index, event, stream);
    if (status == TUTTI_OK)
        f->events[f->n++] = event;
    else
        give_event(d, event);
    return status;
}

/* If there are no events, the host waits instead. (If the device has failed, submitted work no longer runs.) */
void tutti__cuda_fence_set(tutti__cuda_device *d, tutti__cuda_fence *f)
{
    for (tutti__cuda_stream *s = d->streams; s; s = s->next)
        if (add_to_fence(d, f, s->native) != TUTTI_OK)
            (void)tutti__cuda_module()->runtime->stream_wait(d->index, s->native);
    if (d->zero_stream && add_to_fence(d, f, d->zero_stream) != TUTTI_OK)
        (void)tutti__cuda_module()->runtime->stream_wait(d->index, d->zero_stream);
}

tutti_status tutti__cuda_fence_passed(tutti__cuda_device *d, tutti__cuda_fence *f, bool *passed_p)
{
    *passed_p = false;
    while (f->n > 0) {
        void *event = f->events[f->n - 1];
        bool passed;

        TUTTI_TRY(tutti__cuda_module()->runtime->event_passed(d->index, event, &passed));
        if (!passed)
            return TUTTI_OK;
        give_event(d, event);
        f->n--;
    }
    *passed_p = true;
    return TUTTI_OK;
}

void tutti__cuda_fence_drop(tutti__cuda_device *d, tutti__cuda_fence *f)
{
    while (f->n > 0)
        give_event(d, f->events[--f->n]);
    free(f->events);
    *f = (tutti__cuda_fence){0};
}

tutti_status tutti__cuda_wait_for_all(tutti__cuda_device *d)
{
    for (tutti__cuda_stream *s = d->streams; s; s = s->next)
        TUTTI_TRY(tutti__cuda_module()->runtime->stream_wait(d->index, s->native));
    if (d->zero_stream)
        TUTTI_TRY(tutti__cuda_module()->runtime->stream_wait(d->index, d->zero_stream));
    return TUTTI_OK;
}

/* ---- Blocks -------------------------------------------------------------------------------------------------- */

/* The smallest free block of `least` to `most` bytes whose fence has passed; NULL: none. */
static tutti_status find_free(tutti__cuda_device *d, tutti__cuda_pool *pool, size_t least,
                              size_t most, tutti__cuda_block **best_p)
{
    *best_p = NULL;
    for (size_t i = 0; i < pool->n; i++) {
        tutti__cuda_block *b = &pool->blocks[i];
        bool passed;

        if (b->used || b->bytes < least || b->bytes > most ||
            (*best_p && b->bytes >= (*best_p)->bytes))
            continue;
        TUTTI_TRY(tutti__cuda_fence_passed(d, &b->fence, &passed));
        if (passed)
            *best_p = b;
    }
    return TUTTI_OK;
}

static tutti_status grow(tutti__cuda_device *d, tutti__cuda_pool *pool, size_t bytes,
                         tutti__cuda_block **block_p)
{
    const tutti__cuda_runtime *r = tutti__cuda_module()->runtime;
    void *p;

    if (!reserve((void **)&pool->blocks, pool->n, &pool->capacity, sizeof *pool->blocks))
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY((pool->pinned ? r->host_alloc : r->alloc)(d->index, bytes, &p));
    pool->usage.grown++;
    pool->usage.kept += bytes;
    *block_p = &pool->blocks[pool->n++];
    **block_p = (tutti__cuda_block){.p = p, .bytes = bytes};
    return TUTTI_OK;
}

void tutti__cuda_pool_shrink(tutti__cuda_device *d, tutti__cuda_pool *pool)
{
    const tutti__cuda_runtime *r = tutti__cuda_module()->runtime;
    size_t n = 0;

    for (size_t i = 0; i < pool->n; i++) {
        tutti__cuda_block *b = &pool->blocks[i];
        bool passed = false;

        if (b->used || tutti__cuda_fence_passed(d, &b->fence, &passed) != TUTTI_OK || !passed) {
            pool->blocks[n++] = *b;
            continue;
        }
        (void)(pool->pinned ? r->host_free(b->p) : r->free(d->index, b->p));
        pool->usage.kept -= b->bytes;
        free(b->fence.events);
    }
    pool->n = n;
}

/* Does not wait as long as there is memory; then waits for freed blocks, and at last returns cached ones to CUDA. */
static tutti_status find_block(tutti__cuda_device *d, tutti__cuda_pool *pool, size_t bytes,
                               tutti__cuda_block **block_p)
{
    tutti_status status;

    TUTTI_TRY(find_free(d, pool, bytes, bytes, block_p));
    if (*block_p)
        return TUTTI_OK;
    status = grow(d, pool, bytes, block_p);
    if (status != TUTTI_ERR_MEMORY)
        return status;
    pool->usage.waited++;
    TUTTI_TRY(tutti__cuda_wait_for_all(d));
    TUTTI_TRY(find_free(d, pool, bytes, 2 * bytes, block_p));
    if (*block_p)
        return TUTTI_OK;
    tutti__cuda_pool_shrink(d, pool);
    if (!pool->pinned)
        tutti__cuda_pages_shrink(d);
    return grow(d, pool, bytes, block_p);
}

static const char *size_text(char *text, size_t capacity, size_t bytes)
{
    if (bytes < 1u << 30)
        snprintf(text, capacity, "%.1f MiB", (double)bytes / (1 << 20));
    else
        snprintf(text, capacity, "%.2f GiB", (double)bytes / (1 << 30));
    return text;
}

void tutti__cuda_out_of_memory(tutti__cuda_device *d, const tutti__cuda_pool *pool, size_t bytes)
{
    size_t unused = 0, total = 0, own = pool->usage.used + pool->usage.kept;
    char asked[32], left[32], all[32], used[32], kept[32], rest[32];

    size_text(asked, sizeof asked, bytes);
    size_text(used, sizeof used, pool->usage.used);
    if (pool->pinned) {
        (void)tutti__fail(
            TUTTI_ERR_MEMORY,
            "cuda:%d (%s): no %s of pinned host memory, in addition to the %s that this rank has: "
            "try fewer --workers, a smaller --prefetch or --batch-size, fewer "
            "ranks a host",
            d->index, d->name, asked, used);
        return;
    }
    (void)tutti__cuda_module()->runtime->memory(d->index, &unused, &total);
    (void)tutti__fail(
        TUTTI_ERR_MEMORY,
        "cuda:%d (%s): out of memory: asked for %s, free are %s of %s; this process has %s in use "
        "and %s kept for reuse, CUDA and other processes have %s; try a smaller --batch-size, "
        "--amp bf16, or fewer ranks a GPU",
        d->index, d->name, asked, size_text(left, sizeof left, unused),
        size_text(all, sizeof all, total), used, size_text(kept, sizeof kept, pool->usage.kept),
        size_text(rest, sizeof rest, total > unused + own ? total - unused - own : 0));
}

void *tutti__cuda_pool_alloc(tutti__cuda_device *d, tutti__cuda_pool *pool, size_t bytes)
{
    tutti__cuda_usage *u = &pool->usage;
    tutti__cuda_block *b = NULL;
    tutti_status status = find_block(d, pool, round_up(bytes), &b);

    if (status == TUTTI_ERR_MEMORY) {
        tutti__cuda_out_of_memory(d, pool, bytes);
        return NULL;
    }
    if (status != TUTTI_OK) {
        (void)tutti__cuda_done((tutti_device){TUTTI_CUDA, d->index}, status, "asking for memory");
        return NULL;
    }
    b->used = true;
    tutti__cuda_use_kept(u, b->bytes);
    return b->p;
}

void tutti__cuda_pool_free(tutti__cuda_device *d, tutti__cuda_pool *pool, void *p)
{
    for (size_t i = 0; i < pool->n && p; i++) {
        tutti__cuda_block *b = &pool->blocks[i];

        if (b->p != p || !b->used)
            continue;
        b->used = false;
        pool->usage.used -= b->bytes;
        pool->usage.kept += b->bytes;
        tutti__cuda_fence_set(d, &b->fence);
        return;
    }
}
