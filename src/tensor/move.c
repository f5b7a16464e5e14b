/* move.c -- copies blocks of elements between tensors: forward and backward of all operations that only move elements.
 * SPDX-License-Identifier: MIT
 *
 * A block's dimensions are merged where they continue each other, and ordered so that the result is written in sequence; the
 * kernels copy it (kernel.h). Integers, which the host can read on any device, are copied there, and sent to the device. */
#include "tensor/move.h"

#include <string.h>

void tutti__strides(tutti_shape shape, int64_t *stride)
{
    int64_t at = 1;

    for (int i = shape.n - 1; i >= 0; i--) {
        stride[i] = at;
        at *= shape.d[i];
    }
}

int tutti__dim_index(int dim, int n)
{
    const int of = n > 0 ? n : 1;

    if (dim >= -of && dim < of)
        return dim < 0 ? dim + of : dim;
    tutti__fail(TUTTI_ERR_ARG, "dim is %d, expected %d to %d for %d dimensions", dim, -of, of - 1,
                n);
    return -1;
}

void tutti__block_of_source(const tutti_op_args *p, int i, tutti__block *b)
{
    const tutti_shape x = p->sources[i]->shape;

    *b = (tutti__block){.source = i, .n = x.n};
    memcpy(b->size, x.d, sizeof b->size);
    tutti__strides(x, b->src_stride);
    tutti__strides(p->shape, b->dst_stride);
}

tutti_status tutti__move_source(const tutti_op_args *p, int i, const char *what,
                                tutti_dtype *dtype_p)
{
    if (!p->sources[i])
        return tutti__fail(TUTTI_ERR_ARG, "%s is NULL", what);
    if (i > 0 && p->sources[i]->dtype != *dtype_p)
        return tutti__fail(TUTTI_ERR_ARG, "%s is %s, but the first source %s", what,
                           tutti_dtype_name(p->sources[i]->dtype), tutti_dtype_name(*dtype_p));
    *dtype_p = p->sources[i]->dtype;
    return TUTTI_OK;
}

/* ---- A block as kernels copy it ------------------------------------------------------------------ */

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Inserts a dimension, ordered by the stride in `to`. */
static void insert(tutti__move *c, int64_t size, int64_t to_stride, int64_t from_stride)
{
    int at = c->n;

    if (size == 1)
        return;
    while (at > 0 && magnitude(c->to_stride[at - 1]) < magnitude(to_stride))
        at--;
    for (int i = c->n; i > at; i--) {
        c->size[i] = c->size[i - 1];
        c->to_stride[i] = c->to_stride[i - 1];
        c->from_stride[i] = c->from_stride[i - 1];
    }
    c->size[at] = size;
    c->to_stride[at] = to_stride;
    c->from_stride[at] = from_stride;
    c->n++;
}

/* Merges dimensions that continue each other in both. */
static void merge(tutti__move *c)
{
    int n = 0;

    for (int i = 0; i < c->n; i++) {
        if (n > 0 && c->to_stride[n - 1] == c->size[i] * c->to_stride[i] &&
            c->from_stride[n - 1] == c->size[i] * c->from_stride[i])
            c->size[n - 1] *= c->size[i];
        else
            c->size[n++] = c->size[i];
        c->to_stride[n - 1] = c->to_stride[i];
        c->from_stride[n - 1] = c->from_stride[i];
    }
    c->n = n;
}

static tutti__move copy_of(const tutti__block *b, bool back, void *to, const void *from,
                           size_t element, bool add)
{
    const int64_t size = (int64_t)element;
    tutti__move c = {.element = element, .add = add};

    c.to = (char *)to + (back ? b->src_at : b->dst_at) * size;
    c.from = (const char *)from + (back ? b->dst_at : b->src_at) * size;
    for (int i = 0; i < b->n; i++)
        insert(&c, b->size[i], back ? b->src_stride[i] : b->dst_stride[i],
               back ? b->dst_stride[i] : b->src_stride[i]);
    merge(&c);
    if (c.n == 0) { /* one element */
        c.size[0] = c.to_stride[0] = c.from_stride[0] = 1;
        c.n = 1;
    }
    return c;
}

