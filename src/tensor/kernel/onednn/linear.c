/* linear.c -- linear layers by oneDNN's sgemm; everything row-major.   SPDX-License-Identifier: MIT
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

tutti_status tutti__onednn_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                   tutti_tensor *dy, tutti_tensor *x)
{
    const int64_t R = x->shape.d[0], K = x->shape.d[1], M = dy->shape.d[1];
    void *dy_data, *x_data;

    TUTTI_TRY(tutti__onednn_in(dy, NULL, &dy_data));
    if (db) {
        float *to = db->data;

        for (int64_t m = 0; m < M; m++) {
            double sum = db->accumulate ? (double)to[m] : 0;

            for (int64_t r = 0; r < R; r++)
                sum += (double)((const float *)dy_data)[r * M + m];
            to[m] = (float)sum;
        }
    }
    if (!dw)
        return TUTTI_OK;
    TUTTI_TRY(tutti__onednn_in(x, NULL, &x_data));
    return product(dw->cx, "TN", (int64_t[]){M, K, R}, dy_data, x_data, dw->accumulate, dw->data);
}
