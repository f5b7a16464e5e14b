/* attention.c -- softmax(scale q k^T + mask) v: scaled_dot_product_attention, and multi_head_attention, whose heads are columns.
 * SPDX-License-Identifier: MIT
 *   q [..,H,L,D]   k [..,Hkv,S,D]   v [..,Hkv,S,Dv]   mask, broadcast to [..,H,L,S], or NULL   ->   y [..,H,L,Dv]
 *   q [N,L,H*D]    k [N,S,Hkv*D]    v [N,S,Hkv*Dv]    the same                                 ->   y [N,L,H*Dv]
 *   q [N,L,(H+2*Hkv)*D] alone: queries, keys and values
 * Forward, p = softmax(s), s = scale q k^T + mask: y = p v; kept: log sum exp s of each row. With dropout the p of y are dropped, and
 * those below where they meet v or dy.
 * Backward: p = exp(s - kept), dv = p^T dy, dp = dy v^T, ds = p (dp - sum(dy y)), dmask = ds, dq = scale ds k, dk = scale ds^T q */
#include "tensor/attention.h"
#include "base/real_f32.h"
#include "tensor/op.h"

#include <math.h>
#include <string.h>

typedef struct attributes {
    int heads, kv_heads; /* that are columns; 0: a dimension */
    bool packed;         /* keys and values are in q */
    bool causal, lower_right, grouped;
    float scale, dropout; /* scale 0: 1 / sqrt(D) */
    uint32_t call;
    int first_head, all_heads;
} attributes;

enum { Q, K, V, MASK, SOURCES };

/* ---- Shapes ---------------------------------------------------------------------------------------------- */

static tutti_status check_mask(const tutti_op_args *p, tutti_shape scores)
{
    tutti_shape mask;
    bool fits;

    if (!p->sources[MASK])
        return TUTTI_OK;
    TUTTI_TRY(tutti_op_check_source(p, MASK, "attn_mask", NULL, TUTTI_F32));
    mask = p->sources[MASK]->shape;
    fits = mask.n <= scores.n;
    for (int i = 1; fits && i <= mask.n; i++)
        fits = mask.d[mask.n - i] == 1 || mask.d[mask.n - i] == scores.d[scores.n - i];
    if (!fits)
        return tutti__fail(TUTTI_ERR_ARG, "attn_mask is %s, which is not broadcast to %s",
                           tutti__shape_text(mask), tutti__shape_text(scores));
    return TUTTI_OK;
}

/* The shape of all scores, for the mask. */
static tutti_shape scores_of(const tutti_op_args *p, tutti_shape y)
{
    const attributes *a = p->attributes;

    if (a->heads)
        return TUTTI_SHAPE(y.d[0], a->heads, y.d[1], p->sources[a->packed ? Q : K]->shape.d[1]);
    y.d[y.n - 1] = p->sources[K]->shape.d[y.n - 2];
    return y;
}

static tutti_status column_heads_shape(const tutti_op_args *p, tutti_shape *y)
{
    static const char *const names[] = {"q", "k", "v"};
    const attributes *a = p->attributes;
    const int64_t all = a->packed ? a->heads + 2 * (int64_t)a->kv_heads : a->heads;
    tutti_shape q, k, v;

    for (int i = 0; i < (a->packed ? 1 : 3); i++)
        TUTTI_TRY(tutti_op_check_source(p, i, names[i], "[N,L,heads*D]", TUTTI_F32));
    *y = q = p->sources[Q]->shape;
    if (q.d[2] % all != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "q is %s: its %lld columns do not make %lld heads of equal size (%d of "
                           "queries%s)",
                           tutti__shape_text(q), (long long)q.d[2], (long long)all, a->heads,
                           a->packed ? ", kv_heads of keys, as many of values" : "");
    y->d[2] = a->heads * (q.d[2] / all);
    if (a->packed)
        return TUTTI_OK;
    k = p->sources[K]->shape;
    v = p->sources[V]->shape;
    if (k.d[0] != q.d[0] || v.d[0] != q.d[0] || v.d[1] != k.d[1] ||
        k.d[2] != a->kv_heads * (q.d[2] / all) || v.d[2] % a->kv_heads != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "q is %s, k %s, v %s; with %d heads and %d kv_heads expected q "
                           "[N,L,%d*D], k [N,S,%d*D], v [N,S,%d*Dv]",
                           tutti__shape_text(q), tutti__shape_text(k), tutti__shape_text(v),
                           a->heads, a->kv_heads, a->heads, a->kv_heads, a->kv_heads);
    y->d[2] = a->heads * (v.d[2] / a->kv_heads);
    return TUTTI_OK;
}

