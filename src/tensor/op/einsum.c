/* einsum.c -- sums of products, written as an equation: "bhqd,bhkd->bhqk".   SPDX-License-Identifier: MIT
 * A dimension of two operands' product is one of a batch (in both and the result), contracted (in both only), or free (in one and
 * the result). Operands are brought into the order batch, free, contracted, or batch, contracted, free if they are in that one:
 * then matmul computes the rest. What is in one operand only is summed before. */
#include "tensor/move.h"
#include "tensor/op/matmul.h"

#include <string.h>

#define MAX_OPERANDS 2
#define ELLIPSIS                                                                                   \
    128 /* and above: labels of the dimensions that "..." stands for, from the last one */
#define MAX_LABELS (MAX_OPERANDS * TUTTI_MAX_DIMS)

/* The labels of a tensor's dimensions. */
typedef struct labels {
    int n;
    int of[MAX_LABELS];
} labels;

typedef struct einsum {
    const char *equation;
    int n; /* operands */
    tutti_tensor *x[MAX_OPERANDS];
    labels in[MAX_OPERANDS], out;
    int ellipsis; /* dimensions of the longest "..." */
} einsum;

static bool has(const labels *l, int label)
{
    for (int i = 0; i < l->n; i++)
        if (l->of[i] == label)
            return true;
    return false;
}

/* isalpha depends on the locale. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void append(labels *l, int label)
{
    if (l->n < MAX_LABELS)
        l->of[l->n++] = label;
}

/* ---- The equation ---------------------------------------------------------------------------------------- */

static tutti_status fail_at(const einsum *e, const char *at, const char *what)
{
    return tutti__fail(TUTTI_ERR_ARG, "einsum: equation \"%s\", position %d: %s", e->equation,
                       (int)(at - e->equation), what);
}

/* Up to a comma, the arrow or the end: letters, and "..." as `dots` labels. */
static tutti_status parse_term(const einsum *e, const char **at, int dots, labels *l,
                               bool *has_dots)
{
    const char *c = *at;

    *has_dots = false;
    for (; *c && *c != ',' && strncmp(c, "->", 2) != 0; c++) {
        if (*c == ' ')
            continue;
        if (is_letter(*c)) {
            if (l->n >= TUTTI_MAX_DIMS)
                return fail_at(e, c, "more than 6 labels");
            append(l, (unsigned char)*c);
        } else if (strncmp(c, "...", 3) == 0 && !*has_dots) {
            for (int i = dots - 1; i >= 0; i--)
                append(l, ELLIPSIS + i);
            *has_dots = true;
            c += 2;
        } else {
            return fail_at(e, c, "expected a letter, ..., a comma or ->");
        }
    }
    *at = c;
    return TUTTI_OK;
}

static tutti_status parse_operand(einsum *e, int i, const char **at)
{
    const char *begin = *at;
    const int dims = e->x[i]->shape.n;
    bool has_dots;
    labels letters = {0};
    int dots;

    TUTTI_TRY(parse_term(e, at, 0, &letters, &has_dots));
    dots = has_dots ? dims - letters.n : 0;
    if (dots < 0 || letters.n + dots != dims)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "einsum: equation \"%s\", position %d: %d labels%s, but operand %d is %s", e->equation,
            (int)(begin - e->equation), letters.n, has_dots ? " and ..." : "", i,
            tutti__shape_text(e->x[i]->shape));
    if (dots > e->ellipsis)
        e->ellipsis = dots;
    *at = begin;
    return parse_term(e, at, dots, &e->in[i], &has_dots);
}

/* Without an arrow: "...", then all labels that are there once, in the alphabet's order. */
static void infer_output(einsum *e)
{
    for (int i = e->ellipsis - 1; i >= 0; i--)
        append(&e->out, ELLIPSIS + i);
    for (int label = 'A'; label <= 'z'; label++) {
        int times = 0;

        for (int k = 0; k < e->n; k++)
            for (int i = 0; i < e->in[k].n; i++)
                times += e->in[k].of[i] == label;
        if (times == 1)
            append(&e->out, label);
    }
}

