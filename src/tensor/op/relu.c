/* relu.c -- y = max(x, 0).   SPDX-License-Identifier: MIT
 * Backward reads y, so that x need not be kept. */
#include "tensor/op.h"

static void plain_forward(const tutti_op_args *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = x[i] < 0 ? 0 : x[i]; /* NaN stays NaN */
}

static void plain_backward(const tutti_op_args *p)
{
    float *dx = p->dsrc[0];

    for (int64_t i = 0; i < p->count; i++) {
        float d = p->dy[i]; /* always read, so that there is no branch */

        dx[i] = p->y[i] <= 0 ? 0 : d;
    }
}

static tutti_status relu_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    return k->relu_forward ? k->relu_forward(n->dst, n->src[0]) : tutti__plain_forward(n);
}

static tutti_status relu_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    tutti_tensor *dx;

    if (!k->relu_backward)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return k->relu_backward(dx, n->dst->grad, n->dst);
}

tutti_tensor *tutti_relu(tutti_tensor *x)
{
    static const tutti__op op = {.plain = {.name = "relu",
                                           .forward = plain_forward,
                                           .backward = plain_backward,
                                           .elementwise = true,
                                           .backward_reads = TUTTI_OP_RESULT,
                                           .activations = 1},
                                 .forward = relu_forward,
                                 .backward = relu_backward};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
