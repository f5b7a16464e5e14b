/* pool.c -- pooling by oneDNN, in the layout that x has; max pooling of F32 by our own kernel where windows do not overlap.
 * SPDX-License-Identifier: MIT
 * What oneDNN has no fast code for, dilation, or does not count as PyTorch, is left to the reference kernels. */
#include "tensor/kernel/onednn/onednn_state.h"
#include "tensor/kernel/reference/reference.h"

#define PART_ELEMENTS ((int64_t)1 << 15) /* of x, at least */

typedef struct pooling {
    const tutti__pool *a;
    dnnl_alg_kind_t algorithm;
    tutti_shape x, y;
    const tutti__layout *layout; /* of x; the others have the same */
    tutti__direction direction;
    tutti_dtype dtype;
} pooling;

/* The padding at the end of dimension d: as much as the last window needs, or more, as at the start. */
static int64_t end_of(const pooling *c, int d)
{
    const tutti__pool *a = c->a;
    const int64_t needed =
        (c->y.d[2 + d] - 1) * a->stride[d] + a->kernel[d] - a->padding[d] - c->x.d[2 + d];

    return needed > a->padding[d] ? needed : a->padding[d];
}

/* Beyond the padding nothing counts for PyTorch; oneDNN knows no such pixels. */
static bool can_pool(const pooling *c)
{
    const tutti__pool *a = c->a;

    for (int d = 0; d < 2; d++)
        if (a->dilation[d] != 1 ||
            (c->algorithm == dnnl_pooling_avg_include_padding && end_of(c, d) != a->padding[d]))
            return false;
    return a->divisor == 0;
}

/* t row-major. */
static tutti_status row_major(tutti_tensor *t, tutti_tensor **plain_p)
{
    tutti_tensor *plain = tutti__tensor_new(t->cx, t->shape, t->dtype);

    if (!plain)
        return TUTTI_ERR_MEMORY;
    plain->shared = true;
    *plain_p = plain;
    return tutti__onednn_in(t, NULL, &plain->data);
}

/* whole: for some images of it; NULL: in the layout of x */
static dnnl_status_t pooling_pd(tutti_ctx *cx, const pooling *c,
                                const tutti__onednn_primitive *whole, dnnl_primitive_desc_t hint,
                                dnnl_primitive_desc_t *pd_p)
{
    tutti__onednn *od = cx->kernel_state;
    const tutti__pool *a = c->a;
    const tutti__window window = {.algorithm = c->algorithm,
                                  .kernel = {a->kernel[0], a->kernel[1]},
                                  .stride = {a->stride[0], a->stride[1]},
                                  .padding = {a->padding[0], a->padding[1]},
                                  .end = {end_of(c, 0), end_of(c, 1)}};
    tutti__window_mds m = {0};
    dnnl_status_t status = whole ? tutti__onednn_md_images(&m.src, whole, 0, c->x.d[0])
                                 : tutti__onednn_md_of(&m.src, c->x, c->layout, c->dtype);

    if (status == dnnl_success)
        status = whole ? tutti__onednn_md_images(&m.dst, whole, 1, c->x.d[0])
                       : tutti__md_new(&m.dst, 4, c->y.d, tutti__onednn_type(c->dtype),
                                       dnnl_format_tag_any);
    if (status == dnnl_success)
        status =
            tutti__pd_pooling(pd_p, od->engine, c->direction, &window, &m, hint, od->attributes);
    tutti__md_free(m.src);
    tutti__md_free(m.dst);
    return status;
}

/* A backward primitive needs the forward one of the same images. */
static dnnl_status_t pooling_part(tutti_ctx *cx, const void *self,
                                  const tutti__onednn_primitive *whole, int64_t images,
                                  dnnl_primitive_desc_t *pd_p)
{
    pooling c = *(const pooling *)self, forward;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = dnnl_success;

    c.x.d[0] = c.y.d[0] = images;
    forward = c;
    forward.direction = TUTTI__FORWARD;
    if (c.direction != TUTTI__FORWARD)
        status = pooling_pd(cx, &forward, whole, NULL, &hint);
    if (status == dnnl_success)
        status = pooling_pd(cx, &c, whole, hint, pd_p);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return status;
}

