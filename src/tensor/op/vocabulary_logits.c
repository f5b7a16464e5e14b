/* vocabulary_logits.c -- the linear operation before a loss over many classes: its result is lazy.   SPDX-License-Identifier: MIT */
#include "tensor/op/vocabulary_logits.h"

#include "tensor/op/linear.h"

typedef struct lazy_logits {
    tutti__lazy lazy; /* first; x is the first source */
    tutti_tensor *weight, *bias;
} lazy_logits;

/* Whatever reads the logits has x computed first, and for no longer than it takes. */
static tutti_status compute_logits(tutti_tensor *t)
{
    const lazy_logits *l = (const lazy_logits *)t->lazy;
    tutti_tensor *x = l->lazy.x;
    const bool stored = x->data != NULL;
    const tutti__kernels *kernels = t->cx->kernels;
    tutti_status status;

    TUTTI_TRY(tutti__tensor_compute(x));
    TUTTI_TRY(tutti__tensor_need(l->weight, false));
    TUTTI_TRY(tutti__tensor_need(l->bias, false));
    TUTTI_TRY(tutti__kernels_of(t->cx, t->dtype, &t->cx->kernels));
    status = tutti__linear_into(t, x, l->weight, l->bias);
    t->cx->kernels = kernels;
    if (!stored && x->lazy)
        tutti__tensor_release(x);
    return status;
}

static tutti_status logits_forward(tutti__node *n)
{
    lazy_logits *l = tutti__step_alloc(n->cx, sizeof *l);

    if (!l)
        return TUTTI_ERR_MEMORY;
    *l = (lazy_logits){{n->src[0], compute_logits}, n->src[1], n->src[2]};
    n->dst->lazy = &l->lazy;
    return TUTTI_OK;
}

static tutti_status logits_backward(tutti__node *n)
{
    TUTTI_TRY(tutti__tensor_compute(n->src[0]));
    return tutti__linear_backward(n);
}

static tutti_status logits_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_shape *as = p->attributes;

    TUTTI_TRY(tutti__linear_shape(p, y, dtype));
    if (as->n > 0)
        *y = *as;
    return TUTTI_OK;
}

/* as: the result's shape; of no dimensions: linear's */
static tutti_tensor *run(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias, tutti_shape as)
{
    static const tutti__op op = {.plain = {.name = "linear",
                                           .shape = logits_shape,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_LOW,
                                           .backward_reads = 1 << 0 | 1 << 1},
                                 .forward = logits_forward,
                                 .backward = logits_backward,
                                 .lazy = 1 << 0,
                                 .flops = tutti__linear_flops};

    return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, &as, sizeof as);
}

tutti_tensor *tutti__lazy_linear(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias)
{
    if (!x || !weight || !tutti__has_label_rows(x->cx) || tutti_shape_count(x->shape) == 0)
        return tutti_functional_linear(x, weight, bias);
    return run(x, weight, bias, (tutti_shape){0});
}

bool tutti__vocabulary_logits_of(const tutti_tensor *t, tutti_tensor **x_p, tutti_tensor **weight_p,
                                 tutti_tensor **bias_p)
{
    const lazy_logits *l;

    if (!t || t->poison != TUTTI_OK || !t->lazy || t->lazy->compute != compute_logits || t->data)
        return false;
    l = (const lazy_logits *)t->lazy;
    *x_p = l->lazy.x;
    *weight_p = l->weight;
    *bias_p = l->bias;
    return true;
}

tutti_tensor *tutti__vocabulary_logits_as(tutti_tensor *t, tutti_shape shape)
{
    tutti_tensor *x, *weight, *bias;

    if (!tutti__vocabulary_logits_of(t, &x, &weight, &bias) || shape.n < 1 ||
        shape.d[shape.n - 1] != weight->shape.d[0] ||
        tutti_shape_count(shape) != tutti_shape_count(t->shape))
        return NULL;
    return run(x, weight, bias, shape);
}
