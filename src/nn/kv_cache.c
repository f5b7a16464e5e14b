/* kv_cache.c -- attention to the tokens before, whose keys and values are kept.   SPDX-License-Identifier: MIT */
#include "nn/kv_cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/operations.h>

void tutti__kv_cache_open(tutti__kv_cache *cache, int64_t capacity)
{
    *cache = (tutti__kv_cache){.capacity = capacity};
}

void tutti__kv_cache_close(tutti__kv_cache *cache)
{
    for (size_t i = 0; i < cache->n; i++) {
        free(cache->layers[i].k);
        free(cache->layers[i].v);
    }
    free(cache->layers);
    *cache = (tutti__kv_cache){.capacity = 0};
}

void tutti__kv_cache_advance(tutti__kv_cache *cache, int64_t t)
{
    cache->length += t;
    cache->next = 0;
}

/* The next layer, which the first pass makes. */
static tutti_status next_layer(tutti__kv_cache *cache, int64_t width, tutti__kv_layer **layer_p)
{
    const size_t bytes = (size_t)(cache->capacity * width) * sizeof(float);
    tutti__kv_layer *layer;

    if (cache->next == cache->n) {
        const size_t room = cache->n ? 2 * cache->n : 16;

        if (cache->n == cache->room) {
            layer = realloc(cache->layers, room * sizeof *layer);
            if (!layer)
                return tutti__fail(TUTTI_ERR_MEMORY, "no memory for keys and values");
            cache->layers = layer;
            cache->room = room;
        }
        layer = &cache->layers[cache->n];
        *layer = (tutti__kv_layer){tutti__alloc(bytes), tutti__alloc(bytes), width};
        cache->n++;
        if (!layer->k || !layer->v)
            return TUTTI_ERR_MEMORY;
    }
    *layer_p = &cache->layers[cache->next++];
    return TUTTI_OK;
}

static tutti_status append(tutti__kv_cache *cache, tutti_tensor *k, tutti_tensor *v,
                           tutti__kv_layer **layer_p)
{
    const tutti_shape shape = tutti_tensor_shape(k);
    size_t at;

    TUTTI_TRY(tutti_tensor_status(k));
    TUTTI_TRY(tutti_tensor_status(v));
    if (shape.n != 3 || shape.d[0] != 1 || cache->length + shape.d[1] > cache->capacity)
        return tutti__fail(TUTTI_ERR_ARG,
                           "keys of %s after %lld tokens; expected one sample, and room for %lld "
                           "tokens in all",
                           tutti__shape_text(shape), (long long)cache->length,
                           (long long)cache->capacity);
    TUTTI_TRY(next_layer(cache, shape.d[2], layer_p));
    at = (size_t)(cache->length * shape.d[2]);
    TUTTI_TRY(tutti_tensor_read(k, (*layer_p)->k + at));
    return tutti_tensor_read(v, (*layer_p)->v + at);
}

/* [t,length + t]: 1 where a token does not see the other. */
static tutti_tensor *future_of(tutti_ctx *cx, int64_t length, int64_t t)
{
    const int64_t all = length + t;
    float *values = tutti__step_alloc(cx, (size_t)(t * all) * sizeof *values);

    for (int64_t i = 0; values && i < t; i++)
        for (int64_t k = 0; k < all; k++)
            values[i * all + k] = k > length + i;
    return values ? tutti_input(cx, (tutti_array){values, TUTTI_SHAPE(t, all), TUTTI_F32})
                  : tutti__poisoned(cx, TUTTI_ERR_MEMORY);
}

/* [1,n,heads D] -> [kv_heads, heads / kv_heads, n, D]; of keys and values heads is kv_heads. */
static tutti_tensor *by_head(tutti_tensor *x, int heads, int kv_heads)
{
    const tutti_shape shape = tutti_tensor_shape(x);

    x = tutti_reshape(x, TUTTI_SHAPE(shape.d[1], kv_heads, heads / kv_heads,
                                     shape.d[2] / (heads > 0 ? heads : 1)));
    return tutti_permute(x, TUTTI_DIMS(1, 2, 0, 3));
}

tutti_tensor *tutti__cached_attention(tutti_tensor *q, tutti_tensor *k, tutti_tensor *v, int heads,
                                      int kv_heads)
{
    tutti_ctx *cx = q->cx;
    tutti__kv_cache *cache = cx->kv_cache;
    const tutti_shape shape = tutti_tensor_shape(q);
    const int64_t t = shape.d[1], all = cache->length + t;
    tutti__kv_layer *layer;
    const tutti_status status = append(cache, k, v, &layer);
    tutti_tensor *scores;
    tutti_shape kept;

    if (status != TUTTI_OK)
        return tutti__poisoned(cx, status);
    kept = TUTTI_SHAPE(1, all, layer->width);
    k = by_head(tutti_input(cx, (tutti_array){layer->k, kept, TUTTI_F32}), kv_heads, kv_heads);
    v = by_head(tutti_input(cx, (tutti_array){layer->v, kept, TUTTI_F32}), kv_heads, kv_heads);
    q = by_head(q, heads, kv_heads);
    scores = tutti_matmul_with(q, k, &(tutti_matmul_opts){.transpose_b = true});
    scores = tutti_scale(scores, (float)(1 / sqrt((double)(shape.d[2] / heads))));
    if (t > 1)
        scores = tutti_masked_fill(scores, future_of(cx, cache->length, t), -INFINITY);
    scores = tutti_matmul(tutti_softmax(scores), v); /* [kv_heads, heads / kv_heads, t, D] */
    return tutti_reshape(tutti_permute(scores, TUTTI_DIMS(2, 0, 1, 3)), shape);
}
