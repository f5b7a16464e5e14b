/* kv_cache.c -- attention to the tokens before, whose keys and values are kept.   SPDX-License-Identifier: MIT */
#include "nn/kv_cache.h"

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
    TUTTI_TRY(tutti_tensor_read(tutti_cast(k, TUTTI_F32), (*layer_p)->k + at));
    return tutti_tensor_read(tutti_cast(v, TUTTI_F32), (*layer_p)->v + at);
}

/* Attention of the queries to all that the layer has. */
static tutti_tensor *attend(tutti_tensor *q, const tutti__kv_layer *layer, int heads, int kv_heads)
{
    tutti_ctx *cx = q->cx;
    const int64_t all = cx->kv_cache->length + tutti_tensor_shape(q).d[1];
    const tutti_shape kept = TUTTI_SHAPE(1, all, layer->width);
    const tutti_attention_opts opts = {
        .is_causal = true, .causal_lower_right = true, .kv_heads = kv_heads};

    return tutti_multi_head_attention(q, tutti_input(cx, (tutti_array){layer->k, kept, TUTTI_F32}),
                                      tutti_input(cx, (tutti_array){layer->v, kept, TUTTI_F32}),
                                      heads, &opts);
}

tutti_tensor *tutti__cached_attention(tutti_tensor *q, tutti_tensor *k, tutti_tensor *v, int heads,
                                      int kv_heads)
{
    tutti__kv_layer *layer;
    tutti_status status;

    if (!k) {
        tutti_tensor *qkv = q;
        const int64_t head = tutti_tensor_shape(qkv).d[2] / (heads + 2 * kv_heads);

        q = tutti_narrow(qkv, 2, 0, heads * head);
        k = tutti_narrow(qkv, 2, heads * head, kv_heads * head);
        v = tutti_narrow(qkv, 2, (heads + kv_heads) * head, kv_heads * head);
    }
    status = append(q->cx->kv_cache, k, v, &layer);
    return status == TUTTI_OK ? attend(q, layer, heads, kv_heads) : tutti__poisoned(q->cx, status);
}
