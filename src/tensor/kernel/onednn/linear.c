/* linear.c -- linear layers by oneDNN's sgemm, in 16 bit by its matmul; everything row-major.   SPDX-License-Identifier: MIT
 *   x [R,K]   w [M,K]   b [M] or NULL   ->   y [R,M] */
#include "tensor/kernel/onednn/state.h"

#include <string.h>

/* c [rows,columns] = or += op(a) op(b); 'T' reads a matrix the other way round. */
static tutti_status product(tutti_ctx *cx, const char op[2], const int64_t size[3], const void *a,
                            const void *b, bool add, void *c)
{
    const int64_t rows = size[0], columns = size[1], inner = size[2];
    dnnl_status_t status;
    sigset_t kept;

    tutti__onednn_threads(cx);
    tutti__onednn_hold_signals(&kept);
    status = dnnl_sgemm(op[0], op[1], rows, columns, inner, 1.0f, a, op[0] == 'T' ? rows : inner, b,
                        op[1] == 'T' ? inner : columns, add ? 1.0f : 0.0f, c, columns);
    tutti__onednn_pass_signals(&kept);
    return tutti__onednn_check(status, "a matrix product");
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
    for (int64_t r = 0; b && r < R; r++)
        memcpy((float *)y->data + r * M, b_data, (size_t)M * sizeof(float));
    return product(y->cx, "NT", (int64_t[]){R, M, K}, x_data, w_data, b != NULL, y->data);
}

tutti_status tutti__onednn_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w)
{
    const int64_t R = dx->shape.d[0], K = dx->shape.d[1], M = w->shape.d[0];
    void *dy_data, *w_data;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &dy_data));
    TUTTI_TRY(tutti__onednn_in(w, NULL, &w_data));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    return product(dx->cx, "NN", (int64_t[]){R, K, M}, dy_data, w_data, false, dx->data);
}

static void bias_gradient(tutti_tensor *db, const float *dy, int64_t R, int64_t M)
{
    float *to = db->data;

    for (int64_t m = 0; m < M; m++) {
        double sum = db->accumulate ? (double)to[m] : 0;

        for (int64_t r = 0; r < R; r++)
            sum += (double)dy[r * M + m];
        to[m] = (float)sum;
    }
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
    return product(dw->cx, "TN", (int64_t[]){M, K, R}, dy_data, x_data, dw->accumulate, dw->data);
}

/* ---- In 16 bit ------------------------------------------------------------------------------------------- */

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

static tutti_status run_half(tutti_ctx *cx, const half_product *h, void *const data[4])
{
    static const tutti__onednn_arg args[] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0},
                                             {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0},
                                             {DNNL_ARG_DST, dnnl_query_dst_md, 0},
                                             {DNNL_ARG_BIAS, dnnl_query_weights_md, 1}};
    const tutti__onednn_key key = {{TUTTI__ONEDNN_MATMUL, h->op[0], h->op[1], h->rows, h->columns,
                                    h->inner, h->dtype, h->result, h->bias, h->add}};
    tutti__onednn_primitive *p = tutti__onednn_find(cx, &key);
    dnnl_primitive_desc_t pd = NULL;

    if (!p) {
        TUTTI_TRY(tutti__onednn_check(half_pd(cx, h, &pd), "a matrix product in 16 bit"));
        TUTTI_TRY(tutti__onednn_add(cx, &key, pd, args, h->bias ? 4 : 3, &p));
    }
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
    TUTTI_TRY(tutti__onednn_in_as(w, NULL, y->dtype, &data[1]));
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
    TUTTI_TRY(tutti__onednn_in_as(w, NULL, dy->dtype, &data[1]));
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
        TUTTI_TRY(tutti__onednn_in_as(dy, NULL, TUTTI_F32, &wide));
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

    return half_pd(cx, &h, &pd) == dnnl_success && tutti__onednn_is_fast(pd);
}
