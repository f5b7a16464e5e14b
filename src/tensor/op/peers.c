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

static tutti_status add_up_halves(const tutti_peers *peers, tutti_tensor *t, size_t n)
{
    float *wide = tutti__operation_memory(t->cx, n * sizeof *wide + 1);

    if (!wide)
        return TUTTI_ERR_MEMORY;
    tutti__half_to_f32(wide, t->data, n, t->dtype);
    TUTTI_TRY(tutti__peers_sum_values(peers, wide, n));
    tutti__half_from_f32(t->data, wide, n, t->dtype);
    return TUTTI_OK;
}

tutti_status tutti__peers_add_up(const tutti_peers *peers, tutti_tensor *t)
{
    const size_t n = (size_t)tutti_shape_count(t->shape);

    if (!t->cx->device_ops->is_host)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "layers can be divided among ranks on the CPU "
                                                  "only");
    return t->dtype == TUTTI_F32 ? tutti__peers_sum_values(peers, t->data, n)
                                 : add_up_halves(peers, t, n);
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

void tutti__peers_add_bias(tutti_tensor *y, const tutti_tensor *bias)
{
    const int64_t width = bias->shape.d[0], rows = tutti_shape_count(y->shape) / width;
    const float *b = bias->data;

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
}

static tutti_status sum_forward(tutti__node *n)
{
    TUTTI_TRY(copy_of(n->dst, n->src[0]));
    TUTTI_TRY(tutti__peers_add_up(peers_of(n), n->dst));
    if (n->src[1])
        tutti__peers_add_bias(n->dst, n->src[1]);
    return TUTTI_OK;
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

static tutti_status rows_forward(tutti__node *n)
{
    const void *rows;

    if (!n->cx->device_ops->is_host) /* which says so */
        return tutti__peers_add_up(peers_of(n), n->dst);
    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &rows));
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    memset(n->dst->data, 0, tutti__tensor_bytes(n->dst));
    move_rows(n, rows, n->dst->data);
    return tutti__peers_add_up(peers_of(n), n->dst);
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
