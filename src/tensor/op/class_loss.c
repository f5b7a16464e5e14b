/* class_loss.c -- what nll_loss and cross_entropy share.   SPDX-License-Identifier: MIT */
#include "tensor/op/class_loss.h"

tutti__classes tutti__classes_of(const tutti_op_args *p)
{
    const tutti_shape x = p->sources[0]->shape;
    tutti__classes k = {1, x.d[0], 1};

    if (x.n > 1)
        k = (tutti__classes){x.d[0], x.d[1], 1};
    for (int i = 2; i < x.n; i++)
        k.S *= x.d[i];
    return k;
}

/* x's shape without the dimension of classes. */
static tutti_shape positions_of(tutti_shape x)
{
    tutti_shape shape = {x.n - 1, {x.d[0]}};

    for (int i = 2; i < x.n; i++)
        shape.d[i - 1] = x.d[i];
    return shape;
}

static tutti_status check_weight(const tutti_op_args *p, int64_t C)
{
    TUTTI_TRY(tutti_op_check_source(p, 2, "weight", "[C]", TUTTI_F32));
    if (p->sources[2]->shape.d[0] != C)
        return tutti__fail(TUTTI_ERR_ARG, "weight is %s, expected [%lld], a number for each class",
                           tutti__shape_text(p->sources[2]->shape), (long long)C);
    if (p->sources[2]->needs_grad && p->cx->recording)
        return tutti__fail(TUTTI_ERR_ARG,
                           "weight needs a gradient, which is not computed (nor in PyTorch); make "
                           "it an input without gradient");
    return TUTTI_OK;
}

tutti_status tutti__class_loss_shape(const tutti_op_args *p, const char *x, tutti_shape *loss_p)
{
    const tutti__class_loss *a = p->attributes;

    TUTTI_TRY(tutti_op_check_source(p, 0, x, NULL, TUTTI_F32));
    if (p->sources[0]->shape.n < 1)
        return tutti__fail(TUTTI_ERR_ARG, "%s is a scalar, expected [N,C], [N,C,d1,...] or [C]", x);
    if (!p->sources[1])
        return tutti__fail(TUTTI_ERR_ARG, "labels is NULL");
    if (p->sources[2])
        TUTTI_TRY(check_weight(p, tutti__classes_of(p).C));
    *loss_p = a->reduction == TUTTI_REDUCTION_NONE ? positions_of(p->sources[0]->shape)
                                                   : (tutti_shape){0};
    return tutti__loss_check(a->reduction);
}

tutti_status tutti__class_loss_bad_label(int64_t row, int64_t label, int64_t classes,
                                         int64_t ignored)
{
    return tutti__fail(
        TUTTI_ERR_ARG,
        "the label of row %lld is %lld, but there are %lld classes: expected 0 to %lld, "
        "or %lld to ignore the row",
        (long long)row, (long long)label, (long long)classes, (long long)classes - 1,
        (long long)ignored);
}

tutti_status tutti__class_loss_labels(const tutti_op_args *p, const char *x)
{
    const tutti__class_loss *a = p->attributes;
    const int64_t C = tutti__classes_of(p).C, ignored = a->how.ignore_index;
    const tutti_tensor *labels = p->sources[1];
    const int64_t *label = labels->host;

    TUTTI_TRY(tutti_op_check_source(p, 1, "labels", NULL, TUTTI_I64));
    if (!tutti_shape_equal(labels->shape, positions_of(p->sources[0]->shape)))
        return tutti__fail(TUTTI_ERR_ARG, "%s is %s but labels is %s, expected %s", x,
                           tutti__shape_text(p->sources[0]->shape),
                           tutti__shape_text(labels->shape),
                           tutti__shape_text(positions_of(p->sources[0]->shape)));
    for (int64_t i = 0; i < tutti_shape_count(labels->shape); i++)
        if ((label[i] < 0 || label[i] >= C) && label[i] != ignored)
            return tutti__class_loss_bad_label(i, label[i], C, ignored);
    return TUTTI_OK;
}

double tutti__class_loss_divisor(const tutti_op_args *p)
{
    const tutti__class_loss *a = p->attributes;
    const tutti__classes k = tutti__classes_of(p);
    const int64_t *label = p->src[1];
    const float *weight = p->src[2];
    double sum = 0;

    if (a->reduction != TUTTI_REDUCTION_MEAN)
        return 1;
    if (p->sources[1]->dtype != TUTTI_I64)
        return (double)(k.N * k.S);
    for (int64_t i = 0; i < k.N * k.S; i++)
        if (label[i] != a->how.ignore_index)
            sum += weight ? (double)weight[label[i]] : 1;
    return sum;
}

tutti_status tutti__class_loss_sum(const tutti_op_args *p, float *to, const float *from, int64_t n,
                                   const float *divisor)
{
    const tutti__fold_args sum = {
        .kind = TUTTI__FOLD_SUM, .outer = 1, .n = n, .inner = 1, .divisor = 1};
    tutti_tensor *x = tutti__tensor_new(p->cx, TUTTI_SHAPE(n), TUTTI_F32);
    tutti_tensor *y = tutti__tensor_new(p->cx, TUTTI_SHAPE(1), TUTTI_F32);
    tutti_tensor *by = tutti__tensor_new(p->cx, TUTTI_SHAPE(1), TUTTI_F32);
    tutti_tensor *ratio = tutti__tensor_new(p->cx, TUTTI_SHAPE(1), TUTTI_F32);
    const tutti__formula_args over = {
        .formula = TUTTI__FORMULA_div, .n_src = 2, .src = (tutti_tensor *[]){y, by}};

    if (!x || !y || !by || !ratio)
        return TUTTI_ERR_MEMORY;
    x->data = (void *)(uintptr_t)from;
    by->data = (void *)(uintptr_t)divisor;
    TUTTI_TRY(p->cx->f32_kernels->fold(y, x, &sum));
    if (divisor) {
        TUTTI_TRY(p->cx->f32_kernels->elementwise_forward(ratio, &over));
        y = ratio;
    }
    return tutti__copy(p->cx->stream, to, y->data, sizeof *to);
}
