/* cast.c -- x in another dtype.   SPDX-License-Identifier: MIT
 * Autocast puts these between operations; the gradient is cast the other way. Integers become F32. */
#include "tensor/each.h"

static tutti_status cast_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const bool integers = p->sources[0]->dtype == TUTTI_I64;

    if (!integers)
        TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *dtype = *(const tutti_dtype *)p->attributes;
    *y = p->sources[0]->shape;
    if (*dtype != TUTTI_F32 && (integers || !tutti__is_half(*dtype)))
        return tutti__fail(TUTTI_ERR_ARG, "the dtype is %s, expected %s", tutti_dtype_name(*dtype),
                           integers ? "F32 for I64" : "F32, BF16 or F16");
    return TUTTI_OK;
}

static tutti_status cast_integers(tutti_tensor *y, const tutti_tensor *x)
{
    const int64_t count = tutti_shape_count(x->shape), *from = x->host;
    float *to = tutti__step_alloc(x->cx, (size_t)count * sizeof *to);

    if (!to)
        return TUTTI_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)from[i];
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    return tutti__copy_in(x->cx->stream, y->data, to, (size_t)count * sizeof *to);
}

/* Only a device with jobs has integers that the host has not. */
static tutti_status cast_on_device(tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    tutti__each_job job = {TUTTI__JOB_label_real, {.labels = {.label = n->src[0]->data}}};

    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    job.of.labels.dx = n->dst->data;
    return tutti__each_on_device(&p, &job, p.count);
}

static tutti_status cast_forward(tutti__node *n)
{
    if (n->src[0]->dtype == TUTTI_I64 && !n->src[0]->host)
        return cast_on_device(n);
    if (n->src[0]->dtype == TUTTI_I64)
        return cast_integers(n->dst, n->src[0]);
    return n->cx->kernels->cast(n->dst, n->src[0]);
}

static tutti_status cast_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->cast(dx, n->dst->grad);
}

tutti_tensor *tutti_cast(tutti_tensor *x, tutti_dtype dtype)
{
    static const tutti__op op = {.plain = {.name = "cast", .shape = cast_shape, .activations = 1},
                                 .forward = cast_forward,
                                 .backward = cast_backward,
                                 .rounds = 1 << 0,
                                 .device_integers = true};

    if (x && x->poison == TUTTI_OK && x->dtype == dtype)
        return x;
    return tutti__op_run(&op, &x, 1, &dtype, sizeof dtype);
}
