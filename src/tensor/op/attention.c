/* attention.c -- softmax(scale q k^T + mask) v: scaled_dot_product_attention, and multi_head_attention, whose heads are columns.
 * SPDX-License-Identifier: MIT
 *   q [..,H,L,D]   k [..,Hkv,S,D]   v [..,Hkv,S,Dv]   mask, broadcast to [..,H,L,S], or NULL   ->   y [..,H,L,Dv]
 *   q [N,L,H*D]    k [N,S,Hkv*D]    v [N,S,Hkv*Dv]    the same                                 ->   y [N,L,H*Dv]
 *   q [N,L,(H+2*Hkv)*D] alone: queries, keys and values
 * Forward, p = softmax(s), s = scale q k^T + mask: y = p v; kept: log sum exp s of each row. With dropout the p of y are dropped, and
 * those below where they meet v or dy.
 * Backward: p = exp(s - kept), dv = p^T dy, dp = dy v^T, ds = p (dp - sum(dy y)), dmask = ds, dq = scale ds k, dk = scale ds^T q */
#include "tensor/attention.h"
#include "tensor/op/plain_attention.h"

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

static const float *behind(const float *p, int64_t n, tutti_dtype dtype)
{
    return p ? (const float *)(const void *)((const char *)p + (size_t)n * tutti_dtype_size(dtype))
             : NULL;
}

