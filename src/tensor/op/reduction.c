/* reduction.c -- reductions over some of the dimensions.   SPDX-License-Identifier: MIT */
#include "tensor/op/reduction.h"

#include <math.h>

#define SEGMENT  32768 /* elements of a slice that are folded by one thread */
#define SEGMENTS 16    /* at most, of a slice */
#define JOB      16384 /* elements, at least, of a job of several slices */
#define FEW      4     /* slices: each one is then divided among the threads */

static int64_t at_least_one(int64_t n)
{
    return n > 1 ? n : 1;
}

/* ---- Shape ----------------------------------------------------------------------------------- */

/* Which dimensions of x are reduced. */
static tutti_status mark(const tutti__reduction *r, tutti_shape x, bool *reduced)
{
    for (int i = 0; i < TUTTI_MAX_DIMS; i++)
        reduced[i] = r->dims.n == 0 && i < x.n;
    if (r->dims.n < 0 || r->dims.n > at_least_one(x.n))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, but %d dims are given", tutti__shape_text(x),
                           r->dims.n);
    for (int i = 0; i < r->dims.n; i++) {
        const int dim = tutti__dim_index(r->dims.d[i], x.n);

        if (dim < 0)
            return TUTTI_ERR_ARG;
        if (reduced[dim])
            return tutti__fail(TUTTI_ERR_ARG, "dim %d is given twice", dim);
        reduced[dim] = true;
    }
    return TUTTI_OK;
}

static tutti_shape shape_after(tutti_shape x, const bool *reduced, bool keepdim)
{
    tutti_shape y = {0};

    for (int i = 0; i < x.n; i++)
        if (!reduced[i] || keepdim)
            y.d[y.n++] = reduced[i] ? 1 : x.d[i];
    return y;
}

tutti_status tutti__reduction_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti__reduction *r = p->attributes;
    bool reduced[TUTTI_MAX_DIMS];

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    TUTTI_TRY(mark(r, p->sources[0]->shape, reduced));
    *y = shape_after(p->sources[0]->shape, reduced, r->keepdim);
    return TUTTI_OK;
}

tutti_status tutti__reduction_shape_some(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    TUTTI_TRY(tutti__reduction_shape(p, y, dtype));
    if (tutti_shape_count(p->sources[0]->shape) == 0 && tutti_shape_count(*y) > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s, and has no element along the dims that are reduced",
                           tutti__shape_text(p->sources[0]->shape));
    return TUTTI_OK;
}

tutti__extent tutti__extent_of(const tutti_op_args *p)
{
    const tutti_shape x = p->sources[0]->shape;
    tutti__extent e = {1, 1, 1};
    bool reduced[TUTTI_MAX_DIMS];
    int last = 0;

    if (mark(p->attributes, x, reduced) != TUTTI_OK || tutti_shape_count(x) == 0)
        return (tutti__extent){1, 0, tutti_shape_count(p->shape)};
    for (int i = 0; i < x.n; i++)
        last = reduced[i] ? i : last;
    for (int i = 0; i < x.n; i++) {
        if (reduced[i])
            e.n *= x.d[i];
        else
            *(i < last ? &e.outer : &e.inner) *= x.d[i];
    }
    return e;
}

tutti__extent tutti__extent_of_dim(tutti_shape shape, int dim)
{
    const int at = tutti__dim_index(dim, shape.n);
    tutti__extent e = {1, 1, 1};

    for (int i = 0; i < shape.n; i++)
        *(i < at ? &e.outer : i > at ? &e.inner : &e.n) *= shape.d[i];
    return e;
}

/* Whether nothing that is kept, except sizes of 1, lies between dimensions that are reduced. */
static bool side_by_side(tutti_shape x, const bool *reduced)
{
    bool begun = false, ended = false;

    for (int i = 0; i < x.n; i++) {
        if (x.d[i] == 1)
            continue;
        if (reduced[i] && ended)
            return false;
        begun = begun || reduced[i];
        ended = begun && !reduced[i];
    }
    return true;
}

