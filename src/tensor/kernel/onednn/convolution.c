/* convolution.c -- convolutions: oneDNN's direct ones, with layouts that it chooses, Winograd, or a product a tap.   SPDX-License-Identifier: MIT
 *
 * Every primitive is requested with layout `any`; activations that already have the chosen layout are used directly.
 * Weights are reordered from row-major once a step and layout; their gradient is reordered back, directly into the bucket. */
#include "tensor/kernel/onednn/onednn_state.h"

#include <stdio.h>
#include <string.h>

/* Winograd needs a quarter of the multiplications (stride 2: 9 of 16), but transforms of data and weights: it needs full
 * tiles. By bench_nn_convolutions (bench/RECORDS.md) it is 1.1 to 5 times as fast as direct convolution with 16 to 512 channels, in
 * each direction and instruction set, except for 512 channels with 4 tiles or less, which share the transformed weights (0.4 to 1.9). */
#define WINOGRAD_MIN_CHANNELS 16
#define WINOGRAD_TILE         4

/* Pixels of an image of y, at most, where weight gradients are a product a tap. */
#define TAPS_PIXELS 4

#define PART_PRODUCTS ((int64_t)1 << 22) /* multiplications, at least */
/* Pixels of y, at least, per part of a weight gradient: then reading and writing dw once more costs little compared with
 * the products. */
#define PART_PIXELS 256

enum { SOURCE, WEIGHTS, RESULT }; /* of a primitive's arguments, or their gradients */

typedef struct convolution {
    const tutti__conv2d *a;
    tutti_shape x, w, y; /* w with groups: [groups,M/groups,C/groups,kh,kw], the same elements */
    bool bias;
    tutti__direction direction;
    tutti_dtype dtype; /* of x and y, and of w if it is read; bias and dw are F32 */
    /* the primitive of which this is some images; NULL: none */
    const tutti__onednn_primitive *whole;
} convolution;

static bool part_mds_new(tutti__window_mds *m, const convolution *c)
{
    const int64_t images = c->x.d[0];
    const tutti__onednn_primitive *p = c->whole;
    const tutti__onednn_arg *w = &p->args[WEIGHTS];

    return tutti__onednn_md_images(&m->src, p, SOURCE, images) == dnnl_success &&
           tutti__md_clone(&m->weights, dnnl_primitive_desc_query_md(p->pd, w->query, w->index)) ==
               dnnl_success &&
           tutti__onednn_md_images(&m->dst, p, RESULT, images) == dnnl_success;
}

static bool mds_new(tutti__window_mds *m, const convolution *c)
{
    const dnnl_format_tag_t any = dnnl_format_tag_any;
    const dnnl_data_type_t type = tutti__onednn_type(c->dtype);
    const dnnl_data_type_t w = c->direction == TUTTI__BACKWARD_WEIGHTS ? dnnl_f32 : type;

    *m = (tutti__window_mds){0};
    return (c->whole ? part_mds_new(m, c)
                     : tutti__md_new(&m->src, 4, c->x.d, type, any) == dnnl_success &&
                           tutti__md_new(&m->weights, c->w.n, c->w.d, w, any) == dnnl_success &&
                           tutti__md_new(&m->dst, 4, c->y.d, type, any) == dnnl_success) &&
           (!c->bias || tutti__md_new(&m->bias, 1, &c->y.d[1], dnnl_f32, dnnl_a) == dnnl_success);
}

/* The shape of weights [M,C/groups,kh,kw] for oneDNN. */
static tutti_shape weights_of(tutti_shape w, const tutti__conv2d *a)
{
    return a->groups == 1 ? w : TUTTI_SHAPE(a->groups, w.d[0] / a->groups, w.d[1], w.d[2], w.d[3]);
}

static void mds_free(tutti__window_mds *m)
{
    tutti__md_free(m->src);
    tutti__md_free(m->weights);
    tutti__md_free(m->dst);
    tutti__md_free(m->bias);
}

static const char *const conv_names[] = {"auto", "winograd", "direct"};

tutti_status tutti__onednn_conv_choose(tutti__onednn_conv *conv_p)
{
    size_t choice;

    TUTTI_TRY(tutti__env_choice(TUTTI__ENV_CONV, conv_names, TUTTI__COUNT_OF(conv_names), &choice));
    *conv_p = (tutti__onednn_conv)choice;
    return TUTTI_OK;
}

