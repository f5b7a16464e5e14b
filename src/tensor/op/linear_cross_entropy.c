/* linear_cross_entropy.c -- cross entropy of x w^T + b, whose logits do not exist at once.   SPDX-License-Identifier: MIT
 *   x [..,K]   weight [V,K]   bias [V] or NULL   target [..] I64   ->   a mean or a sum
 *
 * The rows of x are taken in chunks. Of a chunk, the logits are computed, then in place of them their gradient
 *
 *     g = (softmax(logits) - q') / divisor      q' as in cross_entropy.c
 *
 * If there is one chunk, g is kept, and backward multiplies it: dx = g w, dw = g^T x. Of several, forward multiplies each at once,
 * since computing logits again would cost a third more, and backward scales the sums by the loss's gradient. That takes memory for
 * dw in place of that for all logits. Chunks follow from the shapes, and a row belongs to one job: the bits do not depend on the
 * number of threads.
 *
 * If ranks have parts of the classes (vocabulary_logits.h), each has its logits of a chunk, and all of them the few numbers of a row
 * from which loss and gradients follow. dx is then what this rank's classes give to it. In parts (tutti_peers.parts) each product is one
 * for each part of the classes, and dx the sum over all ranks.
 *
 * On devices whose memory the host cannot read, a kernel takes the rows of a chunk; where the kernels have none, of probabilities, and of
 * losses that are not reduced, it is the linear operation and cross entropy. */
#include "tensor/op/logit_rows.h"

#include "base/half.h"
#include "tensor/op/parts.h"
#include "tensor/parallel.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of logits of a chunk: the fewer rows, the more often all weights are read from memory. */
#define CHUNK ((int64_t)64 << 20)
#define LEAST ((int64_t)64) /* rows of one */

typedef struct attributes {
    tutti__class_loss loss; /* first: class_loss.h reads it */
    int64_t chunk_rows;
    const tutti__divided_classes *divided; /* NULL: this rank has all classes */
} attributes;

/* What forward keeps: g of the only chunk, or the gradients, for the loss's gradient 1. */
typedef struct saved_gradients {
    tutti_tensor **g;           /* of each part of the classes */
    tutti_tensor *dx, *dw, *db; /* NULL: not wanted */
} saved_gradients;

/* ---- Shapes -------------------------------------------------------------------------------------------------- */

static int64_t rows_of(const tutti_tensor *x)
{
    return tutti_shape_count(x->shape) / x->shape.d[x->shape.n - 1];
}

static bool wants(const tutti__node *n, int i)
{
    return n->cx->recording && n->src[i] && n->src[i]->needs_grad;
}

/* Of all ranks. */
static int64_t all_classes(const attributes *a, const tutti_tensor *weight)
{
    return a->divided ? a->divided->classes : weight->shape.d[0];
}

static bool in_parts(const attributes *a)
{
    return a->divided && a->divided->peers->parts > 0;
}

/* Of this rank's classes. */
static int n_parts(const attributes *a)
{
    return in_parts(a) ? tutti__peers_units(a->divided->peers) : 1;
}

/* Several chunks need memory for a gradient of the weight besides: where all logits take no more than that and a chunk, one it is. The
 * same on all ranks that have parts of the classes: by the largest part; and for any number of ranks, if that may change no bits. */
static int64_t rows_of_chunk(const attributes *a, const tutti__node *node, int64_t rows)
{
    const tutti_tensor *w = node->src[1];
    const int64_t size = a->divided && !in_parts(a) ? a->divided->peers->size : 1;
    const int64_t classes = (all_classes(a, w) + size - 1) / size;
    const int64_t row = classes * (int64_t)tutti_dtype_size(node->src[0]->dtype);
    const int64_t weight = classes * w->shape.d[1] * (int64_t)tutti_dtype_size(w->dtype);
    const int64_t fit = CHUNK / row < LEAST ? LEAST : CHUNK / row;
    const bool all = wants(node, 1) && rows * row <= CHUNK + weight;
    const int64_t wanted = a->chunk_rows > 0 ? a->chunk_rows : all ? rows : fit;
    const int64_t most = wanted < rows ? wanted : rows, n = (rows + most - 1) / most;

    return (rows + n - 1) / n; /* nearly as many in each */
}

