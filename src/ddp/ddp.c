/* ddp.c -- a module whose gradients are averaged while backward still runs.   SPDX-License-Identifier: MIT
 *
 * DDP listens to the tape: backward tells which parameters it will finish and in which order, then each one when its gradient
 * is final; the reducer does the rest. The first backward lays out the reducer's buckets in that order and moves the module's
 * flat memory onto them, so that gradients are computed where they are reduced, and the optimizer still makes one pass over
 * flat memory. */
#include "ddp/ddp.h"

#include "comm/comm.h"
#include "ddp/flips.h"
#include "nn/nn.h"
#include "tensor/tensor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_gradient(const tutti_tensor *t)
{
    return t->parameter->grad && t->parameter->grad_round == *t->parameter->round;
}

/* ---- The first backward: buckets in the order of readiness -------------------------------------------------------------- */

/* Rank 0's order: first the parameters that are final already, then those that this backward will finish, late ones where the rest of
 * them is final, last those that it does not use. Ranks may differ in ignored parameters, so the numbers count averaged ones only. */
static void write_order(const tutti_ddp *ddp, const int64_t *number, tutti_tensor *const *order,
                        size_t n_order, int64_t *numbers, int64_t *late)
{
    size_t at = 0, k;

    for (size_t i = 0; i < n_order; i++)
        if (tutti__ddp_find(ddp, order[i], &k))
            late[number[k]] = tutti__ddp_is_late(ddp, order[i]);
    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->uses[i] == TUTTI__USED_PAUSED && number[i] >= 0)
            numbers[at++] = number[i];
    for (size_t i = 0; i < n_order; i++) {
        for (size_t j = i; j < n_order; j++)
            if (tutti__ddp_find(ddp, order[j], &k) && late[number[k]] &&
                order[j]->parameter->rest_place == i)
                numbers[at++] = number[k];
        if (tutti__ddp_find(ddp, order[i], &k) && !late[number[k]])
            numbers[at++] = number[k];
    }
    for (size_t i = 0; i < ddp->n; i++)
        if (ddp->uses[i] == TUTTI__UNUSED && number[i] >= 0)
            numbers[at++] = number[i];
}

/* The order of all parameters of this rank's module: averaged ones in rank 0's order, then the rest; and which may be late, which are
 * rank 0's, too. */
static tutti_status agree_on_order(const tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order,
                                   size_t *places, bool *late)
{
    int64_t *numbers = tutti__alloc(4 * ddp->n * sizeof *numbers), *number, *averaged;
    size_t n = 0, rest;
    tutti_status status;

    if (!numbers)
        return TUTTI_ERR_MEMORY;
    number = numbers + 2 * ddp->n;
    averaged = number + ddp->n;
    for (size_t i = 0; i < ddp->n; i++) {
        number[i] = ddp->roles[i] == TUTTI__AVERAGED ? (int64_t)n : -1;
        if (number[i] >= 0)
            averaged[n++] = (int64_t)i;
    }
    if (tutti_group_rank(ddp->group) == ddp->source)
        write_order(ddp, number, order, n_order, numbers, numbers + n);
    status = tutti_broadcast(ddp->group, TUTTI_BUF(numbers, 2 * n, TUTTI_I64), ddp->source, NULL);
    for (size_t k = 0; k < n && status == TUTTI_OK; k++) {
        places[k] = (size_t)averaged[numbers[k]];
        late[averaged[k]] = numbers[n + k] != 0;
    }
    rest = n;
    for (size_t i = 0; i < ddp->n; i++)
        if (number[i] < 0)
            places[rest++] = i;
    free(numbers);
    return status;
}

