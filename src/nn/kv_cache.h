/* kv_cache.h -- keys and values of the tokens that a language model has read, so that each new token is computed alone.
 * SPDX-License-Identifier: MIT
 *
 * While cx->kv_cache is set, the model's input [1,t] continues those tokens: its positions begin at `length`, attention goes through
 * tutti__cached_attention, once in each layer, in the same order in each pass, and the logits are of the last token alone. */
#ifndef TUTTI_NN_KV_CACHE_H
#define TUTTI_NN_KV_CACHE_H

#include "tensor/tensor.h"

/* Of one layer: [capacity,width] each. */
typedef struct tutti__kv_layer {
    float *k, *v;
    int64_t width;
} tutti__kv_layer;

struct tutti__kv_cache {
    int64_t capacity, length; /* tokens */
    tutti__kv_layer *layers;  /* as many as the first pass has needed */
    size_t n, room;
    size_t next; /* the layer that comes next in this pass */
};
typedef struct tutti__kv_cache tutti__kv_cache;

/* Room for `capacity` tokens; *cache starts as {0}. */
void tutti__kv_cache_open(tutti__kv_cache *cache, int64_t capacity);
void tutti__kv_cache_close(tutti__kv_cache *cache);
/* After a pass over t tokens. */
void tutti__kv_cache_advance(tutti__kv_cache *cache, int64_t t);
/* Tokens before the current input; 0 without a cache. */
static inline int64_t tutti__kv_cache_length(const tutti_ctx *cx)
{
    return cx->kv_cache ? cx->kv_cache->length : 0;
}
/* Causal attention of queries [1,t,heads D] to all keys and values: the cache's and these, [1,t,kv_heads D], which are added to it.
 * -> [1,t,heads D]. k and v NULL: q is [1,t,(heads + 2 kv_heads) D], as in tutti_multi_head_attention. ARG for more samples than one, or no room. */
tutti_tensor *tutti__cached_attention(tutti_tensor *q, tutti_tensor *k, tutti_tensor *v, int heads,
                                      int kv_heads);

#endif
