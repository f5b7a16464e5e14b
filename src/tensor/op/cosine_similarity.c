/* cosine_similarity.c -- sum(a b) / (max(|a|, eps) max(|b|, eps)) over a dimension.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

#include <math.h>

typedef struct attributes {
    int dim;
    float eps;
} attributes;

static tutti_status similarity_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    int dim;

    TUTTI_TRY(tutti_op_broadcast(p, y, dtype));
    dim = tutti__dim_index(a->dim, y->n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    if (!(a->eps >= 0))
        return tutti__fail(TUTTI_ERR_ARG, "eps is %g, expected at least 0", (double)a->eps);
    y->n -= y->n > 0;
    for (int i = dim; i < y->n; i++)
        y->d[i] = y->d[i + 1];
    return TUTTI_OK;
}

/* Vectors of n elements, `stride` apart. */
typedef struct vectors {
    const tutti_op_args *p;
    int64_t n, stride;
} vectors;

static vectors vectors_of(const tutti_op_args *p)
{
    const tutti_shape x = p->sources[0]->shape;
    const int dim = tutti__dim_index(((const attributes *)p->attributes)->dim, x.n);
    vectors v = {p, x.n > 0 ? x.d[dim] : 1, 1};

    for (int i = dim + 1; i < x.n; i++)
        v.stride *= x.d[i];
    return v;
}

static int64_t start_of(const vectors *v, int64_t i)
{
    return i / v->stride * v->n * v->stride + i % v->stride;
}

/* sums: of a b, a a, b b */
static void products(const vectors *v, int64_t i, double *sums)
{
    const float *a = (const float *)v->p->src[0] + start_of(v, i);
    const float *b = (const float *)v->p->src[1] + start_of(v, i);

    sums[0] = sums[1] = sums[2] = 0;
    for (int64_t k = 0; k < v->n; k++) {
        const double x = (double)a[k * v->stride], y = (double)b[k * v->stride];

        sums[0] += x * y;
        sums[1] += x * x;
        sums[2] += y * y;
    }
}

static void forward_job(void *arg, int64_t i)
{
    const vectors *v = arg;
    const double eps = (double)((const attributes *)v->p->attributes)->eps;
    double sums[3];

    products(v, i, sums);
    v->p->y[i] = (float)(sums[0] / (fmax(sqrt(sums[1]), eps) * fmax(sqrt(sums[2]), eps)));
}

/* With norms u, v of a, b, and U, V those at least eps: da = dy (b / (U V) - sum(a b) a / (U^2 V u)). PyTorch, too, takes the
 * derivative of a norm below eps as if it were not replaced. */
static void backward_job(void *arg, int64_t i)
{
    const vectors *v = arg;
    const double eps = (double)((const attributes *)v->p->attributes)->eps;
    const double dy = (double)v->p->dy[i];
    const int64_t start = start_of(v, i);
    double sums[3];

    products(v, i, sums);
    for (int s = 0; s < 2; s++) {
        const float *x = (const float *)v->p->src[s] + start;
        const float *other = (const float *)v->p->src[1 - s] + start;
        const double norm = sqrt(sums[1 + s]), U = fmax(norm, eps);
        const double V = fmax(sqrt(sums[2 - s]), eps);
        const double own = norm > 0 ? sums[0] / (U * U * V * norm) : 0;
        float *dx = v->p->dsrc[s] ? v->p->dsrc[s] + start : NULL;

        for (int64_t k = 0; dx && k < v->n; k++)
            dx[k * v->stride] = (float)(dy * ((double)other[k * v->stride] / (U * V) -
                                              own * (double)x[k * v->stride]));
    }
}

static void forward(const tutti_op_args *p)
{
    vectors v = vectors_of(p);

    tutti_op_parallel(p, forward_job, &v, p->count);
}

static void backward(const tutti_op_args *p)
{
    vectors v = vectors_of(p);

    tutti_op_parallel(p, backward_job, &v, p->count);
}

/* Sources of other shapes are expanded, so that gradients are summed. */
static tutti_tensor *widened(tutti_tensor *x, const tutti_tensor *other)
{
    tutti_tensor *const sources[] = {x, (tutti_tensor *)other};
    const tutti_op_args p = {.n_src = 2, .sources = sources};
    tutti_shape shape;

    if (tutti_shape_equal(x->shape, other->shape) ||
        tutti__broadcast_shapes(&p, (const char *const[]){"a", "b"}, &shape) != TUTTI_OK ||
        tutti_shape_equal(x->shape, shape))
        return x;
    return tutti_expand(x, shape);
}

tutti_tensor *tutti_cosine_similarity(tutti_tensor *a, tutti_tensor *b, int dim, float eps)
{
    static const tutti_op op = {.name = "cosine_similarity",
                                .shape = similarity_shape,
                                .forward = forward,
                                .backward = backward,
                                .backward_reads = 3,
                                .activations = 3,
                                .autocast = TUTTI_OP_F32};
    const attributes given = {dim, eps};

    if (a && b && a->poison == TUTTI_OK && b->poison == TUTTI_OK) {
        tutti_tensor *wide = widened(a, b);

        b = widened(b, a);
        a = wide;
    }
    return tutti_op_run(&op, (tutti_tensor *[]){a, b}, 2, &given, sizeof given);
}