/* The sizes, and where elements, of that dtype, are, if there are any. */
static tutti__attention attention_of(const tutti_op_args *p, tutti_dtype dtype)
{
    const attributes *a = p->attributes;
    const tutti_shape scores = scores_of(p, p->shape);
    const tutti_tensor *mask = p->sources[MASK];
    tutti__attention c = {.dtype = dtype,
                          .dropout = a->dropout,
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
    c.k = a->packed ? behind(c.q, c.heads * c.size, dtype) : p->src[K];
    c.v = a->packed ? behind(c.k, c.kv_heads * c.size, dtype) : p->src[V];
    c.mask = p->src[MASK];
    c.y = p->y;
    c.lse = p->kept;
    c.dy = p->dy;
    if (p->dsrc) {
        c.dq = p->dsrc[Q];
        c.dk = a->packed ? (float *)(uintptr_t)behind(c.dq, c.heads * c.size, dtype) : p->dsrc[K];
        c.dv =
            a->packed ? (float *)(uintptr_t)behind(c.dk, c.kv_heads * c.size, dtype) : p->dsrc[V];
    }
    return c;
}

static int64_t keeps(const tutti_op_args *p)
{
    const tutti__attention c = attention_of(p, TUTTI_F32);

    return c.batch * c.heads * c.queries;
}

void tutti__attention_dropout(const tutti_ctx *cx, const tutti__attention *a, int64_t row,
                              int64_t from, float *factor, int64_t n)
{
    const float scale = a->dropout < 1 ? 1 / (1 - a->dropout) : 0;
    const int64_t whole_row = tutti__attention_whole_row(a, row);
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

/* ---- By a kernel, if there is one ---------------------------------------------------------------------------- */

/* Memory of the kernel; NULL: there is none. */
static void *work_of(const tutti_op_args *p)
{
    return ((const tutti__node *)p->internal)->saved[1];
}

static void forward(const tutti_op_args *p)
{
    const tutti__attention c = attention_of(p, TUTTI_F32);

    if (work_of(p))
        (void)p->cx->f32_kernels->attention_forward(p->cx, &c, work_of(p));
    else
        tutti__plain_attention_forward(p, &c);
}

static void backward(const tutti_op_args *p)
{
    const tutti__attention c = attention_of(p, TUTTI_F32);
    float *dmask = p->dsrc[MASK];

    if (work_of(p) && !dmask) {
        (void)p->cx->f32_kernels->attention_backward(p->cx, &c, work_of(p));
        return;
    }
    if (dmask)
        memset(dmask, 0, (size_t)tutti_shape_count(p->sources[MASK]->shape) * sizeof *dmask);
    tutti__plain_attention_backward(p, &c, dmask);
}

static tutti_status device_forward(const tutti_op_args *p)
{
    const tutti__attention c = attention_of(p, TUTTI_F32);

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
    tutti__attention c = attention_of(p, TUTTI_F32);

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
    const tutti__attention c = attention_of(&p, TUTTI_F32);

    n->saved[1] = NULL;
    if (k->attention_work) {
        n->saved[1] = tutti__operation_memory(n->cx, k->attention_work(n->cx, &c));
        if (!n->saved[1])
            return TUTTI_ERR_MEMORY;
    }
    return function(n);
}

/* ---- In 16 bit, by a kernel that computes in it --------------------------------------------------------------------- */

/* The arguments for elements in the tensors' own dtype; src has room for SOURCES. */
static tutti_status own_args(tutti__node *n, const void **src, tutti_op_args *p)
{
    *p = tutti__op_args(n);
    for (int i = 0; i < SOURCES; i++) {
        src[i] = NULL;
        if (n->src[i])
            TUTTI_TRY(tutti__tensor_row_major(n->src[i], &src[i]));
    }
    p->src = src;
    p->kept = n->saved[0];
    return TUTTI_OK;
}

/* The kernel's memory for c; NULL: it has no arithmetic in this dtype, or *status_p is not OK. */
static void *own_work(tutti__node *n, const tutti__attention *c, tutti_status *status_p)
{
    const size_t bytes = n->cx->f32_kernels->attention_work(n->cx, c);
    void *work = bytes > 0 ? tutti__operation_memory(n->cx, bytes) : NULL;

    *status_p = bytes > 0 && !work ? TUTTI_ERR_MEMORY : TUTTI_OK;
    return work;
}

static bool may_be_own(const tutti__node *n)
{
    const tutti_dtype dtype = n->dst->dtype;

    if (!tutti__is_half(dtype) || !n->cx->device_ops->is_host ||
        !n->cx->f32_kernels->attention_work)
        return false;
    for (int i = Q; i <= V; i++)
        if (n->src[i] && n->src[i]->dtype != dtype)
            return false;
    return true;
}

/* *done_p: whether a kernel did it. */
static tutti_status own_forward(tutti__node *n, bool *done_p)
{
    const void *src[SOURCES];
    tutti__attention c;
    tutti_op_args p;
    tutti_status status;
    void *work;

    *done_p = false;
    TUTTI_TRY(own_args(n, src, &p));
    c = attention_of(&p, n->dst->dtype);
    work = own_work(n, &c, &status);
    if (!work)
        return status;
    if (!n->saved[0])
        n->saved[0] = tutti__step_alloc(n->cx, (size_t)keeps(&p) * sizeof(float) + 1);
    if (!n->saved[0])
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    c.y = n->dst->data;
    c.lse = n->saved[0];
    *done_p = true;
    return n->cx->f32_kernels->attention_forward(n->cx, &c, work);
}

static tutti_status own_backward(tutti__node *n, bool *done_p)
{
    const void *src[SOURCES], *y, *dy;
    float *dsrc[SOURCES] = {NULL};
    tutti_tensor *gradient[SOURCES] = {NULL};
    tutti__attention c;
    tutti_op_args p;
    tutti_status status;
    void *work;

    *done_p = false;
    TUTTI_TRY(own_args(n, src, &p));
    TUTTI_TRY(tutti__tensor_row_major(n->dst, &y));
    TUTTI_TRY(tutti__tensor_row_major(n->dst->grad, &dy));
    p.y = (float *)(uintptr_t)y; /* only read */
    p.dy = dy;
    c = attention_of(&p, n->dst->dtype);
    work = own_work(n, &c, &status);
    if (!work)
        return status;
    for (int i = Q; i <= V; i++) {
        if (!n->src[i])
            continue;
        TUTTI_TRY(tutti__grad_of(n, i, &gradient[i]));
        if (gradient[i])
            TUTTI_TRY(tutti__tensor_alloc(gradient[i], NULL));
        dsrc[i] = gradient[i] ? gradient[i]->data : NULL;
    }
    p.dsrc = dsrc;
    c = attention_of(&p, n->dst->dtype);
    *done_p = true;
    return n->cx->f32_kernels->attention_backward(n->cx, &c, work);
}

static tutti_status node_forward(tutti__node *n)
{
    bool done = false;

    if (may_be_own(n))
        TUTTI_TRY(own_forward(n, &done));
    return done ? TUTTI_OK : with_work(n, tutti__plain_forward);
}

static tutti_status node_backward(tutti__node *n)
{
    bool done = false;

    if (may_be_own(n) && !n->wants_grad[MASK])
        TUTTI_TRY(own_backward(n, &done));
    return done ? TUTTI_OK : with_work(n, tutti__plain_backward);
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