const char *tutti__onednn_conv_name(tutti__onednn_conv conv)
{
    return conv_names[conv];
}

/* What n pixels of a side take: 6 for a tile of 4; of stride 1, fewer where the last tile has 3 or 2. */
static int64_t winograd_points(int64_t n, int64_t stride)
{
    static const int64_t last[WINOGRAD_TILE] = {0, 4, 4, 5};

    return stride == 1 ? n / WINOGRAD_TILE * 6 + last[n % WINOGRAD_TILE]
                       : (n + WINOGRAD_TILE - 1) / WINOGRAD_TILE * 6;
}

/* Whether it is faster, according to bench_nn_convolutions: from 60 % of the pixels that full tiles have for these points. Not
 * measured at run time: bits must not depend on a clock. Nor on the number of images: a sample has the same bits in a batch of
 * any size. */
static bool winograd_pays(const convolution *c)
{
    const int64_t points =
        winograd_points(c->y.d[2], c->a->stride[0]) * winograd_points(c->y.d[3], c->a->stride[0]);
    const int64_t pixels = c->y.d[2] * c->y.d[3];

    return c->w.d[0] >= WINOGRAD_MIN_CHANNELS && c->w.d[1] >= WINOGRAD_MIN_CHANNELS &&
           pixels * 6 * 6 * 10 >= points * WINOGRAD_TILE * WINOGRAD_TILE * 6;
}

/* One for which there are Winograd kernels. */
static bool is_plain_3x3(const convolution *c)
{
    const tutti__conv2d *a = c->a;

    return a->groups == 1 && c->w.d[2] == 3 && c->w.d[3] == 3 && a->dilation[0] == 1 &&
           a->dilation[1] == 1 && a->stride[0] == a->stride[1] && a->padding[0] == a->padding[1] &&
           (a->stride[0] == 1 ? a->padding[0] <= 2 : a->stride[0] == 2 && a->padding[0] == 1);
}

static bool use_winograd(tutti_ctx *cx, const convolution *c)
{
    const tutti__onednn_conv conv = ((const tutti__onednn *)cx->kernel_state)->conv;

    return conv != TUTTI__ONEDNN_CONV_DIRECT && c->dtype == TUTTI_F32 && is_plain_3x3(c) &&
           tutti__winograd_can(cx, c->x, c->w) &&
           (conv == TUTTI__ONEDNN_CONV_WINOGRAD || winograd_pays(c));
}

/* From batch 8 on 1.5 to 40 times as fast as oneDNN's code for such images, or Winograd's of stride 2: docs/design/cpu_kernels.md. */
static bool use_taps(tutti_ctx *cx, const convolution *c)
{
    return ((const tutti__onednn *)cx->kernel_state)->conv == TUTTI__ONEDNN_CONV_AUTO &&
           c->dtype == TUTTI_F32 && c->a->groups == 1 && c->y.d[2] * c->y.d[3] <= TAPS_PIXELS &&
           tutti__taps_can(cx, c->x, c->w);
}

static dnnl_status_t first_pd(tutti_ctx *cx, const convolution *c, dnnl_primitive_desc_t hint,
                              dnnl_primitive_desc_t *pd_p)
{
    tutti__onednn *od = cx->kernel_state;
    const tutti__conv2d *a = c->a;
    const tutti__window window = {.algorithm = dnnl_convolution_direct,
                                  .stride = {a->stride[0], a->stride[1]},
                                  .dilation = {a->dilation[0] - 1, a->dilation[1] - 1},
                                  .padding = {a->padding[0], a->padding[1]},
                                  .end = {a->padding[0], a->padding[1]}};
    tutti__window_mds m;
    dnnl_status_t status = dnnl_out_of_memory;

    if (mds_new(&m, c))
        status = tutti__pd_convolution(pd_p, od->engine, c->direction, &window, &m, hint,
                                       od->attributes);
    mds_free(&m);
    return status;
}

