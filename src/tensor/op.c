/* op.c -- runs operations and records them on the tape; destinations of gradients.
 * SPDX-License-Identifier: MIT
 *
 *   sources ok? -> shape rule -> forward -> a source needs a gradient? -> node on the tape, uses
 *   of parameters counted
 *
 * A failure at any point makes a poisoned result, whose text names the operation and the first
 * source that has a name:
 *   linear "fc1.weight": x is [64,783] but weight is [256,784] */
#include "tensor/op.h"

#include <string.h>

tutti_status tutti__check_source(const tutti__node *n, int i, const char *what, const char *dims,
                                 tutti_dtype dtype)
{
    const tutti_tensor *t = n->src[i];
    int n_dims = 1;

    if (!t)
        return tutti__fail(TUTTI_ERR_ARG, "%s is NULL", what);
    if (t->dtype != dtype &&
        !(dtype == TUTTI_F32 && tutti__is_half(t->dtype) && (n->op->activations >> i & 1)))
        return tutti__fail(TUTTI_ERR_ARG, "%s is %s, expected %s", what, tutti_dtype_name(t->dtype),
                           tutti_dtype_name(dtype));
    for (const char *c = dims; c && *c; c++)
        n_dims += *c == ',';
    if (dims && t->shape.n != n_dims)
        return tutti__fail(TUTTI_ERR_ARG, "%s is %s, expected %s", what,
                           tutti__shape_text(t->shape), dims);
    return TUTTI_OK;
}

tutti_status tutti__shape_of_sources(const tutti__node *n, tutti_shape *shape_p,
                                     tutti_dtype *dtype_p)
{
    static const char *const names[TUTTI__MAX_SRC] = {"a", "b", "c", "d"};

    (void)dtype_p;
    for (int i = 0; i < n->n_src; i++) {
        TUTTI_TRY(tutti__check_source(n, i, n->n_src == 1 ? "x" : names[i], NULL, TUTTI_F32));
        if (i > 0 && !tutti_shape_equal(n->src[i]->shape, *shape_p))
            return tutti__fail(TUTTI_ERR_ARG, "a is %s but %s is %s; nothing is broadcast",
                               tutti__shape_text(*shape_p), names[i],
                               tutti__shape_text(n->src[i]->shape));
        *shape_p = n->src[0]->shape;
    }
    return TUTTI_OK;
}

tutti_status tutti__name_operation(const tutti__node *n, const char *what, tutti_status status)
{
    const char *name = "";

    for (int i = 0; i < n->n_src && !*name; i++)
        name = tutti_tensor_name(n->src[i]);
    return tutti__fail(status, "%s%s%s%s%s: %s", what, n->op->name, *name ? " \"" : "", name,
                       *name ? "\"" : "", tutti_last_error());
}

/* The first cause, if a source or the step is poisoned. */
static tutti_status check_sources(const tutti_ctx *cx, const tutti__op *op,
                                  tutti_tensor *const *src, int n_src)
{
    if (!cx->in_step)
        return tutti__fail(TUTTI_ERR_STATE, "%s: no step is open; call tutti_step_begin first",
                           op->name);
    if (cx->step_status != TUTTI_OK)
        return tutti__fail_again(cx->step_status, cx->step_text);
    for (int i = 0; i < n_src; i++) {
        if (!src[i])
            continue;
        TUTTI_TRY(tutti_tensor_status(src[i]));
        if (src[i]->cx != cx)
            return tutti__fail(TUTTI_ERR_ARG, "%s: its sources belong to different contexts",
                               op->name);
    }
    return TUTTI_OK;
}

static tutti__node *node_new(tutti_ctx *cx, const tutti__op *op, tutti_tensor *const *src,
                             int n_src, const void *attributes, size_t attributes_bytes)
{
    tutti__node *n = tutti__step_alloc(cx, sizeof *n);

    if (!n)
        return NULL;
    *n = (tutti__node){.op = op, .n_src = n_src};
    memcpy(n->src, src, (size_t)n_src * sizeof *src);
    if (attributes_bytes > 0) {
        n->attributes = tutti__step_alloc(cx, attributes_bytes);
        if (!n->attributes)
            return NULL;
        memcpy(n->attributes, attributes, attributes_bytes);
    }
    return n;
}

/* ---- Profiles -------------------------------------------------------------------------------- */

static double bytes_of(const tutti_tensor *t)
{
    return t ? (double)tutti__tensor_bytes(t) : 0;
}

static double forward_bytes(const tutti__node *n)
{
    double bytes = n->dst->lazy ? 0 : bytes_of(n->dst);

    if (n->dst->shared) /* a view moves nothing */
        return 0;
    for (int i = 0; i < n->n_src; i++)
        bytes += bytes_of(n->src[i]);
    return bytes;
}

