/* parts.c -- linear operations in parts: parts.h.   SPDX-License-Identifier: MIT
 *
 * A part of a matrix whose elements are not neighbours is copied, as kernels take contiguous ones. */
#include "tensor/op/parts.h"

#include "base/half.h"
#include "tensor/op/tokens.h"

#include <string.h>

/* ---- Sums of parts ------------------------------------------------------------------------------------------- */

TUTTI__CLONES static void add(float *restrict to, const float *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void add_halves(float *to, const uint16_t *from, size_t n, tutti_dtype dtype)
{
    float wide[256];

    for (size_t i = 0; i < n; i += 256) {
        const size_t m = n - i < 256 ? n - i : 256;

        tutti__half_to_f32(wide, from + i, m, dtype);
        add(to + i, wide, m);
    }
}

/* As a counter in binary carries. */
static void keep_part(tutti__part_sum *sum)
{
    float *part = sum->part;
    int i = 0;

    for (; sum->level[i]; i++) {
        add(sum->level[i], part, sum->n);
        sum->unused[sum->n_unused++] = part;
        part = sum->level[i];
        sum->level[i] = NULL;
    }
    sum->level[i] = part;
    sum->part = NULL;
}

tutti_status tutti__part_sum_add(tutti__part_sum *sum, tutti_tensor *t, bool ends)
{
    const bool first = !sum->part;
    const void *from;

    TUTTI_TRY(tutti__tensor_row_major(t, &from));
    if (first)
        sum->part = sum->n_unused > 0
                        ? sum->unused[--sum->n_unused]
                        : tutti__operation_memory(sum->cx, (sum->n + 1) * sizeof *sum->part);
    if (!sum->part)
        return TUTTI_ERR_MEMORY;
    if (t->dtype != TUTTI_F32 && first)
        tutti__half_to_f32(sum->part, from, sum->n, t->dtype);
    else if (t->dtype != TUTTI_F32)
        add_halves(sum->part, from, sum->n, t->dtype);
    else if (first)
        memcpy(sum->part, from, sum->n * sizeof *sum->part);
    else
        add(sum->part, from, sum->n);
    if (ends)
        keep_part(sum);
    return TUTTI_OK;
}

float *tutti__part_sum_here(const tutti__part_sum *sum)
{
    int i = 0;

    while (!sum->level[i])
        i++;
    return sum->level[i];
}

tutti_status tutti__part_sum_over_ranks(const tutti__part_sum *sum, const tutti_peers *peers,
                                        tutti_tensor *t)
{
    float *all = tutti__part_sum_here(sum);

    TUTTI_TRY(tutti__peers_sum_values(peers, NULL, all, sum->n));
    TUTTI_TRY(tutti__tensor_alloc(t, NULL));
    if (t->dtype == TUTTI_F32)
        memcpy(t->data, all, sum->n * sizeof *all);
    else
        tutti__half_from_f32(t->data, all, sum->n, t->dtype);
    return TUTTI_OK;
}

/* t is not used any more. */
static void release(tutti_tensor *t)
{
    if (!t->shared)
        tutti__tensor_release(t);
}

/* ---- Parts of matrices --------------------------------------------------------------------------------------- */

/* Rows or columns of a row-major matrix. */
typedef struct slice {
    int dim;
    int64_t begin, n;
} slice;

static tutti_shape shape_of(const tutti_tensor *t, const slice *s)
{
    tutti_shape shape = t->shape;

    shape.d[s->dim] = s->n;
    return shape;
}

static bool is_contiguous(const tutti_tensor *t, const slice *s)
{
    return s->dim == 0 || s->n == t->shape.d[1];
}

static char *first_of(const tutti_tensor *t, const slice *s)
{
    return (char *)t->data +
           (size_t)(s->begin * (s->dim == 0 ? t->shape.d[1] : 1)) * tutti_dtype_size(t->dtype);
}

/* Copies between columns s of t and `part`, contiguous. */
static void copy_columns(const tutti_tensor *t, const slice *s, char *part, bool put)
{
    const size_t each = tutti_dtype_size(t->dtype), run = (size_t)s->n * each;
    char *at = first_of(t, s);

    for (int64_t r = 0; r < t->shape.d[0]; r++, at += (size_t)t->shape.d[1] * each, part += run)
        memcpy(put ? at : part, put ? part : at, run);
}

/* Of t [..][..], row-major. */
static tutti_status slice_of(const tutti_tensor *t, const slice *s, tutti_tensor **slice_p)
{
    tutti_tensor *of = tutti__tensor_new(t->cx, shape_of(t, s), t->dtype);

    *slice_p = of;
    if (!of)
        return TUTTI_ERR_MEMORY;
    if (is_contiguous(t, s)) {
        of->data = first_of(t, s);
        of->shared = true;
        return TUTTI_OK;
    }
    TUTTI_TRY(tutti__tensor_alloc(of, NULL));
    copy_columns(t, s, of->data, false);
    return TUTTI_OK;
}

/* Slice s of `to`, which has memory, = from, which is released. */
static tutti_status put_slice(const tutti_tensor *to, const slice *s, tutti_tensor *from)
{
    const void *elements;

    TUTTI_TRY(tutti__tensor_row_major(from, &elements));
    if (is_contiguous(to, s))
        memcpy(first_of(to, s), elements, tutti__tensor_bytes(from));
    else
        copy_columns(to, s, (char *)(uintptr_t)elements, true);
    release(from);
    return TUTTI_OK;
}

/* A weight's gradient: slice s of dw = or += from, F32, which is not used any more. */
static void add_slice(const tutti_tensor *dw, const slice *s, tutti_tensor *from)
{
    const int64_t width = dw->shape.d[1];
    const float *row = from->data;
    float *at = (float *)(void *)first_of(dw, s);

    for (int64_t r = 0; r < dw->shape.d[0]; r++, at += width, row += s->n)
        if (dw->accumulate)
            add(at, row, (size_t)s->n);
        else
            memcpy(at, row, (size_t)s->n * sizeof *at);
    release(from);
}

/* t in memory that is row-major, as rows. */
static tutti_status rows_of(tutti_tensor *t, tutti_tensor **rows_p)
{
    const void *elements;

    *rows_p = tutti__tensor_new(t->cx, tutti__shape_rows(t->shape), t->dtype);
    if (!*rows_p)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_row_major(t, &elements));
    (*rows_p)->data = (void *)(uintptr_t)elements;
    (*rows_p)->shared = true;
    return TUTTI_OK;
}