/* oneDNN 3.7 prefers reference code between its own layouts to fast code in plain ones, for some groups: 30 times slower. */
static dnnl_status_t convolution_pd(tutti_ctx *cx, const convolution *c, dnnl_primitive_desc_t hint,
                                    dnnl_primitive_desc_t *pd_p)
{
    const dnnl_status_t status = first_pd(cx, c, hint, pd_p);
    dnnl_primitive_desc_t other, slow;

    if (status != dnnl_success || tutti__onednn_is_fast(*pd_p) ||
        first_pd(cx, c, hint, &other) != dnnl_success)
        return status;
    while (tutti__pd_next(other))
        if (tutti__onednn_is_fast(other)) {
            slow = *pd_p;
            *pd_p = other;
            other = slow;
            break;
        }
    dnnl_primitive_desc_destroy(other);
    return status;
}

static tutti_status convolution_get(tutti_ctx *cx, const convolution *c,
                                    tutti__onednn_primitive **primitive_p);

/* Forward's descriptor, in layouts that oneDNN chooses. */
static tutti_status hint_of(tutti_ctx *cx, const convolution *c, dnnl_primitive_desc_t *hint_p)
{
    convolution forward = *c;
    tutti__onednn_primitive *p;

    *hint_p = NULL;
    if (c->direction == TUTTI__FORWARD)
        return TUTTI_OK;
    forward.direction = TUTTI__FORWARD;
    TUTTI_TRY(convolution_get(cx, &forward, &p));
    *hint_p = p->pd;
    return TUTTI_OK;
}

static dnnl_status_t convolution_part(tutti_ctx *cx, const void *self,
                                      const tutti__onednn_primitive *whole, int64_t images,
                                      dnnl_primitive_desc_t *pd_p)
{
    convolution c = *(const convolution *)self;
    dnnl_primitive_desc_t hint;

    if (hint_of(cx, &c, &hint) != TUTTI_OK)
        return dnnl_out_of_memory;
    c.whole = whole;
    c.x.d[0] = c.y.d[0] = images;
    return convolution_pd(cx, &c, hint, pd_p);
}

static int64_t parts_of(const convolution *c)
{
    const int64_t pixels = c->y.d[0] * c->y.d[2] * c->y.d[3];

    return tutti__onednn_parts_of(c->direction == TUTTI__BACKWARD_WEIGHTS
                                      ? pixels / PART_PIXELS
                                      : pixels * tutti_shape_count(c->w) / PART_PRODUCTS);
}

/* oneDNN's (2.6.3) weight gradient in 16 bits of images narrower than the kernel multiplies what its scratch memory happens to hold:
 * the gradient of taps that never meet a pixel was not 0, and NaN where those bits are. */
static bool reads_scratch(const convolution *c)
{
    const int64_t kernel = (c->w.d[c->w.n - 1] - 1) * c->a->dilation[1] + 1;

    return c->direction == TUTTI__BACKWARD_WEIGHTS && c->dtype != TUTTI_F32 && c->x.d[3] < kernel;
}