tutti_tensor *tutti__reduction_run(const tutti__op *op, tutti_tensor *x, tutti__reduction r)
{
    tutti_dims order = {0}, last = {0};
    bool reduced[TUTTI_MAX_DIMS];
    tutti_tensor *y;

    if (!x || x->poison != TUTTI_OK || tutti_shape_count(x->shape) == 0 ||
        mark(&r, x->shape, reduced) != TUTTI_OK || side_by_side(x->shape, reduced))
        return tutti__op_run(op, &x, 1, &r, sizeof r);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < x->shape.n; i++)
            if (reduced[i] == (pass == 1)) {
                if (reduced[i])
                    last.d[last.n++] = order.n;
                order.d[order.n++] = i;
            }
    y = tutti_permute(x, order);
    y = tutti__op_run(op, &y, 1, &(tutti__reduction){last, false, r.parameter}, sizeof r);
    return r.keepdim ? tutti_reshape(y, shape_after(x->shape, reduced, true)) : y;
}

/* ---- By kernels ------------------------------------------------------------------------------ */

bool tutti__can_fold(const tutti__node *n)
{
    return n->cx->kernels->fold && n->cx->kernels->elementwise_forward;
}

tutti_status tutti__fold_by_kernel(tutti__node *n, tutti__fold_args a, float *y)
{
    const tutti_op_args p = tutti__op_args(n);
    const tutti__extent e = tutti__extent_of(&p);
    tutti_tensor view = *n->dst;

    a.outer = e.outer;
    a.n = e.n;
    a.inner = e.inner;
    if (!y)
        return n->cx->kernels->fold(n->dst, n->src[0], &a);
    view.dtype = TUTTI_F32;
    TUTTI_TRY(n->cx->kernels->fold(&view, n->src[0], &a));
    TUTTI_TRY(tutti__copy(n->cx->stream, y, view.data, tutti__tensor_bytes(&view)));
    tutti__tensor_release(&view);
    return TUTTI_OK;
}

/* t, row-major, in another shape. */
static tutti_status view_as(tutti_tensor *t, tutti_shape shape, tutti_tensor *view)
{
    const void *p;

    TUTTI_TRY(tutti__tensor_row_major(t, &p));
    *view = *t;
    view->shape = shape;
    view->layout = NULL;
    view->data = (void *)(uintptr_t)p;
    return TUTTI_OK;
}

tutti_status tutti__spread_by_kernel(tutti__node *n, tutti__formula formula, double k0, float *kept)
{
    const tutti_op_args p = tutti__op_args(n);
    const tutti__extent e = tutti__extent_of(&p);
    const tutti_shape wide = TUTTI_SHAPE(e.outer, e.n, e.inner);
    const tutti_shape narrow = TUTTI_SHAPE(e.outer, 1, e.inner);
    tutti_tensor x, y, dy, of_kept, dx, *grad, *src[] = {&x, &y, &dy, kept ? &of_kept : NULL};
    const tutti__formula_args a = {
        .formula = formula, .n_src = 4, .src = src, .constants = (const float[]){(float)k0, 0}};

    TUTTI_TRY(tutti__grad_of(n, 0, &grad));
    if (!grad)
        return TUTTI_OK;
    TUTTI_TRY(view_as(n->src[0], wide, &x));
    TUTTI_TRY(view_as(n->dst, narrow, &y));
    TUTTI_TRY(view_as(n->dst->grad, narrow, &dy));
    of_kept = dy;
    of_kept.dtype = TUTTI_F32;
    of_kept.data = kept;
    dx = *grad;
    dx.shape = wide;
    TUTTI_TRY(n->cx->kernels->elementwise_forward(&dx, &a));
    grad->layout = dx.layout;
    grad->data = dx.data;
    return TUTTI_OK;
}

/* Elements in a device's memory as a tensor; NULL: one without memory. */
static tutti_tensor *tensor_at(tutti_ctx *cx, tutti_shape shape, const float *elements)
{
    tutti_tensor *t = tutti__tensor_new(cx, shape, TUTTI_F32);

    if (t && elements) {
        t->data = (void *)(uintptr_t)elements;
        t->shared = true;
    }
    return t;
}

tutti_status tutti__fold_on_device(const tutti_op_args *p, tutti__fold_args a, void *to,
                                   tutti_dtype dtype)
{
    const tutti__extent e = tutti__extent_of(p);
    tutti_tensor *x = tensor_at(p->cx, p->sources[0]->shape, p->src[0]);
    tutti_tensor *y = tutti__tensor_new(p->cx, TUTTI_SHAPE(e.outer, e.inner), dtype);

    if (!x || !y)
        return TUTTI_ERR_MEMORY;
    a.outer = e.outer;
    a.n = e.n;
    a.inner = e.inner;
    a.divisor = a.divisor == 0 ? 1 : a.divisor;
    TUTTI_TRY(p->cx->f32_kernels->fold(y, x, &a));
    TUTTI_TRY(tutti__copy(p->cx->stream, to, y->data, tutti__tensor_bytes(y)));
    tutti__tensor_release(y);
    return TUTTI_OK;
}

