/* move.c -- copies blocks of elements between tensors: forward and backward of all operations that only move elements.
 * SPDX-License-Identifier: MIT
 *
 * A block's dimensions are merged where they continue each other, and ordered so that the result is written in sequence. If the
 * source is contiguous along another dimension than the result, as in a transpose, those two are copied in tiles that stay in the
 * cache. Threads take rows of the remaining dimensions. */
#include "tensor/move.h"
#include "tensor/parallel.h"

#include <string.h>

#define TILE 32                 /* elements of an edge: two tiles of doubles are 16 KiB */
#define PART ((int64_t)1 << 14) /* elements per job, at least a row */

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

/* ---- Copying a block --------------------------------------------------------------------------- */

/* A block as it is copied: `to` and `from` may be source and result, or the other way round. */
typedef struct block_copy {
    int n;
    int64_t size[TUTTI_MAX_DIMS], to_stride[TUTTI_MAX_DIMS], from_stride[TUTTI_MAX_DIMS];
    size_t element; /* bytes */
    bool add;       /* F32 only */
    char *to;
    const char *from;
    int tiled; /* the dimension along which `from` is contiguous, if that is not the last; else -1 */
    int64_t bands;              /* of tiles along it; 1 without tiles */
    int64_t rows, rows_per_job; /* rows of the last dimension, or bands */
} block_copy;

#define COPY_ROW(type)                                                                             \
    do {                                                                                           \
        type *t = (type *)to;                                                                      \
        const type *f = (const type *)from;                                                        \
                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            t[i * ts] = f[i * fs];                                                                 \
    } while (0)

/* n elements, ts and fs apart. */
static void copy_row(const block_copy *c, char *to, const char *from, int64_t n, int64_t ts,
                     int64_t fs)
{
    if (c->add) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i * ts] += ((const float *)from)[i * fs];
        return;
    }
    if (ts == 1 && fs == 1)
        memcpy(to, from, (size_t)n * c->element);
    else if (c->element == 4)
        COPY_ROW(uint32_t);
    else if (c->element == 2)
        COPY_ROW(uint16_t);
    else
        COPY_ROW(uint64_t);
}

/* A band of tiles, from element `a` of dimension c->tiled on. */
static void copy_band(const block_copy *c, char *to, const char *from, int64_t a)
{
    const int64_t element = (int64_t)c->element;
    const int last = c->n - 1, d = c->tiled;
    const int64_t end = a + TILE < c->size[d] ? a + TILE : c->size[d];

    for (int64_t b = 0; b < c->size[last]; b += TILE) {
        const int64_t n = c->size[last] - b < TILE ? c->size[last] - b : TILE;

        for (int64_t r = a; r < end; r++)
            copy_row(c, to + (r * c->to_stride[d] + b * c->to_stride[last]) * element,
                     from + (r * c->from_stride[d] + b * c->from_stride[last]) * element, n,
                     c->to_stride[last], c->from_stride[last]);
    }
}

static void copy_job(void *arg, int64_t job, int member)
{
    const block_copy *c = arg;
    const int64_t element = (int64_t)c->element, first = job * c->rows_per_job;
    const int last = c->n - 1;

    (void)member;
    for (int64_t row = first; row < first + c->rows_per_job && row < c->rows; row++) {
        int64_t to = 0, from = 0, rest = row / c->bands;

        for (int i = last - 1; i >= 0; i--) {
            if (i == c->tiled)
                continue;
            to += rest % c->size[i] * c->to_stride[i];
            from += rest % c->size[i] * c->from_stride[i];
            rest /= c->size[i];
        }
        if (c->tiled >= 0)
            copy_band(c, c->to + to * element, c->from + from * element, row % c->bands * TILE);
        else
            copy_row(c, c->to + to * element, c->from + from * element, c->size[last],
                     c->to_stride[last], c->from_stride[last]);
    }
}

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Inserts a dimension, ordered by the stride in `to`. */
static void insert(block_copy *c, int64_t size, int64_t to_stride, int64_t from_stride)
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
static void merge(block_copy *c)
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