/* The heads of a shape [..,H,L,D]. */
static int64_t heads_in(tutti_shape s)
{
    return s.n > 2 ? s.d[s.n - 3] : 1;
}

static tutti_status head_dimension_shape(const tutti_op_args *p, tutti_shape *y)
{
    static const char *const names[] = {"q", "k", "v"};
    const attributes *a = p->attributes;
    tutti_shape q, k, v;
    bool fits;
    int n;

    for (int i = 0; i < 3; i++) {
        TUTTI_TRY(tutti_op_check_source(p, i, names[i], NULL, TUTTI_F32));
        if (p->sources[i]->shape.n < 2)
            return tutti__fail(TUTTI_ERR_ARG, "%s is %s, expected [..,L,D]", names[i],
                               tutti__shape_text(p->sources[i]->shape));
    }
    *y = q = p->sources[Q]->shape;
    k = p->sources[K]->shape;
    v = p->sources[V]->shape;
    n = q.n;
    fits = k.n == n && v.n == n && q.d[n - 1] == k.d[n - 1] && k.d[n - 2] == v.d[n - 2];
    for (int i = 0; fits && i < n - 2; i++)
        fits = k.d[i] == v.d[i] && (k.d[i] == q.d[i] || (i == n - 3 && a->grouped));
    if (!fits)
        return tutti__fail(TUTTI_ERR_ARG,
                           "q is %s, k %s, v %s; expected [..,L,D], [..,S,D], [..,S,Dv], where the "
                           "leading dimensions are broadcast%s",
                           tutti__shape_text(q), tutti__shape_text(k), tutti__shape_text(v),
                           a->grouped ? "" : " (fewer heads of keys need enable_gqa)");
    if (heads_in(k) == 0 || heads_in(q) % heads_in(k) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "q is %s, k %s: its %lld heads are no multiple of k's %lld",
                           tutti__shape_text(q), tutti__shape_text(k), (long long)heads_in(q),
                           (long long)heads_in(k));
    y->d[n - 1] = v.d[n - 1];
    return TUTTI_OK;
}

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    if (!(a->dropout >= 0 && a->dropout <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "dropout_p is %g, expected a probability from 0 to 1",
                           (double)a->dropout);
    TUTTI_TRY(a->heads ? column_heads_shape(p, y) : head_dimension_shape(p, y));
    return check_mask(p, scores_of(p, *y));
}

/* ---- Places ---------------------------------------------------------------------------------------------- */

/* Of [batch][rows][columns], where `heads` heads are columns, `size` of each. */
static tutti__attention_at in_columns(int64_t rows, int64_t columns, int64_t size)
{
    return (tutti__attention_at){.batch = rows * columns, .head = size, .row = columns};
}

static tutti__attention_at in_dimension(int64_t heads, int64_t rows, int64_t size)
{
    return (tutti__attention_at){.batch = heads * rows * size, .head = rows * size, .row = size};
}

