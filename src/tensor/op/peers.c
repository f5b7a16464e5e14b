/* peers.c -- sums over ranks that have parts of a layer, as operations: peers.h.   SPDX-License-Identifier: MIT */
#include "tensor/op/peers.h"

#include "base/half.h"

#include <string.h>

typedef struct attributes {
    const tutti_peers *peers;
    const int64_t *place; /* of rows */
    tutti_shape shape;
} attributes;

static const tutti_peers *peers_of(const tutti__node *n)
{
    return ((const attributes *)n->attributes)->peers;
}

/* ---- Sums ---------------------------------------------------------------------------------------------------- */

/* As `cast` of the device's kernels, into memory that is there. */
static tutti_status convert(tutti_ctx *cx, void *to, tutti_dtype dtype, const void *from, size_t n,
                            tutti_dtype of)
{
    tutti_tensor *x = tutti__tensor_new(cx, TUTTI_SHAPE((int64_t)n), of);
    tutti_tensor *y = tutti__tensor_new(cx, TUTTI_SHAPE((int64_t)n), dtype);
    tutti_status status;

    if (!x || !y)
        return TUTTI_ERR_MEMORY;
    x->data = (void *)(uintptr_t)from;
    x->shared = true;
    status = cx->f32_kernels->cast(y, x);
    if (status == TUTTI_OK)
        status = tutti__copy(cx->stream, to, y->data, tutti__tensor_bytes(y));
    tutti__tensor_release(y);
    return status;
}

tutti_status tutti__peers_widen(tutti_ctx *cx, float *to, const void *half, size_t n,
                                tutti_dtype dtype)
{
    if (!cx->device_ops->is_host && n > 0)
        return convert(cx, to, TUTTI_F32, half, n, dtype);
    tutti__half_to_f32(to, half, n, dtype);
    return TUTTI_OK;
}

tutti_status tutti__peers_narrow(tutti_ctx *cx, void *half, const float *from, size_t n,
                                 tutti_dtype dtype)
{
    if (!cx->device_ops->is_host && n > 0)
        return convert(cx, half, dtype, from, n, TUTTI_F32);
    tutti__half_from_f32(half, from, n, dtype);
    return TUTTI_OK;
}

tutti_status tutti__peers_add_up(const tutti_peers *peers, tutti_tensor *t)
{
    const size_t n = (size_t)tutti_shape_count(t->shape);
    tutti_ctx *cx = t->cx;
    float *wide = t->data;

    if (t->dtype != TUTTI_F32) {
        wide = tutti__operation_memory(cx, n * sizeof *wide + 1);
        if (!wide)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(tutti__peers_widen(cx, wide, t->data, n, t->dtype));
    }
    TUTTI_TRY(tutti__peers_sum_values(peers, tutti__peers_stream(cx), wide, n));
    return t->dtype == TUTTI_F32 ? TUTTI_OK : tutti__peers_narrow(cx, t->data, wide, n, t->dtype);
}

/* Gives `to` the elements of `from` in memory of its own. */
static tutti_status copy_of(tutti_tensor *to, tutti_tensor *from)
{
    const void *elements;

    TUTTI_TRY(tutti__tensor_row_major(from, &elements));
    TUTTI_TRY(tutti__tensor_alloc(to, NULL));
    return tutti__copy(to->cx->stream, to->data, elements, tutti__tensor_bytes(to));
}

static tutti_status same_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    *y = p->sources[0]->shape;
    return TUTTI_OK;
}

/* ---- Copy ---------------------------------------------------------------------------------------------------- */

static tutti_status copy_backward(tutti__node *n)
{
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(copy_of(dx, n->dst->grad));
    return tutti__peers_add_up(peers_of(n), dx);
}

static const tutti__op copy = {
    .plain = {.name = "copy_to_ranks", .shape = same_shape, .activations = 1},
    .forward = tutti__reshape_forward,
    .backward = copy_backward};

tutti_tensor *tutti__peers_copy(tutti_tensor *x, const tutti_peers *peers)
{
    const attributes a = {.peers = peers};

    if (!x || x->poison != TUTTI_OK || !x->needs_grad || !x->cx->recording ||
        tutti__peers_original(x) != x)
        return x;
    return tutti__op_run(&copy, &x, 1, &a, sizeof a);
}

tutti_tensor *tutti__peers_original(tutti_tensor *x)
{
    return x && x->node && x->node->op == &copy ? x->node->src[0] : x;
}