/* ---- Products ------------------------------------------------------------------------------------------------ */

typedef tutti__layer_in_parts layer;

/* y = x w */
static tutti_status multiply(const layer *l, tutti_tensor *y, tutti_tensor *x, tutti_tensor *w)
{
    const tutti__kernels *kernels = y->cx->kernels;

    return l->in_out ? kernels->linear_backward_data(y, x, w)
                     : kernels->linear_forward(y, x, w, NULL);
}

/* dx = dy w^T */
static tutti_status multiply_back(const layer *l, tutti_tensor *dx, tutti_tensor *dy,
                                  tutti_tensor *w)
{
    const tutti__kernels *kernels = dx->cx->kernels;

    return l->in_out ? kernels->linear_forward(dx, dy, w, NULL)
                     : kernels->linear_backward_data(dx, dy, w);
}

/* Slice s of dw = or += x^T dy */
static tutti_status weight_gradient(const layer *l, tutti_tensor *dw, const slice *s,
                                    tutti_tensor *x, tutti_tensor *dy)
{
    const tutti__kernels *kernels = x->cx->kernels;
    tutti_tensor *part = tutti__tensor_new(x->cx, shape_of(dw, s), TUTTI_F32);

    if (!part)
        return TUTTI_ERR_MEMORY;
    if (is_contiguous(dw, s)) {
        part->data = first_of(dw, s);
        part->shared = true;
        part->accumulate = dw->accumulate;
    } else
        TUTTI_TRY(tutti__tensor_alloc(part, NULL));
    TUTTI_TRY(l->in_out ? kernels->linear_backward_weights(part, NULL, x, dy)
                        : kernels->linear_backward_weights(part, NULL, dy, x));
    if (!is_contiguous(dw, s))
        add_slice(dw, s, part);
    return TUTTI_OK;
}