static void place_columns(tutti__attention *c, const tutti_op_args *p, tutti_shape y)
{
    const attributes *a = p->attributes;
    const tutti_shape q = p->sources[Q]->shape;

    c->batch = q.d[0];
    c->heads = a->heads;
    c->kv_heads = a->kv_heads;
    c->queries = c->keys = q.d[1];
    c->size = c->v_size = y.d[2] / a->heads;
    c->q_at = c->k_at = c->v_at = in_columns(c->queries, q.d[2], c->size);
    if (!a->packed) {
        const tutti_shape k = p->sources[K]->shape, v = p->sources[V]->shape;

        c->size = q.d[2] / a->heads;
        c->keys = k.d[1];
        c->q_at = in_columns(c->queries, q.d[2], c->size);
        c->k_at = in_columns(c->keys, k.d[2], c->size);
        c->v_at = in_columns(c->keys, v.d[2], c->v_size);
    }
    c->y_at = in_columns(c->queries, y.d[2], c->v_size);
}

static void place_dimensions(tutti__attention *c, const tutti_op_args *p, tutti_shape y)
{
    const tutti_shape q = p->sources[Q]->shape, k = p->sources[K]->shape;

    c->batch = 1;
    for (int i = 0; i < q.n - 3; i++)
        c->batch *= q.d[i];
    c->heads = heads_in(q);
    c->kv_heads = heads_in(k);
    c->queries = q.d[q.n - 2];
    c->keys = k.d[k.n - 2];
    c->size = q.d[q.n - 1];
    c->v_size = y.d[y.n - 1];
    c->q_at = in_dimension(c->heads, c->queries, c->size);
    c->k_at = in_dimension(c->kv_heads, c->keys, c->size);
    c->v_at = in_dimension(c->kv_heads, c->keys, c->v_size);
    c->y_at = in_dimension(c->heads, c->queries, c->v_size);
}

/* The sizes, and where elements are, if there are any. */
static tutti__attention attention_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti_shape scores = scores_of(p, p->shape);
    const tutti_tensor *mask = p->sources[MASK];
    tutti__attention c = {.dropout = a->dropout,
                          .call = a->call,
                          .causal = a->causal,
                          .first_head = a->first_head,
                          .all_heads = a->all_heads};

    (a->heads ? place_columns : place_dimensions)(&c, p, p->shape);
    c.scale =
        a->scale != 0 ? (float)tutti__or((double)a->scale, 0) : (float)(1 / sqrt((double)c.size));
    c.diagonal = a->lower_right ? c.keys - c.queries : 0;
    if (mask) {
        c.mask_at = tutti__broadcast_of(mask->shape, scores);
        c.mask_step = mask->shape.n > 0 && mask->shape.d[mask->shape.n - 1] > 1;
    }
    if (!p->src)
        return c;
    c.q = p->src[Q];
    c.k = a->packed ? c.q + c.heads * c.size : p->src[K];
    c.v = a->packed ? c.k + c.kv_heads * c.size : p->src[V];
    c.mask = p->src[MASK];
    c.y = p->y;
    c.lse = p->kept;
    c.dy = p->dy;
    if (p->dsrc) {
        c.dq = p->dsrc[Q];
        c.dk = a->packed && c.dq ? c.dq + c.heads * c.size : p->dsrc[K];
        c.dv = a->packed && c.dk ? c.dk + c.kv_heads * c.size : p->dsrc[V];
    }
    return c;
}

static int64_t keeps(const tutti_op_args *p)
{
    const tutti__attention c = attention_of(p);

    return c.batch * c.heads * c.queries;
}

