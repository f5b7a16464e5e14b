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

#include "device/planned/planned.h"

#include <string.h>

static const tutti_op *op_of(const tutti_op_args *p)
{
    return &((const tutti__node *)p->internal)->op->plain;
}

/* ---- Shape rules ----------------------------------------------------------------------------- */

tutti_op_args tutti__op_args(const tutti__node *n)
{
    return (tutti_op_args){.cx = n->cx,
                           .attributes = n->attributes,
                           .n_src = n->n_src,
                           .sources = n->src,
                           .shape = n->dst ? n->dst->shape : (tutti_shape){0},
                           .count = n->dst ? tutti_shape_count(n->dst->shape) : 0,
                           .internal = n};
}

tutti_status tutti_op_check_source(const tutti_op_args *p, int i, const char *what,
                                   const char *dims, tutti_dtype dtype)
{
    const tutti_tensor *t;
    int n_dims = 1;

    TUTTI_TRY(TUTTI__NOT_NULL(p));
    t = p->sources[i];
    if (!t)
        return tutti__fail(TUTTI_ERR_ARG, "%s is NULL", what);
    if (t->dtype != dtype && !(dtype == TUTTI_F32 && tutti__is_half(t->dtype) &&
                               tutti__source_in(op_of(p)->activations, i)))
        return tutti__fail(TUTTI_ERR_ARG, "%s is %s, expected %s", what, tutti_dtype_name(t->dtype),
                           tutti_dtype_name(dtype));
    for (const char *c = dims; c && *c; c++)
        n_dims += *c == ',';
    if (dims && t->shape.n != n_dims)
        return tutti__fail(TUTTI_ERR_ARG, "%s is %s, expected %s", what,
                           tutti__shape_text(t->shape), dims);
    return TUTTI_OK;
}

/* Widens *shape_p so that `with` is broadcast to it. */
static bool widen(tutti_shape *shape_p, tutti_shape with)
{
    tutti_shape wide = shape_p->n >= with.n ? *shape_p : with;
    const tutti_shape narrow = shape_p->n >= with.n ? with : *shape_p;

    for (int i = 1; i <= narrow.n; i++) {
        int64_t *d = &wide.d[wide.n - i], other = narrow.d[narrow.n - i];

        if (*d == 1)
            *d = other;
        else if (other != 1 && other != *d)
            return false;
    }
    *shape_p = wide;
    return true;
}

/* Widens *shape_p by source i, named `name`. */
static tutti_status widen_by(const tutti_op_args *p, int i, const char *name, tutti_shape *shape_p)
{
    if (widen(shape_p, p->sources[i]->shape))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s is %s, which cannot be broadcast with %s: from the last dimension "
                       "on, sizes must be equal, or one of them 1 or missing",
                       name, tutti__shape_text(p->sources[i]->shape),
                       tutti__shape_text(i == 1 ? p->sources[0]->shape : *shape_p));
}

tutti_status tutti__broadcast_shapes(const tutti_op_args *p, const char *const *names,
                                     tutti_shape *shape_p)
{
    *shape_p = (tutti_shape){0};
    for (int i = 0; i < p->n_src; i++)
        TUTTI_TRY(widen_by(p, i, names[i], shape_p));
    return TUTTI_OK;
}

tutti_status tutti__broadcast_named(const tutti_op_args *p, const char *const *names,
                                    tutti_shape *shape_p)
{
    for (int i = 0; i < p->n_src; i++)
        TUTTI_TRY(tutti_op_check_source(p, i, names[i], NULL, TUTTI_F32));
    return tutti__broadcast_shapes(p, names, shape_p);
}

tutti_status tutti_op_broadcast(const tutti_op_args *p, tutti_shape *shape_p, tutti_dtype *dtype_p)
{
    static const char *const names[TUTTI_OP_MAX_SOURCES] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                                            "i", "j", "k", "l", "m", "n", "o", "p"};

    (void)dtype_p;
    TUTTI_TRY(TUTTI__NOT_NULL(p));
    return tutti__broadcast_named(p, p->n_src == 1 ? &(const char *){"x"} : names, shape_p);
}

/* ---- Errors and checks ------------------------------------------------------------------------- */