/* ---- Sum ----------------------------------------------------------------------------------------------------- */

static tutti_status sum_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_tensor *bias = p->sources[1];

    TUTTI_TRY(same_shape(p, y, dtype));
    if (bias && (y->n < 1 || !tutti_shape_equal(bias->shape, TUTTI_SHAPE(y->d[y->n - 1]))))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but bias is %s", tutti__shape_text(*y),
                           tutti__shape_text(bias->shape));
    return TUTTI_OK;
}

/* By the device's kernels: of 16 bit in a copy. */
static tutti_status add_bias_on_device(tutti_tensor *y, const tutti_tensor *bias)
{
    const int64_t width = bias->shape.d[0], count = tutti_shape_count(y->shape);
    float *wide = y->data;
    tutti__move c = {.n = 2,
                     .size = {count / width, width},
                     .to_stride = {width, 1},
                     .from_stride = {0, 1},
                     .element = sizeof(float),
                     .add = true,
                     .from = bias->data};

    if (count == 0)
        return TUTTI_OK;
    if (y->dtype != TUTTI_F32) {
        wide = tutti__operation_memory(y->cx, (size_t)count * sizeof *wide);
        if (!wide)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(tutti__peers_widen(y->cx, wide, y->data, (size_t)count, y->dtype));
    }
    c.to = wide;
    TUTTI_TRY(y->cx->f32_kernels->move(y->cx, &c));
    return y->dtype == TUTTI_F32
               ? TUTTI_OK
               : tutti__peers_narrow(y->cx, y->data, wide, (size_t)count, y->dtype);
}

tutti_status tutti__peers_add_bias(tutti_tensor *y, const tutti_tensor *bias)
{
    const int64_t width = bias->shape.d[0], rows = tutti_shape_count(y->shape) / width;
    const float *b = bias->data;

    if (!y->cx->device_ops->is_host)
        return add_bias_on_device(y, bias);
    for (int64_t r = 0; y->dtype == TUTTI_F32 && r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            ((float *)y->data)[r * width + i] += b[i];
    for (int64_t r = 0; y->dtype != TUTTI_F32 && r < rows; r++)
        for (int64_t i = 0; i < width; i += 256) {
            const size_t m = (size_t)(width - i < 256 ? width - i : 256);
            uint16_t *half = (uint16_t *)y->data + r * width + i;
            float wide[256];

            tutti__half_to_f32(wide, half, m, y->dtype);
            for (size_t k = 0; k < m; k++)
                wide[k] += b[i + (int64_t)k];
            tutti__half_from_f32(half, wide, m, y->dtype);
        }
    return TUTTI_OK;
}

static tutti_status sum_forward(tutti__node *n)
{
    TUTTI_TRY(copy_of(n->dst, n->src[0]));
    TUTTI_TRY(tutti__peers_add_up(peers_of(n), n->dst));
    return n->src[1] ? tutti__peers_add_bias(n->dst, n->src[1]) : TUTTI_OK;
}

tutti_status tutti__peers_bias_gradient(tutti__node *n)
{
    tutti_tensor *dy = tutti__tensor_rows(n->dst->grad), *db;

    TUTTI_TRY(tutti__weight_grad_of(n, 1, &db));
    if (!dy)
        return TUTTI_ERR_MEMORY;
    if (db)
        TUTTI_TRY(n->cx->kernels->linear_backward_weights(NULL, db, dy, dy));
    return TUTTI_OK;
}

static tutti_status sum_backward(tutti__node *n)
{
    TUTTI_TRY(tutti__peers_bias_gradient(n));
    tutti__grad_pass(n, 0, n->dst->grad);
    return TUTTI_OK;
}

tutti_tensor *tutti__peers_sum(tutti_tensor *x, tutti_tensor *bias, const tutti_peers *peers)
{
    static const tutti__op op = {
        .plain = {.name = "sum_over_ranks", .shape = sum_shape, .activations = 1},
        .forward = sum_forward,
        .backward = sum_backward,
        .collective = true};
    const attributes a = {.peers = peers};

    return tutti__op_run(&op, (tutti_tensor *[]){x, bias}, 2, &a, sizeof a);
}

/* ---- Rows ---------------------------------------------------------------------------------------------------- */

static tutti_status rows_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,D]", TUTTI_F32));
    *y = a->shape;
    y->d[y->n++] = p->sources[0]->shape.d[1];
    return TUTTI_OK;
}