tutti_status tutti__spread_on_device(const tutti_op_args *p, tutti__formula formula, double k0,
                                     const float *kept)
{
    const tutti__extent e = tutti__extent_of(p);
    const tutti_shape wide = TUTTI_SHAPE(e.outer, e.n, e.inner);
    const tutti_shape narrow = TUTTI_SHAPE(e.outer, 1, e.inner);
    tutti_tensor *src[] = {tensor_at(p->cx, wide, p->src[0]), tensor_at(p->cx, narrow, p->y),
                           tensor_at(p->cx, narrow, p->dy),
                           kept ? tensor_at(p->cx, narrow, kept) : NULL};
    tutti_tensor *dx = tensor_at(p->cx, wide, NULL);
    const tutti__formula_args a = {
        .formula = formula, .n_src = 4, .src = src, .constants = (const float[]){(float)k0, 0}};

    if (!src[0] || !src[1] || !src[2] || (kept && !src[3]) || !dx)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(p->cx->f32_kernels->elementwise_forward(dx, &a));
    TUTTI_TRY(tutti__copy(p->cx->stream, p->dsrc[0], dx->data, tutti__tensor_bytes(dx)));
    tutti__tensor_release(dx);
    return TUTTI_OK;
}

/* ---- Forward --------------------------------------------------------------------------------- */

typedef struct slices {
    const tutti_op_args *p;
    tutti__extent e;
    int64_t chunks, count, together; /* chunks of a row of `inner` columns; slices; of a job */
    tutti__slice_function *function;
    bool writes;
} slices;

static void slice_at(const slices *all, int64_t i)
{
    const tutti__extent *e = &all->e;
    const int64_t o = i / all->chunks, from = i % all->chunks * TUTTI__COLUMNS;
    const tutti__slice s = {.p = all->p,
                            .x = (const float *)all->p->src[0] + o * e->n * e->inner + from,
                            .n = e->n,
                            .stride = e->inner,
                            .columns =
                                e->inner - from < TUTTI__COLUMNS ? e->inner - from : TUTTI__COLUMNS,
                            .at = o * e->inner + from};
    double result[TUTTI__COLUMNS];

    all->function(&s, result);
    for (int64_t k = 0; all->writes && k < s.columns; k++)
        all->p->y[s.at + k] = (float)result[k];
}

static void slices_job(void *arg, int64_t job)
{
    const slices *all = arg;
    const int64_t from = job * all->together, left = all->count - from;

    for (int64_t i = 0; i < all->together && i < left; i++)
        slice_at(all, from + i);
}

void tutti__reduce_slices(const tutti_op_args *p, tutti__slice_function *function)
{
    slices all = {.p = p,
                  .e = tutti__extent_of(p),
                  .function = function,
                  .writes = p->y && !p->dsrc}; /* not in backward, nor indices */

    all.chunks = (all.e.inner + TUTTI__COLUMNS - 1) / TUTTI__COLUMNS;
    all.count = all.e.outer * all.chunks;
    all.together =
        at_least_one(JOB / at_least_one(all.e.n * all.e.inner / at_least_one(all.chunks)));
    if (all.count < FEW)
        for (int64_t i = 0; i < all.count; i++)
            slice_at(&all, i);
    else
        tutti_op_parallel(p, slices_job, &all, (all.count + all.together - 1) / all.together);
}

typedef struct segments {
    const tutti__slice *s;
    const tutti__fold *fold;
    const double *given;
    int64_t rows; /* of a segment */
    double (*total)[TUTTI__COLUMNS];
} segments;

static void segment_job(void *arg, int64_t i)
{
    const segments *all = arg;
    const tutti__slice *s = all->s;
    const int64_t from = i * all->rows, left = s->n - from, n = left < all->rows ? left : all->rows;
    double *total = all->total[i];

    if (s->stride == 1) {
        total[0] = all->fold->row(s->x + from, n, all->given[0]);
        return;
    }
    for (int64_t k = 0; k < s->columns; k++)
        total[k] = all->fold->start;
    all->fold->columns(total, s->x + from * s->stride, n, s->stride, s->columns, all->given);
}

