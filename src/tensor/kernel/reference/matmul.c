/* matmul.c -- matrix products by rows, one after the other.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/reference/reference.h"

#include <string.h>

/* c += op(a) op(b) */
static void multiply(const tutti__matmul *m, float *c, const float *a, const float *b)
{
    const int64_t a_row = m->a_transposed ? 1 : m->inner, a_k = m->a_transposed ? m->rows : 1;

    for (int64_t r = 0; r < m->rows; r++, c += m->columns) {
        if (!m->b_transposed)
            for (int64_t k = 0; k < m->inner; k++)
                tutti__axpy(c, a[r * a_row + k * a_k], b + k * m->columns, m->columns);
        else if (a_k == 1)
            for (int64_t j = 0; j < m->columns; j++)
                c[j] += tutti__dot(a + r * a_row, b + j * m->inner, m->inner);
        else
            for (int64_t j = 0; j < m->columns; j++)
                for (int64_t k = 0; k < m->inner; k++)
                    c[j] += a[r * a_row + k * a_k] * b[j * m->inner + k];
    }
}

tutti_status tutti__reference_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                     const tutti__matmul *m)
{
    int64_t n = 1;
    const void *a_data, *b_data;

    TUTTI_TRY(tutti__tensor_row_major(a, &a_data));
    TUTTI_TRY(tutti__tensor_row_major(b, &b_data));
    TUTTI_TRY(tutti__tensor_alloc(c, NULL));
    memset(c->data, 0, tutti__tensor_bytes(c));
    for (int i = 0; i < m->n_batch; i++)
        n *= m->batch[i];
    for (int64_t number = 0; number < n; number++) {
        int64_t rest = number, a_at = 0, b_at = 0, c_at = 0;

        for (int i = m->n_batch - 1; i >= 0; i--) {
            a_at += rest % m->batch[i] * m->a_stride[i];
            b_at += rest % m->batch[i] * m->b_stride[i];
            c_at += rest % m->batch[i] * m->c_stride[i];
            rest /= m->batch[i];
        }
        multiply(m, (float *)c->data + c_at, (const float *)a_data + a_at,
                 (const float *)b_data + b_at);
    }
    return TUTTI_OK;
}
