/* nll_loss.c -- minus the log-probability x of each label, times the weight of its class: the negative log likelihood.
 * SPDX-License-Identifier: MIT */
#include "tensor/op/class_loss.h"

static tutti_status shape(const tutti_op_args *p, tutti_shape *loss, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti__class_loss_shape(p, "x", loss));
    return tutti__class_loss_labels(p, "x");
}

static void forward(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    const tutti__classes k = tutti__classes_of(p);
    const int64_t *label = p->src[1];
    const float *x = p->src[0], *weight = p->src[2];
    double sum = 0;

    for (int64_t i = 0; i < k.N * k.S; i++) {
        float loss = 0;

        if (label[i] != a->how.ignore_index)
            loss = -x[tutti__class_at(k, i) + label[i] * k.S] * (weight ? weight[label[i]] : 1);
        if (a->reduction == TUTTI_REDUCTION_NONE)
            p->y[i] = loss;
        sum += (double)loss;
    }
    if (a->reduction != TUTTI_REDUCTION_NONE)
        p->y[0] = (float)(sum / tutti__class_loss_divisor(p));
}

static void backward(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    const tutti__classes k = tutti__classes_of(p);
    const int64_t *label = p->src[1];
    const float *weight = p->src[2];
    const double divisor = tutti__class_loss_divisor(p);
    float *dx = p->dsrc[0];

    for (int64_t i = 0; i < k.N * k.C * k.S; i++)
        dx[i] = 0;
    for (int64_t i = 0; i < k.N * k.S; i++) {
        const double dy = (double)p->dy[a->reduction == TUTTI_REDUCTION_NONE ? i : 0] / divisor;

        if (label[i] != a->how.ignore_index)
            dx[tutti__class_at(k, i) + label[i] * k.S] =
                (float)(-dy * (weight ? (double)weight[label[i]] : 1));
    }
}

tutti_tensor *tutti_nll_loss(tutti_tensor *x, tutti_tensor *labels, const tutti_nll_loss_opts *opts)
{
    static const tutti_op op = {.name = "nll_loss",
                                .shape = shape,
                                .forward = forward,
                                .backward = backward,
                                .backward_reads = 1 << 1 | 1 << 2,
                                .activations = 1,
                                .autocast = TUTTI_OP_F32};
    const tutti_nll_loss_opts o = opts ? *opts : (tutti_nll_loss_opts){0};
    const tutti__class_loss a = {
        {0, o.has_ignore_index ? o.ignore_index : TUTTI__IGNORED_BY_DEFAULT}, o.reduction};

    if (x && TUTTI__CHECK_RESERVED(tutti_nll_loss_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    return tutti_op_run(&op, (tutti_tensor *[]){x, labels, o.weight}, 3, &a, sizeof a);
}
