/* sigmoid.c -- y = 1 / (1 + exp(-x)).   SPDX-License-Identifier: MIT */
#include "base/real.h"
#include "tensor/op.h"

static void forward(const tutti__plain *p)
{
    const float *x = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = (float)(1 / (1 + tutti__exp(-(double)x[i])));
}

static void backward(const tutti__plain *p)
{
    for (int64_t i = 0; i < p->count; i++)
        p->dsrc[0][i] = p->dy[i] * p->y[i] * (1 - p->y[i]);
}

tutti_tensor *tutti_sigmoid(tutti_tensor *x)
{
    static const tutti__op op = {.name = "sigmoid",
                                 .shape = tutti__shape_of_sources,
                                 .plain_forward = forward,
                                 .plain_backward = backward,
                                 .elementwise = true,
                                 .backward_reads = TUTTI__READS_RESULT,
                                 .activations = 1};

    return tutti__op_run(&op, &x, 1, NULL, 0);
}
