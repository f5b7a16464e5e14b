/* plain.c -- operations by their own plain C, in any dtype and layout and on any device.   SPDX-License-Identifier: MIT
 *
 * An operation's functions for a device's memory get the same there: what they read is converted by the device's kernels.
 *
 * Sources are passed as F32, row-major, in host memory; others are converted by the kernels' reorder, the device's copy, and
 * the 16-bit conversions, and results are converted back. On the CPU in F32 nothing is copied. An elementwise operation takes
 * its elements in the order in memory, if all tensors have the same layout, without padding unless zeros stay zeros; then a blocked layout is kept. Its
 * parts are computed by the context's threads, with the same bits for any number of them; elements of 16 bit are converted, and those of lazy tensors
 * computed, in pieces of these, which stay in the cache. Sources that are broadcast are expanded part by part; their gradients are computed in the
 * result's shape, then summed. */
#include "tensor/broadcast.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

#define PART       ((int64_t)1 << 14) /* elements per job */
#define PIECE      ((int64_t)2048)    /* of them, if any have 16 bit or are lazy */
#define MAX_COPIES (6 * TUTTI_OP_MAX_SOURCES + 8)

typedef void plain_function(const tutti_op_args *p);

/* A running operation. Members below the line are valid only where those above say so: clearing them would take longer than many an
 * operation. */
typedef struct work {
    tutti_ctx *cx;
    tutti__node *n;
    tutti_op_args p;             /* over the arrays below */
    const tutti__layout *layout; /* of all its tensors; NULL: row-major */
    bool by_device;              /* pointers are the device's */
    int n_copies, n_scratch;
    const void *src[TUTTI_OP_MAX_SOURCES];
    float *dsrc[TUTTI_OP_MAX_SOURCES];
    bool is_broadcast[TUTTI_OP_MAX_SOURCES];
    /* ---- */
    /* Of sources that are broadcast: how, `expanded` floats for each thread, and the gradient that is summed into dsrc. */
    tutti__broadcast broadcast[TUTTI_OP_MAX_SOURCES];
    float *expanded[TUTTI_OP_MAX_SOURCES], *dwide[TUTTI_OP_MAX_SOURCES];
    /* PIECE floats for each thread, of elements that are converted by pieces; else NULL. */
    float *piece[TUTTI_OP_MAX_SOURCES], *dpiece[TUTTI_OP_MAX_SOURCES], *y_piece, *dy_piece;
    tutti_tensor *copies[MAX_COPIES];
    struct {
        void *p;
        size_t bytes;
    } scratch[MAX_COPIES];
} work;

static void work_init(work *w, tutti__node *n)
{
    w->cx = n->cx;
    w->n = n;
    w->p = tutti__op_args(n);
    w->layout = NULL;
    w->by_device = false;
    w->n_copies = w->n_scratch = 0;
    for (int i = 0; i < n->n_src; i++) {
        w->src[i] = NULL;
        w->dsrc[i] = w->dwide[i] = NULL;
        w->is_broadcast[i] = false;
    }
}

bool tutti__plain_reads_lazy(const tutti__node *n, const tutti_tensor *t)
{
    return t->lazy && t->lazy->read && !t->data && n->op->plain.elementwise && !n->op->forward &&
           !n->op->backward && t->dtype == TUTTI_F32 && t->cx->device_ops->is_host &&
           tutti_shape_equal(t->shape, n->dst->shape);
}

/* Whether the elements are where the functions read and write them. */
static bool in_place(const work *w)
{
    return w->by_device || w->cx->device_ops->is_host;
}

/* Whether a source's elements are computed by pieces; it has no memory then. */
static bool is_computed(const work *w, const tutti_tensor *t)
{
    return t->layout == w->layout && tutti__plain_reads_lazy(w->n, t);
}

/* Whether t's elements are converted by pieces: `see` and `place` give its own memory then. */
static bool by_pieces(const work *w, const tutti_tensor *t)
{
    return w->n->op->plain.elementwise && w->cx->device_ops->is_host && !w->by_device &&
           tutti__is_half(t->dtype) && tutti_shape_equal(t->shape, w->n->dst->shape);
}

/* ---- Memory ------------------------------------------------------------------------------------ */