static tutti_status parse_output(einsum *e, const char *at)
{
    bool has_dots;

    TUTTI_TRY(parse_term(e, &at, e->ellipsis, &e->out, &has_dots));
    if (*at)
        return fail_at(e, at, "expected the end");
    for (int i = 0; i < e->out.n; i++) {
        const char text[] = {'\'', (char)e->out.of[i], '\'', '\0'};
        char what[64];
        labels before = e->out;

        before.n = i;
        if (has(&before, e->out.of[i])) {
            snprintf(what, sizeof what, "%s is twice in the result", text);
            return fail_at(e, strrchr(e->equation, e->out.of[i]), what);
        }
        if (e->out.of[i] < ELLIPSIS && !has(&e->in[0], e->out.of[i]) &&
            !has(&e->in[1], e->out.of[i])) {
            snprintf(what, sizeof what, "%s is in no operand", text);
            return fail_at(e, strrchr(e->equation, e->out.of[i]), what);
        }
    }
    return TUTTI_OK;
}

static tutti_status parse(einsum *e)
{
    const char *at = e->equation;

    for (int i = 0; i < e->n; i++) {
        TUTTI_TRY(parse_operand(e, i, &at));
        if (i + 1 < e->n && *at++ != ',')
            return fail_at(e, at - 1, "expected a comma: there are two operands");
    }
    if (*at == ',')
        return fail_at(e, at, "more operands than tensors");
    if (*at)
        return parse_output(e, at + 2);
    infer_output(e);
    return TUTTI_OK;
}

/* ---- Sizes ----------------------------------------------------------------------------------------------- */

/* Of label in operand i; -2: it does not have it; -1: two different ones. */
static int64_t size_in(const einsum *e, int i, int label)
{
    int64_t size = 0;
    bool found = false;

    for (int k = 0; i < e->n && k < e->in[i].n; k++) {
        const int64_t d = e->x[i]->shape.d[k];

        if (e->in[i].of[k] != label)
            continue;
        if (found && d != size)
            return -1;
        found = true;
        size = d;
    }
    return found ? size : -2;
}

static tutti_status check_sizes(const einsum *e)
{
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < e->in[i].n; k++) {
            const int label = e->in[i].of[k];
            const int64_t here = size_in(e, i, label), there = size_in(e, 1 - i, label);
            const char text[] = {label < ELLIPSIS ? (char)label : '.', '\0'};

            if (here == -1)
                return tutti__fail(TUTTI_ERR_ARG,
                                   "einsum: equation \"%s\": '%s' is twice in operand %d, %s, with "
                                   "different sizes",
                                   e->equation, text, i, tutti__shape_text(e->x[i]->shape));
            if (there >= 0 && here != there && here != 1 && there != 1)
                return tutti__fail(
                    TUTTI_ERR_ARG,
                    "einsum: equation \"%s\": '%s' is %lld in operand 0, %s, but %lld in operand "
                    "1, %s",
                    e->equation, text, (long long)size_in(e, 0, label),
                    tutti__shape_text(e->x[0]->shape), (long long)size_in(e, 1, label),
                    tutti__shape_text(e->x[1]->shape));
        }
    return TUTTI_OK;
}

/* Whether operand i varies along label: a size of 1 beside another size is broadcast. */
static bool varies(const einsum *e, int i, int label)
{
    const int64_t here = size_in(e, i, label), there = size_in(e, 1 - i, label);

    return here >= 0 && !(here == 1 && there >= 0 && there != 1);
}

/* ---- The order of dimensions, and diagonals ---------------------------------------------------------------- */

typedef struct arrangement {
    int n;
    unsigned from
        [TUTTI_MAX_DIMS]; /* the source's dimensions, a bit for each, along which this one goes at once */
} arrangement;

static tutti_status arranged_shape(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    const arrangement *a = p->attributes;

    TUTTI_TRY(tutti__move_source(p, 0, "the operand", dtype));
    y->n = a->n;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < p->sources[0]->shape.n; k++)
            if (a->from[i] >> k & 1)
                y->d[i] = p->sources[0]->shape.d[k];
    return TUTTI_OK;
}

static bool arranged_block(const tutti_op_args *p, int i, tutti__block *b)
{
    const arrangement *a = p->attributes;
    const tutti_shape x = p->sources[0]->shape;
    int64_t stride[TUTTI_MAX_DIMS];

    tutti__strides(x, stride);
    tutti__strides(p->shape, b->dst_stride);
    b->n = a->n;
    for (int k = 0; k < a->n; k++) {
        b->size[k] = p->shape.d[k];
        for (int d = 0; d < x.n; d++)
            b->src_stride[k] += a->from[k] >> d & 1 ? stride[d] : 0;
    }
    return i == 0;
}

