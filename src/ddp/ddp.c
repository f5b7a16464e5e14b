/* ddp.c -- a module whose gradients are averaged while backward still runs.   SPDX-License-Identifier: MIT
 *
 * DDP listens to the tape: backward tells which parameters it will finish and in which order, then each one as it is final;
 * a reducer does the rest. The first backward lays the reducer's buckets out in that order and moves the module's flat
 * memory onto them, so that from then on gradients are computed where they are reduced and the optimizer's pass over
 * parameters and gradients is still one straight line. */
#include "ddp/ddp.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a parameter got its share of the gradient since the last synchronised backward. */
typedef enum use {
    UNUSED,
    USED_PAUSED, /* in an earlier backward, while paused */
    USED         /* in this one */
} use;

struct tutti_ddp {
    tutti_module *module;
    tutti_group *group;
    tutti_ddp_opts opts;
    size_t n;
    tutti_tensor **parameters; /* creation order: place i has parameter->index i */
    use *uses;
    tutti_reducer *reducer;
    bool paused, in_step, listening;
    bool moved;             /* the module's gradients lie in the reducer's block */
    unsigned char *buffers; /* all of the module's, packed, in the group's memory */
    size_t buffer_bytes;
};

static bool has_gradient(const tutti_tensor *t)
{
    return t->parameter->grad && t->parameter->grad_round == *t->parameter->round;
}

/* This module's place of a parameter that may be another module's on the same context. */
static bool find(const tutti_ddp *ddp, const tutti_tensor *t, size_t *i_p)
{
    *i_p = t->parameter->index;
    return *i_p < ddp->n && ddp->parameters[*i_p] == t;
}

/* ---- Construction: the same model everywhere -------------------------------------------------------------------------- */

static tutti_status agree_on_tensors(tutti_ddp *ddp, const char *item, size_t n,
                                     tutti_tensor *(*get)(const tutti_module *, size_t))
{
    tutti__item *items = tutti__alloc((n + 1) * sizeof *items);
    tutti_status status;

    if (!items)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const tutti_tensor *t = get(ddp->module, i);

        snprintf(items[i].text, sizeof items[i].text, "\"%s\" %s %s", t->name,
                 tutti__shape_text(t->shape), tutti_dtype_name(t->dtype));
    }
    status = tutti__agree(ddp->group, "models", item, items, n);
    free(items);
    return status;
}

static tutti_status agree_on_options(const tutti_ddp *ddp)
{
    tutti__item items[3] = {{{0}}, {{0}}, {{0}}};

    snprintf(items[0].text, sizeof items[0].text, "first_bucket_mb %g", ddp->opts.first_bucket_mb);
    snprintf(items[1].text, sizeof items[1].text, "bucket_mb %g", ddp->opts.bucket_mb);
    snprintf(items[2].text, sizeof items[2].text, "keep_buffers %s",
             ddp->opts.keep_buffers ? "true" : "false");
    return tutti__agree(ddp->group, "options of tutti_ddp_new", "option", items, 3);
}

static tutti_status copy_from_rank_0(tutti_ddp *ddp)
{
    tutti_flat flat;

    TUTTI_TRY(tutti_module_flat(ddp->module, &flat));
    if (tutti_group_size(ddp->group) == 1)
        return TUTTI_OK;
    TUTTI_TRY(
        tutti_broadcast(ddp->group, (tutti_buf){flat.parameters, flat.n, TUTTI_F32}, 0, NULL));
    for (size_t i = 0; i < tutti_module_n_buffers(ddp->module); i++)
        ddp->buffer_bytes += tutti__tensor_bytes(tutti_module_buffer(ddp->module, i));
    if (ddp->buffer_bytes == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti_group_alloc(ddp->group, ddp->buffer_bytes, (void **)&ddp->buffers));
    return tutti_ddp_broadcast_buffers(ddp);
}

static tutti_status build(tutti_ddp *ddp)
{
    ddp->parameters = tutti__alloc(ddp->n * sizeof *ddp->parameters);
    ddp->uses = tutti__alloc(ddp->n * sizeof *ddp->uses);
    if (!ddp->parameters || !ddp->uses)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < ddp->n; i++)
        ddp->parameters[i] = tutti_module_parameter(ddp->module, i);
    TUTTI_TRY(agree_on_tensors(ddp, "parameter", ddp->n, tutti_module_parameter));
    TUTTI_TRY(
        agree_on_tensors(ddp, "buffer", tutti_module_n_buffers(ddp->module), tutti_module_buffer));
    TUTTI_TRY(agree_on_options(ddp));
    return copy_from_rank_0(ddp);
}

