/* reshape.c -- the same elements in another shape: no copy if they are row-major.
 * SPDX-License-Identifier: MIT */
#include "tensor/move.h"
#include "tensor/op/vocabulary_logits.h"

/* Computes the dimension that is -1 from the others. */
static tutti_status infer(tutti_shape x, tutti_shape *y)
{
    const int64_t count = tutti_shape_count(x);
    int64_t known = 1;
    int unknown = -1;

    for (int i = 0; i < y->n; i++) {
        if (y->d[i] < -1 || (y->d[i] == 0 && i > 0) || (y->d[i] == -1 && unknown >= 0) ||
            (y->d[i] > 0 && known > INT64_MAX / y->d[i]))
            return TUTTI_ERR_ARG;
        if (y->d[i] == -1)
            unknown = i;
        else
            known *= y->d[i];
    }
    if (unknown < 0)
        return known == count ? TUTTI_OK : TUTTI_ERR_ARG;
    if (known == 0 || count % known != 0 || (count == 0 && unknown > 0))
        return TUTTI_ERR_ARG;
    y->d[unknown] = count / known;
    return TUTTI_OK;
}

static tutti_status reshape_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_shape *wanted = p->attributes;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = *wanted;
    if (wanted->n < 0 || wanted->n > TUTTI_MAX_DIMS || infer(p->sources[0]->shape, y) != TUTTI_OK)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s, and %s is not a shape of as many elements (one dimension "
                           "may be -1: what the others leave)",
                           tutti__shape_text(p->sources[0]->shape),
                           wanted->n < 0 || wanted->n > TUTTI_MAX_DIMS
                               ? "what was asked for"
                               : tutti__shape_text(*wanted));
    return TUTTI_OK;
}

tutti_status tutti__reshape_forward(tutti__node *n)
{
    const void *p;

    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &p));
    n->dst->data = (void *)p;
    n->dst->shared = p == n->src[0]->data;
    if (n->dst->shared)
        n->dst->viewed = n->src[0]->parameter ? n->src[0] : n->src[0]->viewed;
    if (n->dst->shared)
        n->src[0]->lazy = NULL; /* its memory is needed as long as the view */
    if (n->dst->dtype == TUTTI_I64)
        n->dst->host = n->src[0]->host;
    return TUTTI_OK;
}

tutti_status tutti__reshape_backward(tutti__node *n)
{
    tutti_tensor *dx = tutti__tensor_view(n->dst->grad, n->src[0]->shape);

    if (!dx)
        return TUTTI_ERR_MEMORY;
    tutti__grad_pass(n, 0, dx);
    return TUTTI_OK;
}

#define OP(called)                                                                                 \
    {                                                                                              \
        .plain = {.name = called, .shape = reshape_shape, .activations = 1},                       \
        .forward = tutti__reshape_forward, .backward = tutti__reshape_backward                     \
    }

/* Logits that are not stored stay so. NULL: x is something else. */
static tutti_tensor *logits_as(tutti_tensor *x, tutti_shape shape)
{
    if (!x || shape.n < 1 || shape.n > TUTTI_MAX_DIMS || infer(x->shape, &shape) != TUTTI_OK)
        return NULL;
    return tutti__vocabulary_logits_as(x, shape);
}

tutti_tensor *tutti_reshape(tutti_tensor *x, tutti_shape shape)
{
    static const tutti__op op = OP("reshape");
    tutti_tensor *logits = logits_as(x, shape);

    return logits ? logits : tutti__op_run(&op, &x, 1, &shape, sizeof shape);
}

tutti_tensor *tutti_view(tutti_tensor *x, tutti_shape shape)
{
    static const tutti__op op = OP("view");
    tutti_tensor *logits = logits_as(x, shape);

    return logits ? logits : tutti__op_run(&op, &x, 1, &shape, sizeof shape);
}