static tutti_status pooling_get(tutti_ctx *cx, const pooling *c,
                                tutti__onednn_primitive **primitive_p)
{
    static const tutti__onednn_arg args[2][3] = {
        [TUTTI__FORWARD] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, TUTTI__ONEDNN_IMAGES},
                            {DNNL_ARG_DST, dnnl_query_dst_md, 0, TUTTI__ONEDNN_IMAGES},
                            {DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, TUTTI__ONEDNN_IMAGES}},
        [TUTTI__BACKWARD_DATA] =
            {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0, TUTTI__ONEDNN_IMAGES},
             {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, TUTTI__ONEDNN_IMAGES},
             {DNNL_ARG_WORKSPACE, dnnl_query_workspace_md, 0, TUTTI__ONEDNN_IMAGES}},
    };
    const int n_args = c->algorithm == dnnl_pooling_max ? 3 : 2;
    const tutti__pool *a = c->a;
    const tutti__onednn_key key = {{TUTTI__ONEDNN_POOLING, c->direction, c->algorithm, c->dtype,
                                    a->kernel[0], a->kernel[1], a->stride[0], a->stride[1],
                                    a->padding[0], a->padding[1], c->x.d[0], c->x.d[1], c->x.d[2],
                                    c->x.d[3], c->y.d[2], c->y.d[3], (int64_t)(intptr_t)c->layout}};
    tutti__onednn_primitive *forward = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status;
    int kept;

    *primitive_p = tutti__onednn_find(cx, &key);
    if (*primitive_p)
        return TUTTI_OK;
    if (c->direction != TUTTI__FORWARD) {
        pooling hint = *c;

        hint.direction = TUTTI__FORWARD;
        TUTTI_TRY(pooling_get(cx, &hint, &forward));
    }
    kept = tutti__onednn_alone_begin();
    status = pooling_pd(cx, c, NULL, forward ? forward->pd : NULL, &pd);
    tutti__onednn_alone_end(kept);
    TUTTI_TRY(tutti__onednn_check(status, "pooling"));
    TUTTI_TRY(tutti__onednn_add(cx, &key, pd, args[c->direction], n_args, primitive_p));
    return tutti__onednn_cut(
        cx, *primitive_p,
        &(tutti__onednn_parts){pooling_part, c, c->x.d[0],
                               tutti__onednn_parts_of(tutti_shape_count(c->x) / PART_ELEMENTS)});
}

/* workspace: max pooling's; else NULL. */
static tutti_status pool_backward(tutti_tensor *dx, tutti_tensor *dy, const pooling *c,
                                  void *workspace)
{
    tutti__onednn_primitive *p;
    void *data[3] = {NULL, NULL, workspace};

    TUTTI_TRY(pooling_get(dx->cx, c, &p));
    TUTTI_TRY(tutti__onednn_in(dy, p->layouts[1], &data[1]));
    TUTTI_TRY(tutti__tensor_alloc(dx, p->layouts[0]));
    data[0] = dx->data;
    return tutti__onednn_run(dx->cx, p, data);
}

/* What max pooling keeps: oneDNN's indices or our taps, and the layout of x. */
typedef struct max_pool_saved {
    void *workspace;
    const tutti__layout *layout;
    bool own;
    tutti__pool_shape shape; /* own */
} max_pool_saved;

/* Whether our own kernel computes this max pooling, of which x is in blocks of a vector's channels. */
static bool own_shape(tutti_ctx *cx, const pooling *c, tutti__pool_shape *s)
{
    const tutti__isa *isa = ((const tutti__onednn *)cx->kernel_state)->isa;
    const tutti__pool *a = c->a;
    const tutti__layout *blocked;

    if (c->dtype != TUTTI_F32 || a->kernel[0] * a->kernel[1] > UINT8_MAX ||
        tutti__onednn_blocked(cx, c->x, &blocked) != TUTTI_OK || c->layout != blocked)
        return false;
    for (int d = 0; d < 2; d++)
        if (a->kernel[d] > a->stride[d] || a->dilation[d] != 1 || a->padding[d] != 0 ||
            (c->y.d[2 + d] - 1) * a->stride[d] + a->kernel[d] > c->x.d[2 + d])
            return false;
    *s = (tutti__pool_shape){c->x.d[0] * ((c->x.d[1] + isa->lanes - 1) / isa->lanes),
                             c->x.d[2],
                             c->x.d[3],
                             c->y.d[2],
                             c->y.d[3],
                             {a->kernel[0], a->kernel[1]},
                             {a->stride[0], a->stride[1]}};
    return true;
}

static tutti_status own_forward(tutti_tensor *y, const tutti_tensor *x, max_pool_saved *s)
{
    const tutti__isa *isa = ((const tutti__onednn *)y->cx->kernel_state)->isa;
    const tutti__layout *layout;

    TUTTI_TRY(tutti__onednn_blocked(y->cx, y->shape, &layout));
    s->workspace = tutti__step_memory(y->cx, layout->bytes / sizeof(float));
    if (!s->workspace)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(y, layout));
    isa->max_pool_forward(y->cx, &s->shape, y->data, s->workspace, x->data);
    return TUTTI_OK;
}