static tutti_status convolution_get(tutti_ctx *cx, const convolution *c,
                                    tutti__onednn_primitive **primitive_p)
{
    static const tutti__onednn_arg args[3][4] = {
        [TUTTI__FORWARD] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, TUTTI__ONEDNN_IMAGES},
                            {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, TUTTI__ONEDNN_WHOLE},
                            {DNNL_ARG_DST, dnnl_query_dst_md, 0, TUTTI__ONEDNN_IMAGES},
                            {DNNL_ARG_BIAS, dnnl_query_weights_md, 1, TUTTI__ONEDNN_WHOLE}},
        [TUTTI__BACKWARD_DATA] = {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 0,
                                   TUTTI__ONEDNN_IMAGES},
                                  {DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, TUTTI__ONEDNN_WHOLE},
                                  {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0,
                                   TUTTI__ONEDNN_IMAGES}},
        [TUTTI__BACKWARD_WEIGHTS] = {{DNNL_ARG_SRC, dnnl_query_src_md, 0, TUTTI__ONEDNN_IMAGES},
                                     {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 0,
                                      TUTTI__ONEDNN_EACH},
                                     {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0,
                                      TUTTI__ONEDNN_IMAGES}},
    };
    const tutti__conv2d *a = c->a;
    const int64_t *kernel = &c->w.d[c->w.n - 2];
    const tutti__onednn_key key = {
        {TUTTI__ONEDNN_CONVOLUTION, c->direction, c->bias, c->dtype, a->groups, a->stride[0],
         a->stride[1], a->padding[0], a->padding[1], a->dilation[0], a->dilation[1], c->x.d[0],
         c->x.d[1], c->x.d[2], c->x.d[3], c->y.d[1], kernel[0], kernel[1]}};
    dnnl_primitive_desc_t pd = NULL, hint;
    dnnl_status_t status;
    int kept;

    *primitive_p = tutti__onednn_find(cx, &key);
    if (*primitive_p)
        return TUTTI_OK;
    TUTTI_TRY(hint_of(cx, c, &hint));
    kept = tutti__onednn_alone_begin();
    status = convolution_pd(cx, c, hint, &pd);
    tutti__onednn_alone_end(kept);
    if (status != dnnl_success) {
        char what[240];

        snprintf(what, sizeof what,
                 "a convolution of %s with weights %s, stride %dx%d, padding %dx%d, dilation %dx%d",
                 tutti__shape_text(c->x), tutti__shape_text(c->w), a->stride[0], a->stride[1],
                 a->padding[0], a->padding[1], a->dilation[0], a->dilation[1]);
        return tutti__onednn_check(status, what);
    }
    TUTTI_TRY(tutti__onednn_add(cx, &key, pd, args[c->direction], c->bias ? 4 : 3, primitive_p));
    (*primitive_p)->clears_scratch = reads_scratch(c);
    return tutti__onednn_cut(
        cx, *primitive_p, &(tutti__onednn_parts){convolution_part, c, c->x.d[0], (int)parts_of(c)});
}

bool tutti__onednn_can_convolve(tutti_ctx *cx, tutti_dtype dtype)
{
    const tutti__conv2d a = {{1, 1}, {1, 1}, {1, 1}, 1};
    convolution c = {.a = &a,
                     .x = TUTTI_SHAPE(1, 16, 8, 8),
                     .w = TUTTI_SHAPE(16, 16, 3, 3),
                     .y = TUTTI_SHAPE(1, 16, 8, 8),
                     .dtype = dtype};
    dnnl_primitive_desc_t hint = NULL, pd;
    bool can = convolution_pd(cx, &c, NULL, &hint) == dnnl_success;

    for (int d = TUTTI__BACKWARD_DATA; can && d <= TUTTI__BACKWARD_WEIGHTS; d++) {
        c.direction = (tutti__direction)d;
        can = convolution_pd(cx, &c, hint, &pd) == dnnl_success;
        if (can) {
            can = tutti__onednn_is_fast(pd);
            dnnl_primitive_desc_destroy(pd);
        }
    }
    can = can && tutti__onednn_is_fast(hint);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return can;
}

tutti_status tutti__onednn_conv2d_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                          tutti_tensor *b, const tutti__conv2d *a)
{
    const convolution c = {.a = a,
                           .x = x->shape,
                           .w = weights_of(w->shape, a),
                           .y = y->shape,
                           .bias = b != NULL,
                           .dtype = y->dtype};
    tutti__onednn_primitive *p;
    void *data[4] = {NULL};

    if (use_winograd(y->cx, &c))
        return tutti__winograd_forward(y, x, w, b, a);
    TUTTI_TRY(convolution_get(y->cx, &c, &p));
    TUTTI_TRY(tutti__onednn_in(x, p->layouts[0], &data[0]));
    TUTTI_TRY(tutti__onednn_in_as(w, c.w, p->layouts[1], y->dtype, &data[1]));
    TUTTI_TRY(tutti__tensor_alloc(y, p->layouts[2]));
    data[2] = y->data;
    if (b)
        TUTTI_TRY(tutti__onednn_in(b, NULL, &data[3]));
    return tutti__onednn_run(y->cx, p, data);
}

