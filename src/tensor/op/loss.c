/* loss.c -- losses with an elementwise part, and their reduction.   SPDX-License-Identifier: MIT */
#include "tensor/op/loss.h"

#include <string.h>

#define LANES                                                                                      \
    16 /* partial sums: a fixed number, so that the bits do not depend on vectors' width */
#define PARTS 64              /* at most */
#define CHUNK ((int64_t)1024) /* values that are stored at once */

typedef struct attributes {
    _Alignas(16) char each[32]; /* the loss's own attributes; first, for mean_forward */
    const tutti__op *op;
    tutti_reduction reduction;
} attributes;

TUTTI__CLONES static void add_loss_lanes(double *restrict sums, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += (double)x[i + k];
}

double tutti__sum(const float *x, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    double sums[LANES] = {0}, sum = 0;

    add_loss_lanes(sums, x, whole);
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    for (int64_t i = whole; i < n; i++)
        sum += (double)x[i];
    return sum;
}

/* ---- Shapes ------------------------------------------------------------------------------------ */

tutti_status tutti__loss_shape(const tutti_op_args *p, const char *const *names, unsigned optional,
                               tutti_shape *shape_p)
{
    for (int i = 0; i < p->n_src; i++) {
        if (!p->sources[i] && tutti__source_in(optional, i))
            continue;
        TUTTI_TRY(tutti_op_check_source(p, i, names[i], NULL, TUTTI_F32));
        if (!tutti_shape_equal(p->sources[i]->shape, p->sources[0]->shape))
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s is %s but %s is %s; nothing is broadcast, make the shapes equal",
                               names[0], tutti__shape_text(p->sources[0]->shape), names[i],
                               tutti__shape_text(p->sources[i]->shape));
    }
    *shape_p = p->sources[0]->shape;
    return TUTTI_OK;
}

tutti_status tutti__loss_check(tutti_reduction reduction)
{
    if (reduction == TUTTI_REDUCTION_MEAN || reduction == TUTTI_REDUCTION_SUM ||
        reduction == TUTTI_REDUCTION_NONE)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "reduction is %d, expected TUTTI_REDUCTION_MEAN, TUTTI_REDUCTION_SUM or "
                       "TUTTI_REDUCTION_NONE",
                       (int)reduction);
}

tutti_tensor *tutti__loss_weight(tutti_tensor *x, tutti_tensor *weight)
{
    if (!x || !weight || x->poison != TUTTI_OK || weight->poison != TUTTI_OK ||
        tutti_shape_equal(x->shape, weight->shape))
        return weight;
    return tutti_expand(weight, x->shape);
}

static tutti_status reduced_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    tutti_shape x = {0};

    TUTTI_TRY(a->op->plain.shape(p, &x, dtype));
    *y = (tutti_shape){0};
    if (a->reduction != TUTTI_REDUCTION_BATCHMEAN)
        return tutti__loss_check(a->reduction);
    if (x.n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "reduction is TUTTI_REDUCTION_BATCHMEAN, but the sources "
                                          "are scalars, which have no batch");
    return TUTTI_OK;
}

/* By how much the sum is divided. */
static double divisor_of(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape;

    if (a->reduction == TUTTI_REDUCTION_MEAN)
        return (double)tutti_shape_count(x);
    return a->reduction == TUTTI_REDUCTION_BATCHMEAN ? (double)x.d[0] : 1;
}

/* ---- Forward and backward ---------------------------------------------------------------------- */

typedef struct reduction {
    const tutti_op_args *p;
    int64_t count, part; /* elements, and in each part */
    float dy;            /* of each element, in backward */
    double sums[PARTS];
} reduction;

static void reduction_init(reduction *r, const tutti_op_args *p)
{
    r->p = p;
    r->count = tutti_shape_count(p->sources[0]->shape);
    r->part = (r->count + PARTS - 1) / PARTS;
    r->part = (r->part + CHUNK - 1) / CHUNK * CHUNK;
}

static int64_t parts_of(const reduction *r)
{
    return r->part ? (r->count + r->part - 1) / r->part : 0;
}