/* The dimension of the weight whose features are divided. */
static int divided_dim(const layer *l)
{
    return l->rows == l->in_out ? 0 : 1;
}

/* Features of part p of group g of a rank's `own`. */
static slice features(const layer *l, int64_t own, int g, int p)
{
    const int64_t group = own / l->groups, begin = p * l->each;

    return (slice){1, g * group + begin, group - begin < l->each ? group - begin : l->each};
}

static slice of_weight(const layer *l, slice s)
{
    s.dim = divided_dim(l);
    return s;
}

/* ---- Columns ------------------------------------------------------------------------------------------------- */

tutti_status tutti__columns_forward(tutti_tensor *to, tutti_tensor *x, tutti_tensor *weight,
                                    tutti_tensor *bias, const layer *l)
{
    const int64_t own = to->shape.d[to->shape.n - 1];
    tutti_tensor *rows, *y;

    TUTTI_TRY(rows_of(x, &rows));
    TUTTI_TRY(tutti__tensor_alloc(to, NULL));
    TUTTI_TRY(rows_of(to, &y));
    for (int k = 0; k < l->groups * tutti__peers_units(l->peers); k++) {
        const slice s = features(l, own, k % l->groups, k / l->groups), of_w = of_weight(l, s);
        tutti_tensor *w, *part = tutti__tensor_new(to->cx, shape_of(y, &s), to->dtype);

        if (!part)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(slice_of(weight, &of_w, &w));
        TUTTI_TRY(multiply(l, part, rows, w));
        TUTTI_TRY(put_slice(y, &s, part));
        release(w);
    }
    if (bias)
        tutti__peers_add_bias(y, bias);
    return TUTTI_OK;
}

/* dx: the sum over this rank's parts. NULL: not wanted; likewise dw. */
static tutti_status columns_gradients(const layer *l, tutti__part_sum *dx, tutti_tensor *dw,
                                      tutti_tensor *weight, tutti_tensor *dy, tutti_tensor *x)
{
    for (int k = 0; k < l->groups * tutti__peers_units(l->peers); k++) {
        const slice s = features(l, dy->shape.d[1], k % l->groups, k / l->groups),
                    of_w = of_weight(l, s);
        tutti_tensor *part, *w, *sum;

        TUTTI_TRY(slice_of(dy, &s, &part));
        if (dw)
            TUTTI_TRY(weight_gradient(l, dw, &of_w, x, part));
        if (dx) {
            sum = tutti__tensor_new(
                dy->cx, TUTTI_SHAPE(dy->shape.d[0], weight->shape.d[l->in_out ? 0 : 1]), dy->dtype);
            if (!sum)
                return TUTTI_ERR_MEMORY;
            TUTTI_TRY(slice_of(weight, &of_w, &w));
            TUTTI_TRY(multiply_back(l, sum, part, w));
            TUTTI_TRY(tutti__part_sum_add(dx, sum, k % l->groups == l->groups - 1));
            release(sum);
            release(w);
        }
        release(part);
    }
    return TUTTI_OK;
}

/* x with all tokens, in memory of the operation. */
static tutti_status all_tokens(const layer *l, tutti_tensor *x, tutti_tensor **all_p)
{
    const tutti__rows_division d = tutti__rows_divided(l->peers, l->tokens, x->dtype);
    tutti_tensor *all = tutti__tensor_new(x->cx, TUTTI_SHAPE(d.rows, d.width), x->dtype);
    const void *own;

    *all_p = all;
    if (!all)
        return TUTTI_ERR_MEMORY;
    all->data = tutti__operation_memory(x->cx, tutti__tensor_bytes(all));
    all->shared = true;
    if (!all->data)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_row_major(x, &own));
    return tutti__rows_gather(x->cx, &d, own, all->data);
}