/* c's sizes, strides and memory are set. */
static void run_copy(tutti_ctx *cx, block_copy *c)
{
    int64_t row;

    merge(c);
    if (c->n == 0) { /* one element */
        c->size[0] = c->to_stride[0] = c->from_stride[0] = 1;
        c->n = 1;
    }
    c->tiled = -1;
    for (int i = 0; i < c->n - 1; i++)
        if (magnitude(c->from_stride[i]) == 1)
            c->tiled = i;
    c->bands = c->tiled < 0 ? 1 : (c->size[c->tiled] + TILE - 1) / TILE;
    c->rows = c->bands;
    for (int i = 0; i < c->n - 1; i++)
        c->rows *= i == c->tiled ? 1 : c->size[i];
    row = c->size[c->n - 1] * (c->tiled < 0 ? 1 : TILE);
    c->rows_per_job = row < PART ? (PART + row - 1) / row : 1;
    tutti__parallel(cx, copy_job, c, (c->rows + c->rows_per_job - 1) / c->rows_per_job);
}

static block_copy copy_of(const tutti__block *b, bool back, void *to, const void *from,
                          size_t element, bool add)
{
    const int64_t size = (int64_t)element;
    block_copy c = {.element = element, .add = add};

    c.to = (char *)to + (back ? b->src_at : b->dst_at) * size;
    c.from = (const char *)from + (back ? b->dst_at : b->src_at) * size;
    for (int i = 0; i < b->n; i++)
        insert(&c, b->size[i], back ? b->src_stride[i] : b->dst_stride[i],
               back ? b->dst_stride[i] : b->src_stride[i]);
    return c;
}

static int64_t count_of(const tutti__block *b)
{
    int64_t count = 1;

    for (int i = 0; i < b->n; i++)
        count *= b->size[i];
    return count;
}

/* ---- Memory -------------------------------------------------------------------------------------- */

/* t's elements, row-major, in host memory. */
static tutti_status see(tutti_tensor *t, const void **p_p)
{
    const size_t bytes = tutti__tensor_bytes(t);
    void *host;

    *p_p = t->host;
    if (t->host)
        return TUTTI_OK;
    TUTTI_TRY(tutti__tensor_row_major(t, p_p));
    if (t->cx->device_ops->is_host)
        return TUTTI_OK;
    host = tutti__step_alloc(t->cx, bytes);
    if (!host)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__read(t->cx->stream, host, *p_p, bytes));
    *p_p = host;
    return TUTTI_OK;
}

/* Host memory in which t is computed. */
static tutti_status place(tutti_tensor *t, void **p_p)
{
    TUTTI_TRY(tutti__tensor_alloc(t, NULL));
    *p_p = t->data;
    if (t->cx->device_ops->is_host)
        return TUTTI_OK;
    *p_p = tutti__step_alloc(t->cx, tutti__tensor_bytes(t));
    return *p_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static tutti_status put(tutti_tensor *t, const void *p)
{
    if (t->dtype == TUTTI_I64)
        t->host = p;
    if (t->cx->device_ops->is_host)
        return TUTTI_OK;
    return tutti__copy_in(t->cx->stream, t->data, p, tutti__tensor_bytes(t));
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

static void fill_with(void *p, int64_t count, tutti_dtype dtype, float value)
{
    uint16_t half;

    if (dtype == TUTTI_F32)
        for (int64_t i = 0; i < count; i++)
            ((float *)p)[i] = value;
    else if (dtype == TUTTI_I64)
        for (int64_t i = 0; i < count; i++)
            ((int64_t *)p)[i] = (int64_t)value;
    else {
        tutti__half_from_f32(&half, &value, 1, dtype);
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)p)[i] = half;
    }
}

static tutti_status move_forward(tutti__node *n)
{
    const tutti_op_args args = tutti__op_args(n);
    const size_t element = tutti_dtype_size(n->dst->dtype);
    int64_t moved = 0;
    tutti__block b;
    const void *from;
    void *to;

    TUTTI_TRY(place(n->dst, &to));
    for (int i = 0; next_block(n, &args, i, &b); i++)
        moved += count_of(&b);
    if (moved < args.count)
        fill_with(to, args.count, n->dst->dtype, given_of(n)->fill ? given_of(n)->fill(&args) : 0);
    for (int i = 0; next_block(n, &args, i, &b); i++) {
        block_copy c;

        if (count_of(&b) == 0)
            continue;
        TUTTI_TRY(see(n->src[b.source], &from));
        c = copy_of(&b, false, to, from, element, false);
        run_copy(n->cx, &c);
    }
    return put(n->dst, to);
}

