/* tokens.c -- rows that are divided among ranks: tokens.h.   SPDX-License-Identifier: MIT
 *
 * Ranks exchange equal numbers of rows, so where a division leaves some with fewer, those are filled up in a copy. 16-bit elements are
 * summed in F32, and rounded once. */
#include "tensor/op/tokens.h"

typedef struct attributes {
    const tutti_peers *peers;
    tutti_shape whole; /* of a gathered result */
} attributes;

tutti__rows_division tutti__rows_divided(const tutti_peers *peers, tutti_shape whole,
                                         tutti_dtype dtype)
{
    tutti__rows_division d = {.peers = peers, .dtype = dtype, .width = whole.d[whole.n - 1]};
    const int64_t units = tutti__peers_units(peers);

    d.rows = tutti_shape_count(whole) / d.width;
    d.part = (d.rows + peers->size * units - 1) / (peers->size * units);
    d.each = d.part * units;
    d.own = tutti__peers_chunk(peers, d.rows, peers->rank, &d.begin);
    d.bytes = (size_t)d.width * tutti_dtype_size(dtype);
    return d;
}

static tutti__rows_division division_of(const tutti__node *n, tutti_shape whole, tutti_dtype dtype)
{
    return tutti__rows_divided(((const attributes *)n->attributes)->peers, whole, dtype);
}

/* ---- Exchange -------------------------------------------------------------------------------------------------- */

static tutti_status copy(tutti_ctx *cx, void *to, const void *from, size_t bytes)
{
    return tutti__copy(cx->stream, to, from, bytes);
}

static tutti_status zero(tutti_ctx *cx, void *p, size_t bytes)
{
    return cx->device_ops->zero(cx->stream, p, bytes);
}

tutti_status tutti__rows_gather(tutti_ctx *cx, const tutti__rows_division *d, const void *own,
                                void *to)
{
    const size_t each = (size_t)d->each * d->bytes, size = (size_t)d->peers->size;
    const size_t floats = (each + sizeof(float) - 1) / sizeof(float);
    const size_t filled = (size_t)d->own * d->bytes;
    const bool even = each % sizeof(float) == 0;
    float *mine = tutti__operation_memory(cx, floats * sizeof *mine + 1);
    float *all = even && d->rows == d->each * (int64_t)size
                     ? to
                     : tutti__operation_memory(cx, floats * size * sizeof *all + 1);

    if (!mine || !all)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(copy(cx, mine, own, filled));
    TUTTI_TRY(zero(cx, (char *)mine + filled, floats * sizeof *mine - filled));
    TUTTI_TRY(tutti__peers_gather_values(d->peers, tutti__peers_stream(cx), mine, floats, all));
    for (size_t r = 0; all != to && r < size; r++) {
        int64_t begin, rows = tutti__peers_chunk(d->peers, d->rows, (int)r, &begin);

        TUTTI_TRY(copy(cx, (char *)to + (size_t)begin * d->bytes, all + r * floats,
                       (size_t)rows * d->bytes));
    }
    return TUTTI_OK;
}

/* This rank's part of the sum over ranks of all [size,each]. */
static tutti_status sum_parts(tutti_ctx *cx, const tutti__rows_division *d, float *all, size_t each,
                              float **mine_p)
{
    tutti_stream *stream = tutti__peers_stream(cx);

    if (!d->peers->reduce_scatter || d->peers->size <= 1) {
        *mine_p = all + (size_t)(d->begin * d->width);
        return tutti__peers_sum_values(d->peers, stream, all, (size_t)(d->rows * d->width));
    }
    *mine_p = tutti__operation_memory(cx, each * sizeof **mine_p);
    return *mine_p ? d->peers->reduce_scatter(d->peers->self, stream, all, each, *mine_p)
                   : TUTTI_ERR_MEMORY;
}

tutti_status tutti__rows_sum(tutti_ctx *cx, const tutti__rows_division *d, const void *from,
                             tutti_dtype from_dtype, void *own)
{
    const size_t count = (size_t)(d->rows * d->width), kept = (size_t)(d->own * d->width);
    const size_t each = (size_t)(d->each * d->width), size = (size_t)d->peers->size;
    float *all = tutti__operation_memory(cx, each * size * sizeof *all), *mine;

    if (!all)
        return TUTTI_ERR_MEMORY;
    if (from_dtype == TUTTI_F32)
        TUTTI_TRY(copy(cx, all, from, count * sizeof *all));
    else
        TUTTI_TRY(tutti__peers_widen(cx, all, from, count, from_dtype));
    TUTTI_TRY(zero(cx, all + count, (each * size - count) * sizeof *all));
    TUTTI_TRY(sum_parts(cx, d, all, each, &mine));
    return d->dtype == TUTTI_F32 ? copy(cx, own, mine, kept * sizeof *mine)
                                 : tutti__peers_narrow(cx, own, mine, kept, d->dtype);
}

/* x's gradient, whole, = all ranks' rows of the result's. */
static tutti_status gather_gradient(tutti__node *n)
{
    tutti_tensor *dx;
    const void *dy;
    tutti__rows_division d;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    if (!dx)
        return TUTTI_OK;
    d = division_of(n, dx->shape, dx->dtype);
    TUTTI_TRY(tutti__tensor_row_major(n->dst->grad, &dy));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    return tutti__rows_gather(n->cx, &d, dy, dx->data);
}

/* ---- Divide ---------------------------------------------------------------------------------------------------- */

