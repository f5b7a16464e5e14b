/* attention.h -- what attention computes.   SPDX-License-Identifier: MIT
 *
 * For each head: y = softmax(scale q k^T + mask) v, row by row; query heads share key heads in groups. Nothing of size queries x keys
 * is stored: forward leaves the log-sum-exp of each row (lse), from which backward has the probabilities again. */
#ifndef TUTTI_TENSOR_ATTENTION_H
#define TUTTI_TENSOR_ATTENTION_H

#include "tensor/broadcast.h"

/* Element (b, h, i, d) is at b * batch + h * head + i * row + d. */
typedef struct tutti__attention_at {
    int64_t batch, head, row;
} tutti__attention_at;

typedef struct tutti__attention {
    int64_t batch, heads, kv_heads; /* heads is a multiple of kv_heads */
    int64_t queries, keys, size, v_size;
    tutti__attention_at q_at, k_at, v_at, y_at; /* of gradients, too */
    /* Of q, k, v, y and their gradients. BF16: their pointers are to uint16_t. */
    tutti_dtype dtype;
    const float *q, *k, *v;
    float *y;            /* read in backward */
    float *lse;          /* [batch][heads][queries]; infinity if no key takes part, when y is 0 */
    const float *dy;     /* NULL in forward */
    float *dq, *dk, *dv; /* NULL: not wanted; all of each is written */
    float *dscores;      /* [batch][heads][queries][keys], by GPUs; NULL: not wanted */
    float scale;
    bool causal;      /* query i sees only keys j <= i + diagonal */
    int64_t diagonal; /* may be negative */
    /* Added to the scores, [batch][heads][queries][keys] by broadcasting; NULL: nothing. */
    const float *mask;
    tutti__broadcast mask_at;
    int64_t mask_step; /* from a key to the next: 0 or 1 */
    float dropout;     /* probability; 0: none */
    uint32_t call;     /* of dropout in this step */
    int64_t first_head,
        all_heads; /* for dropout: of heads that are divided among ranks; 0: heads */
} tutti__attention;

/* How many keys query i sees: those from 0 on. */
TUTTI__FORMULA int64_t tutti__attention_keys(const tutti__attention *a, int64_t i)
{
    const int64_t end = a->causal ? i + a->diagonal + 1 : a->keys;

    return end < 0 ? 0 : end < a->keys ? end : a->keys;
}

/* The head of keys and values for query head h. */
TUTTI__FORMULA int64_t tutti__attention_kv(const tutti__attention *a, int64_t h)
{
    return h / (a->heads / a->kv_heads);
}

/* The number of row i of query head h of sample b, in lse. */
TUTTI__FORMULA int64_t tutti__attention_row(const tutti__attention *a, int64_t b, int64_t h,
                                            int64_t i)
{
    return (b * a->heads + h) * a->queries + i;
}

/* The number that a row has among those of all heads, if heads are divided among ranks. */
TUTTI__FORMULA int64_t tutti__attention_whole_row(const tutti__attention *a, int64_t row)
{
    const int64_t h = row / a->queries, others = a->all_heads > 0 ? a->all_heads - a->heads : 0;

    return row + (h / a->heads * others + a->first_head) * a->queries;
}

/* What is added to the scores of a row, `mask_step` from key to key; NULL: nothing. */
TUTTI__FORMULA const float *tutti__attention_mask(const tutti__attention *a, int64_t row)
{
    return a->mask ? a->mask + tutti__broadcast_at(&a->mask_at, row * a->keys) : NULL;
}

/* factor[0 .. n) for the probabilities of keys [from, from + n) of a row: 0 or 1 / (1 - p), by Philox(seed; step, shard, call, a
 * number that is the row's and the key's). `from` is a multiple of 4. */
void tutti__attention_dropout(const tutti_ctx *cx, const tutti__attention *a, int64_t row,
                              int64_t from, float *factor, int64_t n);

#endif