/* ---- Backward ------------------------------------------------------------------------------------ */

/* Adds or copies all blocks of source `source` from dy to `to`. */
static void blocks_back(const tutti__node *n, int source, void *to, const void *dy, size_t element,
                        bool add)
{
    const tutti_op_args args = tutti__op_args(n);
    tutti__block b;

    for (int i = 0; next_block(n, &args, i, &b); i++)
        if (b.source == source && count_of(&b) > 0) {
            block_copy c = copy_of(&b, true, to, dy, element, add);

            run_copy(n->cx, &c);
        }
}

/* dx of source `source`, in `to`: a copy, where no two blocks overlap. */
static void move_back(const tutti__node *n, int source, void *to, const void *dy, size_t element,
                      bool add)
{
    const tutti_op_args args = tutti__op_args(n);
    const int64_t count = tutti_shape_count(n->src[source]->shape);
    int64_t moved = 0;
    tutti__block b;

    for (int i = 0; next_block(n, &args, i, &b); i++)
        moved += b.source == source ? count_of(&b) : 0;
    if (add || moved < count)
        memset(to, 0, (size_t)count * element);
    blocks_back(n, source, to, dy, element, add);
}

/* The same where blocks overlap: sums in F32. */
static tutti_status add_back(const tutti__node *n, int source, void *to, const void *dy)
{
    const tutti_dtype dtype = n->dst->dtype;
    const size_t count = (size_t)tutti_shape_count(n->src[source]->shape);
    const size_t n_dy = (size_t)tutti_shape_count(n->dst->shape);
    float *sum = to, *wide;

    if (!tutti__is_half(dtype)) {
        move_back(n, source, to, dy, sizeof(float), true);
        return TUTTI_OK;
    }
    sum = tutti__scratch_take(n->cx, count * sizeof *sum);
    wide = tutti__scratch_take(n->cx, n_dy * sizeof *wide);
    if (!sum || !wide)
        return TUTTI_ERR_MEMORY;
    tutti__half_to_f32(wide, dy, n_dy, dtype);
    move_back(n, source, sum, wide, sizeof(float), true);
    tutti__half_from_f32(to, sum, count, dtype);
    tutti__scratch_give(n->cx, sum, count * sizeof *sum);
    tutti__scratch_give(n->cx, wide, n_dy * sizeof *wide);
    return TUTTI_OK;
}

/* The gradient that source i has already, if the blocks can be added to that: so the parts of a tensor that is split cost no more
 * than themselves. */
static float *grad_to_add_to(const tutti__node *n, int i)
{
    const tutti_tensor *x = n->src[i], *grad = x ? x->grad : NULL;
    const bool usable = grad && n->wants_grad[i] && !x->parameter && !grad->shared &&
                        !grad->layout && grad->dtype == TUTTI_F32 && n->cx->device_ops->is_host;

    return usable ? grad->data : NULL;
}

static tutti_status move_backward(tutti__node *n)
{
    const size_t element = tutti_dtype_size(n->dst->dtype);
    const void *dy;

    TUTTI_TRY(see(n->dst->grad, &dy));
    for (int i = 0; i < n->n_src; i++) {
        tutti_tensor *dx;
        float *sum = grad_to_add_to(n, i);
        void *to;

        if (sum) {
            blocks_back(n, i, sum, dy, element, true);
            continue;
        }
        TUTTI_TRY(tutti__grad_of(n, i, &dx));
        if (!dx)
            continue;
        TUTTI_TRY(place(dx, &to));
        if (given_of(n)->overlaps)
            TUTTI_TRY(add_back(n, i, to, dy));
        else
            move_back(n, i, to, dy, element, false);
        TUTTI_TRY(put(dx, to));
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