tutti_status tutti__columns_backward(tutti__node *n, tutti_tensor *grad, const layer *l)
{
    tutti_tensor *dx, *dw, *db, *dy, *x = n->src[0];
    tutti__part_sum sum = {.cx = n->cx};

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__weight_grad_of(n, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(n, 2, &db));
    TUTTI_TRY(rows_of(grad, &dy));
    if (db)
        TUTTI_TRY(n->cx->kernels->linear_backward_weights(NULL, db, dy, dy));
    if (dw && l->tokens.n > 0)
        TUTTI_TRY(all_tokens(l, x, &x));
    TUTTI_TRY(rows_of(x, &x));
    sum.n = (size_t)(dy->shape.d[0] * x->shape.d[1]);
    TUTTI_TRY(columns_gradients(l, dx ? &sum : NULL, dw, n->src[1], dy, x));
    tutti__weights_done(n);
    if (!dx)
        return TUTTI_OK;
    if (l->tokens.n > 0) {
        const tutti__rows_division d = tutti__rows_divided(l->peers, l->tokens, dx->dtype);

        TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
        return tutti__rows_sum(n->cx, &d, tutti__part_sum_here(&sum), TUTTI_F32, dx->data);
    }
    return tutti__part_sum_over_ranks(&sum, l->peers, dx);
}

/* ---- Rows ---------------------------------------------------------------------------------------------------- */

static tutti_status rows_forward(const tutti__node *n, const layer *l)
{
    const int64_t out = n->dst->shape.d[n->dst->shape.n - 1];
    tutti__part_sum sum = {.cx = n->cx};
    tutti_tensor *x;

    TUTTI_TRY(rows_of(n->src[0], &x));
    sum.n = (size_t)(x->shape.d[0] * out);
    for (int p = 0; p < tutti__peers_units(l->peers); p++) {
        const slice s = features(l, x->shape.d[1], 0, p), of_w = of_weight(l, s);
        tutti_tensor *part, *w,
            *y = tutti__tensor_new(n->cx, TUTTI_SHAPE(x->shape.d[0], out), n->dst->dtype);

        if (!y)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(slice_of(x, &s, &part));
        TUTTI_TRY(slice_of(n->src[1], &of_w, &w));
        TUTTI_TRY(multiply(l, y, part, w));
        TUTTI_TRY(tutti__part_sum_add(&sum, y, true));
        release(y);
        release(w);
        release(part);
    }
    if (l->tokens.n > 0) {
        tutti_shape whole = l->tokens;
        tutti__rows_division d;

        whole.d[whole.n - 1] = out;
        d = tutti__rows_divided(l->peers, whole, n->dst->dtype);
        TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
        TUTTI_TRY(tutti__rows_sum(n->cx, &d, tutti__part_sum_here(&sum), TUTTI_F32, n->dst->data));
    } else
        TUTTI_TRY(tutti__part_sum_over_ranks(&sum, l->peers, n->dst));
    if (n->src[2])
        tutti__peers_add_bias(n->dst, n->src[2]);
    return TUTTI_OK;
}

/* The gradient of the bias, by parts of the tokens: dy has this rank's. */
static tutti_status bias_of_tokens(const layer *l, tutti_tensor *db, tutti_tensor *dy)
{
    const int units = tutti__peers_units(l->peers);
    tutti__part_sum sum = {.cx = db->cx, .n = (size_t)db->shape.d[0]};
    const tutti__rows_division d = tutti__rows_divided(l->peers, l->tokens, dy->dtype);
    float *all;

    for (int p = 0; p < units; p++) {
        const int64_t left = d.own - p * d.part;
        const slice s = {0, p * d.part, left < d.part ? left : d.part};
        tutti_tensor *rows, *part = tutti__tensor_new(db->cx, db->shape, TUTTI_F32);

        if (!part)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(slice_of(dy, &s, &rows));
        TUTTI_TRY(tutti__tensor_alloc(part, NULL));
        TUTTI_TRY(db->cx->kernels->linear_backward_weights(NULL, part, rows, rows));
        TUTTI_TRY(tutti__part_sum_add(&sum, part, true));
        release(part);
    }
    all = tutti__part_sum_here(&sum);
    TUTTI_TRY(tutti__peers_sum_values(l->peers, NULL, all, sum.n));
    if (db->accumulate)
        add(db->data, all, sum.n);
    else
        memcpy(db->data, all, sum.n * sizeof *all);
    return TUTTI_OK;
}