static tutti_status new_reducer(tutti_ddp *ddp, const size_t *order, const bool *late)
{
    tutti_reducer_opts opts = {.order = order,
                               .bucket_mb = ddp->opts.bucket_mb,
                               .first_bucket_mb = ddp->opts.first_bucket_mb,
                               .bucket_mb_list = ddp->opts.bucket_mb_list,
                               .n_bucket_mb_list = ddp->opts.n_bucket_mb_list,
                               .find_unused = ddp->opts.find_unused,
                               .static_graph = ddp->opts.static_graph,
                               .nonfinite = ddp->opts.nonfinite,
                               .stream = tutti__ddp_stream(ddp)};
    tutti_reducer_parameter *parameters = tutti__alloc(ddp->n * sizeof *parameters);
    tutti_status status;

    if (!parameters)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < ddp->n; i++) {
        const tutti_tensor *t = ddp->parameters[i];

        parameters[i] =
            (tutti_reducer_parameter){.name = t->name,
                                      .count = (size_t)tutti_shape_count(t->shape),
                                      .dtype = t->dtype,
                                      .rows = t->shape.n >= 2 ? (size_t)t->shape.d[0] : 0,
                                      .sparse = t->parameter->touched != NULL,
                                      .local = ddp->roles[i] != TUTTI__AVERAGED};
    }
    status = tutti__reducer_new_late(&ddp->reducer, ddp->group, parameters, ddp->n, &opts, late,
                                     ddp->opts.zero >= 2, ddp->opts.zero == 3);
    free(parameters);
    if (status == TUTTI_OK && ddp->opts.zero >= 2)
        tutti__reducer_set_in_flight(ddp->reducer, TUTTI__ZERO_IN_FLIGHT);
    if (status == TUTTI_OK && ddp->hook.run) {
        tutti_comm_hook hook = ddp->hook;

        ddp->hook.free = NULL; /* owned by the reducer now */
        status = tutti_reducer_set_hook(ddp->reducer, &hook);
    }
    return status;
}

/* from_p NULL: not in reserved memory. */
static tutti_status move_module(tutti_ddp *ddp, const size_t *order, const void ***from_p)
{
    tutti_tensor **tensors = tutti__alloc(ddp->n * sizeof *tensors);
    float *gradients = tutti_reducer_grad(ddp->reducer, order[0]);
    tutti_status status = TUTTI_OK;

    if (!tensors)
        return TUTTI_ERR_MEMORY;
    for (size_t place = 0; place < ddp->n; place++) {
        tensors[place] = ddp->parameters[order[place]];
        if (status == TUTTI_OK && has_gradient(tensors[place])) /* it is moved there */
            status = tutti__reducer_bring(ddp->reducer, order[place]);
    }
    if (status == TUTTI_OK)
        status = from_p ? tutti__flat_reserve(ddp->module->root, tensors, gradients, from_p)
                        : tutti_module_flat_layout(ddp->module, tensors, gradients);
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

tutti_status tutti__ddp_move_module(tutti_ddp *ddp, const size_t *order)
{
    return move_module(ddp, order, NULL);
}

tutti_status tutti__ddp_move_reserved(tutti_ddp *ddp, const size_t *order, const void ***from_p)
{
    return move_module(ddp, order, from_p);
}

tutti_status tutti__ddp_reserve_module(tutti_ddp *ddp, const void ***from_p)
{
    size_t *order = tutti__alloc(ddp->n * sizeof *order);
    bool *late = tutti__alloc(ddp->n * sizeof *late);
    tutti_status status = order && late ? TUTTI_OK : TUTTI_ERR_MEMORY;
    size_t n = 0;

    for (int vectors = 0; vectors < 2; vectors++) /* frozen ones at the end: units.c */
        for (size_t i = ddp->n; i-- > 0 && status == TUTTI_OK;)
            if ((ddp->roles[i] == TUTTI__FROZEN && ddp->parameters[i]->shape.n < 2) == vectors)
                order[n++] = i;
    for (size_t i = 0; i < ddp->n && status == TUTTI_OK; i++)
        late[i] = tutti__ddp_may_be_late(ddp, ddp->parameters[i]);
    if (status == TUTTI_OK)
        status = tutti__ddp_take_late(ddp, late);
    status = tutti__group_agree(ddp->group, status);
    if (status == TUTTI_OK)
        status = new_reducer(ddp, order, late);
    if (status == TUTTI_OK)
        status = move_module(ddp, tutti__reducer_order(ddp->reducer), from_p);
    if (status == TUTTI_OK && tutti_group_rank(ddp->group) == 0)
        tutti__ddp_log_buckets(ddp);
    free(late);
    free(order);
    return status;
}

static tutti_status lay_out(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order)
{
    size_t *places = tutti__alloc(ddp->n * sizeof *places);
    bool *late = tutti__alloc(ddp->n * sizeof *late);
    tutti_status status = places && late ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK)
        status = agree_on_order(ddp, order, n_order, places, late);
    if (status == TUTTI_OK)
        status = tutti__ddp_take_late(ddp, late);
    if (status == TUTTI_OK)
        status = new_reducer(ddp, places, late);
    if (status == TUTTI_OK)
        status = tutti__ddp_move_module(ddp, tutti__reducer_order(ddp->reducer));
    /* they are the same on all ranks */
    if (status == TUTTI_OK && tutti_group_rank(ddp->group) == 0)
        tutti__ddp_log_buckets(ddp);
    free(late);
    free(places);
    return status;
}

