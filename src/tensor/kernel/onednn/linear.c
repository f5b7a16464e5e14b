/* linear.c -- linear layers by our own products, in 16 bit by oneDNN's matmul; row-major.   SPDX-License-Identifier: MIT
 *   x [R,K]   w [M,K]   b [M] or NULL   ->   y [R,M] */
#include "base/half.h"
#include "tensor/kernel/onednn/onednn_state.h"

/* In F32, by our own products. */
static tutti_status multiply(tutti_ctx *cx, const tutti__product *p)
{
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;
    void *work;

    TUTTI_TRY(tutti__onednn_scratch(cx, isa->multiply_work(cx, p), &work));
    isa->multiply(cx, p, work);
    return TUTTI_OK;
}

tutti_status tutti__onednn_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                          tutti_tensor *b)
{
    const int64_t R = x->shape.d[0], K = x->shape.d[1], M = w->shape.d[0];
    void *x_data, *w_data, *b_data = NULL;

    TUTTI_TRY(tutti__onednn_in(x, NULL, &x_data));
    TUTTI_TRY(tutti__onednn_in(w, NULL, &w_data));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    if (b)
        TUTTI_TRY(tutti__onednn_in(b, NULL, &b_data));
    /* y^T = w x^T + b */
    return multiply(y->cx, &(tutti__product){.rows = M,
                                             .columns = R,
                                             .inner = K,
                                             .a = w_data,
                                             .a_row = K,
                                             .a_k = 1,
                                             .b = x_data,
                                             .b_k = 1,
                                             .b_column = K,
                                             .c = y->data,
                                             .c_step = M,
                                             .transposed = true,
                                             .bias = b_data});
}

tutti_status tutti__onednn_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w)
{
    const int64_t R = dx->shape.d[0], K = dx->shape.d[1], M = w->shape.d[0];
    void *dy_data, *w_data;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &dy_data));
    TUTTI_TRY(tutti__onednn_in(w, NULL, &w_data));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    /* dx = dy w */
    return multiply(dx->cx, &(tutti__product){.rows = R,
                                              .columns = K,
                                              .inner = M,
                                              .a = dy_data,
                                              .a_row = M,
                                              .a_k = 1,
                                              .b = w_data,
                                              .b_k = K,
                                              .b_column = 1,
                                              .c = dx->data,
                                              .c_step = K});
}

#define TOGETHER 64 /* about as many sums as fit the registers */

/* to[0 .. n) = or += the sums of dy's columns, whose rows are M long */
#define SUM_COLUMNS(name, type, WIDE)                                                              \
    TUTTI__CLONES static void name(float *to, bool add, const type *dy, int64_t R, int64_t M,      \
                                   int n)                                                          \
    {                                                                                              \
        double sum[TOGETHER];                                                                      \
                                                                                                   \
        for (int i = 0; i < n; i++)                                                                \
            sum[i] = add ? (double)to[i] : 0;                                                      \
        for (int64_t r = 0; r < R; r++, dy += M)                                                   \
            for (int i = 0; i < n; i++)                                                            \
                sum[i] += (double)WIDE(dy[i]);                                                     \
        for (int i = 0; i < n; i++)                                                                \
            to[i] = (float)sum[i];                                                                 \
    }

SUM_COLUMNS(sum_f32, float, )
SUM_COLUMNS(sum_bf16, uint16_t, tutti__f32_of_bf16)
SUM_COLUMNS(sum_f16, uint16_t, tutti__f32_of_f16)

typedef struct columns {
    float *to;
    const void *dy;
    tutti_dtype dtype;
    bool add;
    int64_t R, M;
} columns;

static void columns_job(void *arg, int64_t job, int member)
{
    const columns *c = arg;
    const int64_t m = job * TOGETHER;
    const int n = c->M - m < TOGETHER ? (int)(c->M - m) : TOGETHER;

    (void)member;
    if (c->dtype == TUTTI_F32)
        sum_f32(c->to + m, c->add, (const float *)c->dy + m, c->R, c->M, n);
    else
        (c->dtype == TUTTI_BF16 ? sum_bf16 : sum_f16)(c->to + m, c->add,
                                                      (const uint16_t *)c->dy + m, c->R, c->M, n);
}

static void bias_gradient(tutti_tensor *db, const void *dy, tutti_dtype dtype, int64_t R, int64_t M)
{
    columns c = {db->data, dy, dtype, db->accumulate, R, M};

    tutti__parallel(db->cx, columns_job, &c, (M + TOGETHER - 1) / TOGETHER);
}

