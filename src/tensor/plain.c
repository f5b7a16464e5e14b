/* plain.c -- operations by their own plain C, in any dtype and layout and on any device.   SPDX-License-Identifier: MIT
 *
 * Sources are passed as F32, row-major, in host memory; others are converted by the kernels' reorder, the device's copy, and
 * the 16-bit conversions, and results are converted back. On the CPU in F32 nothing is copied. An elementwise operation takes
 * its elements in the order in memory, if all tensors have the same layout without padding; then a blocked layout is kept. Its
 * parts are computed by the context's threads, with the same bits for any number of them. */
#include "tensor/op.h"
#include "tensor/parallel.h"

#define PART       ((int64_t)1 << 14) /* elements per job */
#define MAX_COPIES (4 * TUTTI__MAX_SRC + 8)

typedef void plain_function(const tutti__plain *p);

/* A running operation. */
typedef struct work {
    tutti_ctx *cx;
    tutti__plain p;
    const tutti__layout *layout; /* of all its tensors; NULL: row-major */
    tutti_tensor *copies[MAX_COPIES];
    struct {
        void *p;
        size_t bytes;
    } scratch[MAX_COPIES];
    int n_copies, n_scratch;
} work;

static bool on_host(const work *w)
{
    return w->cx->device_ops->is_host;
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

/* t's elements in w's layout, on the host, F32 unless integers. */
static tutti_status see(work *w, tutti_tensor *t, const void **p_p)
{
    const size_t count = (size_t)tutti_shape_count(t->shape);
    void *p = t->data;

    if (t->layout != w->layout) {
        tutti_tensor *copy;

        TUTTI_TRY(copy_new(w, t->shape, t->dtype, &copy));
        TUTTI_TRY(w->cx->kernels->reorder(copy, t));
        p = copy->data;
    }
    if (t->host) {
        p = (void *)t->host; /* only read */
    } else if (!on_host(w)) {
        const void *device = p;

        TUTTI_TRY(host_memory(w, t->shape, t->dtype, &p));
        TUTTI_TRY(tutti__read(w->cx->stream, p, device, tutti__tensor_bytes(t)));
    }
    if (tutti__is_half(t->dtype)) {
        const uint16_t *half = p;

        TUTTI_TRY(host_memory(w, t->shape, TUTTI_F32, &p));
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

    if (!on_host(w) && read && read->data && !read->layout && read->dtype == t->dtype &&
        tutti_shape_equal(read->shape, t->shape))
        TUTTI_TRY(tutti__tensor_take(t, read));
    else
        TUTTI_TRY(tutti__tensor_alloc(t, w->layout));
    if (on_host(w) && t->dtype == TUTTI_F32)
        p = t->data;
    else
        TUTTI_TRY(host_memory(w, t->shape, TUTTI_F32, &p));
    *p_p = p;
    return TUTTI_OK;
}

/* Stores what was computed for t. */
static tutti_status put(work *w, tutti_tensor *t, const float *computed)
{
    const size_t count = (size_t)tutti_shape_count(t->shape);
    const void *from = computed;

    if (tutti__is_half(t->dtype)) {
        void *half = t->data;

        if (!on_host(w))
            TUTTI_TRY(host_memory(w, t->shape, t->dtype, &half));
        tutti__half_from_f32(half, computed, count, t->dtype);
        from = half;
    }
    return on_host(w) ? TUTTI_OK
                      : tutti__copy_in(w->cx->stream, t->data, from, tutti__tensor_bytes(t));
}

/* ---- Layouts ----------------------------------------------------------------------------------- */

/* Whether t can be taken in memory order: it has the layout of the tensors before it, and no padding. */
static bool lies_alike(const work *w, const tutti_tensor *y, const tutti_tensor *t)
{
    return t->layout == w->layout && t->dtype == y->dtype && tutti_shape_equal(t->shape, y->shape);
}

/* The common layout of all that an elementwise operation reads, if there is one. */
static const tutti__layout *common_layout(work *w, unsigned reads, tutti_tensor *dy)
{
    const tutti__node *n = w->p.n;
    const tutti_tensor *y = n->dst;
    bool alike = n->op->elementwise && on_host(w);

    w->layout = dy ? dy->layout : n->src[0]->layout;
    if (!alike || !w->layout || w->layout->bytes != tutti__tensor_bytes(y))
        return NULL;
    for (int i = 0; i < n->n_src && alike; i++)
        if (n->src[i] && (reads >> i & 1))
            alike = lies_alike(w, y, n->src[i]);
        else if (n->src[i]) /* its gradient will have that layout */
            alike = n->src[i]->dtype == y->dtype && tutti_shape_equal(n->src[i]->shape, y->shape);
    if (dy && (reads & TUTTI__READS_RESULT))
        alike = alike && lies_alike(w, y, y);
    return alike ? w->layout : NULL;
}

/* ---- Running ----------------------------------------------------------------------------------- */

typedef struct parts {
    const tutti__plain *whole;
    plain_function *function;
} parts;

static void part_job(void *arg, int64_t i, int member)
{
    const parts *t = arg;
    const int64_t from = i * PART, left = t->whole->count - from;
    tutti__plain p = *t->whole;

    (void)member;
    p.count = left < PART ? left : PART;
    for (int k = 0; k < TUTTI__MAX_SRC; k++) {
        p.src[k] = p.src[k] ? (const float *)p.src[k] + from : NULL;
        p.dsrc[k] = p.dsrc[k] ? p.dsrc[k] + from : NULL;
    }
    p.y = p.y ? p.y + from : NULL;
    p.dy = p.dy ? p.dy + from : NULL;
    t->function(&p);
}

static tutti_status check_elementwise(const tutti__node *n)
{
    if (n->op->keeps)
        return tutti__fail(TUTTI_ERR_INTERNAL,
                           "the operation is declared elementwise, but keeps floats for backward, "
                           "which has no place for each part");
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] &&
            (n->src[i]->dtype == TUTTI_I64 || !tutti_shape_equal(n->src[i]->shape, n->dst->shape)))
            return tutti__fail(TUTTI_ERR_INTERNAL,
                               "the operation is declared elementwise, but source %d is %s %s and "
                               "its result F32 %s",
                               i, tutti_dtype_name(n->src[i]->dtype),
                               tutti__shape_text(n->src[i]->shape),
                               tutti__shape_text(n->dst->shape));
    return TUTTI_OK;
}

