/* matmul.c -- batched matrix products by our own products, in 16 bit by oneDNN's matmul; row-major.
 * SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/onednn_state.h"

#include <string.h>

/* ---- F32 ------------------------------------------------------------------------------------------------- */

/* The same product by its transposes: c^T = op(b)^T op(a)^T. Only for one row or column is c^T stored as c is. */
static void swap(tutti__matmul *m, const float **a, const float **b)
{
    const tutti__matmul was = *m;
    const float *first = *a;

    m->rows = was.columns;
    m->columns = was.rows;
    m->a_transposed = !was.b_transposed;
    m->b_transposed = !was.a_transposed;
    memcpy(m->a_stride, was.b_stride, sizeof m->a_stride);
    memcpy(m->b_stride, was.a_stride, sizeof m->b_stride);
    *a = *b;
    *b = first;
}

static bool sums(const tutti__matmul *m)
{
    for (int i = 0; i < m->n_batch; i++)
        if (m->c_stride[i] == 0)
            return true;
    return false;
}

/* A vector is neither transposed nor not: takes it as the product is fastest. */
static void normalise(tutti__matmul *m, const float **a, const float **b)
{
    if (m->columns == 1)
        swap(m, a, b);
    m->a_transposed = m->a_transposed && m->rows > 1 && m->inner > 1;
    m->b_transposed = m->b_transposed && m->inner > 1;
}

tutti_status tutti__onednn_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                  const tutti__matmul *given)
{
    const tutti__isa *isa = ((const tutti__onednn *)c->cx->kernel_state)->isa;
    tutti__matmul m = *given;
    const void *a_data, *b_data;
    void *work;
    tutti__product p = {0};
    bool transposed;

    TUTTI_TRY(tutti__tensor_row_major(a, &a_data));
    TUTTI_TRY(tutti__tensor_row_major(b, &b_data));
    TUTTI_TRY(tutti__tensor_alloc(c, NULL));
    p.a = a_data;
    p.b = b_data;
    p.c = c->data;
    normalise(&m, &p.a, &p.b);
    /* a b^T as (b a^T)^T: linear.c's case, for which products have a fast way */
    transposed = m.b_transposed && !m.a_transposed && !sums(&m);
    p.transposed = transposed;
    p.c_step = m.columns;
    if (transposed)
        swap(&m, &p.a, &p.b);
    p.rows = m.rows;
    p.columns = m.columns;
    p.inner = m.inner;
    p.a_row = m.a_transposed ? 1 : m.inner;
    p.a_k = m.a_transposed ? m.rows : 1;
    p.b_k = m.b_transposed ? 1 : m.columns;
    p.b_column = m.b_transposed ? m.inner : 1;
    p.n_batch = m.n_batch;
    memcpy(p.batch, m.batch, sizeof p.batch);
    memcpy(p.a_batch, m.a_stride, sizeof p.a_batch);
    memcpy(p.b_batch, m.b_stride, sizeof p.b_batch);
    memcpy(p.c_batch, m.c_stride, sizeof p.c_batch);
    TUTTI_TRY(tutti__onednn_scratch(c->cx, isa->multiply_work(c->cx, &p), &work));
    isa->multiply(c->cx, &p, work);
    return TUTTI_OK;
}

/* ---- 16 bit ---------------------------------------------------------------------------------------------- */

/* A single product. */
static tutti_status multiply_half(tutti_tensor *c, tutti_dtype dtype, const void *a, const void *b,
                                  const tutti__matmul *m, bool *done_p)
{
    return tutti__onednn_multiply_half(
        c->cx, dtype,
        &(tutti__half_product){.rows = m->rows,
                               .columns = m->columns,
                               .inner = m->inner,
                               .a = a,
                               .a_row = m->a_transposed ? 1 : m->inner,
                               .a_k = m->a_transposed ? m->rows : 1,
                               .b = b,
                               .b_k = m->b_transposed ? 1 : m->columns,
                               .b_column = m->b_transposed ? m->inner : 1,
                               .c = c->data,
                               .c_f32 = c->dtype == TUTTI_F32,
                               .c_step = m->columns},
        done_p);
}

tutti_status tutti__onednn_half_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                       const tutti__matmul *m)
{
    const int last = m->n_batch - 1;
    const int64_t batch = last >= 0 && m->c_stride[last] ? m->batch[last] : 1;
    const tutti__onednn_half h = {.op = {m->a_transposed ? 'T' : 'N', m->b_transposed ? 'T' : 'N'},
                                  .rows = m->rows,
                                  .columns = m->columns,
                                  .inner = m->inner,
                                  .batch = batch,
                                  .a_repeated = batch > 1 && m->a_stride[last] == 0,
                                  .b_repeated = batch > 1 && m->b_stride[last] == 0,
                                  .dtype = a->dtype,
                                  .result = c->dtype,
                                  .add = sums(m)};
    const size_t bytes = tutti_dtype_size(a->dtype), c_bytes = tutti_dtype_size(c->dtype);
    const int outer = m->n_batch - (batch > 1);
    const void *a_data, *b_data;
    int64_t n = 1;
    bool done = false;

    TUTTI_TRY(tutti__tensor_row_major(a, &a_data));
    TUTTI_TRY(tutti__tensor_row_major(b, &b_data));
    TUTTI_TRY(tutti__tensor_alloc(c, NULL));
    if (h.add)
        memset(c->data, 0, tutti__tensor_bytes(c));
    for (int i = 0; i < outer; i++)
        n *= m->batch[i];
    if (n == 1 && batch == 1 && !h.add)
        TUTTI_TRY(multiply_half(c, a->dtype, a_data, b_data, m, &done));
    if (done)
        return TUTTI_OK;
    for (int64_t number = 0; number < n; number++) {
        void *data[4] = {(void *)a_data, (void *)b_data, c->data, NULL};
        int64_t rest = number;

        for (int i = outer - 1; i >= 0; i--) {
            const size_t at = (size_t)(rest % m->batch[i]);

            data[0] = (char *)data[0] + at * (size_t)m->a_stride[i] * bytes;
            data[1] = (char *)data[1] + at * (size_t)m->b_stride[i] * bytes;
            data[2] = (char *)data[2] + at * (size_t)m->c_stride[i] * c_bytes;
            rest /= m->batch[i];
        }
        TUTTI_TRY(tutti__onednn_half_run(c->cx, &h, data));
    }
    return TUTTI_OK;
}
