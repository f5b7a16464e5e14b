/* normalize.c -- x / max(norm, eps), the norm over one dimension.   SPDX-License-Identifier: MIT */
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

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0], *norm = p->src[1], eps = eps_of(p);

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = x[i] / (norm[i] < eps ? eps : norm[i]);
}

static void backward(const tutti_op_args *p)
{
    const float *x = p->src[0], *norm = p->src[1], eps = eps_of(p);

    for (int64_t i = 0; p->dsrc[0] && i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] / (norm[i] < eps ? eps : norm[i]);
    for (int64_t i = 0; p->dsrc[1] && i < p->count; i++)
        p->dsrc[1][i] = norm[i] < eps ? 0 : -p->dy[i] * x[i] / (norm[i] * norm[i]);
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