/* ---- Listening to backward ------------------------------------------------------------------------------------------------ */

/* Makes buffers the same on all ranks, by the broadcast or the buffer_hook. */
static tutti_status share_buffers(tutti_ddp *ddp)
{
    if (!tutti__ddp_sends_buffers(ddp))
        return TUTTI_OK;
    if (ddp->opts.buffer_hook)
        return ddp->opts.buffer_hook(ddp->opts.buffer_hook_arg, ddp->group, ddp->buffers,
                                     ddp->n_buffers);
    return tutti_ddp_broadcast_buffers(ddp);
}

/* Not in a join: joined ranks have old parameters until its end. */
tutti_status tutti__ddp_check_replicas_now(tutti_ddp *ddp)
{
    tutti_status status;

    if (ddp->paused || ddp->join || ddp->opts.check_replicas == 0 ||
        ddp->begun++ % (uint64_t)ddp->opts.check_replicas != 0)
        return TUTTI_OK;
    status = tutti_ddp_check_replicas(ddp);
    ddp->all_know = status == TUTTI_ERR_MISMATCH;
    return status;
}

static tutti_status on_step_begin(void *self)
{
    tutti_ddp *ddp = self;

    ddp->all_know = false;
    if (ddp->shards)
        return tutti__ddp_shard_step(ddp);
    ddp->training_steps++;
    tutti__flips_begin(ddp);
    if (ddp->join)
        TUTTI_TRY(tutti__join_announce(ddp, TUTTI__JOIN_STEP, NULL, 0));
    TUTTI_TRY(share_buffers(ddp));
    TUTTI_TRY(tutti__ddp_check_replicas_now(ddp));
    ddp->buffers_round = 0; /* from here on ranks' buffers differ */
    ddp->clock.step_ns = tutti__now_ns();
    return TUTTI_OK;
}

/* Before there are buckets: checks that all ranks run the same backward. Later each bucket's label does (tutti__step_label). */
static tutti_status agree_on_backward(tutti_ddp *ddp)
{
    tutti__item item = {{0}};
    tutti_status status;

    snprintf(item.text, sizeof item.text,
             "of the model of \"%.100s\" (DDP %llu) in training step %llu",
             ddp->parameters[0]->name, (unsigned long long)ddp->number,
             (unsigned long long)(ddp->join ? 0 : ddp->training_steps));
    status = tutti__agree(ddp->group, "first backwards", "backward", &item, 1);
    ddp->all_know = status == TUTTI_ERR_MISMATCH;
    return status;
}

static tutti_status open_step(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order)
{
    if (ddp->shards) {
        tutti__ddp_shard_backward(ddp);
        return tutti__ddp_may_skip(ddp) ? TUTTI_OK : tutti__ddp_check_uses(ddp);
    }
    if (ddp->join)
        TUTTI_TRY(tutti__join_announce(ddp, TUTTI__JOIN_BACKWARD, NULL, 0));
    if (!ddp->reducer)
        TUTTI_TRY(agree_on_backward(ddp));
    if (!tutti__ddp_may_skip(ddp) && ddp->reducer)
        TUTTI_TRY(tutti__ddp_check_uses(ddp));
    if (!tutti__ddp_may_skip(ddp) && !ddp->reducer) {
        tutti_status status = tutti__ddp_check_uses_together(ddp);

        ddp->all_know = status == TUTTI_ERR_STATE;
        TUTTI_TRY(status);
    }
    if (!ddp->reducer)
        TUTTI_TRY(lay_out(ddp, order, n_order));
    tutti__reducer_set_recorder(ddp->reducer, tutti_module_ctx(ddp->module)->recorder);
    tutti__reducer_set_join(ddp->reducer, ddp->shadowing, ddp->partial, ddp->present);
    tutti__reducer_set_common_step(ddp->reducer, ddp->join ? 0 : ddp->training_steps);
    return tutti_reducer_begin(ddp->reducer);
}