static tutti_status check_target(const tutti_op_args *p)
{
    const attributes *a = p->attributes;
    const tutti_tensor *x = p->sources[0], *target = p->sources[2];
    const int64_t classes = all_classes(a, p->sources[1]), *label;
    tutti_shape leading = x->shape;

    leading.n--;
    TUTTI_TRY(tutti_op_check_source(p, 2, "target", NULL, TUTTI_I64));
    if (!tutti_shape_equal(target->shape, leading) &&
        !tutti_shape_equal(target->shape, TUTTI_SHAPE(rows_of(x))))
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but target is %s, expected %s",
                           tutti__shape_text(x->shape), tutti__shape_text(target->shape),
                           tutti__shape_text(leading));
    label = target->host;
    for (int64_t i = 0; i < tutti_shape_count(target->shape); i++)
        if ((label[i] < 0 || label[i] >= classes) && label[i] != a->loss.how.ignore_index)
            return tutti__class_loss_bad_label(i, label[i], classes, a->loss.how.ignore_index);
    return TUTTI_OK;
}

static tutti_status lce_shape(const tutti_op_args *p, tutti_shape *loss, tutti_dtype *dtype)
{
    const attributes *a = p->attributes;
    const double smoothing = (double)a->loss.how.label_smoothing;
    const tutti_tensor *x = p->sources[0], *w = p->sources[1], *b = p->sources[3];

    *dtype = TUTTI_F32;
    *loss = (tutti_shape){0};
    TUTTI_TRY(tutti_op_check_source(p, 0, "x", NULL, TUTTI_F32));
    TUTTI_TRY(tutti_op_check_source(p, 1, "weight", "[V,K]", TUTTI_F32));
    if (x->shape.n < 1 || x->shape.d[x->shape.n - 1] != w->shape.d[1])
        return tutti__fail(TUTTI_ERR_ARG, "x is %s but weight is %s", tutti__shape_text(x->shape),
                           tutti__shape_text(w->shape));
    if (b && (b->dtype != TUTTI_F32 || !tutti_shape_equal(b->shape, TUTTI_SHAPE(w->shape.d[0]))))
        return tutti__fail(TUTTI_ERR_ARG, "weight is %s but bias is %s %s, expected F32 [%lld]",
                           tutti__shape_text(w->shape), tutti_dtype_name(b->dtype),
                           tutti__shape_text(b->shape), (long long)w->shape.d[0]);
    if (!(smoothing >= 0 && smoothing <= 1))
        return tutti__fail(TUTTI_ERR_ARG, "label_smoothing is %g, expected 0 to 1", smoothing);
    if (a->chunk_rows < 0)
        return tutti__fail(TUTTI_ERR_ARG, "chunk_rows is %lld, expected at least 0",
                           (long long)a->chunk_rows);
    return check_target(p);
}

/* ---- Forward ------------------------------------------------------------------------------------------------- */

typedef struct pass {
    tutti__node *n;
    const tutti__kernels *kernels;
    const char *x; /* row-major */
    int64_t rows, width, in_chunk;
    size_t row_bytes; /* of x */
    tutti__logit_rows c;
    saved_gradients *saved; /* NULL: only the loss */
} pass;

/* `rows` rows of x from the given one on. */
static tutti_tensor *rows_at(const pass *p, int64_t from, int64_t rows)
{
    tutti_tensor *t = tutti__tensor_new(p->n->cx, TUTTI_SHAPE(rows, p->width), p->n->src[0]->dtype);

    if (!t)
        return NULL;
    t->data = (void *)(p->x + (size_t)from * p->row_bytes);
    t->shared = true;
    return t;
}

/* Part k of a weight, a bias, or a gradient of one. */
static tutti_tensor *part_of(const tutti__node *n, tutti_tensor *t, int k)
{
    const attributes *a = n->attributes;
    tutti_tensor *part;
    tutti_shape shape;
    int64_t each, row;

    if (!t || !in_parts(a))
        return t;
    shape = t->shape;
    row = tutti_shape_count(shape) / shape.d[0];
    each = tutti__classes_in_parts(a->divided).each;
    shape.d[0] = shape.d[0] - k * each < each ? shape.d[0] - k * each : each;
    part = tutti__tensor_new(t->cx, shape, t->dtype);
    if (!part)
        return NULL;
    part->data = (char *)t->data + (size_t)(k * each * row) * tutti_dtype_size(t->dtype);
    part->shared = true;
    part->accumulate = t->accumulate;
    return part;
}