static tutti_status rows_backward(tutti__node *n, const layer *l)
{
    tutti_tensor *dx, *dx_rows = NULL, *dw, *db, *dy, *x;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    TUTTI_TRY(tutti__weight_grad_of(n, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(n, 2, &db));
    TUTTI_TRY(rows_of(n->dst->grad, &dy));
    if (db && l->tokens.n > 0)
        TUTTI_TRY(bias_of_tokens(l, db, dy));
    else if (db)
        TUTTI_TRY(n->cx->kernels->linear_backward_weights(NULL, db, dy, dy));
    if (l->tokens.n > 0) {
        layer of = *l;

        of.tokens.d[of.tokens.n - 1] = dy->shape.d[1];
        TUTTI_TRY(all_tokens(&of, dy, &dy));
    }
    TUTTI_TRY(rows_of(n->src[0], &x));
    if (dx) {
        TUTTI_TRY(tutti__tensor_alloc(dx, NULL));
        TUTTI_TRY(rows_of(dx, &dx_rows));
    }
    for (int p = 0; p < tutti__peers_units(l->peers); p++) {
        const slice s = features(l, x->shape.d[1], 0, p), of_w = of_weight(l, s);
        tutti_tensor *part, *w;

        if (dw) {
            TUTTI_TRY(slice_of(x, &s, &part));
            TUTTI_TRY(weight_gradient(l, dw, &of_w, part, dy));
            release(part);
        }
        if (dx) {
            part = tutti__tensor_new(n->cx, shape_of(dx_rows, &s), dx->dtype);
            if (!part)
                return TUTTI_ERR_MEMORY;
            TUTTI_TRY(slice_of(n->src[1], &of_w, &w));
            TUTTI_TRY(multiply_back(l, part, dy, w));
            TUTTI_TRY(put_slice(dx_rows, &s, part));
            release(w);
        }
    }
    tutti__weights_done(n);
    return TUTTI_OK;
}

/* ---- The operation ------------------------------------------------------------------------------------------- */

static tutti_status linear_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const layer *l = p->attributes;
    const tutti_tensor *x = p->sources[0], *w = p->sources[1], *b = p->sources[2];
    const int64_t in = w->shape.d[l->in_out ? 0 : 1], out = w->shape.d[l->in_out ? 1 : 0];
    tutti_shape whole = l->tokens;
    int64_t begin;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    if (x->shape.n < 1 || x->shape.d[x->shape.n - 1] != in)
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but weight is %s", tutti__shape_text(x->shape),
                           tutti__shape_text(w->shape));
    if (b && !tutti_shape_equal(b->shape, TUTTI_SHAPE(out)))
        return tutti__fail(TUTTI_ERR_ARG, "weight is %s but bias is %s",
                           tutti__shape_text(w->shape), tutti__shape_text(b->shape));
    if (l->tokens.n > 0 && l->rows)
        *y = TUTTI_SHAPE(tutti__peers_chunk(l->peers,
                                            tutti_shape_count(whole) / whole.d[whole.n - 1],
                                            l->peers->rank, &begin),
                         0);
    else
        *y = l->tokens.n > 0 ? whole : x->shape;
    y->d[y->n - 1] = out;
    return TUTTI_OK;
}

