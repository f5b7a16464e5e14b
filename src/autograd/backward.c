/* backward.c -- one reverse scan of the tape.   SPDX-License-Identifier: MIT
 *
 *   node 1 (p) ... node 4 (p, q) ... node 9 -> loss      scanned from 9 to 1: q final at 4, p at 1
 *
 * Nodes that the loss does not depend on are removed from the tape first, so that a parameter which only they read is unused.
 * Each visited node decrements the use counts of its parameters; at zero the parameter's gradient is final and the listener is
 * called. That order is known before the scan, from the counts alone. A tensor's first gradient is adopted, further ones are
 * added into one of the two; when a node is done, its result's gradient is released for the next ones, so that the scan needs
 * few buffers; so is the result, if a model made it. */
#include "autograd/backward.h"

#include "device/flat.h"

#include <string.h>

/* ---- Adding gradients ----------------------------------------------------------------------- */

/* Adds up two gradients of one tensor, in place in the one that is not shared. */
static tutti_status add_gradients(tutti_tensor *a, tutti_tensor *b, tutti_tensor **sum_p)
{
    const tutti__kernels *kernels;
    tutti_tensor *into = !a->shared ? a : b, *from = into == a ? b : a;
    const uint64_t begin_ns = tutti__profile_begin(a->cx);

    TUTTI_TRY(tutti__kernels_of(a->cx, a->dtype, &kernels));
    if (into->shared) {
        *sum_p = tutti__tensor_new(a->cx, a->shape, a->dtype);
        if (!*sum_p)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(kernels->add_forward(*sum_p, a, b));
    } else {
        *sum_p = into;
        TUTTI_TRY(kernels->add_to(into, from));
        if (!from->shared)
            tutti__tensor_release(from);
    }
    if (begin_ns)
        tutti__profile_add(a->cx,
                           &(tutti__profile_work){.op = "add",
                                                  .pass = "gradients",
                                                  .x = &a->shape,
                                                  .y = &a->shape,
                                                  .bytes = 3 * (double)tutti__tensor_bytes(a)},
                           begin_ns, tutti__now_ns());
    return TUTTI_OK;
}

/* Adds `grad` to src's gradient. */
static tutti_status deliver(tutti_tensor *src, tutti_tensor *grad)
{
    if (src->parameter) {
        tutti_tensor *flat;

        if (grad->data == src->parameter->grad)
            return TUTTI_OK; /* written in place */
        flat = tutti__parameter_grad(src);
        if (!flat)
            return TUTTI_ERR_MEMORY;
        TUTTI_TRY(src->cx->kernels->reorder(flat, grad));
        if (!grad->shared)
            tutti__tensor_release(grad);
        return TUTTI_OK;
    }
    if (src->grad)
        return add_gradients(src->grad, grad, &src->grad);
    src->grad = grad;
    return TUTTI_OK;
}

/* Delivers the gradients that a node's backward made, and releases its result's gradient unless it was passed on
 * to a source. */
static tutti_status deliver_all(tutti__node *n)
{
    tutti_tensor *dy = n->dst->grad;
    void *data = dy->data;
    int heirs = 0;
    bool shared;

    for (int i = 0; i < n->n_src; i++)
        heirs += n->src_grad[i] && n->src_grad[i]->data == data;
    shared = dy->shared || heirs > 1;
    for (int i = 0; i < n->n_src; i++)
        if (n->src_grad[i] && n->src_grad[i]->data == data)
            n->src_grad[i]->shared = shared;
    for (int i = 0; i < n->n_src; i++)
        if (n->src_grad[i])
            TUTTI_TRY(deliver(n->src[i], n->src_grad[i]));
    if (n->part == TUTTI__NODE_INPUTS)
        return TUTTI_OK; /* the other part of n reads it */
    if (heirs == 0 && !shared)
        tutti__tensor_release(dy);
    n->dst->grad = NULL;
    return TUTTI_OK;
}

/* ---- What the loss depends on --------------------------------------------------------------- */

static void unlink_node(tutti_ctx *cx, tutti__node *n)
{
    *(n->previous ? &n->previous->next : &cx->first_node) = n->next;
    *(n->next ? &n->next->previous : &cx->last_node) = n->previous;
    cx->n_nodes--;
    for (int i = 0; i < n->n_src; i++)
        if (tutti__counts_use(n, i) && --n->src[i]->parameter->uses == 0)
            cx->n_parameters--;
}