static tutti_status gradients_of_weights(const tutti__node *n, const tutti__kernels *kernels,
                                         tutti_tensor **g, tutti_tensor *x, tutti_tensor *dw,
                                         tutti_tensor *db)
{
    for (int k = 0; k < n_parts(n->attributes); k++)
        TUTTI_TRY(kernels->linear_backward_weights(part_of(n, dw, k), part_of(n, db, k), g[k], x));
    return TUTTI_OK;
}

/* dx [R,K], without data */
static tutti_status gradient_of_input(const tutti__node *n, const tutti__kernels *kernels,
                                      tutti_tensor **g, tutti_tensor *dx)
{
    const attributes *a = n->attributes;
    tutti__part_sum sum = {.cx = n->cx, .n = (size_t)tutti_shape_count(dx->shape)};

    if (!in_parts(a))
        return kernels->linear_backward_data(dx, g[0], n->src[1]);
    for (int k = 0; k < n_parts(a); k++) {
        tutti_tensor *part = tutti__tensor_new(n->cx, dx->shape, dx->dtype);

        if (!part)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(kernels->linear_backward_data(part, g[k], part_of(n, n->src[1], k)));
        TUTTI_TRY(tutti__part_sum_add(&sum, part, true));
        tutti__tensor_release(part);
    }
    return tutti__part_sum_over_ranks(&sum, a->divided->peers, dx);
}

static tutti_status chunk_gradients(const pass *p, tutti_tensor **g, tutti_tensor *x, int64_t from)
{
    saved_gradients *s = p->saved;

    if (s->dw || s->db) {
        TUTTI_TRY(gradients_of_weights(p->n, p->kernels, g, x, s->dw, s->db));
        if (s->dw)
            s->dw->accumulate = true;
        if (s->db)
            s->db->accumulate = true;
    }
    if (s->dx) {
        tutti_tensor *dx = tutti__tensor_new(x->cx, x->shape, s->dx->dtype);
        const void *elements;

        if (!dx)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(gradient_of_input(p->n, p->kernels, g, dx));
        TUTTI_TRY(tutti__tensor_row_major(dx, &elements));
        TUTTI_TRY(tutti__copy(x->cx->stream, (char *)s->dx->data + (size_t)from * p->row_bytes,
                              elements, (size_t)x->shape.d[0] * p->row_bytes));
        tutti__tensor_release(dx);
    }
    return TUTTI_OK;
}

/* x's logits of part k of the classes. */
static tutti_status logits_of(const pass *p, tutti_tensor *x, int k, tutti_tensor **y_p)
{
    tutti_tensor *w = part_of(p->n, p->n->src[1], k), *b = part_of(p->n, p->n->src[3], k), *y;
    const void *elements;

    if (!w)
        return TUTTI_ERR_MEMORY;
    *y_p = y = tutti__tensor_new(x->cx, TUTTI_SHAPE(x->shape.d[0], w->shape.d[0]), x->dtype);
    if (!y)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(p->kernels->linear_forward(y, x, w, b));
    TUTTI_TRY(tutti__tensor_row_major(y, &elements));
    y->data = (void *)elements;
    y->layout = NULL;
    return TUTTI_OK;
}

static tutti_status run_chunk(pass *p, int64_t from, int64_t rows)
{
    const attributes *a = p->n->attributes;
    tutti_tensor *x = rows_at(p, from, rows);
    tutti_tensor **y = tutti__step_alloc(p->n->cx, (size_t)n_parts(a) * sizeof(tutti_tensor *));

    if (!x || !y)
        return TUTTI_ERR_MEMORY;
    for (int k = 0; k < n_parts(a); k++)
        TUTTI_TRY(logits_of(p, x, k, &y[k]));
    p->c.logits = y[0];
    p->c.parts = in_parts(a) ? y : NULL;
    p->c.rows = rows;
    TUTTI_TRY(tutti__logit_rows_run(&p->c));
    p->c.label += rows;
    if (p->c.device_loss)
        p->c.device_loss += rows;
    else
        p->c.loss += rows;
    if (p->saved && rows == p->rows) {
        p->saved->g = y;
        return TUTTI_OK;
    }
    if (p->saved)
        TUTTI_TRY(chunk_gradients(p, y, x, from));
    for (int k = 0; k < n_parts(a); k++)
        tutti__tensor_release(y[k]);
    return TUTTI_OK;
}