static arrangement arrangement_of(const labels *from, const labels *to)
{
    arrangement a = {.n = to->n};

    for (int i = 0; i < to->n; i++)
        for (int k = 0; k < from->n; k++)
            a.from[i] |= from->of[k] == to->of[i] ? 1u << k : 0;
    return a;
}

/* Whether the elements are in that order already. */
static bool in_order(const arrangement *a, tutti_shape x)
{
    int next = 0;

    for (int k = 0; k < x.n; k++) {
        if (next < a->n && a->from[next] == 1u << k)
            next++;
        else if (x.d[k] != 1)
            return false;
    }
    return next == a->n;
}

/* x, whose dimensions are `from`, with the dimensions `to`; others have the size 1. */
static tutti_tensor *arrange(tutti_tensor *x, const labels *from, const labels *to)
{
    static const tutti__move_op op = {
        .name = "einsum", .shape = arranged_shape, .block = arranged_block};
    const arrangement a = arrangement_of(from, to);

    if (!in_order(&a, x->shape))
        return tutti__move_run(&op, &x, 1, &a, sizeof a);
    if (a.n != x->shape.n) {
        tutti_shape shape = {.n = a.n};

        for (int i = 0; i < a.n; i++)
            for (int k = 0; k < x->shape.n; k++)
                shape.d[i] = a.from[i] >> k & 1 ? x->shape.d[k] : shape.d[i];
        return tutti_reshape(x, shape);
    }
    return x;
}

/* ---- One and two operands ---------------------------------------------------------------------------------- */

/* The sum over all dimensions of x from `kept` on. */
static tutti_tensor *sum_from(tutti_tensor *x, int kept)
{
    tutti_dims summed = {0};

    if (!x || x->poison != TUTTI_OK || kept == x->shape.n)
        return x;
    while (kept + summed.n < x->shape.n) {
        summed.d[summed.n] = kept + summed.n;
        summed.n++;
    }
    return tutti_sum_dim(x, summed, false);
}

static tutti_tensor *of_one(const einsum *e)
{
    labels to = e->out;

    for (int i = 0; i < e->in[0].n; i++)
        if (!has(&to, e->in[0].of[i]))
            append(&to, e->in[0].of[i]);
    return sum_from(arrange(e->x[0], &e->in[0], &to), e->out.n);
}

static int64_t size_of(const tutti_shape *shape, int first, int end)
{
    int64_t size = 1;

    for (int i = first; i < end; i++)
        size *= shape->d[i];
    return size;
}

/* The labels of each kind, in the order of operand 0, or of the operand that alone has them. */
typedef struct kinds {
    labels batch, contracted, free[2], summed[2];
} kinds;

static kinds kinds_of(const einsum *e)
{
    kinds k = {0};

    for (int i = 0; i < 2; i++)
        for (int d = 0; d < e->in[i].n; d++) {
            const int label = e->in[i].of[d];
            const bool kept = has(&e->out, label), both = varies(e, 1 - i, label);
            labels *to =
                both ? (kept ? &k.batch : &k.contracted) : (kept ? &k.free[i] : &k.summed[i]);

            if (varies(e, i, label) && !has(to, label))
                append(to, label);
        }
    return k;
}

static void append_all(labels *l, const labels *more)
{
    for (int i = 0; i < more->n; i++)
        append(l, more->of[i]);
}

