/* embedding.c -- rows of a table by index.   SPDX-License-Identifier: MIT
 *   weight [V,D]   indices [..] I64   ->   y [..,D]
 * Indices are checked here, once for every kernel family. The gradient of a weight is dense in memory; for a sparse
 * parameter, `touched` marks the rows that may be non-zero. */
#include "tensor/op.h"

#include <string.h>

static tutti_status check_indices(const tutti_tensor *indices, int64_t n_rows)
{
    const int64_t *index = indices->host;

    for (int64_t i = 0; i < tutti_shape_count(indices->shape); i++)
        if (index[i] < 0 || index[i] >= n_rows)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "index %lld of indices %s is %lld, but weight has %lld rows: expected "
                "0 to %lld",
                (long long)i, tutti__shape_text(indices->shape), (long long)index[i],
                (long long)n_rows, (long long)n_rows - 1);
    return TUTTI_OK;
}

/* The row that gets no gradient. */
typedef struct padding_row {
    bool has;
    int64_t row; /* negative: from the end */
} padding_row;

static tutti_status embedding_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const padding_row *a = p->attributes;
    const tutti_tensor *weight = p->sources[0], *indices = p->sources[1];

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "weight", "[V,D]", TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "indices", NULL, TUTTI_I64));
    if (indices->shape.n == TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG, "indices is %s, expected at most %d dimensions",
                           tutti__shape_text(indices->shape), TUTTI_MAX_DIMS - 1);
    if (a->has && (a->row < -weight->shape.d[0] || a->row >= weight->shape.d[0]))
        return tutti__fail(TUTTI_ERR_ARG, "padding_idx is %lld, but weight has %lld rows",
                           (long long)a->row, (long long)weight->shape.d[0]);
    *y = indices->shape;
    y->d[y->n++] = weight->shape.d[1];
    return check_indices(indices, weight->shape.d[0]);
}

static tutti_status embedding_forward(tutti__node *n)
{
    return n->dst->cx->kernels->embedding_forward(n->dst, n->src[0], n->src[1]);
}

/* Marks the rows of a sparse parameter's gradient that this node wrote; `fresh`: the first node since zero_grad. */
static void touch(tutti__parameter *p, const tutti_tensor *weight, const tutti_tensor *indices,
                  bool fresh)
{
    const int64_t *index = indices->host;

    if (fresh)
        memset(p->touched, 0, (size_t)weight->shape.d[0]);
    for (int64_t i = 0; i < tutti_shape_count(indices->shape); i++)
        p->touched[index[i]] = 1;
}

/* dw = or += the gradient, but row a->row of it stays as it is, or 0. */
static tutti_status add_rows(tutti__node *n, const padding_row *a, tutti_tensor *dw,
                             tutti_tensor *dy, tutti_tensor *indices)
{
    tutti_stream *stream = n->cx->stream;
    const size_t bytes = (size_t)dw->shape.d[1] * sizeof(float);
    const int64_t at = a->row + (a->row < 0 ? dw->shape.d[0] : 0);
    void *row = (char *)dw->data + (size_t)at * bytes, *kept;

    if (!a->has)
        return n->cx->kernels->embedding_backward(dw, dy, indices);
    if (!dw->accumulate) {
        TUTTI_TRY(n->cx->kernels->embedding_backward(dw, dy, indices));
        return stream->ops->zero(stream, row, bytes);
    }
    kept = tutti__step_memory(n->cx, bytes);
    if (!kept)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__copy(stream, kept, row, bytes));
    TUTTI_TRY(n->cx->kernels->embedding_backward(dw, dy, indices));
    return tutti__copy(stream, row, kept, bytes);
}

/* Adds to the late rows of a parameter's gradient, which are not where the gradient is. */
static tutti_status add_late(tutti__node *n, float *values, const int32_t *place, tutti_tensor *dy)
{
    const tutti_tensor *weight = n->src[0], *indices = n->src[1];
    const int64_t count = tutti_shape_count(indices->shape), *index = indices->host;
    const padding_row *a = n->attributes;
    const int64_t row = a->row + (a->row < 0 ? weight->shape.d[0] : 0);
    const padding_row moved = {.has = a->has && place[row] >= 0, .row = a->has ? place[row] : 0};
    int64_t *places = tutti__step_alloc(n->cx, (size_t)(count + 1) * sizeof *places), rows = 1;
    tutti_tensor *to = tutti__tensor_new(n->cx, indices->shape, TUTTI_I64), *dw;

    if (!places || !to)
        return TUTTI_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        places[i] = place[index[i]];
        rows = places[i] >= rows ? places[i] + 1 : rows;
    }
    dw = tutti__tensor_new(n->cx, TUTTI_SHAPE(rows, weight->shape.d[1]), TUTTI_F32);
    if (!dw)
        return TUTTI_ERR_MEMORY;
    to->data = places;
    to->host = places;
    dw->data = values;
    dw->accumulate = dw->shared = to->shared = true;
    return add_rows(n, &moved, dw, dy, to);
}

static tutti_status embedding_backward(tutti__node *n)
{
    tutti__parameter *p = n->src[0]->parameter;
    const tutti__late_rows *late = p && tutti__counts_use(n, 0) ? p->late_rows : NULL;
    const int32_t *place = NULL;
    float *values = NULL;
    bool fresh = p && p->grad_round != *p->round, all = p && !fresh && p->all_touched;
    tutti_tensor *dy = tutti__tensor_view(n->dst->grad, n->dst->shape), *dw;

    if (!dy)
        return TUTTI_ERR_MEMORY;
    if (late)
        TUTTI_TRY(late->get(late->self, n->src[0], &values, &place));
    if (values)
        return add_late(n, values, place, dy);
    TUTTI_TRY(tutti__weight_grad_of(n, 0, &dw));
    TUTTI_TRY(add_rows(n, n->attributes, dw, dy, n->src[1]));
    if (p && p->touched && dw->data == p->grad) {
        touch(p, n->src[0], n->src[1], fresh);
        p->all_touched = all;
    }
    return TUTTI_OK;
}

static tutti_tensor *run(tutti_tensor *weight, tutti_tensor *indices, const padding_row *a)
{
    static const tutti__op op = {
        .plain = {.name = "embedding", .shape = embedding_shape, .backward_reads = 1 << 1},
        .forward = embedding_forward,
        .backward = embedding_backward,
        .by_rows = true};

    return tutti__op_run(&op, (tutti_tensor *[]){weight, indices}, 2, a, sizeof *a);
}

tutti_tensor *tutti_functional_embedding(tutti_tensor *weight, tutti_tensor *indices)
{
    return run(weight, indices, &(padding_row){0});
}

tutti_tensor *tutti_functional_embedding_with(tutti_tensor *weight, tutti_tensor *indices,
                                              const tutti_embedding_opts *opts)
{
    const tutti_status status = opts ? TUTTI__CHECK_RESERVED(tutti_embedding_opts, opts) : TUTTI_OK;

    if ((weight || indices) && status != TUTTI_OK)
        return tutti__poisoned(weight ? weight->cx : indices->cx, status);
    return run(weight, indices,
               &(padding_row){opts && opts->has_padding_idx, opts ? opts->padding_idx : 0});
}