static tutti_status gradient_new(const tutti__node *n, int i, tutti_tensor **t_p)
{
    *t_p = NULL;
    if (!wants(n, i))
        return TUTTI_OK;
    *t_p = tutti__tensor_new(n->cx, n->src[i]->shape, n->src[i]->dtype);
    return *t_p ? tutti__tensor_alloc(*t_p, NULL) : TUTTI_ERR_MEMORY;
}

static tutti_status prepare_gradients(pass *p)
{
    tutti__node *n = p->n;

    n->saved[0] = NULL;
    if (!wants(n, 0) && !wants(n, 1) && !wants(n, 3))
        return TUTTI_OK;
    p->saved = n->saved[0] = tutti__step_alloc(n->cx, sizeof *p->saved);
    if (!p->saved)
        return TUTTI_ERR_MEMORY;
    *p->saved = (saved_gradients){NULL};
    p->c.gradients = true;
    if (p->in_chunk == p->rows)
        return TUTTI_OK;
    TUTTI_TRY(gradient_new(n, 0, &p->saved->dx));
    TUTTI_TRY(gradient_new(n, 1, &p->saved->dw));
    return gradient_new(n, 3, &p->saved->db);
}

static double divisor_of(const tutti_tensor *target, const attributes *a)
{
    const int64_t *label = target->host;
    int64_t n = 0;

    if (a->loss.reduction != TUTTI_REDUCTION_MEAN)
        return 1;
    for (int64_t i = 0; i < tutti_shape_count(target->shape); i++)
        n += label[i] != a->loss.how.ignore_index;
    return (double)n;
}

static tutti_status sum_up(const pass *p, const double *loss, const float *device_loss)
{
    const tutti__fold_args fold = {
        .kind = TUTTI__FOLD_SUM, .outer = 1, .n = p->rows, .inner = 1, .divisor = p->c.divisor};
    double sum = 0;
    float mean;

    if (device_loss) {
        tutti_tensor *rows = tutti__tensor_new(p->n->cx, TUTTI_SHAPE(p->rows), TUTTI_F32);

        if (!rows)
            return TUTTI_ERR_MEMORY;
        rows->data = (void *)(uintptr_t)device_loss;
        rows->shared = true;
        return p->n->cx->f32_kernels->fold(p->n->dst, rows, &fold);
    }

    for (int64_t i = 0; i < p->rows; i++)
        sum += loss[i];
    TUTTI_TRY(tutti__tensor_alloc(p->n->dst, NULL));
    mean = (float)(sum / p->c.divisor);
    return tutti__copy_in(p->n->cx->stream, p->n->dst->data, &mean, sizeof mean);
}

static tutti_status lce_forward(tutti__node *n)
{
    const attributes *a = n->attributes;
    const int64_t rows = rows_of(n->src[0]), classes = n->src[1]->shape.d[0];
    const bool on_host = n->cx->device_ops->is_host || !tutti__has_label_rows(n->cx);
    const size_t bytes = (size_t)rows * sizeof(double);
    void *loss = on_host && !n->cx->device_ops->is_host ? tutti__step_alloc(n->cx, bytes)
                                                        : tutti__operation_memory(n->cx, bytes);
    const void *x;
    pass p = {.n = n,
              .kernels = n->cx->kernels,
              .rows = rows,
              .width = n->src[1]->shape.d[1],
              .in_chunk = rows_of_chunk(a, n, rows),
              .c = {.cx = n->cx,
                    .how = &a->loss.how,
                    .divided = a->divided,
                    .label = on_host ? n->src[2]->host : n->src[2]->data,
                    .classes = classes,
                    .loss = on_host ? loss : NULL,
                    .device_loss = on_host ? NULL : loss,
                    .divisor = divisor_of(n->src[2], a)}};

    if (!loss)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_row_major(n->src[0], &x));
    p.x = x;
    p.row_bytes = (size_t)p.width * tutti_dtype_size(n->src[0]->dtype);
    TUTTI_TRY(prepare_gradients(&p));
    TUTTI_TRY(tutti__logit_rows_prepare(&p.c, p.in_chunk));
    for (int64_t from = 0; from < rows; from += p.in_chunk)
        TUTTI_TRY(run_chunk(&p, from, rows - from < p.in_chunk ? rows - from : p.in_chunk));
    return sum_up(&p, loss, on_host ? NULL : loss);
}