static int64_t count_of(const tutti__block *b)
{
    int64_t count = 1;

    for (int i = 0; i < b->n; i++)
        count *= b->size[i];
    return count;
}

/* ---- Forward ------------------------------------------------------------------------------------- */

/* An operation as tutti__op_run knows it. */
typedef struct move {
    tutti__op op; /* first */
    tutti__move_op given;
} move;

static const tutti__move_op *given_of(const tutti__node *n)
{
    return &((const move *)n->op)->given;
}

static bool next_block(const tutti__node *n, const tutti_op_args *args, int i, tutti__block *b)
{
    *b = (tutti__block){0};
    return given_of(n)->block(args, i, b);
}

static int64_t moved_forward(const tutti__node *n, const tutti_op_args *args)
{
    int64_t moved = 0;
    tutti__block b;

    for (int i = 0; next_block(n, args, i, &b); i++)
        moved += count_of(&b);
    return moved;
}

static float fill_of(const tutti__node *n, const tutti_op_args *args)
{
    return given_of(n)->fill ? given_of(n)->fill(args) : 0;
}

/* Integers: in host memory, where they can be read afterwards too. */
static tutti_status integers_forward(tutti__node *n, const tutti_op_args *args)
{
    const size_t bytes = tutti__tensor_bytes(n->dst);
    const bool on_host = n->cx->device_ops->is_host;
    void *to = on_host ? n->dst->data : tutti__step_alloc(n->cx, bytes + 1);
    tutti__block b;

    if (!to)
        return TUTTI_ERR_MEMORY;
    if (moved_forward(n, args) < args->count)
        tutti__fill_on_host(to, args->count, TUTTI_I64, fill_of(n, args));
    for (int i = 0; next_block(n, args, i, &b); i++) {
        tutti__move c;

        if (count_of(&b) == 0)
            continue;
        c = copy_of(&b, false, to, n->src[b.source]->host, sizeof(int64_t), false);
        tutti__move_on_host(n->cx, &c);
    }
    n->dst->host = to;
    return on_host ? TUTTI_OK : tutti__copy_in(n->cx->stream, n->dst->data, to, bytes);
}

static tutti_status move_forward(tutti__node *n)
{
    const tutti_op_args args = tutti__op_args(n);
    const tutti__kernels *kernels = n->cx->kernels;
    tutti__block b;
    const void *from;

    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    if (n->dst->dtype == TUTTI_I64)
        return integers_forward(n, &args);
    if (moved_forward(n, &args) < args.count)
        TUTTI_TRY(kernels->fill(n->dst, fill_of(n, &args)));
    for (int i = 0; next_block(n, &args, i, &b); i++) {
        tutti__move c;

        if (count_of(&b) == 0)
            continue;
        TUTTI_TRY(tutti__tensor_row_major(n->src[b.source], &from));
        c = copy_of(&b, false, n->dst->data, from, tutti_dtype_size(n->dst->dtype), false);
        TUTTI_TRY(kernels->move(n->cx, &c));
    }
    return TUTTI_OK;
}

/* ---- Backward ------------------------------------------------------------------------------------ */

/* Adds or copies all blocks of source `source` from dy to `to`. */
static tutti_status blocks_back(const tutti__node *n, int source, tutti_tensor *to, const void *dy,
                                bool add)
{
    const tutti_op_args args = tutti__op_args(n);
    tutti__block b;

    for (int i = 0; next_block(n, &args, i, &b); i++)
        if (b.source == source && count_of(&b) > 0) {
            const tutti__move c = copy_of(&b, true, to->data, dy, tutti_dtype_size(to->dtype), add);

            TUTTI_TRY(n->cx->kernels->move(n->cx, &c));
        }
    return TUTTI_OK;
}

