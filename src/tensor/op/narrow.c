/* narrow.c -- parts of a tensor along a dimension: narrow, select, split, chunk.   SPDX-License-Identifier: MIT */
#include "tensor/move.h"

typedef struct attributes {
    int dim;
    int64_t start, length; /* a negative start counts from the end */
} attributes;

static tutti_status narrow_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    int64_t size, start;
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    *y = p->sources[0]->shape;
    dim = tutti__dim_index(a->dim, y->n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    size = y->d[dim];
    start = a->start + (a->start < 0 ? size : 0);
    if (start < 0 || start > size || a->length < 0 || a->length > size - start)
        return tutti__fail(TUTTI_ERR_ARG,
                           "start is %lld and length %lld, but dim %d of x, which is %s, has %lld "
                           "elements",
                           (long long)a->start, (long long)a->length, dim, tutti__shape_text(*y),
                           (long long)size);
    y->d[dim] = a->length;
    return TUTTI_OK;
}

static bool narrow_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;
    const int dim = tutti__dim_index(a->dim, p->sources[0]->shape.n);

    tutti__block_of_source(p, 0, b);
    b->src_at = (a->start + (a->start < 0 ? b->size[dim] : 0)) * b->src_stride[dim];
    b->size[dim] = a->length;
    return i == 0;
}

tutti_tensor *tutti_narrow(tutti_tensor *x, int dim, int64_t start, int64_t length)
{
    static const tutti__move_op op = {
        .name = "narrow", .shape = narrow_shape, .block = narrow_block};

    return tutti__move_run(&op, &x, 1, &(attributes){dim, start, length}, sizeof(attributes));
}

/* ---- select ---------------------------------------------------------------------------------------------- */

static tutti_status select_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    tutti_shape x;
    int dim;

    TUTTI_TRY(tutti__move_source(p, 0, "x", dtype));
    x = p->sources[0]->shape;
    dim = tutti__dim_index(a->dim, x.n);
    if (dim < 0)
        return TUTTI_ERR_ARG;
    if (a->start < -x.d[dim] || a->start >= x.d[dim])
        return tutti__fail(TUTTI_ERR_ARG,
                           "index is %lld, but dim %d of x, which is %s, has %lld elements",
                           (long long)a->start, dim, tutti__shape_text(x), (long long)x.d[dim]);
    *y = (tutti_shape){0};
    for (int i = 0; i < x.n; i++)
        if (i != dim)
            y->d[y->n++] = x.d[i];
    return TUTTI_OK;
}

static bool select_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const attributes *a = p->attributes;
    const int dim = tutti__dim_index(a->dim, p->sources[0]->shape.n);
    int64_t stride[TUTTI_MAX_DIMS];

    tutti__block_of_source(p, 0, b);
    tutti__strides(p->shape, stride);
    b->src_at = (a->start + (a->start < 0 ? b->size[dim] : 0)) * b->src_stride[dim];
    b->size[dim] = 1;
    for (int k = 0; k < b->n; k++)
        b->dst_stride[k] = k == dim ? 1 : stride[k - (k > dim)];
    return i == 0;
}

tutti_tensor *tutti_select(tutti_tensor *x, int dim, int64_t index)
{
    static const tutti__move_op op = {
        .name = "select", .shape = select_shape, .block = select_block};

    return tutti__move_run(&op, &x, 1, &(attributes){dim, index, 1}, sizeof(attributes));
}

/* ---- split ----------------------------------------------------------------------------------------------- */

static int all_poisoned(tutti_tensor *x, tutti_status status, tutti_tensor **parts, int n)
{
    for (int i = 0; parts && i < n; i++)
        parts[i] = x ? tutti__poisoned(x->cx, status) : NULL;
    return 0;
}

/* The size of dim of x, which can be split into parts; or the failure. */
static tutti_status size_to_split(const char *name, tutti_tensor *x, int dim, tutti_tensor **parts,
                                  int64_t *size_p)
{
    int at;

    if (!x || !parts)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is NULL", name, x ? "parts" : "the tensor");
    TUTTI_TRY(tutti_tensor_status(x));
    at = tutti__dim_index(dim, x->shape.n);
    if (at < 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s", name, tutti_last_error());
    *size_p = x->shape.d[at];
    return TUTTI_OK;
}

/* Into parts of `each`, a smaller last one; at most n. */
static int split_evenly(const char *name, tutti_tensor *x, int64_t each, int dim,
                        tutti_tensor **parts, int n)
{
    int64_t size = 0, count;
    tutti_status status = size_to_split(name, x, dim, parts, &size);

    if (status != TUTTI_OK)
        return all_poisoned(x, status, parts, n);
    count = each < 1 ? 0 : size == 0 ? 1 : (size - 1) / each + 1;
    if (count < 1 || count > n)
        return all_poisoned(
            x,
            tutti__fail(TUTTI_ERR_ARG,
                        "%s: dim %d of x, which is %s, in parts of %lld, expected 1 to %d parts",
                        name, dim, tutti__shape_text(x->shape), (long long)each, n),
            parts, n);
    for (int64_t i = 0; i < n; i++)
        parts[i] = i >= count ? NULL
                              : tutti_narrow(x, dim, i * each,
                                             size - i * each < each ? size - i * each : each);
    return (int)count;
}

int tutti_split(tutti_tensor *x, int64_t split_size, int dim, tutti_tensor **parts, int n)
{
    return split_evenly("split", x, split_size, dim, parts, n);
}

int tutti_chunk(tutti_tensor *x, int chunks, int dim, tutti_tensor **parts)
{
    int64_t size = 0;
    const tutti_status status = size_to_split("chunk", x, dim, parts, &size);

    if (status != TUTTI_OK)
        return all_poisoned(x, status, parts, chunks);
    if (chunks < 1) {
        tutti__fail(TUTTI_ERR_ARG, "chunk: chunks is %d, expected at least 1", chunks);
        return 0;
    }
    return split_evenly("chunk", x, size == 0 ? 1 : (size + chunks - 1) / chunks, dim, parts,
                        chunks);
}

int tutti_split_with_sizes(tutti_tensor *x, const int64_t *sizes, int n, int dim,
                           tutti_tensor **parts)
{
    int64_t size = 0, sum = 0, at = 0;
    tutti_status status = size_to_split("split_with_sizes", x, dim, parts, &size);

    if (status == TUTTI_OK && !sizes)
        status = tutti__fail(TUTTI_ERR_ARG, "split_with_sizes: sizes is NULL");
    for (int i = 0; status == TUTTI_OK && i < n; i++) {
        if (sizes[i] < 0 || sizes[i] > size - sum)
            status = tutti__fail(
                TUTTI_ERR_ARG,
                "split_with_sizes: sizes[%d] is %lld, but dim %d of x, which is %s, has %lld "
                "elements left",
                i, (long long)sizes[i], dim, tutti__shape_text(x->shape), (long long)(size - sum));
        sum += status == TUTTI_OK ? sizes[i] : 0;
    }
    if (status == TUTTI_OK && sum != size)
        status =
            tutti__fail(TUTTI_ERR_ARG,
                        "split_with_sizes: sizes add up to %lld, but dim %d of x, which is %s, "
                        "has %lld elements",
                        (long long)sum, dim, tutti__shape_text(x->shape), (long long)size);
    if (status != TUTTI_OK)
        return all_poisoned(x, status, parts, n);
    for (int i = 0; i < n; at += sizes[i++])
        parts[i] = tutti_narrow(x, dim, at, sizes[i]);
    return n;
}