/* ---- Backward ------------------------------------------------------------------------------------------------ */

#define PART ((int64_t)1 << 16) /* elements of a job */

typedef struct scaling {
    void *to;
    const void *from;
    tutti_dtype dtype;
    int64_t count;
    float factor;
    bool add;
} scaling;

TUTTI__CLONES static void scale_f32(float *to, const float *from, int64_t n, float factor, bool add)
{
    if (add)
        for (int64_t i = 0; i < n; i++)
            to[i] += from[i] * factor;
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i] * factor;
}

static void scale_half(uint16_t *to, const uint16_t *from, int64_t n, const scaling *s)
{
    float wide[256];

    for (int64_t i = 0; i < n; i += 256) {
        const size_t m = (size_t)(n - i < 256 ? n - i : 256);

        tutti__half_to_f32(wide, from + i, m, s->dtype);
        scale_f32(wide, wide, (int64_t)m, s->factor, false);
        tutti__half_from_f32(to + i, wide, m, s->dtype);
    }
}

static void scale_job(void *arg, int64_t job, int member)
{
    const scaling *s = arg;
    const int64_t at = job * PART, n = s->count - at < PART ? s->count - at : PART;

    (void)member;
    if (s->dtype == TUTTI_F32)
        scale_f32((float *)s->to + at, (const float *)s->from + at, n, s->factor, s->add);
    else
        scale_half((uint16_t *)s->to + at, (const uint16_t *)s->from + at, n, s);
}

/* to = or += factor * from; they may be the same. */
static void scale_into(tutti_tensor *to, const tutti_tensor *from, float factor)
{
    scaling s = {to->data, from->data,    to->dtype, tutti_shape_count(to->shape),
                 factor,   to->accumulate};

    if (to->data == from->data && factor == 1)
        return;
    tutti__parallel(to->cx, scale_job, &s, (s.count + PART - 1) / PART);
}

/* to = from times the gradient of the loss, on a device that has no kernel for it. Releases from. */
static tutti_status scaled_on_host(const tutti__node *n, tutti_tensor *from, tutti_tensor *to)
{
    const size_t bytes = tutti__tensor_bytes(from);
    tutti_tensor here = *from;
    tutti_stream *stream = n->cx->stream;
    tutti_status status = TUTTI_ERR_MEMORY;
    float factor;

    TUTTI_TRY(tutti__tensor_alloc(to, NULL));
    TUTTI_TRY(tutti__read(stream, &factor, n->dst->grad->data, sizeof factor));
    here.data = tutti__alloc_unset(bytes + 1);
    here.accumulate = false;
    if (here.data)
        status = tutti__read(stream, here.data, from->data, bytes);
    if (status == TUTTI_OK) {
        scale_into(&here, &here, factor);
        status = tutti__copy_in(stream, to->data, here.data, bytes);
    }
    free(here.data);
    tutti__tensor_release(from);
    return status;
}

/* A copy of `from`, in a device's memory, times the gradient of the loss. */
static tutti_status scaled(const tutti__node *n, tutti_tensor *from, tutti_tensor **to_p)
{
    const tutti__formula_args product = {
        .formula = TUTTI__FORMULA_mul, .n_src = 2, .src = (tutti_tensor *[]){from, n->dst->grad}};

    *to_p = tutti__tensor_new(n->cx, from->shape, from->dtype);
    if (!*to_p)
        return TUTTI_ERR_MEMORY;
    if (!n->cx->kernels->elementwise_forward)
        return scaled_on_host(n, from, *to_p);
    TUTTI_TRY(n->cx->kernels->elementwise_forward(*to_p, &product));
    tutti__tensor_release(from);
    return TUTTI_OK;
}

