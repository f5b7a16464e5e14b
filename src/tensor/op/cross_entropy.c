/* cross_entropy.c -- mean cross entropy of logits and labels, with label smoothing and an ignored
 * label.
 * SPDX-License-Identifier: MIT
 *   logits [N,C]   labels [N] I64   ->   loss []
 * Labels are checked here, once for every kernel family: kernels trust them. */
#include "tensor/op.h"

#define IGNORED_BY_DEFAULT (-100)

static tutti_status check_labels(const tutti_tensor *labels, int64_t n_classes,
                                 int64_t ignore_index)
{
    const int64_t *label = labels->host;

    for (int64_t i = 0; i < labels->shape.d[0]; i++)
        if ((label[i] < 0 || label[i] >= n_classes) && label[i] != ignore_index)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "the label of row %lld is %lld, but there are %lld classes: expected 0 to %lld, "
                "or %lld to ignore the row",
                (long long)i, (long long)label[i], (long long)n_classes, (long long)n_classes - 1,
                (long long)ignore_index);
    return TUTTI_OK;
}

static tutti_status cross_entropy_shape(const tutti__node *n, tutti_shape *loss, tutti_dtype *dtype)
{
    const tutti__cross_entropy *a = n->attributes;
    const tutti_tensor *logits = n->src[0], *labels = n->src[1];

    (void)dtype;
    TUTTI_TRY(tutti__check_source(n, 0, "logits", "[N,C]", TUTTI_F32));
    TUTTI_TRY(tutti__check_source(n, 1, "labels", "[N]", TUTTI_I64));
    if (logits->shape.d[0] != labels->shape.d[0])
        return tutti__fail(TUTTI_ERR_ARG, "logits is %s but labels is %s",
                           tutti__shape_text(logits->shape), tutti__shape_text(labels->shape));
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "label_smoothing is %g, expected 0 to 1",
                           (double)a->label_smoothing);
    *loss = (tutti_shape){0};
    return check_labels(labels, logits->shape.d[1], a->ignore_index);
}

static tutti_status cross_entropy_forward(tutti__node *n)
{
    return n->dst->cx->kernels->cross_entropy_forward(n->dst, n->src[0], n->src[1], n->attributes,
                                                      &n->saved[0]);
}

static tutti_status cross_entropy_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return n->dst->cx->kernels->cross_entropy_backward(dx, n->dst->grad, n->src[0], n->src[1],
                                                       n->attributes, n->saved[0]);
}

tutti_tensor *tutti_cross_entropy_with(tutti_tensor *logits, tutti_tensor *labels,
                                       const tutti_cross_entropy_opts *opts)
{
    static const tutti__op op = {.name = "cross_entropy",
                                 .shape = cross_entropy_shape,
                                 .forward = cross_entropy_forward,
                                 .backward = cross_entropy_backward,
                                 .backward_reads = 1 << 0,
                                 .activations = 1,
                                 .cast = TUTTI__CAST_F32};
    const tutti__cross_entropy a = {opts ? (float)tutti__or((double)opts->label_smoothing, 0) : 0,
                                    opts && opts->has_ignore_index ? opts->ignore_index
                                                                   : IGNORED_BY_DEFAULT};
    tutti_status status = TUTTI__CHECK_RESERVED(tutti_cross_entropy_opts, opts);

    if (logits && status != TUTTI_OK)
        return tutti__poisoned(logits->cx, status);
    return tutti__op_run(&op, (tutti_tensor *[]){logits, labels}, 2, &a, sizeof a);
}

tutti_tensor *tutti_cross_entropy(tutti_tensor *logits, tutti_tensor *labels)
{
    return tutti_cross_entropy_with(logits, labels, NULL);
}