/* Operand i as [batch,free,contracted], or [batch,contracted,free] if it is in that order; without batch labels as a matrix. */
static tutti_tensor *factor(const einsum *e, int i, const kinds *k, bool *contracted_first)
{
    labels orders[2] = {k->batch, k->batch};
    arrangement a;
    tutti_tensor *x;
    tutti_shape shape;
    int middle;

    append_all(&orders[0], &k->free[i]);
    append_all(&orders[0], &k->contracted);
    append_all(&orders[1], &k->contracted);
    append_all(&orders[1], &k->free[i]);
    a = arrangement_of(&e->in[i], &orders[1]);
    *contracted_first = k->summed[i].n == 0 && in_order(&a, e->x[i]->shape);
    a = arrangement_of(&e->in[i], &orders[0]);
    if (k->summed[i].n == 0 && in_order(&a, e->x[i]->shape))
        *contracted_first = false;
    middle = k->batch.n + (*contracted_first ? k->contracted.n : k->free[i].n);
    append_all(&orders[0], &k->summed[i]);
    x = arrange(e->x[i], &e->in[i], &orders[*contracted_first]);
    x = sum_from(x, k->batch.n + k->free[i].n + k->contracted.n);
    if (!x || x->poison != TUTTI_OK)
        return x;
    shape = TUTTI_SHAPE(size_of(&x->shape, 0, k->batch.n), size_of(&x->shape, k->batch.n, middle),
                        size_of(&x->shape, middle, x->shape.n));
    return tutti_reshape(x, k->batch.n ? shape : TUTTI_SHAPE(shape.d[1], shape.d[2]));
}

static tutti_tensor *of_two(const einsum *e)
{
    const kinds k = kinds_of(e);
    labels order = k.batch;
    tutti__matmul_kind kind = {0};
    bool b_contracted_first;
    tutti_tensor *a = factor(e, 0, &k, &kind.a_transposed);
    tutti_tensor *b = factor(e, 1, &k, &b_contracted_first), *y;
    tutti_shape shape = {0};

    if (k.contracted.n == 0) { /* [batch,free,1] and [batch,1,free] */
        tutti_shape s = tutti_tensor_shape(b);

        if (s.n >= 2) {
            s.d[s.n - 1] = s.d[s.n - 1] * s.d[s.n - 2];
            s.d[s.n - 2] = 1;
        }
        y = tutti_mul(kind.a_transposed ? tutti_transpose(a, -1, -2) : a, tutti_reshape(b, s));
    } else {
        kind.b_transposed = !b_contracted_first;
        y = tutti__matmul_run("einsum", a, b, &kind);
    }
    append_all(&order, &k.free[0]);
    append_all(&order, &k.free[1]);
    for (int i = 0; i < order.n && i < TUTTI_MAX_DIMS; i++) {
        const int from = varies(e, 0, order.of[i]) ? 0 : 1;

        shape.d[shape.n++] = size_in(e, from, order.of[i]);
    }
    if (!y || y->poison != TUTTI_OK)
        return y;
    return arrange(tutti_reshape(y, shape), &order, &e->out);
}

static tutti_status check_operands(const einsum *e, tutti_tensor *const *operands, int n)
{
    if (!e->equation)
        return tutti__fail(TUTTI_ERR_ARG, "einsum: equation is NULL");
    if (n > MAX_OPERANDS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "einsum: %d operands, expected 1 or 2: multiply them two by two", n);
    for (int i = 0; i < n; i++) {
        if (!operands[i])
            return tutti__fail(TUTTI_ERR_ARG, "einsum: operand %d is NULL", i);
        TUTTI_TRY(tutti_tensor_status(operands[i]));
        if (operands[i]->dtype == TUTTI_I64)
            return tutti__fail(TUTTI_ERR_ARG, "einsum: operand %d is I64, expected F32", i);
    }
    return TUTTI_OK;
}

tutti_tensor *tutti_einsum(const char *equation, tutti_tensor *const *operands, int n)
{
    einsum e = {.equation = equation, .n = n};
    tutti_ctx *cx = tutti__context_of("einsum", operands, n);
    tutti_status status;

    if (!cx)
        return NULL;
    status = check_operands(&e, operands, n);
    if (status == TUTTI_OK) {
        memcpy(e.x, operands, (size_t)n * sizeof e.x[0]);
        status = parse(&e);
    }
    if (status == TUTTI_OK)
        status = check_sizes(&e);
    if (status == TUTTI_OK && e.out.n > TUTTI_MAX_DIMS)
        status = tutti__fail(TUTTI_ERR_ARG,
                             "einsum: equation \"%s\": the result has %d dimensions, expected at "
                             "most %d",
                             equation, e.out.n, TUTTI_MAX_DIMS);
    if (status != TUTTI_OK)
        return tutti__poisoned(cx, status);
    return n == 1 ? of_one(&e) : of_two(&e);
}