void tutti__attention_dropout(const tutti_ctx *cx, const tutti__attention *a, int64_t row,
                              int64_t from, float *factor, int64_t n)
{
    const float scale = a->dropout < 1 ? 1 / (1 - a->dropout) : 0;
    const int64_t h = row / a->queries, others = a->all_heads > 0 ? a->all_heads - a->heads : 0;
    const int64_t whole_row = row + (h / a->heads * others + a->first_head) * a->queries;
    const int64_t block = whole_row * ((a->keys + 3) / 4) + from / 4;
    const tutti__philox_counter counter = {
        {(uint32_t)cx->step, (uint32_t)cx->shard, a->call, (uint32_t)block}};
    uint32_t words[256];

    for (int64_t i = 0; i < n; i += 256) {
        const int64_t some = n - i < 256 ? n - i : 256;
        tutti__philox_counter at = counter;

        at.v[3] += (uint32_t)(i / 4);
        tutti__philox_fill(cx->seed, at, 3, words, (size_t)some);
        for (int64_t k = 0; k < some; k++)
            factor[i + k] = tutti__unit_float(words[k]) < a->dropout ? 0 : scale;
    }
}

/* ---- Plain C: row by row ----------------------------------------------------------------------------------- */

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

/* ---- By a kernel, if there is one ---------------------------------------------------------------------------- */

/* Memory of the kernel; NULL: there is none. */
static void *work_of(const tutti_op_args *p)
{
    return ((const tutti__node *)p->internal)->saved[1];
}

static void forward(const tutti_op_args *p)
{
    plain_attention w = {.c = attention_of(p), .cx = p->cx};

    if (work_of(p)) {
        (void)p->cx->f32_kernels->attention_forward(p->cx, &w.c, work_of(p));
        return;
    }
    tutti_op_parallel(p, forward_row, &w, w.c.batch * w.c.heads * w.c.queries);
}

static void backward(const tutti_op_args *p)
{
    plain_attention w = {.c = attention_of(p), .cx = p->cx, .dmask = p->dsrc[MASK]};
    const int64_t heads = w.c.batch * w.c.kv_heads;

    if (work_of(p) && !w.dmask) {
        (void)p->cx->f32_kernels->attention_backward(p->cx, &w.c, work_of(p));
        return;
    }
    if (!w.dmask) {
        tutti_op_parallel(p, backward_head, &w, heads);
        return;
    }
    /* heads may share elements of the mask */
    memset(w.dmask, 0, (size_t)tutti_shape_count(p->sources[MASK]->shape) * sizeof *w.dmask);
    for (int64_t i = 0; i < heads; i++)
        backward_head(&w, i);
}

static tutti_status device_forward(const tutti_op_args *p)
{
    const tutti__attention c = attention_of(p);

    return p->cx->f32_kernels->attention_forward(p->cx, &c, NULL);
}

/* dmask = dscores, summed where the mask is broadcast. */
static tutti_status device_mask_gradient(const tutti_op_args *p, const tutti__attention *c)
{
    tutti_ctx *cx = p->cx;
    tutti_tensor *mask = p->sources[MASK];
    tutti_tensor *dscores = tutti__tensor_new(cx, scores_of(p, p->shape), TUTTI_F32);
    tutti_tensor *dmask = tutti__tensor_new(cx, mask->shape, TUTTI_F32);
    const tutti__formula_args expand = {.formula = TUTTI__FORMULA_expand, .n_src = 1, .src = &mask};

    if (!dscores || !dmask)
        return TUTTI_ERR_MEMORY;
    dscores->data = c->dscores;
    dscores->shared = true;
    TUTTI_TRY(cx->f32_kernels->elementwise_backward(&dmask, dscores, dscores, &expand));
    return tutti__copy(cx->stream, p->dsrc[MASK], dmask->data, tutti__tensor_bytes(dmask));
}

static tutti_status device_backward(const tutti_op_args *p)
{
    tutti__attention c = attention_of(p);

    if (p->dsrc[MASK]) {
        c.dscores = tutti__step_memory(
            p->cx, (size_t)(c.batch * c.heads * c.queries * c.keys) * sizeof(float) + 1);
        if (!c.dscores)
            return TUTTI_ERR_MEMORY;
    }
    TUTTI_TRY(p->cx->f32_kernels->attention_backward(p->cx, &c, NULL));
    return p->dsrc[MASK] ? device_mask_gradient(p, &c) : TUTTI_OK;
}