/* dx of source `source`: a copy, where no two blocks overlap. */
static tutti_status move_back(const tutti__node *n, int source, tutti_tensor *dx, const void *dy,
                              bool add)
{
    const tutti_op_args args = tutti__op_args(n);
    int64_t moved = 0;
    tutti__block b;

    TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
    for (int i = 0; next_block(n, &args, i, &b); i++)
        moved += b.source == source ? count_of(&b) : 0;
    if (add || moved < tutti_shape_count(dx->shape))
        TUTTI_TRY(n->cx->device_ops->zero(n->cx->stream, dx->data, tutti__tensor_bytes(dx)));
    return blocks_back(n, source, dx, dy, add);
}

/* The same where blocks overlap: sums in F32. */
static tutti_status add_back(const tutti__node *n, int source, tutti_tensor *dx, tutti_tensor *dy)
{
    tutti_tensor *sum, *wide;
    const void *p;

    if (!tutti__is_half(dx->dtype)) {
        TUTTI_TRY(tutti__tensor_row_major(dy, &p));
        return move_back(n, source, dx, p, true);
    }
    sum = tutti__tensor_new(n->cx, dx->shape, TUTTI_F32);
    wide = tutti__tensor_new(n->cx, dy->shape, TUTTI_F32);
    if (!sum || !wide)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(n->cx->kernels->cast(wide, dy));
    TUTTI_TRY(tutti__tensor_row_major(wide, &p));
    TUTTI_TRY(move_back(n, source, sum, p, true));
    TUTTI_TRY(n->cx->kernels->cast(dx, sum));
    tutti__tensor_release(sum);
    tutti__tensor_release(wide);
    return TUTTI_OK;
}

/* The gradient that source i has already, if the blocks can be added to that: so the parts of a tensor that is split cost no more
 * than themselves. */
static tutti_tensor *grad_to_add_to(const tutti__node *n, int i)
{
    const tutti_tensor *x = n->src[i];
    tutti_tensor *grad = x ? x->grad : NULL;
    const bool usable = grad && n->wants_grad[i] && !x->parameter && !grad->shared &&
                        !grad->layout && grad->dtype == TUTTI_F32 && grad->data;

    return usable ? grad : NULL;
}

static tutti_status move_backward(tutti__node *n)
{
    const void *dy;

    TUTTI_TRY(tutti__tensor_row_major(n->dst->grad, &dy));
    for (int i = 0; i < n->n_src; i++) {
        tutti_tensor *dx, *sum = grad_to_add_to(n, i);

        if (sum) {
            sum->kernel_cache_step = 0; /* invalidates copies of it in another layout */
            TUTTI_TRY(blocks_back(n, i, sum, dy, true));
            continue;
        }
        TUTTI_TRY(tutti__grad_of(n, i, &dx));
        if (!dx)
            continue;
        if (given_of(n)->overlaps)
            TUTTI_TRY(add_back(n, i, dx, n->dst->grad));
        else
            TUTTI_TRY(move_back(n, i, dx, dy, false));
    }
    return TUTTI_OK;
}

tutti_tensor *tutti__move_run(const tutti__move_op *op, tutti_tensor *const *src, int n_src,
                              const void *attributes, size_t attributes_bytes)
{
    tutti_ctx *cx = tutti__context_of(op->name, src, n_src);
    move *m;

    if (!cx)
        return NULL;
    m = tutti__step_alloc(cx, sizeof *m);
    if (!m)
        return &cx->out_of_memory;
    *m = (move){{.plain = {.name = op->name,
                           .shape = op->shape,
                           .activations = ~0u,
                           .autocast = n_src > 1 ? TUTTI_OP_WIDEST : TUTTI_OP_KEEP},
                 .forward = move_forward,
                 .backward = move_backward},
                *op};
    return tutti__op_run(&m->op, src, n_src, attributes, attributes_bytes);
}
