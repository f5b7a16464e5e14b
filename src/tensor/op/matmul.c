/* matmul.c -- products of vectors, matrices, and batches of matrices: matmul, mm, bmm, mv, dot, outer.
 * SPDX-License-Identifier: MIT
 *   a [..,M,K]   b [..,K,N]   ->   y [..,M,N]
 * A kernel gets matrices with strides for the batch: a factor stored transposed, a repeated one, and the sum over a batch in
 * backward need no copy. Backward is two such products: of dy and op(b)^T, and of op(a)^T and dy. */
#include "tensor/op/matmul.h"

#include <string.h>

#define MAX_BATCH (TUTTI_MAX_DIMS - 2)

/* ---- Shapes ---------------------------------------------------------------------------------------------- */

/* A source as a batch of matrices. */
typedef struct matrices {
    int n;                    /* batch dimensions */
    int64_t batch[MAX_BATCH]; /* their sizes */
    int64_t rows, columns;    /* as stored */
} matrices;

static matrices matrices_of(tutti_shape shape, bool vector_is_column)
{
    matrices s = {.n = shape.n > 2 ? shape.n - 2 : 0};

    memcpy(s.batch, shape.d, (size_t)s.n * sizeof s.batch[0]);
    s.rows = shape.n > 1 ? shape.d[shape.n - 2] : vector_is_column ? shape.d[0] : 1;
    s.columns = shape.n > 1 ? shape.d[shape.n - 1] : vector_is_column ? 1 : shape.d[0];
    return s;
}

static matrices source_of(const tutti_op_args *p, int i)
{
    const tutti__matmul_kind *kind = p->attributes;

    return matrices_of(p->sources[i]->shape, (i == 1) != kind->outer);
}

/* Size of batch dimension i of n, counted as the result's. */
static int64_t batch_at(const matrices *s, int i, int n)
{
    return i < n - s->n ? 1 : s->batch[i - (n - s->n)];
}

static tutti_status check_factor(const tutti_op_args *p, int i)
{
    const tutti__matmul_kind *kind = p->attributes;
    const char name[] = {(char)('a' + i), '\0'};

    TUTTI_TRY(tutti_op_check_source(p, i, name, i == 0 ? kind->a_dims : kind->b_dims, TUTTI_F32));
    if (p->sources[i]->shape.n == 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s is a scalar, expected at least one dimension", name);
    if (p->sources[i]->shape.n == 1 && (i == 0 ? kind->a_transposed : kind->b_transposed))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is %s and cannot be transposed, expected at least two dimensions",
                           name, tutti__shape_text(p->sources[i]->shape));
    return TUTTI_OK;
}

static tutti_status matmul_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const tutti__matmul_kind *kind = p->attributes;
    matrices a, b;
    int n;
    bool fits;

    (void)dtype;
    TUTTI_TRY(check_factor(p, 0));
    TUTTI_TRY(check_factor(p, 1));
    a = source_of(p, 0);
    b = source_of(p, 1);
    n = a.n > b.n ? a.n : b.n;
    fits = (kind->a_transposed ? a.rows : a.columns) == (kind->b_transposed ? b.columns : b.rows);
    *y = (tutti_shape){.n = n};
    for (int i = 0; i < n; i++) {
        const int64_t of_a = batch_at(&a, i, n), of_b = batch_at(&b, i, n);

        y->d[i] = of_a == 1 ? of_b : of_a;
        fits &= of_a == of_b || (!kind->a_dims && (of_a == 1 || of_b == 1));
    }
    if (!fits)
        return tutti__fail(
            TUTTI_ERR_ARG, "a is %s%s but b is %s%s, expected [%sM,K] and [%sK,N]%s",
            tutti__shape_text(p->sources[0]->shape), kind->a_transposed ? ", transposed," : "",
            tutti__shape_text(p->sources[1]->shape), kind->b_transposed ? ", transposed" : "",
            n ? "..," : "", n ? "..," : "",
            n && !kind->a_dims ? ", where the leading dimensions are broadcast" : "");
    if (p->sources[0]->shape.n > 1 || kind->outer)
        y->d[y->n++] = kind->a_transposed ? a.columns : a.rows;
    if (p->sources[1]->shape.n > 1 || kind->outer)
        y->d[y->n++] = kind->b_transposed ? b.rows : b.columns;
    return TUTTI_OK;
}