static tutti_status compute(work *w, plain_function *function)
{
    const tutti__node *n = w->p.n;

    w->p.kept = n->saved[0];
    w->p.count = tutti_shape_count(n->dst->shape);
    if (!n->op->elementwise) {
        function(&w->p);
        return TUTTI_OK;
    }
    TUTTI_TRY(check_elementwise(n));
    tutti__parallel(w->cx, part_job, &(parts){&w->p, function}, (w->p.count + PART - 1) / PART);
    return TUTTI_OK;
}

static tutti_status has(const tutti__node *n, plain_function *function)
{
    if (function)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "kernels %s have none, and it has no plain C",
                       n->dst->cx->kernels->name);
}

tutti_status tutti__plain_forward(tutti__node *n)
{
    work w = {.cx = n->dst->cx, .p = {.n = n}};

    TUTTI_TRY(has(n, n->op->plain_forward));
    if (n->op->keeps) {
        n->saved[0] = tutti__step_alloc(w.cx, (size_t)n->op->keeps(n) * sizeof(float) + 1);
        if (!n->saved[0])
            return TUTTI_ERR_MEMORY;
    }
    w.layout = common_layout(&w, ~0u, NULL);
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i])
            TUTTI_TRY(see(&w, n->src[i], &w.p.src[i]));
    TUTTI_TRY(place(&w, n->dst, NULL, &w.p.y));
    TUTTI_TRY(compute(&w, n->op->plain_forward));
    TUTTI_TRY(put(&w, n->dst, w.p.y));
    give_back(&w);
    return TUTTI_OK;
}

/* Converts what backward reads: dy, and the sources and result in `reads`. */
static tutti_status see_for_backward(work *w, unsigned reads)
{
    const tutti__node *n = w->p.n;
    const void *p;

    TUTTI_TRY(see(w, n->dst->grad, &p));
    w->p.dy = p;
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && (reads >> i & 1))
            TUTTI_TRY(see(w, n->src[i], &w->p.src[i]));
    if (reads & TUTTI__READS_RESULT) {
        TUTTI_TRY(see(w, n->dst, &p));
        w->p.y = (float *)p; /* only read */
    }
    return TUTTI_OK;
}

tutti_status tutti__plain_backward(tutti__node *n)
{
    work w = {.cx = n->dst->cx, .p = {.n = n}};
    tutti_tensor *dsrc[TUTTI__MAX_SRC] = {NULL};

    TUTTI_TRY(has(n, n->op->plain_backward));
    w.layout = common_layout(&w, n->op->backward_reads, n->dst->grad);
    TUTTI_TRY(see_for_backward(&w, n->op->backward_reads));
    for (int i = 0; i < n->n_src; i++) {
        TUTTI_TRY(tutti__grad_of(n, i, &dsrc[i]));
        if (dsrc[i])
            TUTTI_TRY(place(&w, dsrc[i], n->dst->grad, &w.p.dsrc[i]));
    }
    TUTTI_TRY(compute(&w, n->op->plain_backward));
    for (int i = 0; i < n->n_src; i++)
        if (dsrc[i])
            TUTTI_TRY(put(&w, dsrc[i], w.p.dsrc[i]));
    give_back(&w);
    return TUTTI_OK;
}
