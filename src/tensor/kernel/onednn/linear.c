/* linear.c -- linear layers by our own products, in 16 bit by oneDNN's matmul; row-major.   SPDX-License-Identifier: MIT
 *   x [R,K]   w [M,K]   b [M] or NULL   ->   y [R,M] */
#include "tensor/kernel/onednn/onednn_state.h"

/* In F32, by our own products. */
static tutti_status multiply(tutti_ctx *cx, const tutti__product *p)
{
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;
    void *work;

    TUTTI_TRY(tutti__onednn_scratch(cx, isa->multiply_work(cx), &work));
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
TUTTI__CLONES static void sum_columns(float *to, bool add, const float *dy, int64_t R, int64_t M,
                                      int n)
{
    double sum[TOGETHER];

    for (int i = 0; i < n; i++)
        sum[i] = add ? (double)to[i] : 0;
    for (int64_t r = 0; r < R; r++, dy += M)
        for (int i = 0; i < n; i++)
            sum[i] += (double)dy[i];
    for (int i = 0; i < n; i++)
        to[i] = (float)sum[i];
}

static void bias_gradient(tutti_tensor *db, const float *dy, int64_t R, int64_t M)
{
    float *to = db->data;

    for (int64_t m = 0; m < M; m += TOGETHER)
        sum_columns(to + m, db->accumulate, dy + m, R, M,
                    M - m < TOGETHER ? (int)(M - m) : TOGETHER);
}

tutti_status tutti__onednn_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                   tutti_tensor *dy, tutti_tensor *x)
{
    const int64_t R = x->shape.d[0], K = x->shape.d[1], M = dy->shape.d[1];
    void *dy_data, *x_data;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &dy_data));
    if (db)
        bias_gradient(db, dy_data, R, M);
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

/* c [rows,columns] of `result` = or += op(a) op(b) + bias, a and b of `dtype` */
typedef struct half_product {
    char op[2];
    int64_t rows, columns, inner;
    tutti_dtype dtype, result;
    bool bias, add;
} half_product;

static dnnl_status_t half_pd(tutti_ctx *cx, const half_product *h, dnnl_primitive_desc_t *pd_p)
{
    tutti__onednn *od = cx->kernel_state;
    const dnnl_data_type_t type = tutti__onednn_type(h->dtype);
    const dnnl_dim_t a[2] = {h->rows, h->inner}, b[2] = {h->inner, h->columns};
    const dnnl_dim_t c[2] = {h->rows, h->columns}, bias[2] = {1, h->columns};
    tutti__window_mds m = {0};
    dnnl_status_t status = tutti__md_new(&m.src, 2, a, type, h->op[0] == 'T' ? dnnl_ba : dnnl_ab);

    if (status == dnnl_success)
        status = tutti__md_new(&m.weights, 2, b, type, h->op[1] == 'T' ? dnnl_ba : dnnl_ab);
    if (status == dnnl_success)
        status = tutti__md_new(&m.dst, 2, c, tutti__onednn_type(h->result), dnnl_ab);
    if (status == dnnl_success && h->bias)
        status = tutti__md_new(&m.bias, 2, bias, dnnl_f32, dnnl_ab);
    if (status == dnnl_success)
        status =
            tutti__pd_matmul(pd_p, od->engine, &m, h->add ? od->add_attributes : od->attributes);
    tutti__md_free(m.src);
    tutti__md_free(m.weights);
    tutti__md_free(m.dst);
    tutti__md_free(m.bias);
    return status;
}

static dnnl_status_t half_part(tutti_ctx *cx, const void *self,
                               const tutti__onednn_primitive *whole, int64_t rows,
                               dnnl_primitive_desc_t *pd_p)
{
    half_product h = *(const half_product *)self;

    (void)whole;
    h.rows = rows;
    return half_pd(cx, &h, pd_p);
}

#define PART_PRODUCTS ((int64_t)1 << 19) /* multiplications per part, at least */