tutti_status tutti__name_operation(const tutti__node *n, const char *what, tutti_status status)
{
    const char *name = "";

    for (int i = 0; i < n->n_src && !*name; i++)
        name = tutti_tensor_name(n->src[i]);
    return tutti__fail(status, "%s%s%s%s%s: %s", what, n->op->plain.name, *name ? " \"" : "", name,
                       *name ? "\"" : "", tutti_last_error());
}

/* The first cause, if a source or the step is poisoned. */
static tutti_status check_sources(const tutti_ctx *cx, const char *name, tutti_tensor *const *src,
                                  int n_src)
{
    if (!cx->in_step)
        return tutti__fail(TUTTI_ERR_STATE, "%s: no step is open; call tutti_step_begin first",
                           name);
    if (cx->step_status != TUTTI_OK)
        return tutti__fail_again(cx->step_status, cx->step_text);
    for (int i = 0; i < n_src; i++) {
        if (!src[i])
            continue;
        TUTTI_TRY(tutti_tensor_status(src[i]));
        if (src[i]->cx != cx)
            return tutti__fail(TUTTI_ERR_ARG, "%s: its sources belong to different contexts", name);
    }
    return TUTTI_OK;
}

/* With room for its sources and attributes, in one piece of the arena. */
static tutti__node *node_new(tutti_ctx *cx, const tutti__op *op, tutti_tensor *const *src,
                             int n_src, const void *attributes, size_t attributes_bytes)
{
    const size_t head = (sizeof(tutti__node) + 15) / 16 * 16, n = (size_t)n_src;
    char *p = tutti__step_alloc(cx, head + attributes_bytes +
                                        n * (2 * sizeof(tutti_tensor *) + sizeof(bool)) + 16);
    tutti__node *node = (tutti__node *)p;

    if (!node)
        return NULL;
    *node = (tutti__node){.cx = cx, .op = op, .n_src = n_src};
    p += head;
    if (attributes_bytes > 0)
        node->attributes = memcpy(p, attributes, attributes_bytes);
    p += (attributes_bytes + 15) / 16 * 16;
    node->src = memcpy(p, src, n * sizeof(tutti_tensor *));
    node->src_grad = memset(node->src + n, 0, n * sizeof(tutti_tensor *));
    node->wants_grad = memset(node->src_grad + n, 0, n * sizeof(bool));
    return node;
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
        bytes += tutti__source_in(reads, i) ? bytes_of(n->src[i]) : 0;
    return bytes + bytes_of(dy) + (reads & TUTTI_OP_RESULT ? bytes_of(n->dst) : 0);
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
    tutti__profile_work w = {.op = op->plain.name,
                             .pass = backward          ? "backward"
                                     : cx->recomputing ? "recompute"
                                                       : "forward",
                             .parameter = layer_of(n),
                             .x = n->src[0] ? &n->src[0]->shape : NULL,
                             .w = product ? &n->src[1]->shape : NULL,
                             .y = &n->dst->shape,
                             .flops = product ? op->flops(n) : 0};

    if (!backward)
        w.bytes = forward_bytes(n);
    else if (!product)
        w.bytes = backward_bytes(n, 0, n->n_src, op->plain.backward_reads);
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

static tutti_status compute_again(tutti_tensor *t);

/* Whether n's kernels read t, source i, without its memory: what kernels of the same family have left lazy, not what any family's
 * operation computes again. */
static bool kernels_read_lazy(const tutti__node *n, int i, const tutti_tensor *t)
{
    return tutti__source_in(n->op->lazy, i) && t->lazy && t->lazy->compute != compute_again;
}

/* Stores the lazy sources that n's kernels do not read as such, nor plain.c piece by piece; backward only what it reads. */
static tutti_status compute_lazy(const tutti__node *n, bool backward)
{
    const unsigned reads = backward ? n->op->plain.backward_reads : ~0u;

    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && tutti__source_in(reads, i) && !kernels_read_lazy(n, i, n->src[i]) &&
            !tutti__plain_reads_lazy(n, n->src[i]))
            TUTTI_TRY(tutti__tensor_compute(n->src[i]));
    return TUTTI_OK;
}

