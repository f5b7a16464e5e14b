/* l1_loss.c -- |x - target|.   SPDX-License-Identifier: MIT */
#include "tensor/op/loss.h"

#include <math.h>

static tutti_status shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    return tutti__loss_shape(p, (const char *const[]){"x", "target"}, 0, y);
}

static void forward(const tutti_op_args *p)
{
    const float *x = p->src[0], *target = p->src[1];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = fabsf(x[i] - target[i]);
}

/* The loss is symmetric: the target's gradient is that of x with the two exchanged. */
static void backward(const tutti_op_args *p)
{
    for (int k = 0; k < 2; k++) {
        const float *x = p->src[k], *target = p->src[1 - k];

        for (int64_t i = 0; p->dsrc[k] && i < p->count; i++)
            p->dsrc[k][i] = p->dy[i] * (float)((x[i] > target[i]) - (x[i] < target[i]));
    }
}

tutti_tensor *tutti_l1_loss(tutti_tensor *x, tutti_tensor *target, const tutti_loss_opts *opts)
{
    static const tutti__loss_op loss = {.each = {.name = "l1_loss",
                                                 .shape = shape,
                                                 .forward = forward,
                                                 .backward = backward,
                                                 .elementwise = true,
                                                 .backward_reads = 3,
                                                 .activations = 3,
                                                 .autocast = TUTTI_OP_F32}};

    if (x && TUTTI__CHECK_RESERVED(tutti_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti__loss_run(&loss, (tutti_tensor *[]){x, target}, 2,
                           opts ? opts->reduction : TUTTI_REDUCTION_MEAN, NULL, 0);
}
