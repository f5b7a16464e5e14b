/* softmax.c -- softmax and log-softmax over the last dimension.   SPDX-License-Identifier: MIT
 * One implementation; the attribute says whether it is log-softmax. */
#include "tensor/op/softmax.h"
#include "tensor/op.h"

static tutti_status softmax_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    if (y->n < 1)
        return tutti__fail(TUTTI_ERR_ARG, "x is a scalar, expected at least one dimension");
    return TUTTI_OK;
}

static bool is_log(const void *attributes)
{
    return *(const bool *)attributes;
}

static int64_t width_of(const tutti_op_args *p)
{
    return p->shape.d[p->shape.n - 1];
}

static void plain_forward(const tutti_op_args *p)
{
    const int64_t width = width_of(p);
    const bool log = is_log(p->attributes);

    for (int64_t at = 0; at < p->count; at += width) {
        const float *x = (const float *)p->src[0] + at;
        double total = tutti__log_sum_exp(x, width);

        for (int64_t i = 0; i < width; i++) {
            double value = (double)x[i] - total;

            p->y[at + i] = (float)(log ? value : tutti__exp(value));
        }
    }
}

/* softmax: dx = y * (dy - sum dy*y).   log-softmax: dx = dy - exp(y) * sum dy */
static void plain_backward(const tutti_op_args *p)
{
    const int64_t width = width_of(p);
    const bool log = is_log(p->attributes);

    for (int64_t at = 0; at < p->count; at += width) {
        const float *y = p->y + at, *dy = p->dy + at;
        float *dx = p->dsrc[0] + at;
        double sum = 0;

        for (int64_t i = 0; i < width; i++)
            sum += (double)dy[i] * (log ? 1 : (double)y[i]);
        for (int64_t i = 0; i < width; i++) {
            double d = (double)dy[i], v = (double)y[i];

            dx[i] = (float)(log ? d - tutti__exp(v) * sum : v * (d - sum));
        }
    }
}

static tutti_status softmax_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    return k->softmax_forward ? k->softmax_forward(n->dst, n->src[0], is_log(n->attributes))
                              : tutti__plain_forward(n);
}

static tutti_status softmax_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    tutti_tensor *dx;

    if (!k->softmax_backward)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return k->softmax_backward(dx, n->dst->grad, n->dst, is_log(n->attributes));
}

#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called,                                                                  \
                  .shape = softmax_shape,                                                          \
                  .forward = plain_forward,                                                        \
                  .backward = plain_backward,                                                      \
                  .backward_reads = TUTTI_OP_RESULT,                                               \
                  .activations = 1,                                                                \
                  .autocast = TUTTI_OP_F32},                                                       \
        .forward = softmax_forward, .backward = softmax_backward                                   \
    }

tutti_tensor *tutti_softmax(tutti_tensor *x)
{
    static const tutti__op op = OP("softmax");

    return tutti__op_run(&op, &x, 1, &(bool){false}, sizeof(bool));
}

tutti_tensor *tutti_log_softmax(tutti_tensor *x)
{
    static const tutti__op op = OP("log_softmax");

    return tutti__op_run(&op, &x, 1, &(bool){true}, sizeof(bool));
}