static tutti_status linear_forward(tutti__node *n)
{
    const layer *l = n->attributes;
    tutti_tensor *x = n->src[0];

    if (!n->cx->device_ops->is_host)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "layers can be divided among ranks on the CPU "
                                                  "only");
    if (l->rows)
        return rows_forward(n, l);
    if (l->tokens.n > 0)
        TUTTI_TRY(all_tokens(l, x, &x));
    return tutti__columns_forward(n->dst, x, n->src[1], n->src[2], l);
}

static tutti_status linear_backward(tutti__node *n)
{
    const layer *l = n->attributes;

    return l->rows ? rows_backward(n, l) : tutti__columns_backward(n, n->dst->grad, l);
}

static double linear_flops(const tutti__node *n)
{
    const layer *l = n->attributes;
    const tutti_tensor *outer = l->rows ? n->src[0] : n->dst; /* which has all tokens */

    return 2.0 * (double)tutti_shape_count(outer->shape) *
           (double)n->src[1]->shape.d[1 - divided_dim(l)];
}

tutti_tensor *tutti__linear_in_parts(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                     const layer *of)
{
    static const tutti__op op = {.plain = {.name = "linear",
                                           .shape = linear_shape,
                                           .activations = 1,
                                           .autocast = TUTTI_OP_LOW,
                                           .backward_reads = 1 << 0 | 1 << 1},
                                 .forward = linear_forward,
                                 .backward = linear_backward,
                                 .collective = true,
                                 .flops = linear_flops};
    layer l = *of;

    if (l.tokens.n > 0 && x)
        l.tokens.d[l.tokens.n - 1] = x->shape.n > 0 ? x->shape.d[x->shape.n - 1] : 0;
    return tutti__op_run(&op, (tutti_tensor *[]){x, weight, bias}, 3, &l, sizeof l);
}

tutti__layer_in_parts tutti__classes_in_parts(const tutti__divided_classes *classes)
{
    layer l = {.peers = classes->peers, .groups = 1};
    int64_t begin;

    l.each = tutti__chunk(classes->classes, classes->peers->parts, 1, 0, &begin);
    return l;
}

/* ---- Weights of the tokens' parts ---------------------------------------------------------------------------- */

typedef struct copies {
    const tutti_peers *peers;
} copies;

static tutti_status copies_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const copies *c = p->attributes;
    const tutti_shape x = p->sources[0]->shape;

    (void)dtype;
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", "[D]", TUTTI_F32));
    *y = TUTTI_SHAPE(tutti__peers_units(c->peers), x.d[0]);
    return TUTTI_OK;
}

static tutti_status copies_forward(tutti__node *n)
{
    const size_t bytes = tutti__tensor_bytes(n->src[0]);
    const void *x;

    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &x));
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    for (int64_t i = 0; i < n->dst->shape.d[0]; i++)
        memcpy((char *)n->dst->data + (size_t)i * bytes, x, bytes);
    return TUTTI_OK;
}

static tutti_status copies_backward(tutti__node *n)
{
    const copies *c = n->attributes;
    tutti__part_sum sum = {.cx = n->cx, .n = (size_t)n->src[0]->shape.d[0]};
    tutti_tensor *dx, *dy;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    if (!dx)
        return TUTTI_OK;
    TUTTI_TRY(rows_of(n->dst->grad, &dy));
    for (int64_t i = 0; i < dy->shape.d[0]; i++) {
        const slice s = {0, i, 1};
        tutti_tensor *row;

        TUTTI_TRY(slice_of(dy, &s, &row));
        TUTTI_TRY(tutti__part_sum_add(&sum, row, true));
    }
    return tutti__part_sum_over_ranks(&sum, c->peers, dx);
}

tutti_tensor *tutti__weight_of_parts(tutti_tensor *parameter, const tutti_peers *peers)
{
    static const tutti__op op = {.plain = {.name = "copy_to_ranks", .shape = copies_shape},
                                 .forward = copies_forward,
                                 .backward = copies_backward};
    const copies c = {peers};

    return tutti__op_run(&op, &parameter, 1, &c, sizeof c);
}