/* Row i of x to row place[i] of y. */
static void move_rows(const tutti__node *n, const char *x, char *y)
{
    const attributes *a = n->attributes;
    const tutti_shape shape = n->src[0]->shape;
    const size_t bytes = (size_t)shape.d[1] * tutti_dtype_size(n->src[0]->dtype);

    for (int64_t i = 0; i < shape.d[0]; i++)
        memcpy(y + (size_t)a->place[i] * bytes, x + (size_t)i * bytes, bytes);
}

/* The places as a device's kernels take indices. */
static tutti_status places_of(const tutti__node *n, tutti_tensor **t_p)
{
    const attributes *a = n->attributes;
    tutti_tensor *t = *t_p =
        tutti__tensor_new(n->cx, TUTTI_SHAPE(n->src[0]->shape.d[0]), TUTTI_I64);

    if (!t)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(t, NULL));
    t->host = (void *)(uintptr_t)a->place;
    return tutti__copy_in(n->cx->stream, t->data, a->place, tutti__tensor_bytes(t));
}

/* [rows, D] of a result or gradient that has more dimensions. */
static tutti_tensor table_of(const tutti_tensor *t, void *elements)
{
    const int64_t width = t->shape.d[t->shape.n - 1];
    tutti_tensor table = *t;

    table.shape = TUTTI_SHAPE(tutti_shape_count(t->shape) / width, width);
    table.data = elements;
    table.layout = NULL;
    return table;
}

/* On a device: each row of y gets one row of x, as rows of a table get those of its gradient. */
static tutti_status move_rows_on_device(const tutti__node *n, const void *x)
{
    tutti_tensor rows = table_of(n->src[0], (void *)(uintptr_t)x);
    tutti_tensor all = table_of(n->dst, n->dst->data), *places;

    if (n->src[0]->shape.d[0] == 0)
        return TUTTI_OK;
    all.accumulate = true;
    TUTTI_TRY(places_of(n, &places));
    TUTTI_TRY(n->cx->f32_kernels->embedding_backward(&all, &rows, places));
    tutti__tensor_release(places);
    return TUTTI_OK;
}

static tutti_status rows_forward(tutti__node *n)
{
    const tutti_ctx *cx = n->cx;
    const void *rows;

    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &rows));
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    TUTTI_TRY(cx->device_ops->zero(cx->stream, n->dst->data, tutti__tensor_bytes(n->dst)));
    if (cx->device_ops->is_host)
        move_rows(n, rows, n->dst->data);
    else
        TUTTI_TRY(move_rows_on_device(n, rows));
    return tutti__peers_add_up(peers_of(n), n->dst);
}

/* On a device: as those of a table. */
static tutti_status take_rows_on_device(const tutti__node *n, const void *dy, tutti_tensor *dx)
{
    tutti_tensor table = table_of(n->dst, (void *)(uintptr_t)dy), *places;

    if (n->src[0]->shape.d[0] == 0)
        return tutti__tensor_alloc(dx, NULL);
    TUTTI_TRY(places_of(n, &places));
    TUTTI_TRY(n->cx->f32_kernels->embedding_forward(dx, &table, places));
    tutti__tensor_release(places);
    return TUTTI_OK;
}

static tutti_status rows_backward(tutti__node *n)
{
    const attributes *a = n->attributes;
    const tutti_shape shape = n->src[0]->shape;
    const size_t bytes = (size_t)shape.d[1] * tutti_dtype_size(n->src[0]->dtype);
    tutti_tensor *dx;
    const void *dy;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__tensor_row_major(n->dst->grad, &dy));
    if (!n->cx->device_ops->is_host)
        return take_rows_on_device(n, dy, dx);
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    for (int64_t i = 0; i < shape.d[0]; i++)
        memcpy((char *)dx->data + (size_t)i * bytes, (const char *)dy + (size_t)a->place[i] * bytes,
               bytes);
    return TUTTI_OK;
}

tutti_tensor *tutti__peers_rows(tutti_tensor *x, const int64_t *place, tutti_shape shape,
                                const tutti_peers *peers)
{
    static const tutti__op op = {.plain = {.name = "rows_of_ranks", .shape = rows_shape},
                                 .forward = rows_forward,
                                 .backward = rows_backward,
                                 .collective = true};
    const attributes a = {peers, place, shape};

    return tutti__op_run(&op, &x, 1, &a, sizeof a);
}