/* Failures are reported by tutti_reducer_finish. */
static void ready(tutti_ddp *ddp, size_t i)
{
    const tutti__parameter *p = ddp->parameters[i]->parameter;
    const tutti__step_observer *observer = ddp->module->cx->observer;
    const bool rows = ddp->late && ddp->rows_left[i]; /* the others are being averaged already */

    tutti__flips_gradient(ddp, i);
    if (observer && observer->gradient && !rows)
        observer->gradient(observer->self, ddp->parameters[i]);
    if (rows) {
        (void)!tutti__reducer_rows_ready(ddp->reducer, i);
    } else if (!p->touched || p->all_touched) {
        tutti_reducer_ready(ddp->reducer, i);
    } else {
        memcpy(tutti__reducer_touched(ddp->reducer, i), p->touched,
               (size_t)ddp->parameters[i]->shape.d[0]);
        tutti__reducer_ready_touched(ddp->reducer, i);
    }
}

static tutti_status on_begin(void *self, tutti_tensor *const *order, size_t n_order)
{
    tutti_ddp *ddp = self;

    ddp->all_know = false;
    ddp->clock.backward_ns = tutti__now_ns();
    tutti__zero_backward(ddp, false);
    TUTTI_TRY(tutti__ddp_check_roles(ddp));
    tutti__ddp_note_uses(ddp, order, n_order);
    if (ddp->paused)
        return TUTTI_OK;
    TUTTI_TRY(open_step(ddp, order, n_order));
    ddp->in_step = true;
    if (ddp->late)
        memset(ddp->rows_left, 0, ddp->n * sizeof *ddp->rows_left);
    if (ddp->shards)
        TUTTI_TRY(tutti__ddp_bring_buffers(ddp));
    for (size_t i = 0; i < ddp->n; i++) { /* these get no contribution in this backward */
        if (ddp->roles[i] != TUTTI__AVERAGED || ddp->uses[i] == TUTTI__USED)
            continue;
        if (ddp->shadowing)
            tutti__reducer_bring_zeros(ddp->reducer, i);
        else if (has_gradient(ddp->parameters[i]))
            ready(ddp, i);
        else
            tutti_reducer_skip(ddp->reducer, i);
    }
    return TUTTI_OK;
}

static void on_ready(void *self, tutti_tensor *parameter)
{
    tutti_ddp *ddp = self;
    size_t i;

    if (ddp->in_step && tutti__ddp_find(ddp, parameter, &i))
        ready(ddp, i);
}

/* Parameters that any rank used have a gradient on all ranks; those that none used have none, and optimizers skip them. */
static void take_others_gradients(tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->n; i++) {
        tutti__parameter *p = ddp->parameters[i]->parameter;

        if (ddp->roles[i] != TUTTI__AVERAGED || tutti_reducer_users(ddp->reducer, i) == 0)
            continue;
        p->grad_round = *p->round;
        if (p->touched) {
            memcpy(p->touched, tutti__reducer_touched(ddp->reducer, i),
                   (size_t)ddp->parameters[i]->shape.d[0]);
            p->all_touched = false;
        }
    }
}

static tutti_status on_end(void *self, tutti_status status)
{
    tutti_ddp *ddp = self;
    uint64_t backward_end_ns;

    if (ddp->shards)
        tutti__ddp_shard_clock(ddp);
    if (!ddp->in_step || (ddp->shards && status != TUTTI_OK)) {
        ddp->in_step = false;
        if (status != TUTTI_OK && ddp->shards)
            tutti__reducer_fail(ddp->reducer, status);
        if (status != TUTTI_OK && !ddp->all_know)
            tutti__abort_peers(ddp->group, status, tutti_last_error());
        return status;
    }
    ddp->in_step = false;
    memset(ddp->uses, 0, ddp->n * sizeof *ddp->uses);
    if (ddp->shards)
        return TUTTI_OK;
    if (status != TUTTI_OK)
        tutti__reducer_fail(ddp->reducer, status);
    backward_end_ns = tutti__now_ns();
    TUTTI_TRY(tutti_reducer_finish(ddp->reducer));
    tutti__ddp_clock_end(ddp, backward_end_ns, tutti__now_ns());
    take_others_gradients(ddp);
    tutti__zero_backward(ddp, true);
    tutti__flips_means(ddp);
    return TUTTI_OK;
}