/* ---- Geometry -------------------------------------------------------------------------------------------- */

/* Strides of s's matrices along the batch dimensions of the result; 0 where s is broadcast. */
static void strides_of(const matrices *s, int n, int64_t *stride)
{
    int64_t at = s->rows * s->columns;

    for (int i = n - 1; i >= 0; i--) {
        const int64_t size = batch_at(s, i, n);

        stride[i] = size == 1 ? 0 : at;
        at *= size;
    }
}

static void drop_batch(tutti__matmul *m, int at)
{
    m->n_batch--;
    for (int i = at; i < m->n_batch; i++) {
        m->batch[i] = m->batch[i + 1];
        m->a_stride[i] = m->a_stride[i + 1];
        m->b_stride[i] = m->b_stride[i + 1];
        m->c_stride[i] = m->c_stride[i + 1];
    }
}

static bool continues(const int64_t *stride, int i, int64_t size)
{
    return stride[i] == stride[i + 1] * size;
}

/* Batch dimensions that are more rows of a and c under the same b, or more terms of every sum, become that. */
static bool fold(tutti__matmul *m)
{
    const int last = m->n_batch - 1;
    const int64_t a = m->rows * m->inner, b = m->inner * m->columns, c = m->rows * m->columns;

    if (last < 0)
        return false;
    if (!m->a_transposed && m->a_stride[last] == a && m->b_stride[last] == 0 &&
        m->c_stride[last] == c)
        m->rows *= m->batch[last];
    else if (m->a_transposed && !m->b_transposed && m->a_stride[last] == a &&
             m->b_stride[last] == b && m->c_stride[last] == 0)
        m->inner *= m->batch[last];
    else
        return false;
    drop_batch(m, last);
    return true;
}

/* As few batch dimensions as possible. */
static void tidy(tutti__matmul *m)
{
    for (int i = m->n_batch - 1; i >= 0; i--)
        if (m->batch[i] == 1)
            drop_batch(m, i);
    for (int i = m->n_batch - 2; i >= 0; i--)
        if (continues(m->a_stride, i, m->batch[i + 1]) &&
            continues(m->b_stride, i, m->batch[i + 1]) &&
            continues(m->c_stride, i, m->batch[i + 1])) {
            m->batch[i + 1] *= m->batch[i];
            drop_batch(m, i);
        }
    while (fold(m))
        ;
}

/* The forward product; its batch dimensions are still the result's. */
static tutti__matmul forward_product(const tutti__node *n)
{
    const tutti_op_args p = tutti__op_args(n);
    const tutti__matmul_kind *kind = n->attributes;
    const matrices a = source_of(&p, 0), b = source_of(&p, 1);
    tutti__matmul m = {.rows = kind->a_transposed ? a.columns : a.rows,
                       .columns = kind->b_transposed ? b.rows : b.columns,
                       .inner = kind->a_transposed ? a.rows : a.columns,
                       .a_transposed = kind->a_transposed,
                       .b_transposed = kind->b_transposed,
                       .n_batch = a.n > b.n ? a.n : b.n};
    matrices c = {.n = m.n_batch, .rows = m.rows, .columns = m.columns};

    for (int i = 0; i < m.n_batch; i++) {
        const int64_t of_a = batch_at(&a, i, m.n_batch);

        m.batch[i] = c.batch[i] = of_a == 1 ? batch_at(&b, i, m.n_batch) : of_a;
    }
    strides_of(&a, m.n_batch, m.a_stride);
    strides_of(&b, m.n_batch, m.b_stride);
    strides_of(&c, m.n_batch, m.c_stride);
    return m;
}