/* Runs `function`, which calls the plain C above, with the kernel's memory. */
static tutti_status with_work(tutti__node *n, tutti_status (*function)(tutti__node *n))
{
    const tutti__kernels *k = n->cx->f32_kernels;
    const tutti_op_args p = tutti__op_args(n);
    const tutti__attention c = attention_of(&p);

    n->saved[1] = NULL;
    if (k->attention_work) {
        n->saved[1] = tutti__operation_memory(n->cx, k->attention_work(n->cx, &c));
        if (!n->saved[1])
            return TUTTI_ERR_MEMORY;
    }
    return function(n);
}

static tutti_status node_forward(tutti__node *n)
{
    return with_work(n, tutti__plain_forward);
}

static tutti_status node_backward(tutti__node *n)
{
    return with_work(n, tutti__plain_backward);
}

/* ---- The operations ---------------------------------------------------------------------------------------- */

#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = shape,                                                                  \
                  .forward = forward,                                                              \
                  .backward = backward,                                                            \
                  .keeps = keeps,                                                                  \
                  .backward_reads = 1 << Q | 1 << K | 1 << V | 1 << MASK | TUTTI_OP_RESULT,        \
                  .activations = 1 << Q | 1 << K | 1 << V,                                         \
                  .autocast = TUTTI_OP_LOW},                                                       \
        .forward = node_forward, .backward = node_backward, .device_forward = device_forward,      \
        .device_backward = device_backward                                                         \
    }

/* x with those leading dimensions, of which it has some; its own heads if they share keys. */
static tutti_tensor *with_leading(tutti_tensor *x, tutti_shape leading, bool own_heads)
{
    tutti_shape wanted = leading;
    const int missing = leading.n + 2 - x->shape.n;

    if (own_heads && leading.n > 0 && x->shape.n > 2)
        wanted.d[leading.n - 1] = heads_in(x->shape);
    wanted.d[wanted.n++] = x->shape.d[x->shape.n - 2];
    wanted.d[wanted.n++] = x->shape.d[x->shape.n - 1];
    for (int i = 0; i < leading.n; i++)
        if (i >= missing && x->shape.d[i - missing] != 1 && x->shape.d[i - missing] != wanted.d[i])
            return x; /* refused by the shape rule */
    return tutti_shape_equal(x->shape, wanted) ? x : tutti_expand(x, wanted);
}

/* Broadcasts the leading dimensions of those that are [..,L,D]. */
static void broadcast_leading(tutti_tensor **src, bool grouped)
{
    tutti_shape leading = {0};

    for (int i = Q; i <= V; i++) {
        if (!src[i] || tutti_tensor_status(src[i]) != TUTTI_OK || src[i]->shape.n < 2)
            return;
        leading.n = src[i]->shape.n - 2 > leading.n ? src[i]->shape.n - 2 : leading.n;
    }
    for (int at = 0; at < leading.n; at++) {
        leading.d[at] = 1;
        for (int i = Q; i <= V; i++) {
            const int k = at - (leading.n + 2 - src[i]->shape.n);

            if (k >= 0 && leading.d[at] == 1)
                leading.d[at] = src[i]->shape.d[k];
        }
    }
    for (int i = Q; i <= V; i++)
        src[i] = with_leading(src[i], leading, grouped);
}

/* The mask as F32 that is added: 0 where integers are not 0, else -infinity. */
static tutti_tensor *added_mask(tutti_tensor *mask)
{
    if (mask && mask->dtype == TUTTI_I64)
        return tutti_functional_log(tutti_ne_scalar(mask, 0));
    return mask ? tutti_cast(mask, TUTTI_F32) : NULL;
}