tutti_status tutti__ddp_average(tutti_ddp *ddp)
{
    ddp->paused = false;
    for (size_t i = 0; i < ddp->n; i++) /* some of them after the backward that announced them */
        if (has_gradient(ddp->parameters[i]))
            ddp->uses[i] = TUTTI__USED_PAUSED;
    return on_end(ddp, on_begin(ddp, NULL, 0));
}

tutti_status tutti__ddp_shadow_backward(tutti_ddp *ddp)
{
    tutti_status status;

    tutti_module_zero_grad(ddp->module);
    ddp->shadowing = true;
    ddp->paused = false;
    status = on_end(ddp, on_begin(ddp, NULL, 0));
    ddp->shadowing = false;
    return status;
}

/* ---- Public functions ------------------------------------------------------ */

static tutti_status check_module(const tutti_module *module)
{
    if (!module)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_ddp_new: the module is NULL");
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

static tutti_status start_listening(tutti_ddp *ddp)
{
    tutti_backward_listener listener = {.self = ddp,
                                        .step_begin = on_step_begin,
                                        .begin = on_begin,
                                        .ready = on_ready,
                                        .end = on_end};

    TUTTI_TRY(tutti_ctx_set_backward_listener(tutti_module_ctx(ddp->module), &listener));
    tutti_module_ctx(ddp->module)->ready_but_rows = tutti__ddp_ready_but_rows;
    ddp->listening = true;
    return TUTTI_OK;
}

/* Copies the caller's lists: bucket sizes are needed in the first backward. */
static tutti_status take_options(tutti_ddp *ddp, const tutti_ddp_opts *opts)
{
    long every;

    ddp->opts = opts ? *opts : (tutti_ddp_opts){0};
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_ddp_opts, opts));
    TUTTI_TRY(tutti__env_int(TUTTI__ENV_CHECK_REPLICAS, 0, INT_MAX, &every));
    if (ddp->opts.check_replicas < -1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: check_replicas is %d, expected a number of steps, 0 "
                           "(TUTTI_CHECK_REPLICAS) or -1 (never)",
                           ddp->opts.check_replicas);
    if ((unsigned)ddp->opts.nonfinite > TUTTI_NONFINITE_IGNORE)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_ddp_new: nonfinite %d is unknown",
                           (int)ddp->opts.nonfinite);
    if (ddp->opts.zero < 0 || ddp->opts.zero > 3)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: zero is %d, expected 0 (none) to 3 (parameters, "
                           "gradients and optimizer state sharded)",
                           ddp->opts.zero);
    if (ddp->opts.shard_copies < 0 || ddp->opts.shard_copies > 2)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: shard_copies is %d, expected 0 or 1 (each share of the "
                           "optimizer state is on one rank) or 2",
                           ddp->opts.shard_copies);
    if (ddp->opts.shard_copies == 2 && (ddp->opts.shards == 0 || ddp->opts.zero == 0))
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_ddp_new: shard_copies 2 is for optimizer state in shares (zero) "
                           "of steps of logical shards (shards); set both, or leave it out");
    if (ddp->opts.n_ignored > 0 && !opts->ignored)
        return tutti__fail(TUTTI_ERR_ARG, "tutti_ddp_new: ignored is NULL with n_ignored %zu",
                           ddp->opts.n_ignored);
    if (ddp->opts.check_replicas <= 0)
        ddp->opts.check_replicas = ddp->opts.check_replicas == 0 ? (int)every : 0;
    TUTTI_TRY(
        tutti__bucket_sizes("tutti_ddp_new",
                            &(tutti_reducer_opts){.bucket_mb = ddp->opts.bucket_mb,
                                                  .first_bucket_mb = ddp->opts.first_bucket_mb,
                                                  .bucket_mb_list = ddp->opts.bucket_mb_list,
                                                  .n_bucket_mb_list = ddp->opts.n_bucket_mb_list},
                            &ddp->limits));
    TUTTI_TRY(tutti__ddp_check_shards(ddp, &ddp->opts));
    ddp->opts.bucket_mb_list = ddp->limits.shortens_last ? NULL : ddp->limits.mb;
    ddp->opts.ignored = NULL;
    return TUTTI_OK;
}

