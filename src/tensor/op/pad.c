/* pad.c -- elements added or removed at the ends of dimensions.   SPDX-License-Identifier: MIT
 * With a constant: one block of the source, and the rest is filled. The others take elements of the source again, one dimension
 * after the other, the last one first. */
#include "tensor/move.h"

#include <string.h>

typedef struct attributes {
    int64_t before[TUTTI_MAX_DIMS], after[TUTTI_MAX_DIMS];
    tutti_pad_mode mode;
    float value;
} attributes;

static int64_t positive(int64_t n)
{
    return n > 0 ? n : 0;
}

/* ---- A constant ------------------------------------------------------------------------------------------ */

static tutti_status constant_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    tutti_shape x;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = x = p->sources[0]->shape;
    for (int i = 0; i < x.n; i++) {
        const bool overflows = __builtin_add_overflow(y->d[i], a->before[i], &y->d[i]) ||
                               __builtin_add_overflow(y->d[i], a->after[i], &y->d[i]);

        if (overflows || y->d[i] < (i > 0))
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s dim %d of x, which is %s, with %lld elements before and %lld "
                               "after it",
                               overflows ? "too large becomes" : "nothing is left of", i,
                               tutti__shape_text(x), (long long)a->before[i],
                               (long long)a->after[i]);
    }
    return TUTTI_OK;
}

static bool constant_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;

    tutti__block_of_source(p, 0, b);
    for (int k = 0; k < b->n; k++) {
        b->src_at += positive(-a->before[k]) * b->src_stride[k];
        b->dst_at += positive(a->before[k]) * b->dst_stride[k];
        b->size[k] -= positive(-a->before[k]) + positive(-a->after[k]);
        if (b->size[k] < 1)
            return false;
    }
    return i == 0;
}

static float constant_fill(const tutti_op_args *p)
{
    return ((const attributes *)p->attributes)->value;
}

/* ---- Elements of the source, along one dimension ------------------------------------------------------------ */

typedef struct padding {
    int dim;
    int64_t before, after;
    tutti_pad_mode mode;
} padding;

static tutti_status repeated_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const padding *a = p->attributes;
    const int64_t size = p->sources[0] ? p->sources[0]->shape.d[a->dim] : 0;
    const int64_t most = size < 1                        ? 0
                         : a->mode == TUTTI_PAD_REFLECT  ? size - 1
                         : a->mode == TUTTI_PAD_CIRCULAR ? size
                                                         : INT64_MAX;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    if (a->before > most || a->after > most)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%lld elements before and %lld after dim %d of x, which is %s, expected "
                           "at most %lld",
                           (long long)a->before, (long long)a->after, a->dim, tutti__shape_text(*y),
                           (long long)most);
    y->d[a->dim] += a->before + a->after;
    return TUTTI_OK;
}

/* Elements of the dimension: `size` from `from` on, `step` apart, to `to`. */
typedef struct piece {
    int64_t size, from, to, step;
} piece;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The middle, and each element before and after it; size -1: there are no more. */
static piece piece_of_edges(const padding *a, int64_t n, int i)
{
    const int64_t all = n + a->before + a->after, left = smaller(positive(a->before), all);
    const int64_t from = positive(-a->before);
    const int64_t middle = positive(smaller(n - from, all - left));

    if (i == 0)
        return (piece){middle, from, left, 1};
    if (i <= left)
        return (piece){1, 0, i - 1, 1};
    return (piece){i <= all - middle ? 1 : -1, n - 1, middle + i - 1, 1};
}

/* The middle, what is before it, and what is after it. */
static piece piece_of_others(const padding *a, int64_t n, int i)
{
    const bool mirrors = a->mode == TUTTI_PAD_REFLECT;
    const int64_t step = mirrors ? -1 : 1;

    if (i == 0)
        return (piece){n, 0, a->before, 1};
    if (i == 1)
        return (piece){a->before, mirrors ? a->before : n - a->before, 0, step};
    return (piece){i == 2 ? a->after : -1, mirrors ? n - 2 : 0, a->before + n, step};
}

static bool repeated_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const padding *a = p->attributes;
    const int64_t n = p->sources[0]->shape.d[a->dim];
    const piece of =
        a->mode == TUTTI_PAD_REPLICATE ? piece_of_edges(a, n, i) : piece_of_others(a, n, i);

    tutti__block_of_source(p, 0, b);
    b->size[a->dim] = of.size;
    b->src_at = of.from * b->src_stride[a->dim];
    b->dst_at = of.to * b->dst_stride[a->dim];
    b->src_stride[a->dim] *= of.step;
    return of.size >= 0;
}

static tutti_tensor *pad_repeated(tutti_tensor *x, const attributes *a)
{
    static const tutti__move_op op = {
        .name = "pad", .shape = repeated_shape, .block = repeated_block, .overlaps = true};
    const int dims = x->shape.n;

    for (int i = dims - 1; i >= 0 && x && x->poison == TUTTI_OK; i--) {
        padding of = {i, a->before[i], a->after[i], a->mode};

        if (a->mode != TUTTI_PAD_REPLICATE && (of.before < 0 || of.after < 0)) {
            of.before = positive(of.before);
            of.after = positive(of.after);
            x = tutti_narrow(x, i, positive(-a->before[i]),
                             x->shape.d[i] - positive(-a->before[i]) - positive(-a->after[i]));
        }
        if (of.before != 0 || of.after != 0)
            x = tutti__move_run(&op, &x, 1, &of, sizeof of);
    }
    return x;
}

tutti_tensor *tutti_pad(tutti_tensor *x, const int64_t *pad, int n, tutti_pad_mode mode,
                        float value)
{
    static const tutti__move_op op = {
        .name = "pad", .shape = constant_shape, .block = constant_block, .fill = constant_fill};
    attributes a = {.mode = mode, .value = value};
    const bool usable = x && x->poison == TUTTI_OK;

    if (usable && (n < 0 || n % 2 != 0 || n / 2 > x->shape.n || (n > 0 && !pad)))
        return tutti__poisoned(
            x->cx, tutti__fail(TUTTI_ERR_ARG,
                               "pad: %s, expected a pair for each of the last dimensions of x, "
                               "which is %s: 0 to %d numbers",
                               pad || n < 1 ? "the wrong number of numbers" : "pad is NULL",
                               tutti__shape_text(x->shape), 2 * x->shape.n));
    for (int i = 0; usable && i < n; i++)
        (i % 2 ? a.after : a.before)[x->shape.n - 1 - i / 2] = pad[i];
    if (usable && mode != TUTTI_PAD_CONSTANT)
        return pad_repeated(x, &a);
    return tutti__move_run(&op, &x, 1, &a, sizeof a);
}