/* Removes the nodes that the loss does not depend on, with their uses. */
static void prune(tutti_ctx *cx, const tutti_tensor *loss)
{
    tutti__node *previous;

    loss->node->reached = true;
    for (tutti__node *n = cx->last_node; n; n = previous) {
        previous = n->previous;
        if (!n->reached) {
            unlink_node(cx, n);
            /* a view: the scan may release the memory under it */
            if (n->dst->intermediate && n->dst->shared)
                tutti__activation_release(n->dst);
        }
        for (int i = 0; n->reached && i < n->n_src; i++)
            if (n->wants_grad[i] && n->src[i]->node)
                n->src[i]->node->reached = true;
    }
}

/* ---- Readiness ------------------------------------------------------------------------------- */

/* Whether source i is a parameter to whose gradient n only adds rows. */
static bool is_row_use(const tutti__node *n, int i)
{
    return i == 0 && n->op->by_rows;
}

/* Counts the uses of all parameters by rows; no parameter is known to have late rows. */
static void count_row_uses(const tutti_ctx *cx)
{
    for (const tutti__node *n = cx->last_node; n; n = n->previous)
        for (int i = 0; i < n->n_src; i++)
            if (tutti__counts_use(n, i)) {
                n->src[i]->parameter->row_uses = 0;
                n->src[i]->parameter->rest_place = TUTTI__NOT_LATE;
                n->src[i]->parameter->late_rows = NULL;
            }
    for (const tutti__node *n = cx->last_node; n; n = n->previous)
        for (int i = 0; i < n->n_src; i++)
            if (tutti__counts_use(n, i))
                n->src[i]->parameter->row_uses += is_row_use(n, i);
}

/* Takes back the use of source i, by which all but late rows of its gradient may become final: that is the result. */
static bool take_back(const tutti__node *n, int i)
{
    tutti__parameter *p = n->src[i]->parameter;

    p->uses--;
    p->row_uses -= is_row_use(n, i);
    return !is_row_use(n, i) && p->uses > 0 && p->uses == p->row_uses;
}

/* The parameters of the tape in the order in which they will be final: by the scan's counting, done
 * beforehand and undone. */
static tutti_status readiness_order(const tutti_ctx *cx, tutti_tensor **order)
{
    size_t n_order = 0;

    count_row_uses(cx);
    for (const tutti__node *n = cx->last_node; n; n = n->previous)
        for (int i = 0; i < n->n_src; i++) {
            if (!tutti__counts_use(n, i))
                continue;
            if (take_back(n, i))
                n->src[i]->parameter->rest_place = n_order;
            if (n->src[i]->parameter->uses == 0)
                order[n_order++] = n->src[i];
        }
    for (const tutti__node *n = cx->first_node; n; n = n->next)
        for (int i = 0; i < n->n_src; i++)
            if (tutti__counts_use(n, i)) {
                n->src[i]->parameter->uses++;
                n->src[i]->parameter->row_uses += is_row_use(n, i);
            }
    if (n_order != cx->n_parameters)
        return tutti__fail(TUTTI_ERR_INTERNAL,
                           "tutti_backward: %zu of %zu parameters would become final", n_order,
                           cx->n_parameters);
    return TUTTI_OK;
}

static void take_back_uses(const tutti_ctx *cx, const tutti__node *n)
{
    const tutti_backward_listener *l = &cx->listener;

    for (int i = 0; i < n->n_src; i++) {
        if (!tutti__counts_use(n, i))
            continue;
        if (take_back(n, i) && cx->ready_but_rows)
            cx->ready_but_rows(l->self, n->src[i]);
        if (n->src[i]->parameter->uses == 0) {
            n->src[i]->parameter->late_rows = NULL;
            if (l->ready)
                l->ready(l->self, n->src[i]);
        }
    }
}

/* ---- Backward in two parts --------------------------------------------------------------------- */

static bool is_apart(const tutti__node *n)
{
    for (int i = 0; i < n->n_src; i++)
        if (tutti__counts_use(n, i) && n->src[i]->parameter->apart)
            return true;
    return false;
}

/* A product whose parameters nothing else on the tape reads: else their gradients would be added in another order. */
static bool can_divide(const tutti__node *n)
{
    bool any = false;

    for (int i = 0; i < n->n_src; i++) {
        if (tutti__counts_use(n, i) && n->src[i]->parameter->all_uses != 1)
            return false;
        any |= tutti__counts_use(n, i);
    }
    return any && n->op->flops;
}