static tutti_status rows_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    const tutti_tensor *x = p->sources[0];
    const tutti_peers *peers = a->peers;
    int64_t begin, rows;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    if (x->shape.n < 2)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected rows, [..,D]",
                           tutti__shape_text(x->shape));
    rows = tutti_shape_count(x->shape) / x->shape.d[x->shape.n - 1];
    if (tutti__chunk(rows, peers->size * tutti__peers_units(peers), 1,
                     peers->size * tutti__peers_units(peers) - 1, &begin) < 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "x is %s: %lld tokens cannot be divided among %d ranks, each of which "
                           "needs one; use larger batches",
                           tutti__shape_text(x->shape), (long long)rows,
                           peers->size * tutti__peers_units(peers));
    *y = TUTTI_SHAPE(tutti__peers_chunk(peers, rows, peers->rank, &begin),
                     x->shape.d[x->shape.n - 1]);
    return TUTTI_OK;
}

static tutti_status divide_forward(tutti__node *n)
{
    const tutti__rows_division d = division_of(n, n->src[0]->shape, n->src[0]->dtype);
    const void *x;

    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &x));
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    return copy(n->cx, n->dst->data, (const char *)x + (size_t)d.begin * d.bytes,
                (size_t)d.own * d.bytes);
}

tutti_tensor *tutti__tokens_divide(tutti_tensor *x, const tutti_peers *peers)
{
    static const tutti__op op = {
        .plain = {.name = "divide_tokens", .shape = rows_shape, .activations = 1},
        .forward = divide_forward,
        .backward = gather_gradient};
    const attributes a = {.peers = peers};

    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}

/* ---- Gather ---------------------------------------------------------------------------------------------------- */

static tutti_status whole_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[R,D]", TUTTI_F32));
    *y = a->whole;
    y->d[y->n - 1] = p->sources[0]->shape.d[1];
    return TUTTI_OK;
}

static tutti_status gather_forward(tutti__node *n)
{
    const tutti__rows_division d = division_of(n, n->dst->shape, n->dst->dtype);
    const void *own;

    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &own));
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    return tutti__rows_gather(n->cx, &d, own, n->dst->data);
}

static tutti_status sum_gradient(tutti__node *n)
{
    const tutti__rows_division d = division_of(n, n->dst->shape, n->dst->dtype);
    tutti_tensor *dx;
    const void *dy;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__tensor_row_major(n->dst->grad, &dy));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    return tutti__rows_sum(n->cx, &d, dy, dx->dtype, dx->data);
}

static tutti_status own_gradient(tutti__node *n)
{
    const tutti__rows_division d = division_of(n, n->dst->shape, n->dst->dtype);
    tutti_tensor *dx;
    const void *dy;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__tensor_row_major(n->dst->grad, &dy));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    return copy(n->cx, dx->data, (const char *)dy + (size_t)d.begin * d.bytes,
                (size_t)d.own * d.bytes);
}

#define GATHER(gradient, ...)                                                                      \
    {                                                                                              \
        .plain = {.name = "gather_tokens", .shape = whole_shape, .activations = 1},                \
        .forward = gather_forward, .backward = gradient, .collective = true, __VA_ARGS__           \
    }

static const tutti__op gathers[] = {[TUTTI__GATHER_PARTS] = GATHER(sum_gradient, .again = false),
                                    [TUTTI__GATHER_AGAIN] = GATHER(sum_gradient, .again = true),
                                    [TUTTI__GATHER_WHOLE] = GATHER(own_gradient, .again = false)};

/* Of a result of one of these, also without gradients, when it has no node. */
static bool is_gathered(const tutti_tensor *x, tutti_shape whole)
{
    whole.d[whole.n - 1] = x->shape.n > 0 ? x->shape.d[x->shape.n - 1] : 0;
    return tutti_shape_equal(x->shape, whole);
}

tutti_tensor *tutti__tokens_gather(tutti_tensor *x, tutti_shape whole, tutti__gathering how,
                                   const tutti_peers *peers)
{
    const attributes a = {peers, whole};

    if (!x || (x->poison == TUTTI_OK && is_gathered(x, whole)))
        return x;
    return tutti__op_run(&gathers[how], &x, 1, &a, sizeof a);
}

tutti_tensor *tutti__tokens_original(tutti_tensor *x)
{
    for (size_t i = 0; x && x->node && i < TUTTI__COUNT_OF(gathers); i++)
        if (x->node->op == &gathers[i])
            return x->node->src[0];
    return x;
}

/* ---- Sum -------------------------------------------------------------------------------------------------------- */

static tutti_status sum_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_tensor *bias = p->sources[1];

    TUTTI_TRY(rows_shape(p, y, dtype));
    if (bias && !tutti_shape_equal(bias->shape, TUTTI_SHAPE(y->d[1])))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but bias is %s", tutti__shape_text(*y),
                           tutti__shape_text(bias->shape));
    return TUTTI_OK;
}

static tutti_status sum_forward(tutti__node *n)
{
    const tutti__rows_division d = division_of(n, n->src[0]->shape, n->src[0]->dtype);
    const void *x;

    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &x));
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    TUTTI_TRY(tutti__rows_sum(n->cx, &d, x, n->dst->dtype, n->dst->data));
    return n->src[1] ? tutti__peers_add_bias(n->dst, n->src[1]) : TUTTI_OK;
}

static tutti_status sum_backward(tutti__node *n)
{
    TUTTI_TRY(tutti__peers_bias_gradient(n));
    return gather_gradient(n);
}

tutti_tensor *tutti__tokens_sum(tutti_tensor *x, tutti_tensor *bias, const tutti_peers *peers)
{
    static const tutti__op op = {
        .plain = {.name = "sum_tokens", .shape = sum_shape, .activations = 1},
        .forward = sum_forward,
        .backward = sum_backward,
        .collective = true};
    const attributes a = {.peers = peers};

    return tutti__op_run(&op, (tutti_tensor *[]){x, bias}, 2, &a, sizeof a);
}