/* In which dtype n reads a parameter, source i. */
static tutti_dtype read_as(const tutti__node *n, int i)
{
    const tutti_dtype dtype = tutti__is_half(n->dst->dtype) ? n->dst->dtype : n->src[0]->dtype;

    return n->op->rounds >> i & 1 && tutti__is_half(dtype) ? dtype : TUTTI_F32;
}

/* Makes n's parameters available; in backward also those not in backward_reads, which says what activations are kept, but not the table
 * to whose rows backward only adds. Those of an operation that computes a source of another one, which is running, join that one's. */
static tutti_status need_parameters(const tutti__node *n, bool backward)
{
    bool first = !n->cx->computing;

    for (int i = 0; i < n->n_src; i++) {
        const tutti_tensor *t = n->src[i];

        if (!t || !(t->parameter || t->viewed) || (backward && i == 0 && n->op->by_rows))
            continue;
        TUTTI_TRY(tutti__tensor_need(t, first, n->op->rounds ? read_as(n, i) : TUTTI_F32));
        first = false;
    }
    return TUTTI_OK;
}

/* Gives back what was only stored or allocated for this operation. */
static void drop_temporary(const tutti__node *n)
{
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && n->src[i]->lazy)
            tutti__tensor_release(n->src[i]);
    tutti__operation_memory_end(n->cx);
}

static tutti_status run(tutti__node *n, tutti_status (*function)(tutti__node *n), bool backward)
{
    tutti_ctx *cx = n->dst->cx;
    const tutti__kernels *kernels = cx->kernels;
    const uint64_t begin_ns = tutti__profile_begin(cx);
    const bool within = cx->computing;
    tutti_dtype dtype = n->dst->dtype;
    tutti_status status;

    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && tutti__is_half(n->src[i]->dtype))
            dtype = n->src[i]->dtype;
    TUTTI_TRY(compute_lazy(n, backward));
    TUTTI_TRY(need_parameters(n, backward));
    TUTTI_TRY(tutti__kernels_of(cx, dtype, &cx->kernels));
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && tutti_shape_count(n->src[i]->shape) == 0)
            cx->kernels = cx->f32_kernels->empty ? cx->f32_kernels->empty : cx->f32_kernels;
    cx->computing = true;
    status = function(n);
    cx->computing = within;
    cx->kernels = kernels;
    drop_temporary(n);
    if (begin_ns && status == TUTTI_OK)
        note(n, backward, begin_ns, tutti__now_ns());
    return status;
}

static tutti_status forward_of(tutti__node *n)
{
    return run(n, n->op->forward ? n->op->forward : tutti__plain_forward, false);
}

tutti_status tutti__node_again(tutti__node *n)
{
    tutti_tensor *y = n->dst;

    y->data = NULL;
    y->host = NULL;
    y->layout = NULL;
    y->lazy = NULL;
    y->shared = y->released = false;
    return forward_of(n);
}

tutti_status tutti__node_backward(tutti__node *n)
{
    return run(n, n->op->backward ? n->op->backward : tutti__plain_backward, true);
}

/* ---- Autocast -------------------------------------------------------------------------------- */

static bool is_activation(const tutti__op *op, tutti_tensor *const *src, int i)
{
    return src[i] && tutti__source_in(op->plain.activations, i) &&
           (src[i]->dtype == TUTTI_F32 || tutti__is_half(src[i]->dtype));
}

/* The dtype that op's activations must have. */
static tutti_dtype wanted_dtype(const tutti_ctx *cx, const tutti__op *op, tutti_tensor *const *src,
                                int n_src)
{
    tutti_dtype widest = TUTTI_F32;
    int n = 0;

    if (op->plain.autocast == TUTTI_OP_LOW)
        return cx->autocast;
    for (int i = 0; i < n_src && op->plain.autocast == TUTTI_OP_WIDEST; i++)
        if (is_activation(op, src, i))
            widest = n++ == 0 || src[i]->dtype == widest ? src[i]->dtype : TUTTI_F32;
    return widest;
}