tutti_status tutti__onednn_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                   tutti_tensor *dy, tutti_tensor *x)
{
    const int64_t R = x->shape.d[0], K = x->shape.d[1], M = dy->shape.d[1];
    void *dy_data, *x_data;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &dy_data));
    if (db)
        bias_gradient(db, dy_data, TUTTI_F32, R, M);
    if (!dw)
        return TUTTI_OK;
    TUTTI_TRY(tutti__onednn_in(x, NULL, &x_data));
    /* dw = or += dy^T x */
    return multiply(dw->cx, &(tutti__product){.rows = M,
                                              .columns = K,
                                              .inner = R,
                                              .a = dy_data,
                                              .a_row = 1,
                                              .a_k = M,
                                              .b = x_data,
                                              .b_k = K,
                                              .b_column = 1,
                                              .c = dw->data,
                                              .c_step = K,
                                              .add = dw->accumulate});
}

/* ---- 16 bit ----------------------------------------------------------------------------------------------- */

/* y = x w, or x w^T (transposed), and b. */
static tutti_status multiply_rows(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                  bool transposed, tutti_tensor *b)
{
    const tutti__onednn_half h = {.op = {'N', transposed ? 'T' : 'N'},
                                  .rows = y->shape.d[0],
                                  .columns = y->shape.d[1],
                                  .inner = x->shape.d[1],
                                  .dtype = x->dtype,
                                  .result = y->dtype,
                                  .bias = b != NULL};
    void *data[4] = {NULL};
    bool done;

    TUTTI_TRY(tutti__onednn_in(x, NULL, &data[0]));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    data[2] = y->data;
    if (b)
        TUTTI_TRY(tutti__onednn_in(b, NULL, &data[3]));
    TUTTI_TRY(
        tutti__onednn_multiply_half(y->cx, h.dtype,
                                    &(tutti__half_product){.rows = h.rows,
                                                           .columns = h.columns,
                                                           .inner = h.inner,
                                                           .a = data[0],
                                                           .a_row = h.inner,
                                                           .a_k = 1,
                                                           .b = w->data,
                                                           .b_f32 = true,
                                                           .b_k = transposed ? 1 : h.columns,
                                                           .b_column = transposed ? h.inner : 1,
                                                           .c = y->data,
                                                           .c_step = h.columns,
                                                           .bias = data[3]},
                                    &done));
    if (done)
        return TUTTI_OK;
    TUTTI_TRY(tutti__onednn_in_as(w, w->shape, NULL, h.dtype, &data[1]));
    return tutti__onednn_half_run(y->cx, &h, data);
}

tutti_status tutti__onednn_half_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                               tutti_tensor *b)
{
    return multiply_rows(y, x, w, true, b);
}

tutti_status tutti__onednn_half_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                     tutti_tensor *w)
{
    return multiply_rows(dx, dy, w, false, NULL);
}

tutti_status tutti__onednn_half_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                        tutti_tensor *dy, tutti_tensor *x)
{
    const int64_t R = x->shape.d[0], K = x->shape.d[1], M = dy->shape.d[1];
    void *data[4] = {NULL};
    bool done;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &data[0]));
    if (db)
        bias_gradient(db, data[0], dy->dtype, R, M);
    if (!dw)
        return TUTTI_OK;
    TUTTI_TRY(tutti__onednn_in(x, NULL, &data[1]));
    data[2] = dw->data;
    TUTTI_TRY(tutti__onednn_multiply_half(dw->cx, dy->dtype,
                                          &(tutti__half_product){.rows = M,
                                                                 .columns = K,
                                                                 .inner = R,
                                                                 .a = data[0],
                                                                 .a_row = 1,
                                                                 .a_k = M,
                                                                 .b = data[1],
                                                                 .b_k = K,
                                                                 .b_column = 1,
                                                                 .c = dw->data,
                                                                 .c_f32 = true,
                                                                 .c_step = K,
                                                                 .add = dw->accumulate},
                                          &done));
    if (done)
        return TUTTI_OK;
    return tutti__onednn_half_run(dw->cx,
                                  &(tutti__onednn_half){.op = {'T', 'N'},
                                                        .rows = M,
                                                        .columns = K,
                                                        .inner = R,
                                                        .dtype = dy->dtype,
                                                        .result = TUTTI_F32,
                                                        .add = dw->accumulate},
                                  data);
}
