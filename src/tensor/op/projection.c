/* projection.c -- y = x w + b over the last dimension.   SPDX-License-Identifier: MIT
 *   x [..,K]   w [K,M]   b [M] or NULL   ->   y [..,M]
 *
 * The products are those of the linear operation with w^T, so its kernels compute them, each in place of another:
 *   y = x w: its gradient of x    dx = dy w^T: its forward    dw = x^T dy: its gradient of the weight, with x and dy exchanged
 * Beside matmul and add this writes dw where the optimizer reads it, and the gradient of b is no sum over broadcast elements. */
#include "tensor/op/projection.h"

#include "base/half.h"
#include "tensor/parallel.h"

static tutti_status shape_of(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    tutti_shape x, w;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "weight", "[K,M]", TUTTI_F32));
    x = p->sources[0]->shape;
    w = p->sources[1]->shape;
    if (x.n < 1 || x.d[x.n - 1] != w.d[0])
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but weight is %s", tutti__shape_text(x),
                           tutti__shape_text(w));
    if (p->sources[2] && !tutti_shape_equal(p->sources[2]->shape, TUTTI_SHAPE(w.d[1])))
        return tutti__fail(TUTTI_ERR_ARG, "weight is %s but bias is %s", tutti__shape_text(w),
                           tutti__shape_text(p->sources[2]->shape));
    *y = x;
    y->d[x.n - 1] = w.d[1];
    return TUTTI_OK;
}

static tutti_tensor *rows_new(const tutti_tensor *t)
{
    return tutti__tensor_new(t->cx, tutti__shape_rows(t->shape), t->dtype);
}

/* ---- The bias ------------------------------------------------------------------------------------------------ */

#define PART ((int64_t)1 << 15) /* elements of a job, about */

typedef struct addition {
    void *y;
    tutti_dtype dtype;
    const float *bias;
    int64_t rows, width, in_job;
} addition;

TUTTI__CLONES static void add_to_row(float *restrict y, const float *restrict bias, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += bias[i];
}

static void add_to_half_row(uint16_t *y, const float *bias, int64_t n, tutti_dtype dtype)
{
    float wide[256];

    for (int64_t i = 0; i < n; i += 256) {
        const int64_t m = n - i < 256 ? n - i : 256;

        tutti__half_to_f32(wide, y + i, (size_t)m, dtype);
        add_to_row(wide, bias + i, m);
        tutti__half_from_f32(y + i, wide, (size_t)m, dtype);
    }
}

static void add_job(void *arg, int64_t job, int member)
{
    const addition *a = arg;
    const int64_t end = (job + 1) * a->in_job < a->rows ? (job + 1) * a->in_job : a->rows;

    (void)member;
    for (int64_t r = job * a->in_job; r < end; r++)
        if (a->dtype == TUTTI_F32)
            add_to_row((float *)a->y + r * a->width, a->bias, a->width);
        else
            add_to_half_row((uint16_t *)a->y + r * a->width, a->bias, a->width, a->dtype);
}

static void add_bias(tutti_tensor *y, const tutti_tensor *bias)
{
    addition a = {y->data, y->dtype, bias->data, y->shape.d[0], y->shape.d[1], 1};

    a.in_job = (PART + a.width - 1) / a.width;
    tutti__parallel(y->cx, add_job, &a, (a.rows + a.in_job - 1) / a.in_job);
}

/* ---- The operation ------------------------------------------------------------------------------------------- */

static tutti_status forward(tutti__node *n)
{
    tutti_tensor *x = tutti__tensor_rows(n->src[0]), *y = rows_new(n->dst);
    const void *elements;

    if (!x || !y)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(n->cx->kernels->linear_backward_data(y, x, n->src[1]));
    TUTTI_TRY(tutti__tensor_row_major(y, &elements));
    y->data = (void *)elements;
    if (n->src[2])
        add_bias(y, n->src[2]);
    n->dst->data = y->data;
    return TUTTI_OK;
}

static tutti_status backward(tutti__node *n)
{
    const tutti__kernels *kernels = n->cx->kernels;
    tutti_tensor *dy = tutti__tensor_rows(n->dst->grad), *x = tutti__tensor_rows(n->src[0]), *dx,
                 *dw, *db, *rows;
    const void *elements;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__weight_grad_of(n, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(n, 2, &db));
    if (!dy || !x)
        return TUTTI_ERR_MEMORY;
    if (db)
        TUTTI_TRY(kernels->linear_backward_weights(NULL, db, dy, x));
    if (dw)
        TUTTI_TRY(kernels->linear_backward_weights(dw, NULL, x, dy));
    tutti__weights_done(n);
    if (!dx)
        return TUTTI_OK;
    rows = rows_new(dx);
    if (!rows)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(kernels->linear_forward(rows, dy, n->src[1], NULL));
    TUTTI_TRY(tutti__tensor_row_major(rows, &elements));
    dx->data = (void *)elements;
    return TUTTI_OK;
}

static double flops(const tutti__node *n)
{
    return 2.0 * (double)tutti_shape_count(n->dst->shape) * (double)n->src[1]->shape.d[0];
}

tutti_tensor *tutti__projection_of(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias)
{
    static const tutti__op op = {.plain = {.name = "linear",
                                           .shape = shape_of,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_LOW,
                                           .backward_reads = 1 << 0 | 1 << 1},
                                 .forward = forward,
                                 .backward = backward,
                                 .rounds = 1 << 1,
                                 .flops = flops};
    tutti_tensor *y;

    if (x && weight && x->cx->device_ops->is_host && tutti_shape_count(x->shape) > 0)
        return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, NULL, 0);
    y = tutti_matmul(x, weight);
    return bias ? tutti_add(y, bias) : y;
}
