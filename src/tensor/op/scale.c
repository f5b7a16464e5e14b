/* scale.c -- y = x * factor.   SPDX-License-Identifier: MIT
 * Used for losses: dividing by the number of accumulated batches, and loss scaling. */
#include "device/flat.h"
#include "tensor/op.h"

static tutti_status scale_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    return TUTTI_OK;
}

/* Row-major: x is usually a scalar. */
static tutti_status multiply(tutti_tensor *y, tutti_tensor *x, float factor)
{
    tutti_stream *stream = y->cx->stream;
    const void *p;

    TUTTI_TRY(tutti__tensor_row_major(x, &p));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    TUTTI_TRY(tutti__copy(stream, y->data, p, tutti__tensor_bytes(x)));
    return stream->ops->flat->scale(stream, y->data, (size_t)tutti_shape_count(x->shape), factor);
}

static tutti_status scale_forward(tutti__node *n)
{
    return multiply(n->dst, n->src[0], *(const float *)n->attributes);
}

static tutti_status scale_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return multiply(dx, n->dst->grad, *(const float *)n->attributes);
}

tutti_tensor *tutti_scale(tutti_tensor *x, float factor)
{
    static const tutti__op op = {.plain = {.name = "scale",
                                           .shape = scale_shape,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .forward = scale_forward,
                                 .backward = scale_backward};

    return tutti__op_run(&op, &x, 1, &factor, sizeof factor);
}