tutti_status tutti__onednn_conv2d_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                                tutti_tensor *b, const tutti__conv2d *a)
{
    const convolution c = {.a = a,
                           .x = dx->shape,
                           .w = weights_of(w->shape, a),
                           .y = dy->shape,
                           .direction = TUTTI__BACKWARD_DATA,
                           .dtype = dx->dtype};
    tutti__onednn_primitive *p;
    void *data[3];

    if (use_winograd(dx->cx, &c)) {
        TUTTI_TRY(tutti__winograd_backward_data(dx, dy, w, a));
        return b ? tutti__onednn_add_bias(dx, b) : TUTTI_OK;
    }
    TUTTI_TRY(convolution_get(dx->cx, &c, &p));
    TUTTI_TRY(tutti__onednn_in_as(w, c.w, p->layouts[1], dx->dtype, &data[1]));
    TUTTI_TRY(tutti__onednn_in(dy, p->layouts[2], &data[2]));
    TUTTI_TRY(tutti__tensor_alloc(dx, p->layouts[0]));
    data[0] = dx->data;
    TUTTI_TRY(tutti__onednn_run(dx->cx, p, data));
    return b ? tutti__onednn_add_bias(dx, b) : TUTTI_OK;
}

/* ---- Weight gradient -------------------------------------------------------------------------------------
 * A sum over the batch, which oneDNN would split by the number of threads. Here the batch is split into parts by the
 * shapes alone, one thread computes a part, and parts are added in order. */

#define ADD_ELEMENTS ((int64_t)1 << 14) /* elements per job */

typedef struct sum_parts {
    const tutti__runs *runs;
    float *sum; /* the first part; the others follow */
    int64_t n;
    int parts;
} sum_parts;

static void sum_job(void *arg, int64_t i, int member)
{
    const sum_parts *t = arg;
    const int64_t first = i * ADD_ELEMENTS;
    const int64_t n = t->n - first < ADD_ELEMENTS ? t->n - first : ADD_ELEMENTS;

    (void)member;
    for (int k = 1; k < t->parts; k++)
        t->runs->add(t->sum + first, t->sum + first, t->sum + first + k * t->n, n);
}

/* dw, in the layout of p, at the beginning of p->n_parts * bytes. */
static tutti_status run_and_sum(tutti_ctx *cx, tutti__onednn_primitive *p, void *const data[3])
{
    sum_parts t = {((const tutti__onednn *)cx->kernel_state)->isa->runs, data[WEIGHTS],
                   (int64_t)(p->bytes[WEIGHTS] / sizeof(float)), p->n_parts};

    TUTTI_TRY(tutti__onednn_run(cx, p, data));
    if (t.parts > 1)
        tutti__parallel(cx, sum_job, &t, (t.n + ADD_ELEMENTS - 1) / ADD_ELEMENTS);
    return TUTTI_OK;
}

tutti_status tutti__onednn_conv2d_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                   tutti_tensor *dy, tutti_tensor *x,
                                                   const tutti__conv2d *a)
{
    convolution c = {.a = a,
                     .x = x->shape,
                     .y = dy->shape,
                     .direction = TUTTI__BACKWARD_WEIGHTS,
                     .dtype = dy->dtype};
    tutti__onednn_primitive *p;
    void *data[3];

    if (db)
        TUTTI_TRY(tutti__onednn_bias_gradient(db, dy));
    if (!dw)
        return TUTTI_OK;
    c.w = weights_of(dw->shape, a);
    if (use_taps(dy->cx, &c))
        return tutti__taps_backward_weights(dw, dy, x, a);
    if (use_winograd(dy->cx, &c))
        return tutti__winograd_backward_weights(dw, dy, x, a);
    TUTTI_TRY(convolution_get(dy->cx, &c, &p));
    TUTTI_TRY(tutti__onednn_in(x, p->layouts[0], &data[0]));
    TUTTI_TRY(tutti__onednn_in(dy, p->layouts[2], &data[2]));
    if (p->n_parts == 1 && !p->layouts[1] && !dw->accumulate) {
        data[1] = dw->data;
        return tutti__onednn_run(dy->cx, p, data);
    }
    TUTTI_TRY(tutti__onednn_staging(dy->cx, (size_t)p->n_parts * p->bytes[1], &data[1]));
    TUTTI_TRY(run_and_sum(dy->cx, p, data));
    return tutti__onednn_reorder(dy->cx, c.w,
                                 &(tutti__onednn_place){p->layouts[1], TUTTI_F32, data[1]},
                                 &(tutti__onednn_place){NULL, TUTTI_F32, dw->data}, dw->accumulate);
}
