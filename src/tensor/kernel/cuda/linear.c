/* linear.c -- linear layers by cuBLASLt, including the bias and its gradient if cuBLASLt supports that.
 * SPDX-License-Identifier: MIT
 *   x [R,K]   w [M,K]   b [M] or NULL   ->   y [R,M] */
#include "tensor/kernel/cuda/glue.h"

#include <stdio.h>

/* UNSUPPORTED without a message if p may be tried again without its bias or sums. */
static tutti_status multiply(tutti_ctx *cx, const tutti__cuda_product *p, const char *name)
{
    const tutti__cuda_products *products = tutti__cuda_state_of(cx)->products;
    const tutti_status status = products->product(tutti__cuda_products_handle(cx), p);
    char what[160];

    if (status == TUTTI_OK || (status == TUTTI_ERR_UNSUPPORTED && (p->bias || p->a_sums)))
        return status;
    snprintf(what, sizeof what, "%s, a product [%lld,%lld] of %lld terms, %s to %s", name,
             (long long)p->rows, (long long)p->columns, (long long)p->inner,
             tutti_dtype_name(p->dtype), tutti_dtype_name(p->result));
    return tutti__cuda_check(cx, status, what);
}

tutti_status tutti__cuda_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                        tutti_tensor *b)
{
    const int64_t R = x->shape.d[0], K = x->shape.d[1], M = w->shape.d[0];
    tutti__cuda_product p = {.rows = R,
                             .columns = M,
                             .inner = K,
                             .b_transposed = true,
                             .dtype = y->dtype,
                             .result = y->dtype};
    tutti_status status = TUTTI_ERR_UNSUPPORTED;

    TUTTI_TRY(tutti__cuda_alloc(y));
    p.c = y->data;
    if (R == 0 || M == 0)
        return TUTTI_OK;
    if (K == 0) {
        TUTTI_TRY(tutti__cuda_sum_of_nothing(y));
        return b ? tutti__cuda_add_bias(y, b) : TUTTI_OK;
    }
    TUTTI_TRY(tutti__tensor_row_major(x, &p.a));
    TUTTI_TRY(tutti__cuda_weights(w, y->dtype, false, &p.b));
    if (b) {
        TUTTI_TRY(tutti__cuda_weights(b, y->dtype, false, &p.bias));
        status = multiply(y->cx, &p, "forward");
        p.bias = NULL;
    }
    if (status != TUTTI_ERR_UNSUPPORTED)
        return status;
    TUTTI_TRY(multiply(y->cx, &p, "forward"));
    return b ? tutti__cuda_add_bias(y, b) : TUTTI_OK;
}

tutti_status tutti__cuda_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w)
{
    tutti__cuda_product p = {.rows = dx->shape.d[0],
                             .columns = dx->shape.d[1],
                             .inner = w->shape.d[0],
                             .dtype = dx->dtype,
                             .result = dx->dtype};

    TUTTI_TRY(tutti__cuda_alloc(dx));
    p.c = dx->data;
    if (p.rows == 0 || p.columns == 0)
        return TUTTI_OK;
    if (p.inner == 0)
        return tutti__cuda_sum_of_nothing(dx);
    TUTTI_TRY(tutti__tensor_row_major(dy, &p.a));
    TUTTI_TRY(tutti__cuda_weights(w, dx->dtype, false, &p.b));
    return multiply(dx->cx, &p, "gradient of x");
}

/* dw (and db, if the same pass can compute it: then *done_p) */
static tutti_status weights_gradient(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                     tutti_tensor *x, bool *done_p)
{
    tutti__cuda_product p = {.rows = dw->shape.d[0],
                             .columns = dw->shape.d[1],
                             .inner = x->shape.d[0],
                             .a_transposed = true,
                             .dtype = dy->dtype,
                             .result = TUTTI_F32,
                             .c = dw->data,
                             .accumulate = dw->accumulate};
    tutti_status status = TUTTI_ERR_UNSUPPORTED;

    if (p.rows == 0 || p.columns == 0)
        return TUTTI_OK;
    if (p.inner == 0)
        return tutti__cuda_sum_of_nothing(dw);
    TUTTI_TRY(tutti__tensor_row_major(dy, &p.a));
    TUTTI_TRY(tutti__tensor_row_major(x, &p.b));
    if (db && !db->accumulate) { /* cuBLASLt writes these sums, and cannot add to them */
        p.a_sums = db->data;
        status = multiply(dw->cx, &p, "gradient of weight");
        p.a_sums = NULL;
        *done_p = status == TUTTI_OK;
    }
    if (status != TUTTI_ERR_UNSUPPORTED)
        return status;
    return multiply(dw->cx, &p, "gradient of weight");
}

tutti_status tutti__cuda_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                 tutti_tensor *dy, tutti_tensor *x)
{
    bool done = false;

    if (dw)
        TUTTI_TRY(weights_gradient(dw, db, dy, x, &done));
    return db && !done ? tutti__cuda_bias_gradient(db, dy) : TUTTI_OK;
}