/* t is still to be read, and what it looks at, or is computed from. */
static void hold(tutti_tensor *t)
{
    while (t && !t->parameter && !t->held) {
        t->held = true;
        for (int i = 1; t->lazy && t->node && i < t->node->n_src; i++)
            hold(t->node->src[i]); /* such as the views of a norm's parameters */
        t = t->lazy ? t->lazy->x : t->shared && t->node ? t->node->src[0] : NULL;
    }
}

/* Which nodes of the tape are left to tutti__backward_weights, and what they need. */
static void divide(const tutti_ctx *cx, bool weights_later)
{
    for (tutti__node *n = cx->first_node; n; n = n->next)
        for (int i = 0; i < n->n_src; i++)
            if (tutti__counts_use(n, i))
                n->src[i]->parameter->all_uses = n->src[i]->parameter->uses;
    for (tutti__node *n = cx->first_node; n; n = n->next) {
        n->part = is_apart(n) || (weights_later && can_divide(n)) ? TUTTI__NODE_INPUTS
                                                                  : TUTTI__NODE_WHOLE;
        for (int i = 0; i < n->n_src; i++)
            if (tutti__counts_use(n, i))
                n->src[i]->parameter->later = n->part == TUTTI__NODE_INPUTS;
        for (int i = 0; i < n->n_src && n->part == TUTTI__NODE_INPUTS; i++)
            if (tutti__source_in(n->op->plain.backward_reads, i))
                hold(n->src[i]);
        if (n->part == TUTTI__NODE_INPUTS && (n->op->plain.backward_reads & TUTTI_OP_RESULT))
            hold(n->dst);
    }
}

/* Runs backward of n for parameters alone, or for all other sources. */
static tutti_status run_part(tutti__node *n, bool parameters)
{
    const size_t bytes = (size_t)n->n_src * sizeof(bool);
    bool wanted[32], any = false;
    tutti_status status = TUTTI_OK;

    if (n->n_src > (int)TUTTI__COUNT_OF(wanted))
        return tutti__fail(TUTTI_ERR_INTERNAL, "%d sources in a divided backward", n->n_src);
    memcpy(wanted, n->wants_grad, bytes);
    for (int i = 0; i < n->n_src; i++) {
        n->wants_grad[i] = wanted[i] && (n->src[i]->parameter != NULL) == parameters;
        any |= n->wants_grad[i];
        n->src_grad[i] = NULL;
    }
    if (any)
        status = tutti__node_backward(n);
    if (any && status == TUTTI_OK)
        status = deliver_all(n);
    memcpy(n->wants_grad, wanted, bytes);
    return status;
}

tutti_status tutti__backward_weights(tutti_ctx *cx, bool apart)
{
    for (tutti__node *n = cx->last_node; n; n = n->previous) {
        tutti_status status;

        if (n->part != TUTTI__NODE_INPUTS || !n->dst->grad || is_apart(n) != apart)
            continue;
        n->part = TUTTI__NODE_WEIGHTS;
        status = run_part(n, true);
        if (status != TUTTI_OK)
            return tutti__name_operation(n, "backward of ", status);
    }
    return TUTTI_OK;
}

tutti__node *tutti__backward_apart(const tutti_ctx *cx, const tutti_tensor *parameter)
{
    for (tutti__node *n = cx->first_node; n; n = n->next)
        for (int i = 0; n->part == TUTTI__NODE_INPUTS && i < n->n_src; i++)
            if (n->src[i] == parameter)
                return n;
    return NULL;
}

/* ---- The scan -------------------------------------------------------------------------------- */

/* Tells the listener the order, then makes sure that every parameter has memory for its gradient. */
static tutti_status prepare(const tutti_ctx *cx)
{
    tutti_tensor **order =
        tutti__step_alloc((tutti_ctx *)cx, (cx->n_parameters + 1) * sizeof(tutti_tensor *));

    if (!order)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(readiness_order(cx, order));
    if (cx->listener.begin)
        TUTTI_TRY(cx->listener.begin(cx->listener.self, order, cx->n_parameters));
    for (size_t i = 0; i < cx->n_parameters; i++) {
        tutti__parameter *p = order[i]->parameter;

        if (!p->grad && p->prepare)
            TUTTI_TRY(p->prepare(p->owner));
        if (!p->grad)
            return tutti__fail(TUTTI_ERR_INTERNAL,
                               "tutti_backward: parameter \"%s\" has no memory for its gradient",
                               p->name);
    }
    return TUTTI_OK;
}

