/* interpolate.c -- images of another size, by the nearest pixel or linear in both dimensions.   SPDX-License-Identifier: MIT
 *   x [N,C,H,W]  ->  y [N,C,H',W']
 * Pixel i of H' is at i * ratio of H (nearest), (i + 1/2) ratio - 1/2, or with align_corners i (H - 1) / (H' - 1); all in F32, as
 * in PyTorch. Forward keeps these positions, for rows and columns, for backward. */
#include "base/base.h"
#include "tensor/each.h"

#include <math.h>
#include <string.h>

#define FLOATS ((int64_t)(sizeof(tutti__pixel_position) / sizeof(float)))

static tutti_status check_options(const tutti_interpolate_opts *o)
{
    if (o->height < 0 || o->width < 0 || !(o->scale_h >= 0) || !(o->scale_w >= 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "height %lld, width %lld, scale_h %g, scale_w %g; expected none < 0",
                           (long long)o->height, (long long)o->width, o->scale_h, o->scale_w);
    if (o->mode != TUTTI_NEAREST && o->mode != TUTTI_NEAREST_EXACT && o->mode != TUTTI_BILINEAR)
        return tutti__fail(TUTTI_ERR_ARG, "mode %d is none", (int)o->mode);
    if (o->align_corners && o->mode != TUTTI_BILINEAR)
        return tutti__fail(TUTTI_ERR_ARG, "align_corners is an option of TUTTI_BILINEAR");
    return TUTTI_OK;
}

static double scale_of(const tutti_interpolate_opts *o, int d)
{
    return d == 1 && o->scale_w > 0 ? o->scale_w : o->scale_h;
}

static tutti_status interpolate_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti_interpolate_opts *o = p->attributes;
    const int64_t size[2] = {o->height, o->width};

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[N,C,H,W]", TUTTI_F32));
    TUTTI_TRY(check_options(o));
    *y = p->sources[0]->shape;
    for (int d = 0; d < 2; d++) {
        const double scaled = floor((double)y->d[2 + d] * scale_of(o, d));

        if (size[d] == 0 && !(scaled >= 1 && scaled <= INT32_MAX))
            return tutti__fail(TUTTI_ERR_ARG,
                               "x is %s, the scale %g; expected a size, or a scale that leaves at "
                               "least one pixel",
                               tutti__shape_text(p->sources[0]->shape), scale_of(o, d));
        y->d[2 + d] = size[d] ? size[d] : (int64_t)scaled;
    }
    return TUTTI_OK;
}

/* ---- Positions ---------------------------------------------------------------------------------- */

/* Pixels of x per pixel of y. As in PyTorch, the same size is a copy, and twice the size in NEAREST repeats each pixel, whatever the
 * scale. */
static float ratio_of(const tutti_interpolate_opts *o, int d, int64_t in, int64_t out)
{
    const int64_t size = d == 0 ? o->height : o->width;

    if (in == out && o->mode != TUTTI_NEAREST_EXACT)
        return 1;
    if (out == 2 * in && o->mode == TUTTI_NEAREST)
        return 0.5f;
    if (o->align_corners)
        return out > 1 ? (float)(in - 1) / (float)(out - 1) : 0;
    return size == 0 ? (float)(1 / scale_of(o, d)) : (float)in / (float)out;
}

static void find(const tutti_interpolate_opts *o, int d, int64_t in, int64_t out,
                 tutti__pixel_position *to)
{
    const float ratio = ratio_of(o, d, in, out);

    for (int64_t i = 0; i < out; i++) {
        float at = (float)i * ratio;
        int64_t low;

        if (o->mode == TUTTI_NEAREST_EXACT)
            at = ((float)i + 0.5f) * ratio;
        else if (o->mode == TUTTI_BILINEAR && !o->align_corners)
            at = fmaxf(((float)i + 0.5f) * ratio - 0.5f, 0);
        low = (int64_t)at < in - 1 ? (int64_t)at : in - 1;
        to[i].low = (int32_t)low;
        to[i].step = low < in - 1;
        to[i].share = fminf(fmaxf(at - (float)low, 0), 1);
    }
}

static int64_t keeps(const tutti_op_args *p)
{
    return FLOATS * (p->shape.d[2] + p->shape.d[3]);
}

/* ---- A plane ------------------------------------------------------------------------------------ */

typedef struct call {
    const tutti_op_args *p;
    int64_t H, W, h, w;
    const tutti__pixel_position *row, *column; /* [h], [w] */
} call;

TUTTI__CLONES static void nearest(float *y, const float *x, const tutti__pixel_position *column,
                                  int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        y[j] = x[column[j].low];
}

/* Between rows a and b, of which b has the share `share`. */
TUTTI__CLONES static void linear(float *y, const float *a, const float *b, float share,
                                 const tutti__pixel_position *column, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        const int32_t low = column[j].low, high = low + column[j].step;
        const float right = column[j].share, left = 1 - right;

        y[j] = (1 - share) * (left * a[low] + right * a[high]) +
               share * (left * b[low] + right * b[high]);
    }
}

