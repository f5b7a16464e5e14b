/* unfold.c -- the windows of images as columns.   SPDX-License-Identifier: MIT
 *   x [N,C,H,W] -> y [N,C kh kw,L], L windows; without N also
 * One block for each place in the window: the pixels that it has in all windows. */
#include "tensor/move.h"
#include "tensor/op/window.h"

typedef struct side {
    int kernel, stride, padding, dilation;
} side;

typedef struct attributes {
    side of[2];
} attributes;

static int64_t windows(const side *s, int64_t size)
{
    return tutti__windows(size, s->dilation * (int64_t)(s->kernel - 1) + 1, s->stride, s->padding);
}

static tutti_status unfold_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    int64_t places = 1, count = 1;
    tutti_shape x;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    if (x.n != 3 && x.n != 4)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s, expected [N,C,H,W] or [C,H,W]",
                           tutti__shape_text(x));
    for (int i = 0; i < 2; i++) {
        const side *s = &a->of[i];

        if (s->kernel < 1 || s->stride < 1 || s->padding < 0 || s->dilation < 1)
            return tutti__fail(TUTTI_ERR_ARG,
                               "kernel %d, stride %d, padding %d, dilation %d; expected kernel, "
                               "stride and dilation >= 1 and padding >= 0",
                               s->kernel, s->stride, s->padding, s->dilation);
        if (windows(s, x.d[x.n - 2 + i]) < 1)
            return tutti__fail(TUTTI_ERR_ARG,
                               "x is %s: with padding %d it is smaller than the window of %d, "
                               "dilated by %d",
                               tutti__shape_text(x), s->padding, s->kernel, s->dilation);
        places *= s->kernel;
        count *= windows(s, x.d[x.n - 2 + i]);
    }
    y->n = x.n - 1;
    y->d[0] = x.d[0];
    y->d[y->n - 2] = x.d[x.n - 3] * places;
    y->d[y->n - 1] = count;
    return TUTTI_OK;
}

/* The windows in which place k of the window lies inside `size` pixels: [*first, the result) */
static int64_t windows_at(const side *s, int k, int64_t size, int64_t *first)
{
    const int64_t shift =
        s->padding - (int64_t)k * s->dilation; /* pixel = window * stride - shift */
    const int64_t end = size + shift <= 0 ? 0 : (size + shift - 1) / s->stride + 1;
    const int64_t count = windows(s, size);

    *first = shift <= 0 ? 0 : (shift + s->stride - 1) / s->stride;
    return end < count ? end : count;
}

static bool unfold_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape;
    const int place[2] = {i / a->of[1].kernel, i % a->of[1].kernel};
    const int64_t wide = windows(&a->of[1], x.d[x.n - 1]), count = p->shape.d[p->shape.n - 1];
    int64_t stride[TUTTI_MAX_DIMS];

    tutti__block_of_source(p, 0, b);
    tutti__strides(p->shape, stride);
    b->dst_stride[0] = stride[0];
    b->dst_stride[x.n - 3] = (int64_t)a->of[0].kernel * a->of[1].kernel * count;
    b->dst_stride[x.n - 2] = wide;
    b->dst_stride[x.n - 1] = 1;
    b->dst_at = i * count;
    for (int k = 0; k < 2; k++) {
        const int dim = x.n - 2 + k;
        const side *s = &a->of[k];
        int64_t first;
        const int64_t end = windows_at(s, place[k], x.d[dim], &first);

        b->size[dim] = end > first ? end - first : 0;
        b->dst_at += first * b->dst_stride[dim];
        b->src_at +=
            (first * s->stride - s->padding + (int64_t)place[k] * s->dilation) * b->src_stride[dim];
        b->src_stride[dim] *= s->stride;
    }
    return place[0] < a->of[0].kernel;
}

tutti_tensor *tutti_unfold(tutti_tensor *x, tutti_unfold_opts opts)
{
    static const tutti__move_op op = {
        .name = "unfold", .shape = unfold_shape, .block = unfold_block, .overlaps = true};
    const tutti_status status = TUTTI__CHECK_RESERVED(tutti_unfold_opts, &opts);
    attributes a;

    if (x && status != TUTTI_OK)
        return tutti__poisoned(x->cx, status);
    for (int i = 0; i < 2; i++)
        a.of[i] = (side){opts.kernel[i], opts.stride[i] ? opts.stride[i] : 1, opts.padding[i],
                         opts.dilation[i] ? opts.dilation[i] : 1};
    return tutti__move_run(&op, &x, 1, &a, sizeof a);
}
