/* flat_parameters.c -- one block of memory for all parameters, another for their gradients.   SPDX-License-Identifier: MIT
 *
 *   offsets      0           16                  48
 *   parameters   [a a a . . .][b b b b b b b b . .][c . . .]      . gaps up to 64 bytes, zero
 *   gradients    [a a a . . .][b b b b b b b b . .][c . . .]      the same offsets; possibly a bucket's memory
 *
 * A new layout is built separately, in zeroed memory, and replaces the old one when everything is copied. */
#include "device/planned/planned.h"
#include "nn/nn.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16 /* elements: 64 bytes */

static size_t padded(const tutti_tensor *t)
{
    return ((size_t)tutti_shape_count(t->shape) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t tutti_module_flat_size(const tutti_module *root)
{
    size_t n = 0;

    if (root && root->root)
        for (size_t i = 0; i < root->root->parameters.n; i++)
            n += padded(root->root->parameters.p[i]->tensor);
    return n;
}

static tutti_status check_root(const tutti_module *m, const char *call)
{
    TUTTI_TRY(tutti_module_status(m));
    if (m->root->module != m)
        return tutti__fail(TUTTI_ERR_ARG, "%s: '%s' is part of another module; pass the root", call,
                           tutti__module_path(m));
    return TUTTI_OK;
}

/* ---- Building a new layout ------------------------------------------------------------------------- */

typedef struct plan {
    size_t *placement, *offsets;   /* one block of memory: placement owns it */
    float *parameters, *gradients; /* the new blocks; gradients may be borrowed */
    bool borrowed;
} plan;

static void plan_free(const struct tutti_root *root, const plan *new)
{
    const tutti_ctx *cx = root->module->cx;

    free(new->placement);
    cx->device_ops->free(cx->device, new->parameters);
    if (!new->borrowed)
        cx->device_ops->free(cx->device, new->gradients);
}

/* The parameters' indices in the given order; ARG if that is not a permutation. */
static tutti_status plan_placement(const struct tutti_root *root, tutti_tensor *const *order,
                                   plan *new)
{
    size_t n = root->parameters.n;

    for (size_t i = 0; i < n; i++)
        new->offsets[i] = SIZE_MAX; /* not seen yet */
    for (size_t i = 0; i < n; i++) {
        const tutti__parameter *p = order ? (order[i] ? order[i]->parameter : NULL) : NULL;
        size_t index = p ? p->index : root->placement ? root->placement[i] : i;

        if (order && (!p || p->owner != root))
            return tutti__fail(
                TUTTI_ERR_ARG,
                "tutti_module_flat_layout: place %zu of the order holds %s, expected a "
                "parameter of this module",
                i, p ? p->name : "no parameter");
        if (new->offsets[index] != SIZE_MAX)
            return tutti__fail(TUTTI_ERR_ARG,
                               "tutti_module_flat_layout: the order names %s twice; expected each "
                               "parameter once",
                               root->parameters.p[index]->parameter.name);
        new->placement[i] = index;
        new->offsets[index] = 0;
    }
    for (size_t i = 0, offset = 0; i < n; i++) {
        new->offsets[new->placement[i]] = offset;
        offset += padded(root->parameters.p[new->placement[i]]->tensor);
    }
    return TUTTI_OK;
}

/* Copies all values (or all gradients of this round) to their new offsets in dst, which is zeroed. */
static tutti_status plan_fill(const struct tutti_root *root, const plan *new, float *dst,
                              bool gradients)
{
    const tutti_ctx *cx = root->module->cx;

    for (size_t i = 0; i < root->parameters.n; i++) {
        const tutti_tensor *t = root->parameters.p[i]->tensor;
        const void *src;

        if (!gradients)
            TUTTI_TRY(tutti__tensor_need(t, true, TUTTI_F32));
        src = !gradients ? t->data : tutti__has_gradient(t->parameter) ? t->parameter->grad : NULL;
        if (src)
            TUTTI_TRY(tutti__copy(cx->stream, dst + new->offsets[i], src, tutti__tensor_bytes(t)));
    }
    return TUTTI_OK;
}

static tutti_status plan_make(const struct tutti_root *root, tutti_tensor *const *order,
                              float *gradients, plan *new)
{
    const tutti_ctx *cx = root->module->cx;
    size_t bytes = tutti_module_flat_size(root->module) * sizeof(float);

    new->borrowed = gradients != NULL;
    new->placement = tutti__alloc(2 * root->parameters.n * sizeof(size_t));
    if (!new->placement)
        return TUTTI_ERR_MEMORY;
    new->offsets = new->placement + root->parameters.n;
    TUTTI_TRY(plan_placement(root, order, new));
    new->parameters = cx->device_ops->alloc(cx->device, bytes, true);
    if (gradients)
        new->gradients = gradients;
    else if (cx->device_ops->plans) /* pages of zeros have no memory until they are written */
        new->gradients = tutti__planned_reserve(bytes);
    else
        new->gradients = cx->device_ops->alloc(cx->device, bytes, true);
    if (!new->parameters || !new->gradients)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(plan_fill(root, new, new->parameters, false));
    return plan_fill(root, new, new->gradients, true);
}

/* ---- Replacing the layout ----------------------------------------------------------------------------------------- */

static tutti_status reserve_retired(struct tutti_root *root)
{
    void **p = realloc(root->retired, (root->n_retired + root->parameters.n + 1) * sizeof *p);

    if (!p)
        return tutti__fail(TUTTI_ERR_MEMORY, "tutti_module_flat_layout: no memory for %zu pointers",
                           root->n_retired + root->parameters.n + 1);
    root->retired = p;
    return TUTTI_OK;
}

static void move_in(struct tutti_root *root, const plan *new)
{
    const tutti_ctx *cx = root->module->cx;

    for (size_t i = 0; i < root->parameters.n; i++) {
        tutti__state *state = root->parameters.p[i];

        state->tensor->data = new->parameters + new->offsets[i];
        state->parameter.grad = new->gradients + new->offsets[i];
        if (state->memory)
            root->retired[root->n_retired++] = state->memory;
        state->memory = NULL;
    }
    if (root->flat_parameters)
        root->retired[root->n_retired++] = root->flat_parameters;
    if (!root->gradients_borrowed)
        cx->device_ops->free(cx->device, root->flat_gradients);
    free(root->placement);
    root->flat_parameters = new->parameters;
    root->flat_gradients = new->gradients;
    root->gradients_borrowed = new->borrowed;
    root->n_flat = tutti_module_flat_size(root->module);
    root->placement = new->placement;
    root->offsets = new->offsets;
    root->layouts++;
}

static tutti_status check_layout(const struct tutti_root *root)
{
    if (root->reserved)
        return tutti__fail(
            TUTTI_ERR_STATE,
            "each rank has a share of the parameters (zero 3), and no memory for all "
            "of them");

    if (root->parameters.n == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "the module has no parameters; make them before training it");
    return TUTTI_OK;
}

static tutti_status layout(struct tutti_root *root, tutti_tensor *const *order, float *gradients)
{
    plan new = {0};
    tutti_status status;

    TUTTI_TRY(check_layout(root));
    TUTTI_TRY(reserve_retired(root));
    status = plan_make(root, order, gradients, &new);
    if (status == TUTTI_OK)
        move_in(root, &new);
    else
        plan_free(root, &new);
    if (!root->module->cx->in_step) /* else results of the step may be views of parameters */
        tutti__flat_free_retired(root);
    return status;
}

/* ---- Shares ---- */

/* As move_in, but what parameters have stays where it is. */
static void enter_reserved(struct tutti_root *root, const plan *new, const void **from)
{
    const tutti_ctx *cx = root->module->cx;

    for (size_t i = 0; i < root->parameters.n; i++) {
        tutti__state *state = root->parameters.p[i];

        from[i] = state->tensor->data;
        state->tensor->data = new->parameters + new->offsets[i];
        state->parameter.grad = new->gradients + new->offsets[i];
        state->parameter.store = NULL;
    }
    if (root->flat_parameters)
        root->retired[root->n_retired++] = root->flat_parameters;
    if (!root->gradients_borrowed)
        cx->device_ops->free(cx->device, root->flat_gradients);
    free(root->placement);
    root->flat_parameters = new->parameters;
    root->flat_gradients = new->gradients;
    root->gradients_borrowed = true;
    root->reserved = true;
    root->n_flat = tutti_module_flat_size(root->module);
    root->placement = new->placement;
    root->offsets = new->offsets;
    root->layouts++;
}

tutti_status tutti__flat_reserve(struct tutti_root *root, tutti_tensor *const *order,
                                 float *gradients, const void ***from_p)
{
    const tutti_ctx *cx = root->module->cx;
    const size_t bytes = tutti_module_flat_size(root->module) * sizeof(float);
    plan new = {.borrowed = true, .gradients = gradients};
    tutti_status status;

    *from_p = NULL;
    TUTTI_TRY(check_layout(root));
    TUTTI_TRY(reserve_retired(root));
    new.placement = tutti__alloc(2 * root->parameters.n * sizeof(size_t));
    *from_p = tutti__alloc(root->parameters.n * sizeof **from_p);
    status = new.placement &&*from_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
    new.offsets = new.placement + root->parameters.n;
    if (status == TUTTI_OK)
        status = plan_placement(root, order, &new);
    if (status == TUTTI_OK && !(new.parameters = cx->device_ops->reserve(cx->device, bytes)))
        status = TUTTI_ERR_MEMORY;
    if (status != TUTTI_OK) {
        free(new.placement);
        free(*from_p);
        *from_p = NULL;
        return status;
    }
    enter_reserved(root, &new, *from_p);
    return TUTTI_OK;
}

tutti_status tutti__flat_bring(struct tutti_root *root, size_t i, const void *from)
{
    const tutti_ctx *cx = root->module->cx;
    tutti__state *state = root->parameters.p[i];
    tutti_tensor *t = state->tensor;

    if (from)
        TUTTI_TRY(tutti__copy(cx->stream, t->data, from, tutti__tensor_bytes(t)));
    else
        TUTTI_TRY(tutti__draw_later(state, t->data));
    cx->device_ops->free(cx->device, state->memory);
    state->memory = NULL;
    t->kernel_cache_step = 0;
    return TUTTI_OK;
}

tutti_status tutti__flat_prepare(void *owner)
{
    struct tutti_root *root = owner;

    TUTTI_TRY(tutti_module_status(root->module));
    return root->flat_gradients ? TUTTI_OK : layout(root, NULL, NULL);
}

void tutti__flat_early(struct tutti_root *root)
{
    if (tutti__flat_prepare(root) != TUTTI_OK)
        tutti_log(TUTTI_LOG_DEBUG, "nn", "%s", tutti_last_error());
}

/* Without memory for the module's own gradients, the current ones are dropped; the next backward tries again. What ZeRO has left are
 * shares, which are dropped too: nobody can use them without it. */
void tutti__flat_return_gradients(struct tutti_root *root)
{
    const bool shares = root->reserved || (root->sharding && root->sharding->only_shares);

    if (!root->gradients_borrowed || (!shares && layout(root, NULL, NULL) == TUTTI_OK))
        return;
    if (!shares)
        tutti_log(TUTTI_LOG_WARN, "nn",
                  "the gradients are lost, because their memory was freed: %s", tutti_last_error());
    root->gradients_borrowed = false;
    root->flat_gradients = NULL;
    for (size_t i = 0; i < root->parameters.n; i++) {
        root->parameters.p[i]->parameter.grad = NULL;
        root->parameters.p[i]->parameter.grad_round = 0;
    }
}

void tutti_module_zero_grad(tutti_module *m)
{
    struct tutti_root *root = m ? m->root : NULL;

    if (!root)
        return;
    if (root->module == m) {
        root->round++;
        tutti__flat_free_retired(root);
        if (root->optims && !m->cx->in_step)
            tutti__flat_early(root);
        return;
    }
    for (size_t i = 0; i < root->parameters.n; i++)
        if (tutti__state_below(root->parameters.p[i], m)) {
            root->parameters.p[i]->parameter.grad_round = 0;
            root->parameters.p[i]->parameter.zeroed++;
        }
}

tutti_status tutti_module_flat_layout(tutti_module *m, tutti_tensor *const *order, float *gradients)
{
    TUTTI_TRY(check_root(m, "tutti_module_flat_layout"));
    return layout(m->root, order, gradients);
}

tutti_status tutti_module_flat(tutti_module *m, tutti_flat *flat_p)
{
    TUTTI_TRY(check_root(m, "tutti_module_flat"));
    if (m->root->reserved)
        return check_layout(m->root);
    TUTTI_TRY(tutti__flat_prepare(m->root));
    *flat_p = (tutti_flat){.parameters = m->root->flat_parameters,
                           .gradients = m->root->flat_gradients,
                           .n = m->root->n_flat,
                           .n_parameters = m->root->parameters.n,
                           .offsets = m->root->offsets};
    return TUTTI_OK;
}

tutti__flat_span *tutti__flat_spans(struct tutti_root *root, size_t n)
{
    if (n > root->n_spans) {
        free(root->spans);
        root->spans = tutti__alloc(n * sizeof *root->spans);
        root->n_spans = root->spans ? n : 0;
    }
    return root->spans;
}

void tutti__flat_free_retired(struct tutti_root *root)
{
    const tutti_ctx *cx = root->module->cx;

    while (root->n_retired > 0)
        cx->device_ops->free(cx->device, root->retired[--root->n_retired]);
}

void tutti__flat_destroy(struct tutti_root *root)
{
    const tutti_ctx *cx = root->module->cx;

    tutti__flat_free_retired(root);
    free(root->retired);
    free(root->spans);
    free(root->placement);
    free(root->loaded_ranges);
    if (root->reserved)
        cx->device_ops->unreserve(cx->device, root->flat_parameters, root->n_flat * sizeof(float));
    else
        cx->device_ops->free(cx->device, root->flat_parameters);
    if (!root->gradients_borrowed)
        cx->device_ops->free(cx->device, root->flat_gradients);
}