/* A temporary tensor of this operation. */
static tutti_status copy_new(work *w, tutti_shape shape, tutti_dtype dtype, tutti_tensor **copy_p)
{
    tutti_tensor *t = tutti__tensor_new(w->cx, shape, dtype);

    if (!t)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(t, NULL));
    w->copies[w->n_copies++] = *copy_p = t;
    return TUTTI_OK;
}

/* Host memory for `shape`. */
static tutti_status host_memory(work *w, tutti_shape shape, tutti_dtype dtype, void **p_p)
{
    const size_t bytes = (size_t)tutti_shape_count(shape) * tutti_dtype_size(dtype);
    void *p = tutti__scratch_take(w->cx, bytes);

    if (!p)
        return TUTTI_ERR_MEMORY;
    w->scratch[w->n_scratch].p = *p_p = p;
    w->scratch[w->n_scratch++].bytes = bytes;
    return TUTTI_OK;
}

static void give_back(work *w)
{
    for (int i = 0; i < w->n_copies; i++)
        tutti__tensor_release(w->copies[i]);
    for (int i = 0; i < w->n_scratch; i++)
        tutti__scratch_give(w->cx, w->scratch[i].p, w->scratch[i].bytes);
}

/* ---- Conversion of sources and results -------------------------------------------------------------------------------- */

/* A temporary tensor with the elements of t, row-major, in another dtype. */
static tutti_status cast_of(work *w, tutti_tensor *t, const void *elements, tutti_dtype dtype,
                            const void **p_p)
{
    tutti_tensor from = *t, *to = tutti__tensor_new(w->cx, t->shape, dtype);

    if (!to)
        return TUTTI_ERR_MEMORY;
    from.layout = NULL;
    from.data = (void *)(uintptr_t)elements;
    w->copies[w->n_copies++] = to;
    TUTTI_TRY(w->cx->kernels->cast(to, &from));
    return tutti__tensor_row_major(to, p_p);
}

/* t's elements in w's layout, F32 unless integers; on the host, or by_device. */
static tutti_status see(work *w, tutti_tensor *t, const void **p_p)
{
    const size_t count = (size_t)tutti_shape_count(t->shape);
    void *p;

    if (is_computed(w, t)) {
        *p_p = t; /* instead */
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti__tensor_compute(t));
    p = t->data;
    if (t->layout != w->layout) {
        tutti_tensor *copy;

        TUTTI_TRY(copy_new(w, t->shape, t->dtype, &copy));
        TUTTI_TRY(w->cx->kernels->reorder(copy, t));
        p = copy->data;
    }
    if (w->by_device && tutti__is_half(t->dtype))
        return cast_of(w, t, p, TUTTI_F32, p_p);
    if (t->host && !w->by_device) {
        p = (void *)t->host; /* only read */
    } else if (!in_place(w)) {
        const void *device = p;

        TUTTI_TRY(host_memory(w, t->shape, t->dtype, &p));
        TUTTI_TRY(tutti__read(w->cx->stream, p, device, tutti__tensor_bytes(t)));
    }
    if (tutti__is_half(t->dtype) && !by_pieces(w, t)) {
        const uint16_t *half = p;

        TUTTI_TRY(host_memory(w, t->shape, TUTTI_F32, &p));
        if (!w->cx->device_ops->plans)
            tutti__half_to_f32(p, half, count, t->dtype);
    }
    *p_p = p;
    return TUTTI_OK;
}

/* Memory in which result t is computed. `read`: a tensor whose device memory is not needed any more, since the host has a copy;
 * NULL: none. */
static tutti_status place(work *w, tutti_tensor *t, tutti_tensor *read, float **p_p)
{
    void *p;

    if (w->by_device && t->dtype != TUTTI_F32) { /* `put` gives it memory */
        tutti_tensor *wide;

        TUTTI_TRY(copy_new(w, t->shape, TUTTI_F32, &wide));
        *p_p = wide->data;
        return TUTTI_OK;
    }
    if (!in_place(w) && read && read->data && !read->layout && read->dtype == t->dtype &&
        tutti_shape_equal(read->shape, t->shape))
        TUTTI_TRY(tutti__tensor_take(t, read));
    else
        TUTTI_TRY(tutti__tensor_alloc(t, w->layout));
    if (by_pieces(w, t) || (in_place(w) && t->dtype == TUTTI_F32))
        p = t->data;
    else
        TUTTI_TRY(host_memory(w, t->shape, TUTTI_F32, &p));
    *p_p = p;
    return TUTTI_OK;
}