/* The local part, before the first collective. */
static tutti_status prepare(tutti_ddp *ddp, const tutti_ddp_opts *opts)
{
    TUTTI_TRY(check_module(ddp->module));
    ddp->n = tutti_module_n_parameters(ddp->module);
    TUTTI_TRY(take_options(ddp, opts));
    TUTTI_TRY(tutti__flips_open(ddp));
    TUTTI_TRY(start_listening(ddp));
    return tutti_module_status(ddp->module);
}

tutti_status tutti_ddp_new(tutti_ddp **ddp_p, tutti_module *module, tutti_group *group,
                           const tutti_ddp_opts *opts)
{
    char why[2048];
    tutti_ddp *ddp;
    tutti_status status;

    *ddp_p = NULL;
    if (group || !opts || opts->shards <= 0)
        TUTTI_TRY(tutti__check_group("tutti_ddp_new", group));
    ddp = tutti__alloc(sizeof *ddp);
    if (!ddp)
        return group ? tutti__agree_after(group, TUTTI_ERR_MEMORY, "models", "parameter", NULL, 0)
                     : TUTTI_ERR_MEMORY;
    ddp->module = module;
    ddp->group = group;
    status = tutti__ddp_replicate(ddp, opts ? opts : &(tutti_ddp_opts){0}, prepare(ddp, opts));
    if (status != TUTTI_OK) {
        snprintf(why, sizeof why, "%s", tutti_last_error());
        tutti_ddp_free(ddp); /* which says why the module cannot be used any more */
        return tutti__fail_again(status, why);
    }
    if (!module->cx->shard_chosen && !ddp->shards)
        module->cx->shard = (uint64_t)tutti_group_rank(group);
    *ddp_p = ddp;
    return TUTTI_OK;
}

void tutti_ddp_free(tutti_ddp *ddp)
{
    if (!ddp)
        return;
    if (ddp->listening)
        (void)!tutti_ctx_set_backward_listener(tutti_module_ctx(ddp->module), NULL);
    if (ddp->moved) /* the block is freed: moves the gradients to the module's own memory */
        tutti__flat_return_gradients(ddp->module->root);
    tutti_reducer_free(ddp->reducer);
    tutti__zero_free(ddp);
    tutti__ddp_shards_free(ddp);
    if (ddp->packed)
        tutti_group_release(ddp->group, ddp->packed);
    if (ddp->hook.free)
        ddp->hook.free(ddp->hook.self);
    for (size_t i = 0; ddp->roles && i < ddp->n; i++)
        if (ddp->roles[i] == TUTTI__IGNORED)
            ddp->parameters[i]->parameter->counted_by_peer = false;
    tutti__flips_free(ddp);
    free(ddp->late);
    free(ddp->row_marks);
    free(ddp->parameters);
    free(ddp->roles);
    free(ddp->uses);
    free(ddp->buffers);
    free(ddp);
}

void tutti_ddp_pause(tutti_ddp *ddp)
{
    if (ddp)
        ddp->paused = true;
}

void tutti_ddp_resume(tutti_ddp *ddp)
{
    if (ddp)
        ddp->paused = false;
}

tutti_status tutti_ddp_set_hook(tutti_ddp *ddp, const tutti_comm_hook *hook)
{
    tutti_status status = TUTTI__NOT_NULL(ddp);

    if (status == TUTTI_OK && ddp->zero && hook)
        status = tutti__fail(TUTTI_ERR_STATE,
                             "tutti_ddp_set_hook(\"%s\"): with ZeRO gradients are reduced in its "
                             "own way; use one of the two",
                             hook->name);
    if (status == TUTTI_OK)
        status = tutti__check_hook("tutti_ddp_set_hook", &ddp->hook, hook);
    if (status == TUTTI_OK && ddp->shards)
        status = tutti__fail(TUTTI_ERR_UNSUPPORTED,
                             "communication hook \"%s\" breaks the promise of logical shards, the "
                             "same bits for any number of ranks; use one of the two",
                             hook->name);
    if (status == TUTTI_OK && ddp->reducer)
        status = tutti__fail(TUTTI_ERR_STATE,
                             "tutti_ddp_set_hook(\"%s\") after the first backward; set it before",
                             hook->name);
    return tutti__settle_hook(ddp ? &ddp->hook : NULL, hook, status);
}

tutti_reducer *tutti_ddp_reducer(tutti_ddp *ddp)
{
    return ddp ? ddp->reducer : NULL;
}