/* Packs rank 0's buffers into one message. */
tutti_status tutti_ddp_broadcast_buffers(tutti_ddp *ddp)
{
    bool is_source = tutti_group_rank(ddp->group) == 0;
    unsigned char *at = ddp->buffers;

    if (!ddp->buffers)
        return TUTTI_OK;
    for (size_t i = 0; is_source && i < tutti_module_n_buffers(ddp->module); i++) {
        const tutti_tensor *t = tutti_module_buffer(ddp->module, i);

        memcpy(at, t->data, tutti__tensor_bytes(t));
        at += tutti__tensor_bytes(t);
    }
    TUTTI_TRY(tutti_broadcast(ddp->group, (tutti_buf){ddp->buffers, ddp->buffer_bytes, TUTTI_U8}, 0,
                              NULL));
    for (size_t i = 0; !is_source && i < tutti_module_n_buffers(ddp->module); i++) {
        tutti_tensor *t = tutti_module_buffer(ddp->module, i);

        memcpy(t->data, at, tutti__tensor_bytes(t));
        at += tutti__tensor_bytes(t);
    }
    return TUTTI_OK;
}

/* ---- The first backward: buckets in the order of readiness -------------------------------------------------------------- */

/* Rank 0's order as parameter numbers: first what is final already, then what this backward will finish, at the end what
 * never gets a gradient because it does not require one. */
static void write_order(const tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order,
                        int64_t *numbers)
{
    size_t at = 0, k;

    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->uses[i] == USED_PAUSED)
            numbers[at++] = (int64_t)i;
    for (size_t i = 0; i < n_order; i++)
        if (find(ddp, order[i], &k))
            numbers[at++] = (int64_t)k;
    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->uses[i] == UNUSED)
            numbers[at++] = (int64_t)i;
}

static tutti_status new_reducer(tutti_ddp *ddp, const size_t *order)
{
    tutti_reducer_opts opts = {ddp->opts.bucket_mb, ddp->opts.first_bucket_mb, order};
    tutti_reducer_parameter *parameters = tutti__alloc(ddp->n * sizeof *parameters);
    tutti_status status;

    if (!parameters)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < ddp->n; i++) {
        const tutti_tensor *t = ddp->parameters[i];

        parameters[i] =
            (tutti_reducer_parameter){t->name, (size_t)tutti_shape_count(t->shape), t->dtype};
    }
    status = tutti_reducer_new(&ddp->reducer, ddp->group, parameters, ddp->n, &opts);
    free(parameters);
    return status;
}

/* Moves the module's parameters into the reducer's order and its gradients into the reducer's block; what backward has
 * accumulated while paused moves along. */
static tutti_status move_module(tutti_ddp *ddp, const size_t *order)
{
    tutti_tensor **tensors = tutti__alloc(ddp->n * sizeof *tensors);
    tutti_status status;

    if (!tensors)
        return TUTTI_ERR_MEMORY;
    for (size_t place = 0; place < ddp->n; place++)
        tensors[place] = ddp->parameters[order[place]];
    status =
        tutti_module_flat_layout(ddp->module, tensors, tutti_reducer_grad(ddp->reducer, order[0]));
    free(tensors);
    ddp->moved = status == TUTTI_OK;
    for (size_t i = 0; i < ddp->n && status == TUTTI_OK; i++)
        if (ddp->parameters[i]->parameter->grad != tutti_reducer_grad(ddp->reducer, i))
            status = tutti__fail(
                TUTTI_ERR_INTERNAL,
                "\"%s\" does not have its gradient where its bucket is: the module's flat "
                "memory and the reducer's block follow different rules",
                ddp->parameters[i]->name);
    return status;
}

static tutti_status lay_out(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order)
{
    int64_t *numbers = tutti__alloc(ddp->n * sizeof *numbers);
    size_t *places = tutti__alloc(ddp->n * sizeof *places);
    tutti_status status = numbers && places ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK) {
        if (tutti_group_rank(ddp->group) == 0)
            write_order(ddp, order, n_order, numbers);
        status = tutti_broadcast(ddp->group, (tutti_buf){numbers, ddp->n, TUTTI_I64}, 0, NULL);
    }
    for (size_t i = 0; status == TUTTI_OK && i < ddp->n; i++)
        places[i] = (size_t)numbers[i];
    if (status == TUTTI_OK)
        status = new_reducer(ddp, places);
    if (status == TUTTI_OK)
        status = move_module(ddp, places);
    free(numbers);
    free(places);
    return status;
}

/* ---- Listening to backward ------------------------------------------------------------------------------------------------ */

static tutti_status on_step_begin(void *self)
{
    tutti_ddp *ddp = self;

    return ddp->opts.keep_buffers || ddp->paused ? TUTTI_OK : tutti_ddp_broadcast_buffers(ddp);
}

static void note_uses(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order)
{
    size_t k;

    for (size_t i = 0; i < ddp->n; i++) /* zero_grad may have dropped what a paused backward gave */
        ddp->uses[i] =
            ddp->uses[i] != UNUSED && has_gradient(ddp->parameters[i]) ? USED_PAUSED : UNUSED;
    for (size_t i = 0; i < n_order; i++)
        if (find(ddp, order[i], &k))
            ddp->uses[k] = USED;
}