/* The same for integers, which stay readable on the host, unless the device computes them: op.c reads them if it needs to. */
static tutti_status place_indices(const work *w, tutti_tensor *t, int64_t **p_p)
{
    const bool is_host = t->cx->device_ops->is_host;

    TUTTI_TRY(tutti__tensor_alloc(t, NULL));
    if (w->by_device) {
        *p_p = t->data;
        return TUTTI_OK;
    }
    *p_p = is_host ? t->data : tutti__step_alloc(t->cx, tutti__tensor_bytes(t) + 1);
    t->host = *p_p;
    return *p_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* Stores what was computed for t. */
static tutti_status put(work *w, tutti_tensor *t, const void *computed)
{
    const size_t count = (size_t)tutti_shape_count(t->shape);
    const void *from = computed;

    if (w->by_device) {
        tutti_tensor wide = *t;

        wide.dtype = TUTTI_F32;
        wide.data = (void *)(uintptr_t)computed;
        return tutti__is_half(t->dtype) ? w->cx->kernels->cast(t, &wide) : TUTTI_OK;
    }
    if (by_pieces(w, t))
        return TUTTI_OK;
    if (tutti__is_half(t->dtype)) {
        void *half = t->data;

        if (!in_place(w))
            TUTTI_TRY(host_memory(w, t->shape, t->dtype, &half));
        if (!w->cx->device_ops->plans)
            tutti__half_from_f32(half, computed, count, t->dtype);
        from = half;
    }
    return in_place(w) ? TUTTI_OK
                       : tutti__copy_in(w->cx->stream, t->data, from, tutti__tensor_bytes(t));
}

/* ---- Layouts ----------------------------------------------------------------------------------- */

/* Whether t can be taken in memory order: it has the layout of the tensors before it. */
static bool lies_alike(const work *w, const tutti_tensor *y, const tutti_tensor *t)
{
    return t->layout == w->layout && t->dtype == y->dtype && tutti_shape_equal(t->shape, y->shape);
}

/* The common layout of all that an elementwise operation reads, if there is one. */
static const tutti__layout *common_layout(work *w, unsigned reads, tutti_tensor *dy)
{
    const tutti__node *n = w->n;
    const tutti_tensor *y = n->dst;
    bool alike = n->op->plain.elementwise && w->cx->device_ops->is_host;

    w->layout = dy ? dy->layout : n->src[0] ? n->src[0]->layout : NULL;
    if (!alike || !w->layout ||
        (w->layout->bytes != tutti__tensor_bytes(y) &&
         !(n->op->keeps_zeros && y->dtype == TUTTI_F32)))
        return NULL;
    for (int i = 0; i < n->n_src && alike; i++)
        if (n->src[i] && tutti__source_in(reads, i))
            alike = lies_alike(w, y, n->src[i]);
        else if (n->src[i]) /* its gradient will have that layout */
            alike = n->src[i]->dtype == y->dtype && tutti_shape_equal(n->src[i]->shape, y->shape);
    if (dy && (reads & TUTTI_OP_RESULT))
        alike = alike && lies_alike(w, y, y);
    return alike ? w->layout : NULL;
}

/* All that is in its memory, padding included. */
static void take_layout(work *w, const tutti__layout *layout)
{
    w->layout = layout;
    if (layout)
        w->p.count = (int64_t)(layout->bytes / tutti_dtype_size(w->n->dst->dtype));
}

/* ---- Sources that are broadcast ------------------------------------------------------------------ */

static tutti_status check_elementwise(const tutti__node *n)
{
    if (n->op->plain.keeps)
        return tutti__fail(TUTTI_ERR_INTERNAL,
                           "the operation is declared elementwise, but keeps floats for backward, "
                           "which has no place for each part");
    if (n->dst->dtype == TUTTI_I64)
        return tutti__fail(TUTTI_ERR_INTERNAL,
                           "the operation is declared elementwise, but its result is I64");
    for (int i = 0; i < n->n_src; i++) {
        const tutti_tensor *t = n->src[i];
        bool fits = !t || (t->dtype != TUTTI_I64 && t->shape.n <= n->dst->shape.n);

        for (int k = 1; t && fits && k <= t->shape.n; k++)
            fits = t->shape.d[t->shape.n - k] == 1 ||
                   t->shape.d[t->shape.n - k] == n->dst->shape.d[n->dst->shape.n - k];
        if (!fits)
            return tutti__fail(TUTTI_ERR_INTERNAL,
                               "the operation is declared elementwise, but source %d is %s %s and "
                               "its result F32 %s",
                               i, tutti_dtype_name(t->dtype), tutti__shape_text(t->shape),
                               tutti__shape_text(n->dst->shape));
    }
    return TUTTI_OK;
}

/* Memory of each thread for a part of each source that is read, `reads`, and is broadcast. */
static tutti_status prepare_broadcasts(work *w, unsigned reads)
{
    const tutti__node *n = w->n;
    const tutti_shape part = TUTTI_SHAPE(w->cx->threads, PART);

    if (!n->op->plain.elementwise)
        return TUTTI_OK;
    TUTTI_TRY(check_elementwise(n));
    for (int i = 0; i < n->n_src; i++) {
        if (!n->src[i] || tutti_shape_equal(n->src[i]->shape, n->dst->shape))
            continue;
        w->broadcast[i] = tutti__broadcast_of(n->src[i]->shape, n->dst->shape);
        w->is_broadcast[i] = w->broadcast[i].narrow != w->broadcast[i].wide;
        if (w->is_broadcast[i] && tutti__source_in(reads, i)) {
            void *p;

            TUTTI_TRY(host_memory(w, part, TUTTI_F32, &p));
            w->expanded[i] = p;
        }
    }
    return TUTTI_OK;
}

/* ---- Running ----------------------------------------------------------------------------------- */

typedef struct parts {
    work *w;
    plain_function *function;
    int64_t step; /* elements at a time */
} parts;

/* The elements of an operand from `from` on, of 16 bit in `piece`, if there is one. */
static float *elements_at(void *p, float *piece, int member, int64_t from)
{
    if (!p)
        return NULL;
    return piece ? piece + member * PIECE : (float *)p + from;
}

static void widen(const void *p, float *to, int64_t from, int64_t count, tutti_dtype dtype)
{
    tutti__half_to_f32(to, (const uint16_t *)p + from, (size_t)count, dtype);
}

static void narrow(void *p, const float *piece, int64_t from, int64_t count, tutti_dtype dtype)
{
    tutti__half_from_f32((uint16_t *)p + from, piece, (size_t)count, dtype);
}

/* The source's elements, expanded, converted or in place. */
static const void *read_source(work *w, int k, int member, int64_t from, int64_t count)
{
    float *to;

    if (!w->src[k])
        return NULL;
    if (w->is_broadcast[k]) {
        to = w->expanded[k] + member * PART;
        tutti__broadcast_read(&w->broadcast[k], to, w->src[k], from, count);
        return to;
    }
    to = elements_at((void *)(uintptr_t)w->src[k], w->piece[k], member, from);
    if (w->piece[k] && is_computed(w, w->n->src[k]))
        w->n->src[k]->lazy->read(w->n->src[k], from, count, to);
    else if (w->piece[k])
        widen(w->src[k], to, from, count, w->n->src[k]->dtype);
    return to;
}

static void run_piece(const parts *t, int64_t from, int64_t count, int member)
{
    work *w = t->w;
    const tutti_dtype dtype = w->n->dst->dtype;
    const void *src[TUTTI_OP_MAX_SOURCES];
    float *dsrc[TUTTI_OP_MAX_SOURCES];
    tutti_op_args p = w->p;
    const bool backward = p.dsrc != NULL;

    p.count = count;
    for (int k = 0; k < p.n_src; k++) {
        src[k] = read_source(w, k, member, from, count);
        dsrc[k] =
            elements_at(w->is_broadcast[k] ? w->dwide[k] : w->dsrc[k], w->dpiece[k], member, from);
    }
    p.src = src;
    p.dsrc = backward ? dsrc : NULL;
    p.y = elements_at(w->p.y, w->y_piece, member, from);
    p.dy = elements_at((void *)(uintptr_t)w->p.dy, w->dy_piece, member, from);
    if (w->dy_piece)
        widen(w->p.dy, w->dy_piece + member * PIECE, from, count, dtype);
    if (w->y_piece && backward)
        widen(w->p.y, p.y, from, count, dtype);
    t->function(&p);
    if (w->y_piece && !backward)
        narrow(w->p.y, p.y, from, count, dtype);
    for (int k = 0; backward && k < p.n_src; k++)
        if (w->dpiece[k])
            narrow(w->dsrc[k], dsrc[k], from, count, w->n->src[k]->dtype);
}

static void part_job(void *arg, int64_t i, int member)
{
    const parts *t = arg;
    const int64_t from = i * PART, count = t->w->p.count;
    const int64_t end = from + PART < count ? from + PART : count;

    for (int64_t at = from; at < end; at += t->step)
        run_piece(t, at, at + t->step < end ? t->step : end - at, member);
}

/* Memory for a piece of each thread, if the tensor whose elements are at p needs it. */
static tutti_status piece_for(work *w, bool needs, const void *p, float **piece_p, bool *any_p)
{
    void *piece;

    *piece_p = NULL;
    if (!p || !needs)
        return TUTTI_OK;
    TUTTI_TRY(host_memory(w, TUTTI_SHAPE(w->cx->threads, PIECE), TUTTI_F32, &piece));
    *piece_p = piece;
    *any_p = true;
    return TUTTI_OK;
}

static tutti_status prepare_pieces(work *w, bool *any_p)
{
    const tutti__node *n = w->n;

    *any_p = false;
    for (int i = 0; i < n->n_src; i++) {
        const tutti_tensor *t = n->src[i];
        const bool half = t && by_pieces(w, t);

        TUTTI_TRY(piece_for(w, half || (t && is_computed(w, t)), w->src[i], &w->piece[i], any_p));
        TUTTI_TRY(piece_for(w, half, w->dsrc[i], &w->dpiece[i], any_p));
    }
    TUTTI_TRY(piece_for(w, by_pieces(w, n->dst), w->p.y, &w->y_piece, any_p));
    return piece_for(w, by_pieces(w, n->dst), w->p.dy, &w->dy_piece, any_p);
}

static tutti_status compute(work *w, plain_function *function)
{
    const tutti__node *n = w->n;
    bool pieces;

    w->p.src = w->src;
    w->p.kept = n->saved[0];
    if (!n->op->plain.elementwise) {
        if (!w->cx->device_ops->plans)
            function(&w->p);
        return TUTTI_OK;
    }
    for (int i = 0; i < n->n_src; i++)
        if (w->is_broadcast[i] && w->dsrc[i]) {
            void *p;

            TUTTI_TRY(host_memory(w, n->dst->shape, TUTTI_F32, &p));
            w->dwide[i] = p;
        }
    TUTTI_TRY(prepare_pieces(w, &pieces));
    tutti__parallel(w->cx, part_job, &(parts){w, function, pieces ? PIECE : PART},
                    (w->p.count + PART - 1) / PART);
    for (int i = 0; i < n->n_src; i++)
        if (w->is_broadcast[i] && w->dsrc[i])
            tutti__broadcast_sum(w->cx, &w->broadcast[i], w->dsrc[i], w->dwide[i]);
    return TUTTI_OK;
}

/* Runs `device`, or where it does not, `function`. */
static tutti_status run(work *w, plain_function *function,
                        tutti_status (*device)(const tutti_op_args *p))
{
    if (!w->by_device)
        return compute(w, function);
    w->p.src = w->src;
    w->p.kept = w->n->saved[0];
    return device(&w->p);
}

/* Whether the operation has such a function, and the kernels what that needs. */
static bool runs_on_device(const work *w, tutti_status (*device)(const tutti_op_args *p))
{
    return device && !w->cx->device_ops->is_host && w->cx->f32_kernels->job;
}

static tutti_status has(const tutti__node *n, plain_function *function)
{
    if (function)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "kernels %s have none, and it has no plain C",
                       n->dst->cx->kernels->name);
}