/* Bytes of the gradients of sources [first, end), and of what they are computed from. */
static double backward_bytes(const tutti__node *n, int first, int end, unsigned reads)
{
    const tutti_tensor *dy = n->dst->grad;
    double bytes = 0;

    for (int i = first; i < end; i++)
        if (n->src_grad[i] && n->src_grad[i]->data != dy->data)
            bytes += bytes_of(n->src_grad[i]);
    if (bytes == 0)
        return 0;
    for (int i = 0; i < n->n_src; i++)
        bytes += reads >> i & 1 ? bytes_of(n->src[i]) : 0;
    return bytes + bytes_of(dy) + (reads >> TUTTI__MAX_SRC & 1 ? bytes_of(n->dst) : 0);
}

static const char *layer_of(const tutti__node *n)
{
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && n->src[i]->parameter)
            return n->src[i]->parameter->name;
    return NULL;
}

/* Adds what n's forward or backward did to the profile. */
static void note(tutti__node *n, bool backward, uint64_t begin_ns, uint64_t end_ns)
{
    tutti_ctx *cx = n->dst->cx;
    const tutti__op *op = n->op;
    const bool product = op->flops != NULL;
    tutti__profile_work w = {.op = op->name,
                             .pass = backward ? "backward" : "forward",
                             .parameter = layer_of(n),
                             .x = n->src[0] ? &n->src[0]->shape : NULL,
                             .w = product ? &n->src[1]->shape : NULL,
                             .y = &n->dst->shape,
                             .flops = product ? op->flops(n) : 0};

    if (!backward)
        w.bytes = forward_bytes(n);
    else if (!product)
        w.bytes = backward_bytes(n, 0, n->n_src, op->backward_reads);
    if (backward && product && n->weights_ns) {
        w.pass = "weights";
        w.bytes = backward_bytes(n, 1, n->n_src, 1 << 0);
        tutti__profile_add(cx, &w, begin_ns, n->weights_ns);
        begin_ns = n->weights_ns;
    }
    if (backward && product) {
        if (!n->src_grad[0])
            return;
        w.pass = "data";
        w.bytes = backward_bytes(n, 0, 1, 1 << 1);
    }
    tutti__profile_add(cx, &w, begin_ns, end_ns);
}

/* ---- Running --------------------------------------------------------------------------------- */

static tutti_status run(tutti__node *n, tutti_status (*function)(tutti__node *n), bool backward)
{
    tutti_ctx *cx = n->dst->cx;
    const tutti__kernels *kernels = cx->kernels;
    const uint64_t begin_ns = tutti__profile_begin(cx);
    tutti_dtype dtype = n->dst->dtype;
    tutti_status status;

    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && tutti__is_half(n->src[i]->dtype))
            dtype = n->src[i]->dtype;
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && !(n->op->lazy >> i & 1))
            TUTTI_TRY(tutti__tensor_compute(n->src[i]));
    TUTTI_TRY(tutti__kernels_of(cx, dtype, &cx->kernels));
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && tutti_shape_count(n->src[i]->shape) == 0)
            cx->kernels = cx->f32_kernels->empty ? cx->f32_kernels->empty : cx->f32_kernels;
    status = function(n);
    cx->kernels = kernels;
    if (begin_ns && status == TUTTI_OK)
        note(n, backward, begin_ns, tutti__now_ns());
    return status;
}

tutti_status tutti__node_backward(tutti__node *n)
{
    return run(n, n->op->backward ? n->op->backward : tutti__plain_backward, true);
}

/* ---- Autocast -------------------------------------------------------------------------------- */

static bool is_activation(const tutti__op *op, tutti_tensor *const *src, int i)
{
    return src[i] && (op->activations >> i & 1) &&
           (src[i]->dtype == TUTTI_F32 || tutti__is_half(src[i]->dtype));
}

/* The dtype that op's activations must have. */
static tutti_dtype wanted_dtype(const tutti_ctx *cx, const tutti__op *op, tutti_tensor *const *src,
                                int n_src)
{
    tutti_dtype widest = TUTTI_F32;
    int n = 0;

    if (op->cast == TUTTI__CAST_LOW)
        return cx->autocast;
    for (int i = 0; i < n_src && op->cast == TUTTI__CAST_WIDEST; i++)
        if (is_activation(op, src, i))
            widest = n++ == 0 || src[i]->dtype == widest ? src[i]->dtype : TUTTI_F32;
    return widest;
}

/* Casts every activation to the dtype that op needs; writes to the caller's src. */
static tutti_status cast_activations(const tutti_ctx *cx, const tutti__op *op, tutti_tensor **src,
                                     int n_src)
{
    const tutti_dtype dtype = wanted_dtype(cx, op, src, n_src);

    for (int i = 0; i < n_src && op->cast != TUTTI__CAST_NONE; i++) {
        if (!is_activation(op, src, i) || src[i]->dtype == dtype)
            continue;
        src[i] = tutti_cast(src[i], dtype);
        TUTTI_TRY(tutti_tensor_status(src[i]));
    }
    return TUTTI_OK;
}

