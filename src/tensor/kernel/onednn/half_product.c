/* half_product.c -- matrix products in 16 bit by oneDNN's matmul, of linear layers and of batches; row-major.
 * SPDX-License-Identifier: MIT */
#include "tensor/kernel/onednn/onednn_state.h"

#include <string.h>

static dnnl_status_t half_pd(tutti_ctx *cx, const tutti__onednn_half *h,
                             dnnl_primitive_desc_t *pd_p)
{
    tutti__onednn *od = cx->kernel_state;
    const dnnl_data_type_t type = tutti__onednn_type(h->dtype);
    const int n = h->batch > 1 ? 3 : 2, skip = h->batch > 1 ? 0 : 1;
    const dnnl_dim_t a[3] = {h->a_repeated ? 1 : h->batch, h->rows, h->inner};
    const dnnl_dim_t b[3] = {h->b_repeated ? 1 : h->batch, h->inner, h->columns};
    const dnnl_dim_t c[3] = {h->batch, h->rows, h->columns}, bias[3] = {1, 1, h->columns};
    const dnnl_format_tag_t plain = n == 3 ? dnnl_abc : dnnl_ab;
    const dnnl_format_tag_t transposed = n == 3 ? dnnl_acb : dnnl_ba;
    tutti__window_mds m = {0};
    dnnl_status_t status =
        tutti__md_new(&m.src, n, a + skip, type, h->op[0] == 'T' ? transposed : plain);

    if (status == dnnl_success)
        status = tutti__md_new(&m.weights, n, b + skip, type, h->op[1] == 'T' ? transposed : plain);
    if (status == dnnl_success)
        status = tutti__md_new(&m.dst, n, c + skip, tutti__onednn_type(h->result), plain);
    if (status == dnnl_success && h->bias)
        status = tutti__md_new(&m.bias, n, bias + skip, dnnl_f32, plain);
    if (status == dnnl_success)
        status =
            tutti__pd_matmul(pd_p, od->engine, &m, h->add ? od->add_attributes : od->attributes);
    tutti__md_free(m.src);
    tutti__md_free(m.weights);
    tutti__md_free(m.dst);
    tutti__md_free(m.bias);
    return status;
}

/* A part of the batch, or of one product's rows. */
static dnnl_status_t half_part(tutti_ctx *cx, const void *self,
                               const tutti__onednn_primitive *whole, int64_t images,
                               dnnl_primitive_desc_t *pd_p)
{
    tutti__onednn_half h = *(const tutti__onednn_half *)self;
    const bool batched = h.batch > 1;

    (void)whole;
    *(batched ? &h.batch : &h.rows) = images;
    return half_pd(cx, &h, pd_p);
}

#define PART_PRODUCTS ((int64_t)1 << 19) /* multiplications per part, at least */

static tutti_status half_get(tutti_ctx *cx, const tutti__onednn_half *h,
                             tutti__onednn_primitive **p)
{
    const tutti__onednn_arg args[] = {
        {DNNL_ARG_SRC, dnnl_query_src_md, 0,
         h->a_repeated ? TUTTI__ONEDNN_WHOLE : TUTTI__ONEDNN_IMAGES},
        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0,
         h->batch > 1 && !h->b_repeated ? TUTTI__ONEDNN_IMAGES : TUTTI__ONEDNN_WHOLE},
        {DNNL_ARG_DST, dnnl_query_dst_md, 0, TUTTI__ONEDNN_IMAGES},
        {DNNL_ARG_BIAS, dnnl_query_weights_md, 1, TUTTI__ONEDNN_WHOLE}};
    const tutti__onednn_key key = {{TUTTI__ONEDNN_MATMUL, h->op[0], h->op[1], h->rows, h->columns,
                                    h->inner, h->dtype, h->result, h->bias, h->add, h->batch,
                                    h->a_repeated, h->b_repeated}};
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
        &(tutti__onednn_parts){half_part, h, h->batch > 1 ? h->batch : h->rows,
                               tutti__onednn_parts_of((h->batch > 1 ? h->batch : 1) * h->rows *
                                                      h->columns * h->inner / PART_PRODUCTS)});
}

static tutti_status half_run(tutti_ctx *cx, const tutti__onednn_half *h, void *const data[4])
{
    tutti__onednn_primitive *p;

    TUTTI_TRY(half_get(cx, h, &p));
    return tutti__onednn_run(cx, p, data);
}

#define LEAST_ROWS 32

/* oneDNN sums products of few rows in other orders than those of many (2.6: one row, and fewer than 16), but a sample's bits must not
 * depend on how many others there are: rows of zeros are added. */
static tutti_status run_few(tutti_ctx *cx, const tutti__onednn_half *h, void *const data[4])
{
    const size_t a_row = (size_t)h->inner * tutti_dtype_size(h->dtype);
    const size_t c_row = (size_t)h->columns * tutti_dtype_size(h->result);
    const size_t c_at = (LEAST_ROWS * a_row + 63) / 64 * 64, rows = (size_t)h->rows;
    tutti__onednn_half many = *h;
    void *staged;
    char *a, *c;

    TUTTI_TRY(tutti__onednn_staging(cx, c_at + LEAST_ROWS * c_row, &staged));
    many.rows = LEAST_ROWS;
    a = staged;
    c = a + c_at;
    memcpy(a, data[0], rows * a_row);
    memset(a + rows * a_row, 0, (LEAST_ROWS - rows) * a_row);
    TUTTI_TRY(half_run(cx, &many, (void *[]){a, data[1], c, data[3]}));
    memcpy(data[2], c, rows * c_row);
    return TUTTI_OK;
}

tutti_status tutti__onednn_half_run(tutti_ctx *cx, const tutti__onednn_half *h, void *const data[4])
{
    const bool few = h->rows < LEAST_ROWS && h->batch <= 1 && h->op[0] == 'N' && !h->add;

    return (few ? run_few : half_run)(cx, h, data);
}

tutti_status tutti__onednn_multiply_half(tutti_ctx *cx, tutti_dtype dtype,
                                         const tutti__half_product *p, bool *done_p)
{
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;
    void *work;

    *done_p = false;
    if (dtype != TUTTI_BF16 || !tutti__onednn_has_bf16())
        return TUTTI_OK;
    TUTTI_TRY(tutti__onednn_scratch(cx, isa->multiply_half_work(cx), &work));
    *done_p = isa->multiply_half(cx, p, work);
    return TUTTI_OK;
}

bool tutti__onednn_can_multiply(tutti_ctx *cx, tutti_dtype dtype)
{
    const tutti__onednn_half h = {.op = {'N', 'T'},
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
