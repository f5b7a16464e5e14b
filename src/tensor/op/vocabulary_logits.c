/* vocabulary_logits.c -- the linear operation before a loss over many classes: its result is lazy.   SPDX-License-Identifier: MIT */
#include "tensor/op/vocabulary_logits.h"

#include "tensor/op/linear.h"
#include "tensor/op/parts.h"

#include "base/half.h"

#include <string.h>

typedef struct lazy_logits {
    tutti__lazy lazy; /* first; x is the first source */
    tutti__logits_sources of;
} lazy_logits;

typedef struct attributes {
    tutti_shape as; /* of the result; of no dimensions: linear's */
    const tutti__divided_classes *divided;
} attributes;

/* ---- Classes that are divided --------------------------------------------------------------------------------- */

#define CHUNK ((int64_t)4 << 20) /* logits of all ranks that are gathered at once */

static void get_row(float *to, const tutti_tensor *from, int64_t at, int64_t n)
{
    if (from->dtype == TUTTI_F32)
        memcpy(to, (const float *)from->data + at, (size_t)n * sizeof *to);
    else
        tutti__half_to_f32(to, (const uint16_t *)from->data + at, (size_t)n, from->dtype);
}

static void put_row(tutti_tensor *to, int64_t at, const float *from, int64_t n)
{
    if (to->dtype == TUTTI_F32)
        memcpy((float *)to->data + at, from, (size_t)n * sizeof *from);
    else
        tutti__half_from_f32((uint16_t *)to->data + at, from, (size_t)n, to->dtype);
}

/* Classes of the first rank. */
static int64_t largest_part(const tutti__divided_classes *d)
{
    int64_t begin;

    return tutti__peers_chunk(d->peers, d->classes, 0, &begin);
}

/* Rows [from, end) of all ranks' logits. mine: room for `each` of a row, all: for those of all ranks. */
static tutti_status gather_rows(tutti_tensor *to, const tutti_tensor *own,
                                const tutti__divided_classes *d, int64_t from, int64_t end,
                                float *mine, float *all)
{
    const int64_t rows = end - from, each = largest_part(d);
    const int64_t width = own->shape.d[1];

    for (int64_t r = 0; r < rows; r++)
        get_row(mine + r * each, own, (from + r) * width, width);
    TUTTI_TRY(tutti__peers_gather_values(d->peers, mine, (size_t)(rows * each), all));
    for (int rank = 0; rank < d->peers->size; rank++) {
        int64_t begin, n = tutti__peers_chunk(d->peers, d->classes, rank, &begin);

        for (int64_t r = 0; r < rows; r++)
            put_row(to, (from + r) * d->classes + begin, all + (rank * rows + r) * each, n);
    }
    return TUTTI_OK;
}

/* to [..,classes], without data, = the logits of all ranks; own [R,n]. */
static tutti_status gather(tutti_tensor *to, const tutti_tensor *own,
                           const tutti__divided_classes *d)
{
    const int64_t each = largest_part(d);
    const int64_t rows = own->shape.d[0], all_each = each * d->peers->size;
    const int64_t some = CHUNK / all_each + 1 < rows ? CHUNK / all_each + 1 : rows;
    float *room =
        tutti__operation_memory(to->cx, (size_t)(some * (each + all_each)) * sizeof *room + 1);

    if (!room)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(to, NULL));
    for (int64_t from = 0; from < rows; from += some)
        TUTTI_TRY(gather_rows(to, own, d, from, from + some < rows ? from + some : rows, room,
                              room + some * each));
    return TUTTI_OK;
}

static tutti_status compute_divided(tutti_tensor *t, tutti_tensor *x,
                                    const tutti__logits_sources *of)
{
    const int64_t n = of->weight->shape.d[0];
    tutti_tensor *own = tutti__tensor_new(
        t->cx, TUTTI_SHAPE(tutti_shape_count(t->shape) / of->divided->classes, n), t->dtype);
    const void *elements;

    if (!own)
        return TUTTI_ERR_MEMORY;
    if (of->divided->peers->parts > 0) {
        const tutti__layer_in_parts layer = tutti__classes_in_parts(of->divided);

        TUTTI_TRY(tutti__columns_forward(own, x, of->weight, of->bias, &layer));
    } else
        TUTTI_TRY(tutti__linear_into(own, x, of->weight, of->bias));
    TUTTI_TRY(tutti__tensor_row_major(own, &elements));
    own->data = (void *)elements;
    TUTTI_TRY(gather(t, own, of->divided));
    tutti__tensor_release(own);
    return TUTTI_OK;
}

