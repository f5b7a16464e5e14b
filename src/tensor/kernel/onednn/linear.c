/* linear.c -- linear layers by oneDNN's sgemm, in 16 bit by its matmul; everything row-major.   SPDX-License-Identifier: MIT
 *   x [R,K]   w [M,K]   b [M] or NULL   ->   y [R,M] */
#include "tensor/kernel/onednn/state.h"

#include <stdatomic.h>
#include <string.h>

#define PART_PRODUCTS ((int64_t)1 << 19) /* multiplications, at least */

/* c [rows,columns] = or += op(a) op(b); 'T' reads a matrix the other way round. */
typedef struct product {
    char op[2];
    bool add;
    int64_t rows, columns, inner;
    const float *a, *b;
    float *c;
} product;

/* Rows or columns of c, whichever are more, in parts by the shapes alone, each on one thread: oneDNN would cut the sums by
 * the number of threads. */
typedef struct product_parts {
    const product *whole;
    bool by_rows;
    int64_t most; /* rows or columns a part */
    dnnl_status_t status[TUTTI__ONEDNN_MAX_PARTS];
} product_parts;

static void multiply_part(void *arg, int64_t i, int member)
{
    product_parts *t = arg;
    const product *p = t->whole;
    const int64_t first = i * t->most, of = t->by_rows ? p->rows : p->columns;
    const int64_t n = of - first < t->most ? of - first : t->most;
    const bool a_turned = p->op[0] == 'T', b_turned = p->op[1] == 'T';
    const float *a = p->a, *b = p->b;
    float *c = p->c;
    int kept;

    (void)member;
    if (t->by_rows) {
        a += a_turned ? first : first * p->inner;
        c += first * p->columns;
    } else {
        b += b_turned ? first * p->inner : first;
        c += first;
    }
    kept = tutti__onednn_alone_begin();
    t->status[i] =
        dnnl_sgemm(p->op[0], p->op[1], t->by_rows ? n : p->rows, t->by_rows ? p->columns : n,
                   p->inner, 1.0f, a, a_turned ? p->rows : p->inner, b,
                   b_turned ? p->inner : p->columns, p->add ? 1.0f : 0.0f, c, p->columns);
    tutti__onednn_alone_end(kept);
}

/* sgemm generates the code for a kind of shape at its first call, and keeps it for the process. Which shapes share theirs is
 * its own business, so each is remembered (or takes another's place: a guess then, and 256 places are many). */
static tutti_status room_for_code(const product *p)
{
    static atomic_bool seen[256];
    const uint64_t shape[] = {(uint64_t)p->op[0] << 16 | (uint64_t)p->op[1] << 8 | p->add,
                              (uint64_t)p->rows, (uint64_t)p->columns, (uint64_t)p->inner};
    atomic_bool *mine = &seen[tutti__hash64(shape, sizeof shape) % TUTTI__COUNT_OF(seen)];

    if (*mine)
        return TUTTI_OK;
    TUTTI_TRY(tutti__onednn_room_for_code());
    *mine = true;
    return TUTTI_OK;
}

static tutti_status multiply(tutti_ctx *cx, const product *p)
{
    const int parts = tutti__onednn_parts_of(p->rows * p->columns * p->inner / PART_PRODUCTS);
    product_parts t = {.whole = p, .by_rows = p->rows > p->columns};
    const int64_t of = t.by_rows ? p->rows : p->columns;
    int64_t n;
    sigset_t kept;

    TUTTI_TRY(room_for_code(p));
    t.most = (of + parts - 1) / parts;
    t.most = (t.most + 15) / 16 * 16;
    n = (of + t.most - 1) / t.most;
    tutti__onednn_hold_signals(&kept);
    tutti__parallel(cx, multiply_part, &t, n);
    tutti__onednn_pass_signals(&kept);
    for (int64_t i = 0; i < n; i++)
        TUTTI_TRY(tutti__onednn_check(t.status[i], "a matrix product"));
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
    for (int64_t r = 0; b && r < R; r++)
        memcpy((float *)y->data + r * M, b_data, (size_t)M * sizeof(float));
    return multiply(y->cx, &(product){{'N', 'T'}, b != NULL, R, M, K, x_data, w_data, y->data});
}

tutti_status tutti__onednn_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w)
{
    const int64_t R = dx->shape.d[0], K = dx->shape.d[1], M = w->shape.d[0];
    void *dy_data, *w_data;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &dy_data));
    TUTTI_TRY(tutti__onednn_in(w, NULL, &w_data));
    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    return multiply(dx->cx, &(product){{'N', 'N'}, false, R, K, M, dy_data, w_data, dx->data});
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
    return multiply(dw->cx,
                    &(product){{'T', 'N'}, dw->accumulate, M, K, R, dy_data, x_data, dw->data});
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

static dnnl_status_t half_part(tutti_ctx *cx, const void *self,
                               const tutti__onednn_primitive *whole, int64_t rows,
                               dnnl_primitive_desc_t *pd_p)
{
    half_product h = *(const half_product *)self;

    (void)whole;
    h.rows = rows;
    return half_pd(cx, &h, pd_p);
}

/* In parts as those in F32, but of rows that lie together: not those of weight gradients, which one thread computes. */
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