/* Casts every activation to the dtype that op, which alone reads the result, needs. */
static tutti_status cast_activations(const tutti_ctx *cx, const tutti__op *op, tutti_tensor **src,
                                     int n_src)
{
    const tutti_dtype dtype = wanted_dtype(cx, op, src, n_src);

    for (int i = 0; i < n_src && op->plain.autocast != TUTTI_OP_KEEP; i++) {
        if (!is_activation(op, src, i) || src[i]->dtype == dtype)
            continue;
        src[i] = tutti__last_read(tutti_cast(src[i], dtype));
        TUTTI_TRY(tutti_tensor_status(src[i]));
    }
    return TUTTI_OK;
}

/* Integers that a device computed are copied to the host when an operation is to read them: its shape rule checks them there. */
static tutti_status integers_to_host(tutti_ctx *cx, const tutti__node *n)
{
    for (int i = 0; i < n->n_src; i++) {
        tutti_tensor *t = n->src[i];
        void *p;

        if (!t || t->dtype != TUTTI_I64 || t->host || cx->device_ops->is_host ||
            n->op->device_integers)
            continue;
        p = tutti__step_alloc(cx, tutti__tensor_bytes(t) + 1);
        if (!p)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(tutti__read(cx->stream, p, t->data, tutti__tensor_bytes(t)));
        t->host = p;
    }
    return TUTTI_OK;
}

static tutti_status compute(tutti_ctx *cx, tutti__node *n)
{
    const tutti_op_args args = tutti__op_args(n);
    const tutti_op *op = &n->op->plain;
    tutti_shape shape = {0};
    tutti_dtype dtype = TUTTI_F32;

    if ((op->activations & 1) && n->src[0] && tutti__is_half(n->src[0]->dtype))
        dtype = n->src[0]->dtype;
    TUTTI_TRY(integers_to_host(cx, n));
    TUTTI_TRY((op->shape ? op->shape : tutti_op_broadcast)(&args, &shape, &dtype));
    for (int i = 1; i < shape.n; i++)
        if (shape.d[i] < 1)
            return tutti__fail(TUTTI_ERR_ARG,
                               "the result would be %s; only the first dimension may be empty",
                               tutti__shape_text(shape));
    n->dst = tutti__tensor_new(cx, shape, dtype);
    if (!n->dst)
        return TUTTI_ERR_MEMORY;
    return forward_of(n);
}