/* This rank's columns of the gradient of all logits. */
static tutti_status own_columns(const tutti__node *n, const tutti__divided_classes *d,
                                tutti_tensor **own_p)
{
    const tutti_tensor *dy = n->dst->grad;
    tutti_tensor from = *dy;
    const void *elements;
    int64_t begin, width, rows;
    float *row;

    TUTTI_TRY(tutti__tensor_row_major(n->dst->grad, &elements));
    from.data = (void *)elements;
    width = tutti__peers_chunk(d->peers, d->classes, d->peers->rank, &begin);
    rows = tutti_shape_count(dy->shape) / d->classes;
    *own_p = tutti__tensor_new(n->cx, TUTTI_SHAPE(rows, width), dy->dtype);
    row = tutti__operation_memory(n->cx, (size_t)width * sizeof *row);
    if (!*own_p || !row)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(*own_p, NULL));
    for (int64_t r = 0; r < rows; r++) {
        get_row(row, &from, r * d->classes + begin, width);
        put_row(*own_p, r * width, row, width);
    }
    return TUTTI_OK;
}

/* ---- The operation ------------------------------------------------------------------------------------------- */

/* Whatever reads the logits has x computed first, and for no longer than it takes. */
static tutti_status compute_logits(tutti_tensor *t)
{
    const lazy_logits *l = (const lazy_logits *)t->lazy;
    tutti_tensor *x = l->lazy.x;
    const bool stored = x->data != NULL;
    const tutti__kernels *kernels = t->cx->kernels;
    tutti_status status;

    TUTTI_TRY(tutti__tensor_compute(x));
    TUTTI_TRY(tutti__tensor_need(l->of.weight, false));
    TUTTI_TRY(tutti__tensor_need(l->of.bias, false));
    TUTTI_TRY(tutti__kernels_of(t->cx, t->dtype, &t->cx->kernels));
    status = l->of.divided ? compute_divided(t, x, &l->of)
                           : tutti__linear_into(t, x, l->of.weight, l->of.bias);
    t->cx->kernels = kernels;
    if (!stored && x->lazy)
        tutti__tensor_release(x);
    return status;
}

static tutti_status logits_forward(tutti__node *n)
{
    lazy_logits *l = tutti__step_alloc(n->cx, sizeof *l);
    const attributes *a = n->attributes;

    if (!l)
        return TUTTI_ERR_MEMORY;
    *l = (lazy_logits){{n->src[0], compute_logits}, {n->src[0], n->src[1], n->src[2], a->divided}};
    n->dst->lazy = &l->lazy;
    return TUTTI_OK;
}

static tutti_status logits_backward(tutti__node *n)
{
    const attributes *a = n->attributes;
    tutti_tensor *dy = n->dst->grad;
    tutti_status status;

    TUTTI_TRY(tutti__tensor_compute(n->src[0]));
    if (a->divided)
        TUTTI_TRY(own_columns(n, a->divided, &n->dst->grad));
    if (a->divided && a->divided->peers->parts > 0) {
        const tutti__layer_in_parts layer = tutti__classes_in_parts(a->divided);

        status = tutti__columns_backward(n, n->dst->grad, &layer);
    } else
        status = tutti__linear_backward(n);
    n->dst->grad = dy;
    return status;
}

static tutti_status logits_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    TUTTI_TRY(tutti__linear_shape(p, y, dtype));
    if (a->divided)
        y->d[y->n - 1] = a->divided->classes;
    if (a->as.n > 0)
        *y = a->as;
    return TUTTI_OK;
}

static tutti_tensor *run(const tutti__logits_sources *of, tutti_shape as)
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

    const attributes a = {as, of->divided};

    return tutti__op_run(&op, (tutti_tensor *[]){of->x, of->weight, of->bias}, 3, &a, sizeof a);
}

tutti_tensor *tutti__lazy_linear(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                 const tutti__divided_classes *divided)
{
    const tutti__logits_sources of = {x, weight, bias, divided};

    if (!divided &&
        (!x || !weight || !tutti__has_label_rows(x->cx) || tutti_shape_count(x->shape) == 0))
        return tutti_functional_linear(x, weight, bias);
    return run(&of, (tutti_shape){0});
}

bool tutti__vocabulary_logits_of(const tutti_tensor *t, tutti__logits_sources *of)
{
    if (!t || t->poison != TUTTI_OK || !t->lazy || t->lazy->compute != compute_logits || t->data)
        return false;
    *of = ((const lazy_logits *)t->lazy)->of;
    return true;
}

tutti_tensor *tutti__vocabulary_logits_as(tutti_tensor *t, tutti_shape shape)
{
    tutti__logits_sources of;

    if (!tutti__vocabulary_logits_of(t, &of) || shape.n < 1 ||
        shape.d[shape.n - 1] != t->shape.d[t->shape.n - 1] ||
        tutti_shape_count(shape) != tutti_shape_count(t->shape))
        return NULL;
    return run(&of, shape);
}
