/* one_hot.c -- 1 in the place of each label, elsewhere 0.   SPDX-License-Identifier: MIT */
#include "tensor/op/lines.h"

#include <string.h>

static tutti_status one_hot_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    int64_t classes = *(const int64_t *)p->attributes;
    const int64_t *label;
    char what[64];

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "labels", NULL, TUTTI_I64));
    *y = p->sources[0]->shape;
    label = p->sources[0]->host;
    if (y->n == TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG, "labels is %s, expected at most %d dimensions",
                           tutti__shape_text(*y), TUTTI_MAX_DIMS - 1);
    if (classes == -1) {
        classes = 0;
        for (int64_t i = 0; i < tutti_shape_count(*y); i++)
            if (label[i] >= classes && label[i] < INT64_MAX)
                classes = label[i] + 1;
    }
    if (classes < 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "there are %lld classes, expected at least 1, or -1 for the largest "
                           "label and one",
                           (long long)classes);
    y->d[y->n++] = classes;
    snprintf(what, sizeof what, "there are %lld classes", (long long)classes);
    return tutti__check_indices(p->sources[0], "labels", 0, classes, what);
}

static void forward(const tutti_op_args *p)
{
    const int64_t *label = p->src[0], classes = p->shape.d[p->shape.n - 1];

    memset(p->y, 0, (size_t)p->count * sizeof *p->y);
    for (int64_t i = 0; i < tutti_shape_count(p->sources[0]->shape); i++)
        p->y[i * classes + label[i]] = 1;
}

tutti_tensor *tutti_one_hot(tutti_tensor *labels, int64_t classes)
{
    static const tutti_op op = {
        .name = "one_hot", .shape = one_hot_shape, .forward = forward, .no_grad = true};

    return tutti_op_run(&op, &labels, 1, &classes, sizeof classes);
}