/* `first` and `second` as factors of a product with the sizes of m, whose strides are `of_first`, `of_second`, `of_result`. */
static tutti__matmul product_of(const tutti__matmul *m, int64_t rows, int64_t columns,
                                int64_t inner, bool first_transposed, bool second_transposed)
{
    tutti__matmul g = *m;

    g.rows = rows;
    g.columns = columns;
    g.inner = inner;
    g.a_transposed = first_transposed;
    g.b_transposed = second_transposed;
    return g;
}

static void set_strides(tutti__matmul *g, const int64_t *first, const int64_t *second,
                        const int64_t *result)
{
    const size_t bytes = (size_t)g->n_batch * sizeof *first;

    memcpy(g->a_stride, first, bytes);
    memcpy(g->b_stride, second, bytes);
    memcpy(g->c_stride, result, bytes);
}

/* ---- Running --------------------------------------------------------------------------------------------- */

static bool sums_batches(const tutti__matmul *m)
{
    for (int i = 0; i < m->n_batch; i++)
        if (m->c_stride[i] == 0)
            return true;
    return false;
}

/* dst, without data, = the product. */
static tutti_status multiply(tutti_tensor *dst, tutti_tensor *first, tutti_tensor *second,
                             tutti__matmul m)
{
    const tutti__kernels *kernels = dst->cx->kernels;
    tutti_tensor *sum;

    tidy(&m);
    if (tutti_shape_count(dst->shape) == 0 || tutti_shape_count(first->shape) == 0 ||
        tutti_shape_count(second->shape) == 0) { /* of no terms */
        TUTTI_TRY(tutti__tensor_alloc(dst, NULL));
        return dst->cx->device_ops->zero(dst->cx->stream, dst->data, tutti__tensor_bytes(dst));
    }
    if (dst->dtype == TUTTI_F32 || !sums_batches(&m))
        return kernels->matmul(dst, first, second, &m);
    sum = tutti__tensor_new(dst->cx, dst->shape, TUTTI_F32);
    if (!sum)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(kernels->matmul(sum, first, second, &m));
    TUTTI_TRY(kernels->cast(dst, sum));
    tutti__tensor_release(sum);
    return TUTTI_OK;
}

static tutti_status matmul_forward(tutti__node *n)
{
    return multiply(n->dst, n->src[0], n->src[1], forward_product(n));
}

/* db = op(a)^T dy; if b is stored transposed, db^T = dy^T op(a) */
static tutti_status gradient_of_b(tutti__node *n, const tutti__matmul *m)
{
    tutti_tensor *db, *dy = n->dst->grad;
    tutti__matmul g;

    TUTTI_TRY(tutti__grad_of(n, 1, &db));
    if (!db)
        return TUTTI_OK;
    if (m->b_transposed) {
        g = product_of(m, m->columns, m->inner, m->rows, true, m->a_transposed);
        set_strides(&g, m->c_stride, m->a_stride, m->b_stride);
        return multiply(db, dy, n->src[0], g);
    }
    g = product_of(m, m->inner, m->columns, m->rows, !m->a_transposed, false);
    set_strides(&g, m->a_stride, m->c_stride, m->b_stride);
    return multiply(db, n->src[0], dy, g);
}

/* da = dy op(b)^T; if a is stored transposed, da^T = op(b) dy^T */
static tutti_status gradient_of_a(tutti__node *n, const tutti__matmul *m)
{
    tutti_tensor *da, *dy = n->dst->grad;
    tutti__matmul g;

    TUTTI_TRY(tutti__grad_of(n, 0, &da));
    if (!da)
        return TUTTI_OK;
    if (m->a_transposed) {
        g = product_of(m, m->inner, m->rows, m->columns, m->b_transposed, true);
        set_strides(&g, m->b_stride, m->c_stride, m->a_stride);
        return multiply(da, n->src[1], dy, g);
    }
    g = product_of(m, m->rows, m->inner, m->columns, false, !m->b_transposed);
    set_strides(&g, m->c_stride, m->b_stride, m->a_stride);
    return multiply(da, dy, n->src[1], g);
}