static tutti_status check_all_used(const tutti_ddp *ddp)
{
    tutti__names names = {0};

    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->uses[i] == UNUSED && ddp->parameters[i]->parameter->requires_grad)
            tutti__names_add(&names, ddp->parameters[i]->name);
    if (names.n == 0)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_STATE,
        "the loss of step %llu on rank %d does not use %s; every rank waits for the gradient of "
        "every parameter: use it in the loss, or take it out of the module",
        (unsigned long long)tutti_ctx_step(tutti_module_ctx(ddp->module)),
        tutti_group_rank(ddp->group), tutti__names_end(&names));
}

static tutti_status open_step(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order)
{
    TUTTI_TRY(check_all_used(ddp));
    if (!ddp->reducer)
        TUTTI_TRY(lay_out(ddp, order, n_order));
    tutti__reducer_set_recorder(ddp->reducer, tutti_module_ctx(ddp->module)->recorder);
    return tutti_reducer_begin(ddp->reducer);
}

static tutti_status on_begin(void *self, tutti_tensor *const *order, size_t n_order)
{
    tutti_ddp *ddp = self;

    note_uses(ddp, order, n_order);
    if (ddp->paused)
        return TUTTI_OK;
    TUTTI_TRY(open_step(ddp, order, n_order));
    ddp->in_step = true;
    for (size_t i = 0; i < ddp->n; i++) /* no more will come for these */
        if (ddp->uses[i] != USED)
            tutti_reducer_ready(ddp->reducer, i);
    return TUTTI_OK;
}

static void on_ready(void *self, tutti_tensor *parameter)
{
    tutti_ddp *ddp = self;
    size_t i;

    if (ddp->in_step && find(ddp, parameter, &i))
        tutti_reducer_ready(ddp->reducer, i); /* finish reports what goes wrong */
}

static tutti_status on_end(void *self, tutti_status status)
{
    tutti_ddp *ddp = self;

    if (!ddp->in_step) {
        if (status != TUTTI_OK)
            tutti__abort_peers(ddp->group, status, tutti_last_error());
        return status;
    }
    ddp->in_step = false;
    memset(ddp->uses, 0, ddp->n * sizeof *ddp->uses);
    if (status != TUTTI_OK)
        tutti__reducer_fail(ddp->reducer, status);
    return tutti_reducer_finish(ddp->reducer);
}

/* ---- The public face -------------------------------------------------------------------------------------------------------- */

static tutti_status check_module(const tutti_module *module)
{
    if (module->parent)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "tutti_ddp_new: \"%s\" is a child of another module; give the root, whose memory is "
            "one piece",
            module->name);
    if (tutti_module_status(module) == TUTTI_OK && tutti_module_n_parameters(module) == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: the module has no parameters, so there is nothing to "
                           "average");
    return TUTTI_OK;
}

static tutti_status listen(tutti_ddp *ddp)
{
    tutti_backward_listener listener = {ddp, on_step_begin, on_begin, on_ready, on_end};

    TUTTI_TRY(tutti_ctx_set_backward_listener(tutti_module_ctx(ddp->module), &listener));
    ddp->listening = true;
    return TUTTI_OK;
}

tutti_status tutti_ddp_new(tutti_ddp **ddp_p, tutti_module *module, tutti_group *group,
                           const tutti_ddp_opts *opts)
{
    tutti_ddp *ddp;
    tutti_status status;

    *ddp_p = NULL;
    TUTTI_TRY(check_module(module));
    ddp = tutti__alloc(sizeof *ddp);
    if (!ddp)
        return TUTTI_ERR_MEMORY;
    ddp->module = module;
    ddp->group = group;
    ddp->n = tutti_module_n_parameters(module);
    ddp->opts = opts ? *opts : (tutti_ddp_opts){0};
    status = tutti__bucket_sizes("tutti_ddp_new", &ddp->opts.first_bucket_mb, &ddp->opts.bucket_mb);
    if (status == TUTTI_OK)
        status = listen(ddp);
    if (status == TUTTI_OK) { /* from here on peers wait */
        status = tutti_module_status(module);
        if (status == TUTTI_OK)
            status = build(ddp);
        if (status != TUTTI_OK)
            tutti__abort_peers(group, status, tutti_last_error());
    }
    if (status != TUTTI_OK) {
        tutti_ddp_free(ddp);
        return status;
    }
    *ddp_p = ddp;
    return TUTTI_OK;
}

void tutti_ddp_free(tutti_ddp *ddp)
{
    if (!ddp)
        return;
    if (ddp->listening)
        (void)!tutti_ctx_set_backward_listener(tutti_module_ctx(ddp->module), NULL);
    if (ddp->moved) /* the block goes: the module gets memory of its own again, and keeps its gradients */
        (void)!tutti_module_flat_layout(ddp->module, NULL, NULL);
    tutti_reducer_free(ddp->reducer);
    if (ddp->buffers)
        tutti_group_release(ddp->group, ddp->buffers);
    free(ddp->parameters);
    free(ddp->uses);
    free(ddp);
}

void tutti_ddp_pause(tutti_ddp *ddp)
{
    ddp->paused = true;
}

void tutti_ddp_resume(tutti_ddp *ddp)
{
    ddp->paused = false;
}

tutti_reducer *tutti_ddp_reducer(tutti_ddp *ddp)
{
    return ddp->reducer;
}