/* Gives the sources of n gradients. */
static tutti_status visit(tutti__node *n)
{
    const tutti__step_observer *observer = n->cx->observer;
    tutti_status status = TUTTI_OK;

    if (n->block)
        TUTTI_TRY(tutti__recomputed_begin(n->block));
    if (observer && observer->backward && n->dst->grad)
        observer->backward(observer->self, n->dst);
    if (n->dst->grad && n->part == TUTTI__NODE_INPUTS) {
        status = run_part(n, false);
    } else if (n->dst->grad) {
        status = tutti__node_backward(n);
        if (status == TUTTI_OK)
            status = deliver_all(n);
    }
    if (status != TUTTI_OK)
        return tutti__name_operation(n, "backward of ", status);
    if (n->dst->intermediate && !n->dst->held)
        tutti__activation_release(n->dst);
    if (n->block && (!n->previous || n->previous->block != n->block))
        tutti__recomputed_end(n->block);
    return TUTTI_OK;
}

static tutti_status one(tutti_ctx *cx, tutti_tensor *loss)
{
    loss->grad = tutti__tensor_new(cx, loss->shape, loss->dtype);
    if (!loss->grad)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__tensor_alloc(loss->grad, NULL));
    return cx->stream->ops->flat->fill(cx->stream, loss->grad->data, 1, 1);
}

static tutti_status scan(tutti_ctx *cx)
{
    for (tutti__node *n = cx->last_node; n; n = n->previous) {
        TUTTI_TRY(visit(n));
        take_back_uses(cx, n);
    }
    return TUTTI_OK;
}

static tutti_status check_loss(const tutti_tensor *loss)
{
    TUTTI_TRY(tutti_tensor_status(loss));
    if (loss->dtype != TUTTI_F32 || tutti_shape_count(loss->shape) != 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_backward: the loss is %s %s, expected one F32 number",
                           tutti_dtype_name(loss->dtype), tutti__shape_text(loss->shape));
    if (!loss->node)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_backward: the loss does not depend on any parameter "
                           "that requires a gradient");
    return TUTTI_OK;
}

/* dy: the gradient of y; NULL: y is a loss. */
static tutti_status run(tutti_ctx *cx, tutti_tensor *y, tutti_tensor *dy, bool weights_later)
{
    if (!dy)
        TUTTI_TRY(check_loss(y));
    prune(cx, y);
    divide(cx, weights_later);
    TUTTI_TRY(prepare(cx));
    y->grad = dy;
    if (!dy)
        TUTTI_TRY(one(cx, y));
    return scan(cx);
}

/* Tells other ranks of a failure, and calls the listener's end; an earlier failure's message stays the thread's. */
static tutti_status end(const tutti_ctx *cx, tutti_status status)
{
    char cause[2048];
    tutti_status ended;

    if (status != TUTTI_OK)
        tutti__tell_peers(cx, status);
    if (!cx->listener.end)
        return status;
    strncpy(cause, tutti_last_error(), sizeof cause - 1);
    cause[sizeof cause - 1] = '\0';
    ended = cx->listener.end(cx->listener.self, status);
    return status == TUTTI_OK ? ended : tutti__fail_again(status, cause);
}

tutti_status tutti__backward_from(tutti_tensor *y, tutti_tensor *dy, bool weights_later)
{
    tutti_ctx *cx;
    tutti_status status;
    uint64_t begin_ns;

    TUTTI_TRY(tutti__tensor_alive(y));
    cx = y->cx;
    if (!cx->recording)
        return tutti__fail(
            TUTTI_ERR_STATE, "tutti_backward: %s; open a training step with tutti_step_begin",
            cx->in_step ? "this step records no tape (eval or no_grad)" : "no step is open");
    if (cx->backward_done)
        return tutti__fail(TUTTI_ERR_STATE,
                           "tutti_backward: this step had its backward already; add the losses "
                           "with tutti_add first, or open another step");
    cx->backward_done = true;
    begin_ns = tutti__now_ns();
    status = run(cx, y, dy, weights_later);
    cx->round = ++cx->rounds; /* the optimizer runs next: cached weights become invalid */
    tutti__record(cx->recorder, "step", "backward", (int64_t)cx->step, 0, begin_ns,
                  tutti__now_ns());
    return end(cx, status);
}

tutti_status tutti_backward(tutti_tensor *loss)
{
    return tutti__backward_from(loss, NULL, false);
}