static void plane_forward(void *arg, int64_t plane)
{
    const call *c = arg;
    const tutti_interpolate_opts *o = c->p->attributes;
    const float *x = (const float *)c->p->src[0] + plane * c->H * c->W;
    float *y = c->p->y + plane * c->h * c->w;

    for (int64_t i = 0; i < c->h; i++) {
        const tutti__pixel_position r = c->row[i];
        const float *a = x + r.low * c->W;

        if (o->mode != TUTTI_BILINEAR)
            nearest(y + i * c->w, a, c->column, c->w);
        else
            linear(y + i * c->w, a, a + r.step * c->W, r.share, c->column, c->w);
    }
}

static void linear_backward(float *a, float *b, float share, const float *dy,
                            const tutti__pixel_position *column, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        const int32_t low = column[j].low, high = low + column[j].step;
        const float right = column[j].share, left = 1 - right;
        const float above = (1 - share) * dy[j], below = share * dy[j];

        a[low] += left * above;
        a[high] += right * above;
        b[low] += left * below;
        b[high] += right * below;
    }
}

static void plane_backward(void *arg, int64_t plane)
{
    const call *c = arg;
    const tutti_interpolate_opts *o = c->p->attributes;
    const float *dy = c->p->dy + plane * c->h * c->w;
    float *dx = c->p->dsrc[0] + plane * c->H * c->W;

    memset(dx, 0, (size_t)(c->H * c->W) * sizeof *dx);
    for (int64_t i = 0; i < c->h; i++) {
        const tutti__pixel_position r = c->row[i];
        float *a = dx + r.low * c->W;

        if (o->mode == TUTTI_BILINEAR)
            linear_backward(a, a + r.step * c->W, r.share, dy + i * c->w, c->column, c->w);
        else
            for (int64_t j = 0; j < c->w; j++)
                a[c->column[j].low] += dy[i * c->w + j];
    }
}

static void each_plane(const tutti_op_args *p, void (*job)(void *arg, int64_t plane))
{
    const int64_t *x = p->sources[0]->shape.d, *y = p->shape.d;
    const tutti__pixel_position *kept = (const tutti__pixel_position *)p->kept;
    call c = {p, x[2], x[3], y[2], y[3], kept, kept + y[2]};

    tutti_op_parallel(p, job, &c, x[0] * x[1]);
}

static void forward(const tutti_op_args *p)
{
    const int64_t *x = p->sources[0]->shape.d, *y = p->shape.d;
    tutti__pixel_position *kept = (tutti__pixel_position *)p->kept;

    find(p->attributes, 0, x[2], y[2], kept);
    find(p->attributes, 1, x[3], y[3], kept + y[2]);
    each_plane(p, plane_forward);
}

static void backward(const tutti_op_args *p)
{
    each_plane(p, plane_backward);
}

/* ---- On a device -------------------------------------------------------------------------------- */

static tutti__each_job planes_of(const tutti_op_args *p, tutti__job_kind kind)
{
    const tutti_interpolate_opts *o = p->attributes;
    const int64_t *x = p->sources[0]->shape.d, *y = p->shape.d;
    const tutti__pixel_position *kept = (const tutti__pixel_position *)p->kept;
    tutti__each_job job = {kind,
                           {.images = {.H = x[2],
                                       .W = x[3],
                                       .h = y[2],
                                       .w = y[3],
                                       .dy = p->dy,
                                       .to = p->dsrc ? p->dsrc[0] : p->y,
                                       .row = kept,
                                       .column = kept + y[2],
                                       .linear = o->mode == TUTTI_BILINEAR}}};

    job.of.images.x = p->src[0];
    return job;
}

static tutti_status device_forward(const tutti_op_args *p)
{
    const tutti__each_job job = planes_of(p, TUTTI__JOB_interpolate);
    const int64_t *x = p->sources[0]->shape.d, *y = p->shape.d;
    const size_t bytes = (size_t)(y[2] + y[3]) * sizeof(tutti__pixel_position);
    tutti__pixel_position *positions = tutti__step_alloc(p->cx, bytes);

    if (!positions)
        return TUTTI_ERR_MEMORY;
    find(p->attributes, 0, x[2], y[2], positions);
    find(p->attributes, 1, x[3], y[3], positions + y[2]);
    TUTTI_TRY(tutti__copy_in(p->cx->stream, p->kept, positions, bytes));
    return tutti__each_on_device(p, &job, p->count);
}

static tutti_status device_backward(const tutti_op_args *p)
{
    const tutti__each_job job = planes_of(p, TUTTI__JOB_interpolate_gradient);

    return tutti__each_on_device(p, &job, tutti_shape_count(p->sources[0]->shape));
}

tutti_tensor *tutti_interpolate(tutti_tensor *x, tutti_interpolate_opts opts)
{
    static const tutti__op op = {.plain = {.name = "interpolate",
                                           .shape = interpolate_shape,
                                           .forward = forward,
                                           .backward = backward,
                                           .activations = 1,
                                           .keeps = keeps},
                                 .device_forward = device_forward,
                                 .device_backward = device_backward};
    const tutti_status status = TUTTI__CHECK_RESERVED(tutti_interpolate_opts, &opts);

    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx, status);
    return tutti__op_run(&op, &x, 1, &opts, sizeof opts);
}