static void add_to_block(tutti_ctx *cx, tutti__node *n)
{
    tutti__recomputed *block = cx->block;

    if (!block)
        return;
    n->block = block;
    *(block->last ? &block->last->block_next : &block->first) = n;
    block->last = n;
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
    if (!cx->recording || !needs_grad || n->op->plain.no_grad || n->dst->dtype == TUTTI_I64)
        return;
    count_uses(cx, n);
    for (int i = 0; i < n->n_src; i++)
        if (n->src[i] && tutti__source_in(n->op->plain.backward_reads, i))
            n->src[i]->kept = true;
    n->dst->kept = (n->op->plain.backward_reads & TUTTI_OP_RESULT) != 0;
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

/* ---- What forward need not keep ---------------------------------------------------------------- */

/* A lazy tensor's elements by its own operation. */
static tutti_status compute_again(tutti_tensor *t)
{
    tutti__node *n = t->node;
    tutti__spare *of_operation = t->cx->of_operation; /* of the one that reads t */
    tutti_status status;

    t->cx->of_operation = NULL;
    status = run(n, n->op->forward ? n->op->forward : tutti__plain_forward, false);
    t->cx->of_operation = of_operation;
    return status;
}

static void forget_result(tutti__node *n)
{
    static const tutti__lazy again = {.compute = compute_again};
    tutti_tensor *y = n->dst;
    tutti__lazy *lazy;

    if (!n->op->again || y->node != n || !y->intermediate || y->lazy)
        return;
    lazy = tutti__step_alloc(n->cx, sizeof *lazy);
    if (!lazy)
        return; /* it is kept */
    *lazy = again;
    lazy->x = n->src[0];
    y->lazy = lazy;
}

static void release_sources(tutti__node *n)
{
    for (int i = 0; i < n->n_src; i++) {
        tutti_tensor *x = n->src[i];

        if (!x || !x->last_read || x->kept || x->lazy)
            continue;
        if (n->dst->shared && n->dst->data == x->data) { /* the view owns it now */
            n->dst->shared = x->shared;
            x->shared = true;
        } else {
            tutti__activation_release(x);
        }
    }
}

/* After forward: gives back what neither later operations nor backward read. */
static void forget(tutti__node *n)
{
    forget_result(n);
    if (n->dst->lazy)
        n->dst->lazy->x->kept = true;
    release_sources(n);
}

/* ---- Running an operation ------------------------------------------------------------------------ */

tutti_ctx *tutti__context_of(const char *operation, tutti_tensor *const *src, int n_src)
{
    for (int i = 0; src && i < n_src; i++)
        if (src[i])
            return src[i]->cx;
    tutti__fail(TUTTI_ERR_ARG, "%s: the tensor is NULL", operation);
    return NULL;
}

static tutti_tensor *failed(tutti_ctx *cx, const tutti__op *op, tutti_status status)
{
    if (op->collective)
        tutti__tell_peers(cx, status);
    return tutti__poisoned(cx, status);
}

tutti_tensor *tutti__op_run(const tutti__op *op, tutti_tensor *const *src, int n_src,
                            const void *attributes, size_t attributes_bytes)
{
    tutti_ctx *cx = tutti__context_of(op->plain.name, src, n_src);
    tutti__node *n;
    tutti_status status;

    if (!cx)
        return NULL;
    status = check_sources(cx, op->plain.name, src, n_src);
    if (status != TUTTI_OK)
        return failed(cx, op, status);
    n = node_new(cx, op, src, n_src, attributes, attributes_bytes);
    if (!n)
        return failed(cx, op, TUTTI_ERR_MEMORY);
    status = cast_activations(cx, op, n->src, n_src);
    if (status != TUTTI_OK)
        return failed(cx, op, status);
    status = compute(cx, n);
    if (status != TUTTI_OK)
        return failed(cx, op, tutti__name_operation(n, "", status));
    add_to_block(cx, n);
    record(cx, n);
    forget(n);
    return n->dst;
}

/* ---- Operations without kernels -------------------------------------------------------------- */

static tutti_status check_op(const tutti_op *op, tutti_tensor *const *src, int n_src)
{
    if (!op || !op->name || !op->forward)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_op_run: %s",
                           op ? "the operation has no name or no forward" : "op is NULL");
    if (!src || n_src < 1 || n_src > TUTTI_OP_MAX_SOURCES)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %d sources, expected 1 to %d", op->name,
                           src ? n_src : 0, TUTTI_OP_MAX_SOURCES);
    return TUTTI__CHECK_RESERVED(tutti_op, op);
}

tutti_tensor *tutti_op_run(const tutti_op *op, tutti_tensor *const *src, int n_src,
                           const void *attributes, size_t attributes_bytes)
{
    const int n = n_src < TUTTI_OP_MAX_SOURCES ? n_src : TUTTI_OP_MAX_SOURCES;
    tutti_ctx *cx = tutti__context_of(op && op->name ? op->name : "tutti_op_run", src, n);
    tutti__op *copy;
    const tutti_status status = check_op(op, src, n_src);

    if (status != TUTTI_OK)
        return cx ? tutti__poisoned(cx, status) : NULL;
    if (!cx)
        return NULL;
    copy = tutti__step_alloc(cx, sizeof *copy);
    if (!copy)
        return &cx->out_of_memory;
    *copy = (tutti__op){.plain = *op};
    return tutti__op_run(copy, src, n_src, attributes, attributes_bytes);
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
    const bool accumulate = p->grad_round == *p->round;
    tutti_tensor *grad;

    if (p->bring_grad && p->bring_grad(parameter) != TUTTI_OK)
        return NULL;
    grad = tutti__tensor_new(parameter->cx, parameter->shape, parameter->dtype);
    if (!grad)
        return NULL;
    if (parameter->cx->device_ops->plans) /* it is about to be written */
        tutti__planned_touch(p->grad, tutti__tensor_bytes(parameter));
    grad->data = p->grad;
    grad->accumulate = accumulate;
    grad->shared = true;
    p->all_touched = true; /* embedding, which touches fewer, corrects this */
    p->grad_round = *p->round;
    return grad;
}
