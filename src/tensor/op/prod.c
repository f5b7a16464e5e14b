/* prod.c -- the product over dimensions.   SPDX-License-Identifier: MIT
 * The gradient of an element is the product of the others: of those before it and of those behind it, so that zeros are right. */
#include "tensor/each.h"
#include "tensor/op/reduction.h"

TUTTI__FOLD(fold_product, 1, t *v, t *u)

static void slice(const tutti__slice *s, double *result)
{
    tutti__fold_slice(s, &fold_product, NULL, result);
}

static void forward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, slice);
}

TUTTI__CLONES static void others(float *restrict dx, const float *restrict x,
                                 const float *restrict dy, int64_t n, int64_t stride,
                                 int64_t columns)
{
    double product[TUTTI__COLUMNS];

    for (int64_t i = 0; i < columns; i++)
        product[i] = 1;
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < columns; i++) {
            dx[k * stride + i] = (float)product[i];
            product[i] *= (double)x[k * stride + i];
        }
    for (int64_t i = 0; i < columns; i++)
        product[i] = (double)dy[i];
    for (int64_t k = n - 1; k >= 0; k--)
        for (int64_t i = 0; i < columns; i++) {
            dx[k * stride + i] = (float)((double)dx[k * stride + i] * product[i]);
            product[i] *= (double)x[k * stride + i];
        }
}

static void gradient_slice(const tutti__slice *s, double *result)
{
    const tutti_op_args *p = s->p;

    (void)result;
    others(p->dsrc[0] + (s->x - (const float *)p->src[0]), s->x, p->dy + s->at, s->n, s->stride,
           s->columns);
}

static void backward(const tutti_op_args *p)
{
    tutti__reduce_slices(p, gradient_slice);
}

static tutti_status device_forward(const tutti_op_args *p)
{
    return tutti__fold_on_device(p, (tutti__fold_args){.kind = TUTTI__FOLD_PRODUCT}, p->y,
                                 TUTTI_F32);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const tutti__extent e = tutti__extent_of(p);
    const tutti__each_job job = {
        TUTTI__JOB_product_gradient,
        {.lines = {.n = e.n, .inner = e.inner, .x = p->src[0], .dy = p->dy, .to = p->dsrc[0]}}};

    return tutti__each_on_device(p, &job, e.n > 0 ? e.outer * e.inner : 0);
}

tutti_tensor *tutti_prod(tutti_tensor *x, tutti_dims dims, bool keepdim)
{
    static const tutti__op op = {.plain = {.name = "prod",
                                           .shape = tutti__reduction_shape,
                                           .forward = forward,
                                           .backward = backward,
                                           .backward_reads = 1 << 0,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .device_forward = device_forward,
                                 .device_backward = device_backward};

    return tutti__reduction_run(&op, x, (tutti__reduction){dims, keepdim, 0});
}
