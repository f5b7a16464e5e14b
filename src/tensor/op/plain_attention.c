/* plain_attention.c -- attention row by row.   SPDX-License-Identifier: MIT */
#include "tensor/op/plain_attention.h"
#include "base/real_f32.h"

#include <math.h>
#include <string.h>

#define FACTORS 64 /* of dropout, made at once */

typedef struct plain_attention {
    tutti__attention c;
    const tutti_ctx *cx;
    float *dmask;
} plain_attention;

/* A row of queries, while its keys are passed in order. */
typedef struct query_row {
    const plain_attention *w;
    const float *q, *k, *v; /* the query; keys and values of its head */
    const float *mask;
    int64_t row;
    float factors[FACTORS];
} query_row;

static void row_begin(query_row *r, const plain_attention *w, int64_t b, int64_t h, int64_t i)
{
    const tutti__attention *c = &w->c;
    const int64_t kv = tutti__attention_kv(c, h);

    r->w = w;
    r->row = tutti__attention_row(c, b, h, i);
    r->q = c->q + b * c->q_at.batch + h * c->q_at.head + i * c->q_at.row;
    r->k = c->k + b * c->k_at.batch + kv * c->k_at.head;
    r->v = c->v + b * c->v_at.batch + kv * c->v_at.head;
    r->mask = tutti__attention_mask(c, r->row);
}

static float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* to += factor x */
static void add_times(float *to, float factor, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += factor * x[i];
}

static float score(const query_row *r, int64_t j)
{
    const tutti__attention *c = &r->w->c;
    const float product = dot(r->q, r->k + j * c->k_at.row, c->size);

    return c->scale * product + (r->mask ? r->mask[j * c->mask_step] : 0);
}

/* Dropout's factor for key j. */
static float factor(query_row *r, int64_t j)
{
    const tutti__attention *c = &r->w->c;
    const int64_t left = c->keys - j;

    if (c->dropout == 0)
        return 1;
    if (j % FACTORS == 0)
        tutti__attention_dropout(r->w->cx, c, r->row, j, r->factors,
                                 left < FACTORS ? left : FACTORS);
    return r->factors[j % FACTORS];
}

/* y as a mean of v, weighted by exp(score - the largest so far). */
static void forward_row(void *arg, int64_t number)
{
    const plain_attention *w = arg;
    const tutti__attention *c = &w->c;
    const int64_t i = number % c->queries, h = number / c->queries % c->heads;
    const int64_t b = number / c->queries / c->heads, end = tutti__attention_keys(c, i);
    float *y = c->y + b * c->y_at.batch + h * c->y_at.head + i * c->y_at.row;
    float largest = -INFINITY;
    double sum = 0;
    query_row r;

    row_begin(&r, w, b, h, i);
    memset(y, 0, (size_t)c->v_size * sizeof *y);
    for (int64_t j = 0; j < end; j++) {
        const float s = score(&r, j), f = factor(&r, j);
        float weight;

        if (s == -INFINITY)
            continue;
        if (s > largest) {
            const float less = tutti__exp_f32(largest - s);

            sum *= (double)less;
            for (int64_t d = 0; d < c->v_size; d++)
                y[d] *= less;
            largest = s;
        }
        weight = tutti__exp_f32(s - largest);
        sum += (double)weight;
        add_times(y, weight * f, r.v + j * c->v_at.row, c->v_size);
    }
    for (int64_t d = 0; d < c->v_size && sum != 0; d++)
        y[d] = (float)((double)y[d] / sum);
    c->lse[r.row] = sum == 0 ? INFINITY : (float)((double)largest + tutti__log(sum));
}

static void zero_rows(float *to, int64_t rows, int64_t step, int64_t n)
{
    for (int64_t i = 0; to && i < rows; i++)
        memset(to + i * step, 0, (size_t)n * sizeof *to);
}

/* Adds what row i of head h gives to the gradients. */
static void backward_row(const plain_attention *w, int64_t b, int64_t h, int64_t i)
{
    const tutti__attention *c = &w->c;
    const int64_t kv = tutti__attention_kv(c, h), end = tutti__attention_keys(c, i);
    const int64_t y_at = b * c->y_at.batch + h * c->y_at.head + i * c->y_at.row;
    const float *dy = c->dy + y_at;
    const float sum = dot(dy, c->y + y_at, c->v_size);
    float *dq = c->dq ? c->dq + b * c->q_at.batch + h * c->q_at.head + i * c->q_at.row : NULL;
    query_row r;

    row_begin(&r, w, b, h, i);
    for (int64_t j = 0; j < end; j++) {
        const int64_t k_at = b * c->k_at.batch + kv * c->k_at.head + j * c->k_at.row;
        const int64_t v_at = b * c->v_at.batch + kv * c->v_at.head + j * c->v_at.row;
        const float p = tutti__exp_f32(score(&r, j) - c->lse[r.row]), f = factor(&r, j);
        const float ds = p * (f * dot(dy, c->v + v_at, c->v_size) - sum);

        if (p == 0)
            continue;
        if (c->dv)
            add_times(c->dv + v_at, p * f, dy, c->v_size);
        if (dq)
            add_times(dq, c->scale * ds, c->k + k_at, c->size);
        if (c->dk)
            add_times(c->dk + k_at, c->scale * ds, r.q, c->size);
        if (w->dmask)
            w->dmask[tutti__broadcast_at(&c->mask_at, r.row * c->keys + j)] += ds;
    }
}

/* Of one head of keys and its queries, in their order. */
static void backward_head(void *arg, int64_t number)
{
    const plain_attention *w = arg;
    const tutti__attention *c = &w->c;
    const int64_t b = number / c->kv_heads, kv = number % c->kv_heads;
    const int64_t group = c->heads / c->kv_heads;

    if (c->dk)
        zero_rows(c->dk + b * c->k_at.batch + kv * c->k_at.head, c->keys, c->k_at.row, c->size);
    if (c->dv)
        zero_rows(c->dv + b * c->v_at.batch + kv * c->v_at.head, c->keys, c->v_at.row, c->v_size);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        if (c->dq)
            zero_rows(c->dq + b * c->q_at.batch + h * c->q_at.head, c->queries, c->q_at.row,
                      c->size);
        for (int64_t i = 0; i < c->queries; i++)
            backward_row(w, b, h, i);
    }
}

void tutti__plain_attention_forward(const tutti_op_args *p, const tutti__attention *c)
{
    plain_attention w = {.c = *c, .cx = p->cx};

    tutti_op_parallel(p, forward_row, &w, c->batch * c->heads * c->queries);
}

void tutti__plain_attention_backward(const tutti_op_args *p, const tutti__attention *c,
                                     float *dmask)
{
    plain_attention w = {.c = *c, .cx = p->cx, .dmask = dmask};
    const int64_t heads = c->batch * c->kv_heads;

    if (!dmask)
        tutti_op_parallel(p, backward_head, &w, heads);
    for (int64_t i = 0; dmask && i < heads; i++) /* they may share elements of the mask */
        backward_head(&w, i);
}