/* Calls `each`, the loss's forward or backward, for the elements of one part. */
static void each_chunk(reduction *r, int64_t i, bool backward)
{
    const tutti_op *op = &((const attributes *)r->p->attributes)->op->plain;
    const int64_t from = i * r->part, end = from + r->part < r->count ? from + r->part : r->count;
    const void *src[TUTTI_OP_MAX_SOURCES];
    float *dsrc[TUTTI_OP_MAX_SOURCES], values[CHUNK];
    tutti_op_args p = *r->p;

    p.src = src;
    p.y = backward ? NULL : values;
    p.dy = backward ? values : NULL;
    p.dsrc = backward ? dsrc : NULL;
    for (int k = 0; backward && k < CHUNK; k++)
        values[k] = r->dy;
    for (int64_t at = from; at < end; at += CHUNK) {
        p.count = end - at < CHUNK ? end - at : CHUNK;
        for (int k = 0; k < p.n_src; k++) {
            src[k] = r->p->src[k] ? (const float *)r->p->src[k] + at : NULL;
            dsrc[k] = backward && r->p->dsrc[k] ? r->p->dsrc[k] + at : NULL;
        }
        (backward ? op->backward : op->forward)(&p);
        if (!backward)
            r->sums[i] += tutti__sum(values, p.count);
    }
}

static void forward_job(void *arg, int64_t i)
{
    each_chunk(arg, i, false);
}

static void backward_job(void *arg, int64_t i)
{
    each_chunk(arg, i, true);
}

static void forward(const tutti_op_args *p)
{
    reduction r = {0};
    double sum = 0;

    reduction_init(&r, p);
    tutti_op_parallel(p, forward_job, &r, parts_of(&r));
    for (int i = 0; i < PARTS; i++)
        sum += r.sums[i];
    p->y[0] = (float)(sum / divisor_of(p));
}

static void backward(const tutti_op_args *p)
{
    reduction r = {0};

    reduction_init(&r, p);
    r.dy = (float)((double)p->dy[0] / divisor_of(p));
    tutti_op_parallel(p, backward_job, &r, parts_of(&r));
}

/* ---- By kernels -------------------------------------------------------------------------------- */

static bool by_kernel(const tutti__node *n)
{
    return n->op->formula && n->cx->kernels->fold && n->cx->kernels->elementwise_forward;
}

static tutti_status node_forward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const tutti__formula_args args = tutti__node_formula(n);
    const tutti__fold_args fold = {.kind = TUTTI__FOLD_SUM,
                                   .outer = 1,
                                   .n = tutti_shape_count(n->src[0]->shape),
                                   .inner = 1,
                                   .divisor = divisor_of(&p)};
    tutti_tensor *each;

    if (!by_kernel(n))
        return tutti__plain_forward(n);
    each = tutti__tensor_new(n->cx, n->src[0]->shape, TUTTI_F32);
    if (!each)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(n->cx->kernels->elementwise_forward(each, &args));
    TUTTI_TRY(n->cx->kernels->fold(n->dst, each, &fold));
    tutti__tensor_release(each);
    return TUTTI_OK;
}

static tutti_status node_backward(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const tutti__formula_args args = tutti__node_formula(n);
    const tutti__formula_args share = {.formula = TUTTI__FORMULA_loss_share,
                                       .n_src = 1,
                                       .src = &n->dst->grad,
                                       .constants = (const float[]){(float)divisor_of(&p), 0}};
    tutti_tensor *dsrc[TUTTI_OP_MAX_SOURCES] = {NULL}, *each;

    if (!by_kernel(n))
        return tutti__plain_backward(n);
    for (int i = 0; i < n->n_src; i++)
        TUTTI_TRY(tutti__grad_of(n, i, &dsrc[i]));
    each = tutti__tensor_new(n->cx, n->src[0]->shape, TUTTI_F32);
    if (!each)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(n->cx->kernels->elementwise_forward(each, &share));
    TUTTI_TRY(n->cx->kernels->elementwise_backward(dsrc, each, each, &args));
    tutti__tensor_release(each);
    return TUTTI_OK;
}

tutti_tensor *tutti__loss_run(const tutti__loss_op *loss, tutti_tensor *const *src, int n_src,
                              tutti_reduction how, const void *own, size_t own_bytes)
{
    attributes a = {.op = &loss->each, .reduction = how};
    tutti_ctx *cx = tutti__context_of(loss->each.plain.name, src, n_src);
    tutti__op *op;

    if (!cx)
        return NULL;
    if (how == TUTTI_REDUCTION_NONE)
        return tutti__op_run(&loss->each, src, n_src, own, own_bytes);
    if (own_bytes > 0)
        memcpy(a.each, own, own_bytes);
    op = tutti__step_alloc(cx, sizeof *op);
    if (!op)
        return &cx->out_of_memory;
    *op = loss->each;
    op->plain.elementwise = false;
    op->plain.shape = reduced_shape;
    op->plain.forward = forward;
    op->plain.backward = backward;
    op->forward =
        how == TUTTI_REDUCTION_MEAN && loss->mean_forward ? loss->mean_forward : node_forward;
    op->backward =
        how == TUTTI_REDUCTION_MEAN && loss->mean_backward ? loss->mean_backward : node_backward;
    return tutti__op_run(op, src, n_src, &a, sizeof a);
}