static tutti_status own_backward(tutti_tensor *dx, tutti_tensor *dy, const max_pool_saved *s)
{
    const tutti__isa *isa = ((const tutti__onednn *)dx->cx->kernel_state)->isa;
    const tutti__layout *layout;
    void *dy_data;

    TUTTI_TRY(tutti__onednn_blocked(dx->cx, dy->shape, &layout));
    TUTTI_TRY(tutti__onednn_in(dy, layout, &dy_data));
    TUTTI_TRY(tutti__tensor_alloc(dx, s->layout));
    isa->max_pool_backward(dx->cx, &s->shape, dx->data, dy_data, s->workspace);
    return TUTTI_OK;
}

tutti_status tutti__onednn_max_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a,
                                            void **saved)
{
    const pooling c = {a,         dnnl_pooling_max, x->shape, y->shape,
                       x->layout, TUTTI__FORWARD,   y->dtype};
    tutti__onednn_primitive *p;
    max_pool_saved *s;

    if (!can_pool(&c)) {
        TUTTI_TRY(row_major(x, &x));
        return tutti__reference_max_pool_forward(y, x, a, saved);
    }
    s = tutti__step_alloc(y->cx, sizeof *s);
    if (!s)
        return TUTTI_ERR_MEMORY;
    *s = (max_pool_saved){.layout = x->layout};
    *saved = s;
    s->own = own_shape(y->cx, &c, &s->shape);
    if (s->own)
        return own_forward(y, x, s);
    TUTTI_TRY(pooling_get(y->cx, &c, &p));
    s->workspace = tutti__step_memory(y->cx, p->bytes[2]);
    if (!s->workspace)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(y, p->layouts[1]));
    return tutti__onednn_run(y->cx, p, (void *[]){x->data, y->data, s->workspace});
}

tutti_status tutti__onednn_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                             const tutti__pool *a, void *saved)
{
    const max_pool_saved *s = saved;
    pooling c = {a, dnnl_pooling_max, x->shape, dy->shape, NULL, TUTTI__BACKWARD_DATA, dx->dtype};

    if (!can_pool(&c)) {
        TUTTI_TRY(row_major(dy, &dy));
        return tutti__reference_max_pool_backward(dx, dy, x, a, saved);
    }
    if (s->own)
        return own_backward(dx, dy, s);
    c.layout = s->layout;
    return pool_backward(dx, dy, &c, s->workspace);
}

/* Whether oneDNN pools 16 bit directly: nothing is added up, so that nothing is rounded. */
static bool is_exact_in(tutti_dtype dtype, const tutti__pool *a)
{
    for (int d = 0; d < 2; d++)
        if (a->kernel[d] > a->stride[d] || a->dilation[d] != 1 || a->divisor != 0)
            return false;
    return dtype == TUTTI_BF16;
}

tutti_status tutti__onednn_half_max_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                                 const tutti__pool *a, void **saved)
{
    return is_exact_in(y->dtype, a) ? tutti__onednn_max_pool_forward(y, x, a, saved)
                                    : tutti__emulated_max_pool_forward(y, x, a, saved);
}

tutti_status tutti__onednn_half_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                                  tutti_tensor *x, const tutti__pool *a,
                                                  void *saved)
{
    return is_exact_in(dx->dtype, a) ? tutti__onednn_max_pool_backward(dx, dy, x, a, saved)
                                     : tutti__emulated_max_pool_backward(dx, dy, x, a, saved);
}

/* Without padding both are the same, but the first leaves out what is beyond the image. */
static dnnl_alg_kind_t average_of(const tutti__pool *a)
{
    return a->exclude_padding || (a->padding[0] == 0 && a->padding[1] == 0)
               ? dnnl_pooling_avg_exclude_padding
               : dnnl_pooling_avg_include_padding;
}

tutti_status tutti__onednn_avg_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a)
{
    const pooling c = {a, average_of(a), x->shape, y->shape, x->layout, TUTTI__FORWARD, TUTTI_F32};
    tutti__onednn_primitive *p;

    if (!can_pool(&c)) {
        TUTTI_TRY(row_major(x, &x));
        return tutti__reference_avg_pool_forward(y, x, a);
    }
    TUTTI_TRY(pooling_get(y->cx, &c, &p));
    TUTTI_TRY(tutti__tensor_alloc(y, p->layouts[1]));
    return tutti__onednn_run(y->cx, p, (void *[]){x->data, y->data});
}

tutti_status tutti__onednn_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                             const tutti__pool *a)
{
    const pooling c = {a,
                       average_of(a),
                       dx->shape,
                       dy->shape,
                       tutti__onednn_usual_layout(dx->cx, dx->shape, TUTTI_F32),
                       TUTTI__BACKWARD_DATA,
                       TUTTI_F32};

    if (!can_pool(&c)) {
        TUTTI_TRY(row_major(dy, &dy));
        return tutti__reference_avg_pool_backward(dx, dy, a);
    }
    return pool_backward(dx, dy, &c, NULL);
}