void tutti__fold_slice(const tutti__slice *s, const tutti__fold *fold, const double *given,
                       double *total)
{
    static const double nothing[TUTTI__COLUMNS];
    const int64_t wanted = s->n * s->columns / SEGMENT + 1;
    double parts[SEGMENTS][TUTTI__COLUMNS];
    segments all = {.s = s, .fold = fold, .given = given ? given : nothing, .total = parts};
    int64_t n = wanted < SEGMENTS ? wanted : SEGMENTS;

    all.rows = at_least_one((s->n + n - 1) / n);
    n = at_least_one((s->n + all.rows - 1) / all.rows);
    if (n == 1)
        segment_job(&all, 0);
    else
        tutti_op_parallel(s->p, segment_job, &all, n);
    for (int64_t k = 0; k < s->columns; k++) {
        total[k] = parts[0][k];
        for (int64_t i = 1; i < n; i++)
            total[k] = fold->join(total[k], parts[i][k]);
    }
}

TUTTI__FOLD(fold_sum, 0, t + v, t + u)
TUTTI__FOLD(largest, -INFINITY, t != t ? t : v <= t ? t : v, t != t ? t : u <= t ? t : u)
TUTTI__FOLD(smallest, INFINITY, t != t ? t : v >= t ? t : v, t != t ? t : u >= t ? t : u)

void tutti__sum_slice(const tutti__slice *s, double *result)
{
    tutti__fold_slice(s, &fold_sum, NULL, result);
}

void tutti__max_slice(const tutti__slice *s, double *result)
{
    tutti__fold_slice(s, &largest, NULL, result);
}

void tutti__min_slice(const tutti__slice *s, double *result)
{
    tutti__fold_slice(s, &smallest, NULL, result);
}

/* ---- Backward -------------------------------------------------------------------------------- */

typedef struct spread {
    const tutti_op_args *p;
    tutti__extent e;
    int64_t count;
    void (*function)(const tutti__run *r);
    double a;
} spread;

static const float *from_or_null(const float *p, int64_t at)
{
    return p ? p + at : NULL;
}

static void spread_job(void *arg, int64_t job)
{
    const spread *s = arg;
    const tutti_op_args *p = s->p;
    const int64_t end = (job + 1) * JOB < s->count ? (job + 1) * JOB : s->count;
    const bool wide = s->e.inner > 1;
    const int64_t length = wide ? s->e.inner : s->e.n;

    for (int64_t i = job * JOB, n; i < end; i += n) {
        const int64_t row = i / length, in_row = i % length;
        const int64_t at = wide ? row / s->e.n * s->e.inner + in_row : row;

        n = length - in_row < end - i ? length - in_row : end - i;
        s->function(&(tutti__run){.dx = p->dsrc[0] + i,
                                  .x = from_or_null(p->src[0], i),
                                  .y = from_or_null(p->y, at),
                                  .dy = p->dy + at,
                                  .kept = from_or_null(p->kept, at),
                                  .n = n,
                                  .wide = wide,
                                  .a = s->a});
    }
}

void tutti__spread(const tutti_op_args *p, void (*function)(const tutti__run *r), double a)
{
    spread s = {.p = p, .e = tutti__extent_of(p), .function = function, .a = a};

    s.count = tutti_shape_count(p->sources[0]->shape);
    tutti_op_parallel(p, spread_job, &s, (s.count + JOB - 1) / JOB);
}

TUTTI__FOLD(count_equal, 0, t + (v == g), t + u)
TUTTI__FOLD(count_equal_magnitudes, 0, t + (fabs(v) == g), t + u)

static void count_slice(const tutti__slice *s, const tutti__fold *fold)
{
    double y[TUTTI__COLUMNS], count[TUTTI__COLUMNS];

    for (int64_t i = 0; i < s->columns; i++)
        y[i] = (double)s->p->y[s->at + i];
    tutti__fold_slice(s, fold, y, count);
    for (int64_t i = 0; i < s->columns; i++)
        s->p->kept[s->at + i] = (float)count[i];
}

static void count_values(const tutti__slice *s, double *result)
{
    (void)result;
    count_slice(s, &count_equal);
}

static void count_magnitudes(const tutti__slice *s, double *result)
{
    (void)result;
    count_slice(s, &count_equal_magnitudes);
}

void tutti__count_ties(const tutti_op_args *p, bool magnitudes)
{
    tutti__reduce_slices(p, magnitudes ? count_magnitudes : count_values);
}

int64_t tutti__keeps_one(const tutti_op_args *p)
{
    return tutti_shape_count(p->shape);
}
