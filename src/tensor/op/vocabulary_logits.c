/* vocabulary_logits.c -- the linear operation before a loss over many classes: its result is lazy.   SPDX-License-Identifier: MIT */
#include "tensor/op/vocabulary_logits.h"

#include "tensor/op/linear.h"
#include "tensor/op/parts.h"

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

/* [rows][width] of rows of `from_stride` to rows of `to_stride` elements. */
static tutti_status move_columns(tutti_ctx *cx, void *to, int64_t to_stride, const void *from,
                                 int64_t from_stride, int64_t rows, int64_t width, size_t element)
{
    const tutti__move c = {.n = 2,
                           .size = {rows, width},
                           .to_stride = {to_stride, 1},
                           .from_stride = {from_stride, 1},
                           .element = element,
                           .to = to,
                           .from = from};

    return rows > 0 && width > 0 ? cx->f32_kernels->move(cx, &c) : TUTTI_OK;
}

/* Room for rows of all ranks' logits in F32. */
typedef struct room {
    int64_t each; /* the most logits of a row that a rank has */
    float *wide;  /* rows of this rank, then of all ranks, of logits of 16 bit */
    float *mine, *all;
} room;

/* Classes of the first rank. */
static int64_t largest_part(const tutti__divided_classes *d)
{
    int64_t begin;

    return tutti__peers_chunk(d->peers, d->classes, 0, &begin);
}

/* Rows [from, end) of all ranks' logits. */
static tutti_status gather_rows(tutti_tensor *to, const tutti_tensor *own,
                                const tutti__divided_classes *d, int64_t from, int64_t end,
                                const room *r)
{
    const size_t element = tutti_dtype_size(own->dtype);
    const int64_t rows = end - from, width = own->shape.d[1];
    const bool half = own->dtype != TUTTI_F32;
    const void *row = (const char *)own->data + (size_t)(from * width) * element;
    void *row_to = (char *)to->data + (size_t)(from * d->classes) * element;
    tutti_ctx *cx = to->cx;

    if (half)
        TUTTI_TRY(tutti__peers_widen(cx, r->wide, row, (size_t)(rows * width), own->dtype));
    TUTTI_TRY(move_columns(cx, r->mine, r->each, half ? r->wide : row, width, rows, width,
                           sizeof(float)));
    TUTTI_TRY(tutti__peers_gather_values(d->peers, tutti__peers_stream(cx), r->mine,
                                         (size_t)(rows * r->each), r->all));
    for (int rank = 0; rank < d->peers->size; rank++) {
        int64_t begin, n = tutti__peers_chunk(d->peers, d->classes, rank, &begin);

        TUTTI_TRY(move_columns(cx, (half ? r->wide : (float *)row_to) + begin, d->classes,
                               r->all + rank * rows * r->each, r->each, rows, n, sizeof(float)));
    }
    return half ? tutti__peers_narrow(cx, row_to, r->wide, (size_t)(rows * d->classes), to->dtype)
                : TUTTI_OK;
}

/* to [..,classes], without data, = the logits of all ranks; own [R,n]. */
static tutti_status gather(tutti_tensor *to, const tutti_tensor *own,
                           const tutti__divided_classes *d)
{
    const int64_t each = largest_part(d);
    const int64_t rows = own->shape.d[0], all_each = each * d->peers->size;
    const int64_t some = CHUNK / all_each + 1 < rows ? CHUNK / all_each + 1 : rows;
    const bool half = own->dtype != TUTTI_F32;
    room r = {.each = each};

    r.mine =
        tutti__operation_memory(to->cx, (size_t)(some * (each + all_each)) * sizeof *r.mine + 1);
    if (half && r.mine)
        r.wide = tutti__operation_memory(to->cx, (size_t)(some * all_each) * sizeof *r.wide + 1);
    if (!r.mine || (half && !r.wide))
        return TUTTI_ERR_MEMORY;
    r.all = r.mine + some * each;
    TUTTI_TRY(tutti__tensor_alloc(to, NULL));
    for (int64_t from = 0; from < rows; from += some)
        TUTTI_TRY(gather_rows(to, own, d, from, from + some < rows ? from + some : rows, &r));
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
    tutti_tensor *dy = n->dst->grad;
    const size_t element = tutti_dtype_size(dy->dtype);
    const int64_t rows = tutti_shape_count(dy->shape) / d->classes;
    const void *elements;
    int64_t begin, width;

    TUTTI_TRY(tutti__tensor_row_major(dy, &elements));
    width = tutti__peers_chunk(d->peers, d->classes, d->peers->rank, &begin);
    *own_p = tutti__tensor_new(n->cx, TUTTI_SHAPE(rows, width), dy->dtype);
    if (!*own_p)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(*own_p, NULL));
    return move_columns(n->cx, (*own_p)->data, width,
                        (const char *)elements + (size_t)begin * element, d->classes, rows, width,
                        element);
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
    TUTTI_TRY(tutti__tensor_need(l->of.weight, false, t->dtype));
    TUTTI_TRY(tutti__tensor_need(l->of.bias, false, TUTTI_F32));
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
    *l = (lazy_logits){{.x = n->src[0], .compute = compute_logits},
                       {n->src[0], n->src[1], n->src[2], a->divided}};
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
                                 .rounds = 1 << 1,
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
