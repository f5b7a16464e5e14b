/* pairwise_distance.c -- the p-norm of a - b + eps over the last dimension.   SPDX-License-Identifier: MIT */
#include "base/real.h"
#include "tensor/op.h"

#include <math.h>

typedef struct attributes {
    float p, eps;
    bool keepdim;
} attributes;

static tutti_status distance_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    TUTTI_TRY(tutti_op_broadcast(p, y, dtype));
    if (!tutti_shape_equal(p->sources[0]->shape, p->sources[1]->shape))
        return tutti__fail(TUTTI_ERR_ARG, "a is %s but b is %s, expected the same shape",
                           tutti__shape_text(p->sources[0]->shape),
                           tutti__shape_text(p->sources[1]->shape));
    if (y->n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "a is a scalar, expected at least one dimension");
    if (!(a->p > 0 || (a->p < 0 && isfinite(a->p))))
        return tutti__fail(TUTTI_ERR_ARG, "p is %g, expected a number other than 0, or INFINITY",
                           (double)a->p);
    y->d[y->n - 1] = 1;
    y->n -= !a->keepdim;
    return TUTTI_OK;
}

/* x^e, x >= 0 */
static double power(double x, double e)
{
    if (e == 1)
        return x;
    if (e == 2)
        return x * x;
    return e == 0 ? 1 : tutti__exp(e * tutti__log(x));
}

static double norm_of(const float *a, const float *b, int64_t n, double p, float eps)
{
    double sum = 0, largest = 0;

    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)(a[i] - b[i] + eps));

        if (isinf(p))
            largest = d > largest || d != d ? d : largest;
        else
            sum += power(d, p);
    }
    return isinf(p) ? largest : p == 2 ? sqrt(sum) : power(sum, 1 / p);
}

typedef struct rows {
    const tutti_op_args *p;
    int64_t n; /* width */
} rows;

static void forward_job(void *arg, int64_t i)
{
    const rows *r = arg;
    const attributes *a = r->p->attributes;
    const float *u = r->p->src[0], *v = r->p->src[1];

    r->p->y[i] = (float)norm_of(u + i * r->n, v + i * r->n, r->n, (double)a->p, a->eps);
}

/* d norm / d x_k = sign(x_k) (|x_k| / norm)^(p - 1); for infinity, shared among those of the largest size. 0 if the norm is. */
static void backward_job(void *arg, int64_t i)
{
    const rows *r = arg;
    const attributes *at = r->p->attributes;
    const float *a = (const float *)r->p->src[0] + i * r->n;
    const float *b = (const float *)r->p->src[1] + i * r->n;
    const double p = (double)at->p, norm = norm_of(a, b, r->n, p, at->eps);
    const double dy = (double)r->p->dy[i];
    double ties = 0;

    for (int64_t k = 0; isinf(p) && k < r->n; k++)
        ties += fabs((double)(a[k] - b[k] + at->eps)) == norm;
    for (int64_t k = 0; k < r->n; k++) {
        const double x = (double)(a[k] - b[k] + at->eps), size = fabs(x);
        double d = 0;

        if (isinf(p))
            d = size == norm ? 1 / ties : 0;
        else if (norm != 0 && size != 0)
            d = power(size / norm, p - 1);
        d = x > 0 ? d : x < 0 ? -d : x != x ? x : 0;
        if (r->p->dsrc[0])
            r->p->dsrc[0][i * r->n + k] = (float)(dy * d);
        if (r->p->dsrc[1])
            r->p->dsrc[1][i * r->n + k] = (float)(-dy * d);
    }
}

static rows rows_of(const tutti_op_args *p)
{
    const tutti_shape x = p->sources[0]->shape;

    return (rows){p, x.d[x.n - 1]};
}

static void forward(const tutti_op_args *p)
{
    rows r = rows_of(p);

    tutti_op_parallel(p, forward_job, &r, p->count);
}

static void backward(const tutti_op_args *p)
{
    rows r = rows_of(p);

    tutti_op_parallel(p, backward_job, &r, p->count);
}

tutti_tensor *tutti_pairwise_distance(tutti_tensor *a, tutti_tensor *b, float p, float eps,
                                      bool keepdim)
{
    static const tutti_op op = {.name = "pairwise_distance",
                                .shape = distance_shape,
                                .forward = forward,
                                .backward = backward,
                                .backward_reads = 3,
                                .activations = 3,
                                .autocast = TUTTI_OP_F32};
    const attributes given = {p, eps, keepdim};

    return tutti_op_run(&op, (tutti_tensor *[]){a, b}, 2, &given, sizeof given);
}