/* In parts of contiguous rows; not for weight gradients, which one thread computes. */
static tutti_status get_half(tutti_ctx *cx, const half_product *h, tutti__onednn_primitive **p)
{
    static const tutti__onednn_arg args[] = {
        {DNNL_ARG_SRC, dnnl_query_src_md, 0, TUTTI__ONEDNN_IMAGES},
        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, TUTTI__ONEDNN_WHOLE},
        {DNNL_ARG_DST, dnnl_query_dst_md, 0, TUTTI__ONEDNN_IMAGES},
        {DNNL_ARG_BIAS, dnnl_query_weights_md, 1, TUTTI__ONEDNN_WHOLE}};
    const tutti__onednn_key key = {{TUTTI__ONEDNN_MATMUL, h->op[0], h->op[1], h->rows, h->columns,
                                    h->inner, h->dtype, h->result, h->bias, h->add}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status;
    int kept;

    *p = tutti__onednn_find(cx, &key);
    if (*p)
        return TUTTI_OK;
    kept = tutti__onednn_alone_begin();
    status = half_pd(cx, h, &pd);
    tutti__onednn_alone_end(kept);
    TUTTI_TRY(tutti__onednn_check(status, "a matrix product in 16 bit"));
    TUTTI_TRY(tutti__onednn_add(cx, &key, pd, args, h->bias ? 4 : 3, p));
    return tutti__onednn_cut(
        cx, *p,
        &(tutti__onednn_parts){
            half_part, h, h->rows,
            tutti__onednn_parts_of(h->rows * h->columns * h->inner / PART_PRODUCTS)});
}

static tutti_status run_half(tutti_ctx *cx, const half_product *h, void *const data[4])
{
    tutti__onednn_primitive *p;

    TUTTI_TRY(get_half(cx, h, &p));
    return tutti__onednn_run(cx, p, data);
}

tutti_status tutti__onednn_half_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                               tutti_tensor *b)
{
    const half_product h = {.op = {'N', 'T'},
                            .rows = x->shape.d[0],
                            .columns = w->shape.d[0],
                            .inner = x->shape.d[1],
                            .dtype = y->dtype,
                            .result = y->dtype,
                            .bias = b != NULL};
    void *data[4] = {NULL};

    TUTTI_TRY(tutti__onednn_in(x, NULL, &data[0]));
    TUTTI_TRY(tutti__onednn_in_as(w, w->shape, NULL, y->dtype, &data[1]));
    TUTTI_TRY(tutti__tensor_alloc(y, NULL));
    data[2] = y->data;
    if (b)
        TUTTI_TRY(tutti__onednn_in(b, NULL, &data[3]));
    return run_half(y->cx, &h, data);
}

tutti_status tutti__onednn_half_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                     tutti_tensor *w)
{
    const half_product h = {.op = {'N', 'N'},
                            .rows = dy->shape.d[0],
                            .columns = w->shape.d[1],
                            .inner = w->shape.d[0],
                            .dtype = dy->dtype,
                            .result = dx->dtype};
    void *data[4] = {NULL};

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &data[0]));
    TUTTI_TRY(tutti__onednn_in_as(w, w->shape, NULL, dy->dtype, &data[1]));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    data[2] = dx->data;
    return run_half(dx->cx, &h, data);
}

tutti_status tutti__onednn_half_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                        tutti_tensor *dy, tutti_tensor *x)
{
    const int64_t R = x->shape.d[0], K = x->shape.d[1], M = dy->shape.d[1];
    void *data[4] = {NULL}, *wide;

    if (db) {
        TUTTI_TRY(tutti__onednn_in_as(dy, dy->shape, NULL, TUTTI_F32, &wide));
        bias_gradient(db, wide, R, M);
    }
    if (!dw)
        return TUTTI_OK;
    TUTTI_TRY(tutti__onednn_in(dy, NULL, &data[0]));
    TUTTI_TRY(tutti__onednn_in(x, NULL, &data[1]));
    data[2] = dw->data;
    return run_half(dw->cx,
                    &(half_product){.op = {'T', 'N'},
                                    .rows = M,
                                    .columns = K,
                                    .inner = R,
                                    .dtype = dy->dtype,
                                    .result = TUTTI_F32,
                                    .add = dw->accumulate},
                    data);
}

bool tutti__onednn_can_multiply(tutti_ctx *cx, tutti_dtype dtype)
{
    const half_product h = {.op = {'N', 'T'},
                            .rows = 16,
                            .columns = 16,
                            .inner = 16,
                            .dtype = dtype,
                            .result = dtype,
                            .bias = true};
    dnnl_primitive_desc_t pd = NULL;
    bool can;

    if (half_pd(cx, &h, &pd) != dnnl_success)
        return false;
    can = tutti__onednn_is_fast(pd);
    dnnl_primitive_desc_destroy(pd);
    return can;
}