/* *t_p times the gradient of the loss, in place or in other memory. */
static tutti_status scale(const tutti__node *n, tutti_tensor **t_p)
{
    if (!n->cx->device_ops->is_host)
        return scaled(n, *t_p, t_p);
    scale_into(*t_p, *t_p, *(const float *)n->dst->grad->data);
    return TUTTI_OK;
}

/* A weight's gradient = or += from times the gradient of the loss; releases from. */
static tutti_status scale_weights(const tutti__node *n, tutti_tensor *to, tutti_tensor *from)
{
    tutti_tensor *t;

    if (n->cx->device_ops->is_host) {
        scale_into(to, from, *(const float *)n->dst->grad->data);
        tutti__tensor_release(from);
        return TUTTI_OK;
    }
    TUTTI_TRY(scaled(n, from, &t));
    if (to->accumulate)
        TUTTI_TRY(n->cx->f32_kernels->add_to(to, t));
    else
        TUTTI_TRY(tutti__copy(n->cx->stream, to->data, t->data, tutti__tensor_bytes(t)));
    tutti__tensor_release(t);
    return TUTTI_OK;
}

/* Of several chunks: the gradients are those of forward, scaled. */
static tutti_status pass_gradients(tutti__node *n, saved_gradients *s)
{
    tutti_tensor *const from[4] = {s->dx, s->dw, NULL, s->db};

    for (int i = 1; i < 4; i++) {
        tutti_tensor *to;

        if (!from[i])
            continue;
        TUTTI_TRY(tutti__weight_grad_of(n, i, &to));
        if (!to)
            continue;
        TUTTI_TRY(scale_weights(n, to, from[i]));
    }
    if (!s->dx || !n->wants_grad[0])
        return TUTTI_OK;
    TUTTI_TRY(scale(n, &s->dx));
    tutti__grad_pass(n, 0, s->dx);
    return TUTTI_OK;
}

static tutti_tensor *folded(tutti_tensor *t)
{
    return t->shape.n == 2
               ? t
               : tutti__tensor_view(t, TUTTI_SHAPE(rows_of(t), t->shape.d[t->shape.n - 1]));
}

static tutti_status lce_backward(tutti__node *node)
{
    const tutti__kernels *kernels = node->cx->kernels;
    const int n = n_parts(node->attributes);
    saved_gradients *s = node->saved[0];
    tutti_tensor *dw, *db, *dx, *dx_rows, *x;
    const void *elements;

    if (!s->g)
        return pass_gradients(node, s);
    if (node->part != TUTTI__NODE_WEIGHTS) /* else it is scaled */
        for (int k = 0; k < n; k++)
            TUTTI_TRY(scale(node, &s->g[k]));
    TUTTI_TRY(tutti__weight_grad_of(node, 1, &dw));
    TUTTI_TRY(tutti__weight_grad_of(node, 3, &db));
    TUTTI_TRY(tutti__grad_of(node, 0, &dx));
    x = folded(node->src[0]);
    if (!x)
        return TUTTI_ERR_MEMORY;
    if (dw || db)
        TUTTI_TRY(gradients_of_weights(node, kernels, s->g, x, dw, db));
    tutti__weights_done(node);
    if (dx) {
        dx_rows = tutti__tensor_new(node->cx, x->shape, dx->dtype);
        if (!dx_rows)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(gradient_of_input(node, kernels, s->g, dx_rows));
        TUTTI_TRY(tutti__tensor_row_major(dx_rows, &elements));
        dx->data = (void *)elements;
    }
    for (int k = 0; node->part != TUTTI__NODE_INPUTS && k < n; k++)
        tutti__tensor_release(s->g[k]);
    return TUTTI_OK;
}

/* ---- The operation ------------------------------------------------------------------------------------------- */

/* In forward also those of the gradients, if it computes them. */
static double lce_flops(const tutti__node *n)
{
    const saved_gradients *s = n->saved[0];
    const double each =
        2 * (double)tutti_shape_count(n->src[0]->shape) * (double)n->src[1]->shape.d[0];

    if (!s || s->g)
        return each;
    return n->cx->backward_done ? 0 : each * (1 + (s->dx != NULL) + (s->dw != NULL));
}

