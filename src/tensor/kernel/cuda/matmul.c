/* matmul.c -- batched matrix products by cuBLASLt; row-major.   SPDX-License-Identifier: MIT
 * The innermost batch dimension is a strided batch of cuBLASLt's, the others are a loop. */
#include "tensor/kernel/cuda/glue.h"

#include <stdio.h>

static tutti_status multiply(tutti_ctx *cx, const tutti__cuda_product *p)
{
    const tutti__cuda_products *products = tutti__cuda_state_of(cx)->products;
    const tutti_status status = products->product(tutti__cuda_products_handle(cx), p);
    char what[160];

    if (status == TUTTI_OK)
        return status;
    snprintf(what, sizeof what, "%lld products [%lld,%lld] of %lld terms, %s to %s",
             (long long)p->batch, (long long)p->rows, (long long)p->columns, (long long)p->inner,
             tutti_dtype_name(p->dtype), tutti_dtype_name(p->result));
    return tutti__cuda_check(cx, status, what);
}

tutti_status tutti__cuda_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                const tutti__matmul *m)
{
    const int last = m->n_batch - 1;
    const bool batched = last >= 0 && m->c_stride[last] != 0;
    const int outer = batched ? last : m->n_batch;
    const size_t bytes = tutti_dtype_size(a->dtype), c_bytes = tutti_dtype_size(c->dtype);
    tutti__cuda_product p = {.rows = m->rows,
                             .columns = m->columns,
                             .inner = m->inner,
                             .a_transposed = m->a_transposed,
                             .b_transposed = m->b_transposed,
                             .dtype = a->dtype,
                             .result = c->dtype,
                             .batch = batched ? m->batch[last] : 1,
                             .a_stride = batched ? m->a_stride[last] : 0,
                             .b_stride = batched ? m->b_stride[last] : 0,
                             .c_stride = batched ? m->c_stride[last] : 0};
    const void *a_data, *b_data;
    int64_t n = 1;

    TUTTI_TRY(tutti__tensor_row_major(a, &a_data));
    TUTTI_TRY(tutti__tensor_row_major(b, &b_data));
    TUTTI_TRY(tutti__tensor_alloc(c, NULL));
    for (int i = 0; i < outer; i++) {
        n *= m->batch[i];
        p.accumulate |= m->c_stride[i] == 0;
    }
    if (p.accumulate)
        TUTTI_TRY(c->cx->device_ops->zero(c->cx->stream, c->data, tutti__tensor_bytes(c)));
    for (int64_t number = 0; number < n; number++) {
        int64_t rest = number;

        p.a = a_data;
        p.b = b_data;
        p.c = c->data;
        for (int i = outer - 1; i >= 0; i--) {
            const size_t at = (size_t)(rest % m->batch[i]);

            p.a = (const char *)p.a + at * (size_t)m->a_stride[i] * bytes;
            p.b = (const char *)p.b + at * (size_t)m->b_stride[i] * bytes;
            p.c = (char *)p.c + at * (size_t)m->c_stride[i] * c_bytes;
            rest /= m->batch[i];
        }
        TUTTI_TRY(multiply(c->cx, &p));
    }
    return TUTTI_OK;
}