static tutti_status compute(tutti_ctx *cx, tutti__node *n)
{
    tutti_shape shape = {0};
    tutti_dtype dtype = TUTTI_F32;

    if ((n->op->activations & 1) && n->src[0] && tutti__is_half(n->src[0]->dtype))
        dtype = n->src[0]->dtype;
    TUTTI_TRY(n->op->shape(n, &shape, &dtype));
    n->dst = tutti__tensor_new(cx, shape, dtype);
    if (!n->dst)
        return TUTTI_ERR_MEMORY;
    return run(n, n->op->forward ? n->op->forward : tutti__plain_forward, false);
}

static void count_uses(tutti_ctx *cx, const tutti__node *n)
{
    for (int i = 0; i < n->n_src; i++) {
        tutti__parameter *p;

        if (!tutti__counts_use(n, i))
            continue;
        p = n->src[i]->parameter;
        if (p->uses_step != cx->round) {
            p->uses_step = cx->round;
            p->uses = 0;
            cx->n_parameters++;
        }
        p->uses++;
    }
}

static void record(tutti_ctx *cx, tutti__node *n)
{
    bool needs_grad = false;

    for (int i = 0; i < n->n_src; i++) {
        n->wants_grad[i] = n->src[i] && n->src[i]->needs_grad;
        needs_grad |= n->wants_grad[i];
    }
    if (!cx->recording || !needs_grad)
        return;
    count_uses(cx, n);
    n->dst->needs_grad = true;
    n->dst->node = n;
    n->previous = cx->last_node;
    if (cx->last_node)
        cx->last_node->next = n;
    else
        cx->first_node = n;
    cx->last_node = n;
    cx->n_nodes++;
}

tutti_tensor *tutti__op_run(const tutti__op *op, tutti_tensor *const *src, int n_src,
                            const void *attributes, size_t attributes_bytes)
{
    tutti_ctx *cx = NULL;
    tutti_tensor *given[TUTTI__MAX_SRC];
    tutti__node *n;
    tutti_status status;

    for (int i = 0; i < n_src && !cx; i++)
        cx = src[i] ? src[i]->cx : NULL;
    if (!cx) {
        tutti__fail(TUTTI_ERR_ARG, "%s: the tensor is NULL", op->name);
        return NULL;
    }
    memcpy(given, src, (size_t)n_src * sizeof(tutti_tensor *));
    status = check_sources(cx, op, given, n_src);
    if (status == TUTTI_OK)
        status = cast_activations(cx, op, given, n_src);
    if (status != TUTTI_OK)
        return tutti__poisoned(cx, status);
    n = node_new(cx, op, given, n_src, attributes, attributes_bytes);
    if (!n)
        return &cx->out_of_memory;
    status = compute(cx, n);
    if (status != TUTTI_OK)
        return tutti__poisoned(cx, tutti__name_operation(n, "", status));
    record(cx, n);
    return n->dst;
}

/* ---- Gradients of sources -------------------------------------------------------------------- */

tutti_status tutti__grad_of(tutti__node *n, int i, tutti_tensor **grad_p)
{
    tutti_tensor *src = n->src[i];

    *grad_p = NULL;
    if (!n->wants_grad[i])
        return TUTTI_OK;
    *grad_p = n->src_grad[i] = tutti__tensor_new(src->cx, src->shape, src->dtype);
    return *grad_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__weight_grad_of(tutti__node *n, int i, tutti_tensor **grad_p)
{
    tutti_tensor *src = n->src[i];
    bool in_place = tutti__counts_use(n, i);

    /* gradients of a parameter used twice in one node are added afterwards */
    for (int j = 0; j < n->n_src; j++)
        in_place &= j == i || n->src[j] != src;
    if (in_place) {
        *grad_p = n->src_grad[i] = tutti__parameter_grad(src);
        return *grad_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    TUTTI_TRY(tutti__grad_of(n, i, grad_p));
    return *grad_p ? tutti__tensor_alloc(*grad_p, NULL) : TUTTI_OK;
}

void tutti__grad_pass(tutti__node *n, int i, tutti_tensor *grad)
{
    if (n->wants_grad[i])
        n->src_grad[i] = grad;
}

tutti_tensor *tutti__parameter_grad(tutti_tensor *parameter)
{
    tutti__parameter *p = parameter->parameter;
    tutti_tensor *grad = tutti__tensor_new(parameter->cx, parameter->shape, parameter->dtype);

    if (!grad)
        return NULL;
    grad->data = p->grad;
    grad->accumulate = p->grad_round == *p->round;
    grad->shared = true;
    p->all_touched = true; /* embedding, which touches fewer, corrects this */
    p->grad_round = *p->round;
    return grad;
}