/* Whether n is computed by a kernel instead. */
static bool has_formula(const tutti__node *n)
{
    return n->op->formula && n->op->plain.elementwise && n->cx->kernels->elementwise_forward;
}

tutti_status tutti__plain_forward(tutti__node *n)
{
    const tutti_op *op = &n->op->plain;
    const tutti__formula_args elements = tutti__node_formula(n);
    work w;

    if (has_formula(n))
        return n->cx->kernels->elementwise_forward(n->dst, &elements);
    work_init(&w, n);
    TUTTI_TRY(has(n, op->forward));
    w.by_device = runs_on_device(&w, n->op->device_forward);
    TUTTI_TRY(prepare_broadcasts(&w, ~0u));
    if (op->keeps && !n->saved[0]) {
        const size_t bytes = (size_t)op->keeps(&w.p) * sizeof(float) + 1;

        n->saved[0] =
            w.by_device ? tutti__step_memory(w.cx, bytes) : tutti__step_alloc(w.cx, bytes);
        if (!n->saved[0])
            return TUTTI_ERR_MEMORY;
    }
    take_layout(&w, common_layout(&w, ~0u, NULL));
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i])
            TUTTI_TRY(see(&w, n->src[i], &w.src[i]));
    if (n->dst->dtype == TUTTI_I64)
        TUTTI_TRY(place_indices(&w, n->dst, &w.p.indices));
    else
        TUTTI_TRY(place(&w, n->dst, NULL, &w.p.y));
    TUTTI_TRY(run(&w, op->forward, n->op->device_forward));
    TUTTI_TRY(put(&w, n->dst, n->dst->dtype == TUTTI_I64 ? n->dst->host : w.p.y));
    give_back(&w);
    return TUTTI_OK;
}