/* Of the options, that of the other of the two functions is refused. */
static tutti_tensor *refused(tutti_ctx *cx, const char *name, const char *option, int value,
                             const char *remedy)
{
    return tutti__poisoned(cx, tutti__fail(TUTTI_ERR_ARG, "%s: %s is %d and has no effect here; %s",
                                           name, option, value, remedy));
}

/* src: q, k, v; a: what is not in the options. */
static tutti_tensor *run(const tutti__op *op, tutti_tensor **src, attributes a,
                         const tutti_attention_opts *opts)
{
    tutti_ctx *cx = tutti__context_of(op->plain.name, src, MASK);
    const tutti_attention_opts o = opts ? *opts : (tutti_attention_opts){0};

    if (!cx)
        return NULL;
    if (TUTTI__CHECK_RESERVED(tutti_attention_opts, opts) != TUTTI_OK)
        return tutti__poisoned(cx, TUTTI_ERR_ARG);
    if (o.first_head < 0 || o.all_heads < 0 || (o.first_head > 0 && o.first_head >= o.all_heads))
        return tutti__poisoned(
            cx,
            tutti__fail(TUTTI_ERR_ARG,
                        "%s: first_head is %d of all_heads %d; expected one of them, or 0 and 0",
                        op->plain.name, o.first_head, o.all_heads));
    if (!cx->device_ops->is_host && a.heads > 0 && o.all_heads > 0 && o.all_heads != a.heads)
        return tutti__poisoned(cx,
                               tutti__fail(TUTTI_ERR_UNSUPPORTED,
                                           "%s: heads can be divided among ranks on the CPU only",
                                           op->plain.name));
    a.causal = o.is_causal || o.causal_lower_right;
    a.lower_right = o.causal_lower_right;
    a.scale = o.scale;
    a.first_head = o.first_head;
    a.all_heads = o.all_heads;
    a.dropout = cx->eval && o.dropout_p >= 0 && o.dropout_p <= 1 ? 0 : o.dropout_p;
    a.call = a.dropout > 0 ? cx->dropout_calls++ : 0;
    src[MASK] = added_mask(o.attn_mask);
    return tutti__op_run(op, src, SOURCES, &a, sizeof a);
}

tutti_tensor *tutti_scaled_dot_product_attention(tutti_tensor *q, tutti_tensor *k, tutti_tensor *v,
                                                 const tutti_attention_opts *opts)
{
    static const tutti__op op = OP("scaled_dot_product_attention");
    const attributes a = {.grouped = opts && opts->enable_gqa};
    tutti_tensor *src[SOURCES] = {q, k, v};

    if (q && opts && opts->kv_heads)
        return refused(q->cx, op.plain.name, "kv_heads", opts->kv_heads,
                       "k's heads are a dimension of k: leave it 0, and set enable_gqa if they are "
                       "fewer than q's");
    broadcast_leading(src, a.grouped);
    return run(&op, src, a, opts);
}

tutti_tensor *tutti_multi_head_attention(tutti_tensor *q, tutti_tensor *k, tutti_tensor *v,
                                         int heads, const tutti_attention_opts *opts)
{
    static const tutti__op op = OP("multi_head_attention");
    const attributes a = {.heads = heads,
                          .kv_heads = opts && opts->kv_heads ? opts->kv_heads : heads,
                          .packed = !k && !v};

    if (q && opts && opts->enable_gqa)
        return refused(q->cx, op.plain.name, "enable_gqa", 1,
                       "give the number of heads of k and v as kv_heads");
    if (q && (heads < 1 || a.kv_heads < 1 || heads % a.kv_heads != 0))
        return tutti__poisoned(
            q->cx, tutti__fail(TUTTI_ERR_ARG,
                               "multi_head_attention: %d heads and %d kv_heads, expected at least "
                               "1 of each, and heads a multiple of kv_heads",
                               heads, a.kv_heads));
    return run(&op, (tutti_tensor *[SOURCES]){q, k, v}, a, opts);
}
