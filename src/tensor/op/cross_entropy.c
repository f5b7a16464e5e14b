/* cross_entropy.c -- mean cross entropy of logits and labels, with label smoothing and an ignored
 * label.
 * SPDX-License-Identifier: MIT
 *   logits [N,C]   labels [N] I64   ->   loss []
 * Labels are checked here, once for every kernel family: kernels trust them.
 *
 * A row with label t among C classes, s the label smoothing, p the softmax:
 *   -(1 - s) * log p[t] - s / C * sum log p        gradient: p - (1 - s) * [c = t] - s / C
 * and the mean over the rows that are not ignored (NaN if all are ignored, as in PyTorch; the gradient of ignored rows is 0). */
#include "tensor/op.h"
#include "tensor/op/softmax.h"

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

static tutti_status cross_entropy_shape(const tutti_op_args *p, tutti_shape *loss,
                                        tutti_dtype *dtype)
{
    const tutti__cross_entropy *a = p->attributes;
    const tutti_tensor *logits = p->sources[0], *labels = p->sources[1];

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "logits", "[N,C]", TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "labels", "[N]", TUTTI_I64));
    if (logits->shape.d[0] != labels->shape.d[0])
        return tutti__fail(TUTTI_ERR_ARG, "logits is %s but labels is %s",
                           tutti__shape_text(logits->shape), tutti__shape_text(labels->shape));
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "label_smoothing is %g, expected 0 to 1",
                           (double)a->label_smoothing);
    *loss = (tutti_shape){0};
    return check_labels(labels, logits->shape.d[1], a->ignore_index);
}

static int64_t keeps(const tutti_op_args *p)
{
    return tutti_shape_count(p->sources[0]->shape);
}

static void plain_forward(const tutti_op_args *p)
{
    const tutti__cross_entropy *a = p->attributes;
    const tutti_shape shape = p->sources[0]->shape;
    const int64_t N = shape.d[0], C = shape.d[1], *label = p->src[1];
    const double smoothing = (double)a->label_smoothing;
    double sum = 0, counted = 0;

    for (int64_t n = 0; n < N; n++) {
        const float *x = (const float *)p->src[0] + n * C;
        float *log_p = p->kept + n * C;
        double total = tutti__log_sum_exp(x, C), all = 0;

        for (int64_t c = 0; c < C; c++)
            log_p[c] = (float)((double)x[c] - total);
        if (label[n] == a->ignore_index)
            continue;
        for (int64_t c = 0; c < C && smoothing > 0; c++)
            all += (double)log_p[c];
        sum -= (1 - smoothing) * (double)log_p[label[n]] + smoothing / (double)C * all;
        counted++;
    }
    p->y[0] = (float)(sum / counted);
}

static void plain_backward(const tutti_op_args *p)
{
    const tutti__cross_entropy *a = p->attributes;
    const tutti_shape shape = p->sources[0]->shape;
    const int64_t N = shape.d[0], C = shape.d[1], *label = p->src[1];
    const double smoothing = (double)a->label_smoothing;
    int64_t counted = 0;
    double scale;

    for (int64_t n = 0; n < N; n++)
        counted += label[n] != a->ignore_index;
    scale = counted ? (double)p->dy[0] / (double)counted : 0;
    for (int64_t n = 0; n < N; n++) {
        const float *log_p = p->kept + n * C;
        float *dx = p->dsrc[0] + n * C;

        for (int64_t c = 0; c < C; c++) {
            double target = smoothing / (double)C + (c == label[n] ? 1 - smoothing : 0);
            double d = tutti__exp((double)log_p[c]) - target;

            dx[c] = label[n] == a->ignore_index ? 0 : (float)(d * scale);
        }
    }
}

static tutti_status cross_entropy_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;

    if (!k->cross_entropy_forward)
        return tutti__plain_forward(n);
    return k->cross_entropy_forward(n->dst, n->src[0], n->src[1], n->attributes, &n->saved[0]);
}

static tutti_status cross_entropy_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    tutti_tensor *dx;

    if (!k->cross_entropy_backward)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return k->cross_entropy_backward(dx, n->dst->grad, n->src[0], n->src[1], n->attributes,
                                     n->saved[0]);
}

tutti_tensor *tutti_cross_entropy_with(tutti_tensor *logits, tutti_tensor *labels,
                                       const tutti_cross_entropy_opts *opts)
{
    static const tutti__op op = {.plain = {.name = "cross_entropy",
                                           .shape = cross_entropy_shape,
                                           .forward = plain_forward,
                                           .backward = plain_backward,
                                           .keeps = keeps,
                                           .backward_reads = 1 << 0 | 1 << 1,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_F32},
                                 .forward = cross_entropy_forward,
                                 .backward = cross_entropy_backward};
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