/* Converts what backward reads: dy, and the sources and result in `reads`. */
static tutti_status see_for_backward(work *w, unsigned reads)
{
    const tutti__node *n = w->n;
    const void *p;

    TUTTI_TRY(see(w, n->dst->grad, &p));
    w->p.dy = p;
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && tutti__source_in(reads, i))
            TUTTI_TRY(see(w, n->src[i], &w->src[i]));
    if (reads & TUTTI_OP_RESULT) {
        TUTTI_TRY(see(w, n->dst, &p));
        w->p.y = (float *)p; /* only read */
    }
    return TUTTI_OK;
}

tutti_status tutti__plain_backward(tutti__node *n)
{
    const tutti_op *op = &n->op->plain;
    const tutti__formula_args elements = tutti__node_formula(n);
    work w;
    tutti_tensor *dsrc[TUTTI_OP_MAX_SOURCES] = {NULL};

    if (has_formula(n)) {
        for (int i = 0; i < n->n_src; i++)
            TUTTI_TRY(tutti__grad_of(n, i, &dsrc[i]));
        return n->cx->kernels->elementwise_backward(dsrc, n->dst->grad, n->dst, &elements);
    }
    work_init(&w, n);
    TUTTI_TRY(has(n, op->backward));
    w.by_device = runs_on_device(&w, n->op->device_backward);
    TUTTI_TRY(prepare_broadcasts(&w, op->backward_reads));
    take_layout(&w, common_layout(&w, op->backward_reads, n->dst->grad));
    TUTTI_TRY(see_for_backward(&w, op->backward_reads));
    for (int i = 0; i < n->n_src; i++) {
        TUTTI_TRY(tutti__grad_of(n, i, &dsrc[i]));
        if (dsrc[i])
            TUTTI_TRY(place(&w, dsrc[i], n->dst->grad, &w.dsrc[i]));
    }
    w.p.dsrc = w.dsrc;
    TUTTI_TRY(run(&w, op->backward, n->op->device_backward));
    for (int i = 0; i < n->n_src; i++)
        if (dsrc[i])
            TUTTI_TRY(put(&w, dsrc[i], w.dsrc[i]));
    give_back(&w);
    return TUTTI_OK;
}

/* ---- For operations that are not elementwise ------------------------------------------------------ */

typedef struct parallel {
    void (*job)(void *arg, int64_t i);
    void *arg;
} parallel;

static void parallel_job(void *arg, int64_t i, int member)
{
    const parallel *p = arg;

    (void)member;
    p->job(p->arg, i);
}

void tutti_op_parallel(const tutti_op_args *p, void (*job)(void *arg, int64_t i), void *arg,
                       int64_t n)
{
    if (p)
        tutti__parallel(p->cx, parallel_job, &(parallel){job, arg}, n);
}