static tutti_tensor *in_two_operations(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                       tutti_tensor *target, const tutti_cross_entropy_opts *o)
{
    const tutti_shape shape = tutti_tensor_shape(x);
    tutti_tensor *loss;

    if (shape.n > 2) {
        x = tutti_reshape(x, tutti__shape_rows(shape));
        if (tutti_tensor_dtype(target) == TUTTI_I64 && tutti_tensor_shape(target).n > 1)
            target = tutti_reshape(target, TUTTI_SHAPE(-1));
    }
    loss = tutti_cross_entropy_with(tutti_functional_linear(x, weight, bias), target, o);
    if (loss && tutti_tensor_status(loss) != TUTTI_OK && x->poison == TUTTI_OK &&
        target->poison == TUTTI_OK) /* named after what was called */
        return tutti__poisoned(
            loss->cx, tutti__fail(loss->poison, "linear_cross_entropy: %s", loss->poison_text));
    return loss;
}

/* Whether the operation below computes it. */
static bool in_chunks(const tutti_tensor *x, const tutti_tensor *target,
                      const tutti_linear_cross_entropy_opts *o)
{
    return x->poison == TUTTI_OK && target->poison == TUTTI_OK && tutti_shape_count(x->shape) > 0 &&
           x->cx->autocast != TUTTI_F16 && x->dtype != TUTTI_F16 && target->dtype == TUTTI_I64 &&
           !o->weight &&
           (o->reduction == TUTTI_REDUCTION_MEAN || o->reduction == TUTTI_REDUCTION_SUM);
}

static tutti_tensor *run_chunks(const tutti__logits_sources *of, tutti_tensor *target,
                                const tutti_linear_cross_entropy_opts *o)
{
    static const tutti__op op = {.plain = {.name = "linear_cross_entropy",
                                           .shape = lce_shape,
                                           .backward_reads = 1 << 0 | 1 << 1,
                                           .activations = 1 << 0,
                                           .autocast = TUTTI_OP_LOW},
                                 .forward = lce_forward,
                                 .backward = lce_backward,
                                 .rounds = 1 << 1,
                                 .flops = lce_flops};
    const attributes a = {{{(float)tutti__or((double)o->label_smoothing, 0),
                            o->has_ignore_index ? o->ignore_index : TUTTI__IGNORED_BY_DEFAULT},
                           o->reduction},
                          o->chunk_rows,
                          of->divided};

    return tutti__op_run(&op, (tutti_tensor *[]){of->x, of->weight, target, of->bias}, 4, &a,
                         sizeof a);
}

tutti_tensor *tutti__logits_cross_entropy(const tutti__logits_sources *of, tutti_tensor *target,
                                          const tutti_cross_entropy_opts *o)
{
    const tutti_linear_cross_entropy_opts opts = {.label_smoothing = o->label_smoothing,
                                                  .has_ignore_index = o->has_ignore_index,
                                                  .ignore_index = o->ignore_index,
                                                  .weight = o->weight,
                                                  .reduction = o->reduction};

    if (!of->divided) /* which looks whether there are kernels */
        return tutti_linear_cross_entropy(of->x, of->weight, of->bias, target, &opts);
    return target && in_chunks(of->x, target, &opts) ? run_chunks(of, target, &opts) : NULL;
}

tutti_tensor *tutti_linear_cross_entropy(tutti_tensor *x, tutti_tensor *weight, tutti_tensor *bias,
                                         tutti_tensor *target,
                                         const tutti_linear_cross_entropy_opts *opts)
{
    const tutti_linear_cross_entropy_opts o = opts ? *opts : (tutti_linear_cross_entropy_opts){0};
    const tutti__logits_sources of = {x, weight, bias, NULL};

    if (x && TUTTI__CHECK_RESERVED(tutti_linear_cross_entropy_opts, opts) != TUTTI_OK)
        return tutti__poisoned(x->cx, TUTTI_ERR_ARG);
    if (x && target && !(tutti__has_label_rows(x->cx) && in_chunks(x, target, &o)))
        return in_two_operations(x, weight, bias, target,
                                 &(tutti_cross_entropy_opts){.label_smoothing = o.label_smoothing,
                                                             .has_ignore_index = o.has_ignore_index,
                                                             .ignore_index = o.ignore_index,
                                                             .weight = o.weight,
                                                             .reduction = o.reduction});
    return run_chunks(&of, target, &o);
}
