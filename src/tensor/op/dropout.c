/* dropout.c -- zeroes elements at random; the identity in eval steps.
 * SPDX-License-Identifier: MIT
 * The mask is a function of seed, step, shard, call and element, so backward recomputes it
 * instead of storing it. */
#include "tensor/op/tokens.h"

typedef struct attributes {
    float p;
    uint32_t call;
    int64_t first; /* number of x's first element in what it is a part of */
} attributes;

static tutti_status dropout_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    if (!(a->p >= 0 && a->p <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "p is %g, expected a probability from 0 to 1",
                           (double)a->p);
    *y = p->sources[0]->shape;
    return TUTTI_OK;
}

static void drop(const tutti_op_args *p, float *to, const float *from, int64_t count)
{
    const attributes *a = p->attributes;
    const tutti_ctx *cx = p->cx;
    const float scale = a->p < 1 ? 1 / (1 - a->p) : 0;

    const int64_t before = a->first % 4; /* in the first block of four */

    for (int64_t i = 0; i < count; i += 1024) {
        tutti__philox_counter counter = {
            {(uint32_t)cx->step, (uint32_t)cx->shard, a->call, (uint32_t)((a->first + i) / 4)}};
        int64_t n_words = count - i < 1024 ? count - i : 1024;
        uint32_t words[1024 + 4];

        tutti__philox_fill(cx->seed, counter, 3, words, (size_t)(before + n_words));
        for (int64_t k = 0; k < n_words; k++)
            to[i + k] = tutti__unit_float(words[before + k]) < a->p ? 0 : from[i + k] * scale;
    }
}

static void plain_forward(const tutti_op_args *p)
{
    drop(p, p->y, p->src[0], p->count);
}

static void plain_backward(const tutti_op_args *p)
{
    drop(p, p->dsrc[0], p->dy, p->count);
}

static tutti_status dropout_forward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    const attributes *a = n->attributes;

    return k->dropout && a->first == 0 ? k->dropout(n->dst, n->src[0], a->p, a->call)
                                       : tutti__plain_forward(n);
}

static tutti_status dropout_backward(tutti__node *n)
{
    const tutti__kernels *k = n->dst->cx->kernels;
    const attributes *a = n->attributes;
    tutti_tensor *dx;

    if (!k->dropout || a->first != 0)
        return tutti__plain_backward(n);
    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    return k->dropout(dx, n->dst->grad, a->p, a->call);
}

tutti_tensor *tutti__dropout_of_part(tutti_tensor *x, float p, int64_t first)
{
    static const tutti__op op = {.plain = {.name = "dropout",
                                           .shape = dropout_shape,
                                           .forward = plain_forward,
                                           .backward = plain_backward,
                                           .activations = 1},
                                 .forward = dropout_forward,
                                 .backward = dropout_backward};
    const attributes a = {p, x && !x->cx->eval ? x->cx->dropout_calls++ : 0, first};

    if (x && x->cx->eval && p >= 0 && p <= 1)
        return x;
    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti_dropout(tutti_tensor *x, float p)
{
    return tutti__dropout_of_part(x, p, 0);
}
