/* normalize.c -- x / max(norm, eps), the norm over one dimension.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "tensor/op.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    *y = p->sources[0]->shape;
    return tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32);
}

static float eps_of(const tutti_op_args *p)
{
    return *(const float *)p->attributes;
}

TUTTI__CLONES static void divide(float *restrict y, const float *restrict x,
                                 const float *restrict norm, int64_t n, float eps)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / (norm[i] < eps ? eps : norm[i]);
}

TUTTI__CLONES static void norm_gradient(float *restrict dnorm, const float *restrict x,
                                        const float *restrict norm, const float *restrict dy,
                                        int64_t n, float eps)
{
    for (int64_t i = 0; i < n; i++)
        dnorm[i] = norm[i] < eps ? 0 : -dy[i] * x[i] / norm[i] / norm[i];
}

static void forward(const tutti_op_args *p)
{
    divide(p->y, p->src[0], p->src[1], p->count, eps_of(p));
}

static void backward(const tutti_op_args *p)
{
    if (p->dsrc[0])
        divide(p->dsrc[0], p->dy, p->src[1], p->count, eps_of(p));
    if (p->dsrc[1])
        norm_gradient(p->dsrc[1], p->src[0], p->src[1], p->dy, p->count, eps_of(p));
}

tutti_tensor *tutti_normalize(tutti_tensor *x, float p, int dim, float eps)
{
    static const tutti_op op = {.name = "normalize",
                                .shape = shape,
                                .forward = forward,
                                .backward = backward,
                                .elementwise = true,
                                .backward_reads = 1 << 0 | 1 << 1,
                                .activations = 3,
                                .autocast = TUTTI_OP_WIDEST};
    const float least = (float)tutti__or((double)eps, 1e-12);

    return tutti_op_run(&op, (tutti_tensor *[]){x, tutti_vector_norm(x, p, TUTTI_DIMS(dim), true)},
                        2, &least, sizeof least);
}