static tutti_status matmul_backward(tutti__node *n)
{
    const tutti__matmul m = forward_product(n);

    TUTTI_TRY(gradient_of_b(n, &m));
    tutti__weights_done(n);
    return gradient_of_a(n, &m);
}

static double matmul_flops(const tutti__node *n)
{
    const tutti__matmul m = forward_product(n);

    return 2.0 * (double)tutti_shape_count(n->dst->shape) * (double)m.inner;
}

tutti_tensor *tutti__matmul_run(const char *name, tutti_tensor *a, tutti_tensor *b,
                                const tutti__matmul_kind *kind)
{
    tutti_ctx *cx = a ? a->cx : b ? b->cx : NULL;
    tutti__op *op;

    if (!cx) {
        tutti__fail(TUTTI_ERR_ARG, "%s: the tensor is NULL", name);
        return NULL;
    }
    op = tutti__step_alloc(cx, sizeof *op);
    if (!op)
        return &cx->out_of_memory;
    *op = (tutti__op){.plain = {.name = name,
                                .shape = matmul_shape,
                                .activations = 3,
                                .autocast = TUTTI_OP_LOW,
                                .backward_reads = 3},
                      .forward = matmul_forward,
                      .backward = matmul_backward,
                      .flops = matmul_flops};
    return tutti__op_run(op, (tutti_tensor *[]){a, b}, 2, kind, sizeof *kind);
}

/* ---- The operations -------------------------------------------------------------------------------------- */

tutti_tensor *tutti_matmul(tutti_tensor *a, tutti_tensor *b)
{
    return tutti__matmul_run("matmul", a, b, &(tutti__matmul_kind){0});
}

tutti_tensor *tutti_matmul_with(tutti_tensor *a, tutti_tensor *b, const tutti_matmul_opts *opts)
{
    const tutti__matmul_kind kind = {.a_transposed = opts && opts->transpose_a,
                                     .b_transposed = opts && opts->transpose_b};
    tutti_status status = opts ? TUTTI__CHECK_RESERVED(tutti_matmul_opts, opts) : TUTTI_OK;

    if ((a || b) && status != TUTTI_OK)
        return tutti__poisoned(a ? a->cx : b->cx, status);
    return tutti__matmul_run("matmul", a, b, &kind);
}

tutti_tensor *tutti_bmm(tutti_tensor *a, tutti_tensor *b)
{
    return tutti__matmul_run("bmm", a, b,
                             &(tutti__matmul_kind){.a_dims = "[B,M,K]", .b_dims = "[B,K,N]"});
}

tutti_tensor *tutti_mm(tutti_tensor *a, tutti_tensor *b)
{
    return tutti__matmul_run("mm", a, b,
                             &(tutti__matmul_kind){.a_dims = "[M,K]", .b_dims = "[K,N]"});
}

tutti_tensor *tutti_mv(tutti_tensor *a, tutti_tensor *x)
{
    return tutti__matmul_run("mv", a, x, &(tutti__matmul_kind){.a_dims = "[M,K]", .b_dims = "[K]"});
}

tutti_tensor *tutti_dot(tutti_tensor *a, tutti_tensor *b)
{
    return tutti__matmul_run("dot", a, b, &(tutti__matmul_kind){.a_dims = "[K]", .b_dims = "[K]"});
}

tutti_tensor *tutti_outer(tutti_tensor *a, tutti_tensor *b)
{
    return tutti__matmul_run(
        "outer", a, b, &(tutti__matmul_kind){.a_dims = "[M]", .b_dims = "[N]", .outer = true});
}
