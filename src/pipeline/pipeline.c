/* pipeline.c -- does a table's actions.   SPDX-License-Identifier: MIT
 *
 * Each micro-batch in a stage has a slot: a step of its own, set aside between its forward and its backward. */
#include "pipeline/pipeline.h"

#include "autograd/backward.h"
#include "comm/comm.h"
#include "ddp/ddp.h"
#include "optim/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Life ------------------------------------------------------------------------------------------------- */

static tutti_status check_opts(const tutti_pipeline_opts *o, int ranks, int *chunks_p)
{
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_pipeline_opts, o));
    *chunks_p = o->table                                ? o->table->chunks
                : o->chunks                             ? o->chunks
                : o->kind == TUTTI_PIPELINE_INTERLEAVED ? 2
                                                        : 1;
    if (o->table && o->table->ranks != ranks)
        return tutti__fail(TUTTI_ERR_ARG, "pipeline: a table for %d ranks, and the group has %d",
                           o->table->ranks, ranks);
    if (ranks == 1 && *chunks_p > 1) /* which would send itself messages */
        return tutti__fail(TUTTI_ERR_ARG,
                           "pipeline: %d stages of one rank; expected 1, or more ranks", *chunks_p);
    if (o->table)
        return tutti_pipeline_table_check(o->table, NULL, NULL);
    if (*chunks_p < 1 || (*chunks_p > 1 && o->kind != TUTTI_PIPELINE_INTERLEAVED))
        return tutti__fail(TUTTI_ERR_ARG,
                           "pipeline: %d stages a rank; expected 1, or an interleaved schedule",
                           *chunks_p);
    return TUTTI_OK;
}

static tutti_status open(tutti_pipeline *p, const char *model, const tutti_model_opts *model_opts,
                         const tutti_pipeline_opts *opts)
{
    TUTTI_TRY(check_opts(opts, p->ranks, &p->chunks));
    p->opts = *opts;
    p->opts.cuts = NULL;
    p->stages = p->ranks * p->chunks;
    return tutti__pipeline_open(p, model, model_opts, opts->cuts);
}

/* That all ranks cut alike. */
tutti_status tutti__pipeline_agree(const tutti_pipeline *p, tutti_group *group, tutti_status status)
{
    tutti__item *items = NULL;
    tutti_status agreed;

    if (status == TUTTI_OK) {
        items = tutti__alloc((size_t)p->stages * sizeof *items);
        status = items ? TUTTI_OK : TUTTI_ERR_MEMORY;
    }
    for (int s = 0; items && s < p->stages; s++)
        snprintf(items[s].text, sizeof items[s].text, "%.100s", tutti_pipeline_stage(p, s));
    agreed = tutti__agree_after(group, status, "pipelines", "stage", items,
                                items ? (size_t)p->stages : 0);
    free(items);
    return agreed;
}

tutti_status tutti__pipeline_new_alone(tutti_pipeline **pipeline_p, tutti_ctx *cx,
                                       tutti_group *group, const char *model,
                                       const tutti_model_opts *model_opts,
                                       const tutti_pipeline_opts *opts)
{
    tutti_pipeline *p;
    tutti_status status;

    *pipeline_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(cx));
    if (!model_opts)
        return tutti__fail(TUTTI_ERR_ARG, "pipeline: no options of the model");
    p = tutti__alloc(sizeof *p);
    if (!p)
        return TUTTI_ERR_MEMORY;
    p->cx = cx;
    p->group = group;
    p->rank = tutti_group_rank(group);
    p->ranks = tutti_group_size(group);
    status = open(p, model, model_opts, opts ? opts : &(tutti_pipeline_opts){0});
    if (status == TUTTI_OK)
        *pipeline_p = p;
    else
        tutti_pipeline_free(p);
    return status;
}

tutti_status tutti_pipeline_new(tutti_pipeline **pipeline_p, tutti_ctx *cx, tutti_group *group,
                                const char *model, const tutti_model_opts *model_opts,
                                const tutti_pipeline_opts *opts)
{
    tutti_pipeline *p;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(pipeline_p));
    *pipeline_p = NULL;
    TUTTI_TRY(tutti__check_group("tutti_pipeline_new", group));
    status = tutti__pipeline_new_alone(&p, cx, group, model, model_opts, opts);
    status = tutti__pipeline_agree(p, group, status);
    if (status == TUTTI_OK)
        *pipeline_p = p;
    else
        tutti_pipeline_free(p);
    return status;
}

void tutti_pipeline_free(tutti_pipeline *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_slots; i++) {
        tutti__message_free(p->cx, &p->slots[i]->in);
        tutti__message_free(p->cx, &p->slots[i]->back);
        tutti__parked_destroy(&p->slots[i]->step);
        free(p->slots[i]);
    }
    free(p->slots);
    for (int i = 0; i < 2; i++)
        tutti__message_free(p->cx, &p->shared.rows[i]);
    tutti__parked_destroy(&p->shared.step);
    tutti__pipeline_close(p);
    free(p->clock.ends);
    tutti_pipeline_table_free(p->made);
    free(p);
}

tutti_model *tutti_pipeline_model(tutti_pipeline *p)
{
    return p ? p->model : NULL;
}

void tutti_pipeline_set_ddp(tutti_pipeline *p, tutti_ddp *ddp)
{
    if (p)
        p->ddp = ddp;
}

int tutti_pipeline_stages(const tutti_pipeline *p)
{
    return p ? p->stages : 0;
}

bool tutti_pipeline_is_last(const tutti_pipeline *p)
{
    return p && p->rank == p->ranks - 1;
}

/* ---- Scaling gradients -------------------------------------------------------------------------------------- */

static tutti_status scale(const tutti_pipeline *p, float *gradients, size_t n, double factor)
{
    tutti_stream *stream = tutti_ctx_stream(p->cx);

    return factor == 1 ? TUTTI_OK : stream->ops->flat->scale(stream, gradients, n, (float)factor);
}

tutti_status tutti__scale_gradient(const tutti_pipeline *p, const tutti_tensor *t, int m)
{
    const double n = (double)p->step->x[m - (m > 0)].shape.d[0];

    if (m == 0 || !tutti__has_gradient(t->parameter))
        return TUTTI_OK;
    return scale(p, t->parameter->grad, (size_t)tutti_shape_count(t->shape),
                 n / (double)p->step->x[m].shape.d[0]);
}

tutti_status tutti__scale_between(const tutti_pipeline *p, tutti_tensor *const *parameters,
                                  size_t n, int m, bool later)
{
    for (size_t i = 0; i < n; i++)
        if (!parameters[i]->parameter->apart && parameters[i]->parameter->later == later)
            TUTTI_TRY(tutti__scale_gradient(p, parameters[i], m));
    return TUTTI_OK;
}

static tutti_status scale_to_mean(const tutti_pipeline *p)
{
    double total = 0, last = 0;

    for (int m = 0; m < p->step->micro_batches; m++)
        total += last = (double)p->step->x[m].shape.d[0];
    return last == total ? TUTTI_OK : tutti__scale_gradients(p->module, (float)(last / total));
}

/* ---- Actions ------------------------------------------------------------------------------------------------- */

static bool is_last_stage(const tutti_pipeline *p, const tutti__micro_batch *slot)
{
    return p->chunk[slot->chunk].stage == p->stages - 1;
}

static tutti_status null_result(const tutti_pipeline *p, const tutti__micro_batch *slot)
{
    return tutti__fail(TUTTI_ERR_ARG, "pipeline: %s of stage %d returned NULL; expected a tensor",
                       is_last_stage(p, slot) ? "the loss, or a block," : "a block",
                       p->chunk[slot->chunk].stage);
}

/* In the slot's step. */
static tutti_status compute_forward(tutti_pipeline *p, tutti__micro_batch *slot)
{
    const tutti__own_stage *c = &p->chunk[slot->chunk];
    tutti_tensor *y;

    slot->x = c->stage == 0 ? tutti_input(p->cx, p->step->x[slot->micro_batch])
                            : tutti__input_of(p, slot);
    if (!slot->x)
        return TUTTI_ERR_MEMORY;
    p->cx->dropout_calls = c->in.dropout_calls;
    y = tutti__model_run(p->model, p->blocks, c->first, c->end, slot->x);
    if (y && is_last_stage(p, slot))
        y = p->step->loss(p->step->self, slot->micro_batch, y);
    if (!y)
        return null_result(p, slot);
    slot->y = y;
    TUTTI_TRY(tutti_tensor_status(y));
    if (!is_last_stage(p, slot))
        return tutti__send_output(p, slot);
    return p->step->computed ? p->step->computed(p->step->self, slot->micro_batch, y) : TUTTI_OK;
}

static tutti_status forward(tutti_pipeline *p, const tutti_pipeline_action *a)
{
    tutti__micro_batch *slot = tutti__slot_take(p, a->chunk, a->micro_batch);
    const uint64_t begin_ns = tutti__now_ns();
    tutti_status status;

    if (!slot)
        return TUTTI_ERR_MEMORY;
    if (p->chunk[a->chunk].stage > 0)
        TUTTI_TRY(tutti__receive_input(p, slot));
    if (a->micro_batch == p->step->micro_batches - 1 && a->chunk == p->chunks - 1)
        tutti_ddp_resume(p->ddp); /* buffers are made the same once a step, as in accumulation */
    else
        tutti_ddp_pause(p->ddp);
    tutti__parked_swap(p->cx, &slot->step);
    p->cx->step = p->before + (uint64_t)a->micro_batch;
    tutti_step_begin(p->cx, &(tutti_step_opts){.autocast = p->step->autocast});
    status = compute_forward(p, slot);
    tutti__record(p->cx->recorder, "step", "forward", (int64_t)p->cx->step, 0, begin_ns,
                  tutti__now_ns());
    tutti__parked_swap(p->cx, &slot->step);
    return status;
}

/* In the slot's step. */
static tutti_status compute_backward(tutti_pipeline *p, tutti__micro_batch *slot,
                                     bool weights_later)
{
    const tutti__own_stage *c = &p->chunk[slot->chunk];
    tutti_tensor *dy = NULL;

    if (!is_last_stage(p, slot) && !c->out.needs_grad) /* nothing trains up to here */
        return TUTTI_OK;
    if (!is_last_stage(p, slot)) {
        dy = tutti__received(p->cx, slot->y->shape, slot->y->dtype, slot->back.p);
        if (!dy)
            return TUTTI_ERR_MEMORY;
    }
    TUTTI_TRY(tutti__backward_from(slot->y, dy, weights_later));
    if (c->stage > 0 && c->in.needs_grad)
        TUTTI_TRY(tutti__send_gradient(p, slot));
    return tutti__shared_computed(p, slot);
}

static bool trains(const tutti__own_stage *c)
{
    bool any = false;

    for (size_t i = 0; i < c->n && !any; i++)
        any = c->parameters[i]->parameter->requires_grad;
    return any;
}

/* The rank's last backward, if all gradients become final in it, so that they are averaged while it runs; else SIZE_MAX. */
static size_t find_averaging(const tutti_pipeline *p)
{
    const tutti_pipeline_action *a = p->table->actions[p->rank];
    size_t last = SIZE_MAX;

    if (tutti__shared_trains(p))
        return SIZE_MAX;
    for (size_t i = 0; i < p->table->n[p->rank]; i++) {
        if (a[i].pass == TUTTI_PIPELINE_WEIGHT)
            return SIZE_MAX;
        if (a[i].pass == TUTTI_PIPELINE_BACKWARD)
            last = i;
    }
    return last < SIZE_MAX && trains(&p->chunk[a[last].chunk]) ? last : SIZE_MAX;
}

static tutti_status backward(tutti_pipeline *p, const tutti_pipeline_action *a, size_t at)
{
    const tutti__own_stage *c = &p->chunk[a->chunk];
    tutti__micro_batch *slot = tutti__slot_find(p, a->chunk, a->micro_batch);
    const bool weights_later = a->pass == TUTTI_PIPELINE_INPUT;
    tutti_status status;

    if (!slot)
        return tutti__fail(TUTTI_ERR_INTERNAL, "pipeline: backward without a forward");
    if (!is_last_stage(p, slot))
        TUTTI_TRY(tutti__receive_gradient(p, slot));
    TUTTI_TRY(tutti__scale_between(p, c->parameters, c->n, a->micro_batch, false));
    if (at == p->averaging)
        tutti_ddp_resume(p->ddp);
    else
        tutti_ddp_pause(p->ddp);
    tutti__parked_swap(p->cx, &slot->step);
    status = compute_backward(p, slot, weights_later);
    tutti__parked_swap(p->cx, &slot->step);
    TUTTI_TRY(status);
    slot->computed = true;
    slot->computed_at = at;
    slot->sends = (c->stage > 0 && c->in.needs_grad) ||
                  (tutti__shared_trains(p) && c->stage == p->shared.first);
    slot->weights_left = weights_later;
    return tutti__slot_end(p, slot, false);
}

static tutti_status weights(tutti_pipeline *p, const tutti_pipeline_action *a)
{
    const tutti__own_stage *c = &p->chunk[a->chunk];
    tutti__micro_batch *slot = tutti__slot_find(p, a->chunk, a->micro_batch);
    const uint64_t begin_ns = tutti__now_ns();
    tutti_status status;

    if (!slot)
        return tutti__fail(TUTTI_ERR_INTERNAL, "pipeline: weights without a backward");
    TUTTI_TRY(tutti__scale_between(p, c->parameters, c->n, a->micro_batch, true));
    tutti__parked_swap(p->cx, &slot->step);
    status = tutti__backward_weights(p->cx, false);
    tutti__record(p->cx->recorder, "step", "backward of weights", (int64_t)p->cx->step, 0, begin_ns,
                  tutti__now_ns());
    tutti__parked_swap(p->cx, &slot->step);
    TUTTI_TRY(status);
    slot->weights_left = false;
    return tutti__slot_end(p, slot, false);
}

static tutti_status act(tutti_pipeline *p, size_t at)
{
    const tutti_pipeline_action *a = &p->table->actions[p->rank][at];

    if (p->clock.ends)
        tutti__clock_act(p, at);
    TUTTI_TRY(tutti__receive_ahead(p, at));
    TUTTI_TRY(tutti__shared_add(p, false));
    return a->pass == TUTTI_PIPELINE_FORWARD  ? forward(p, a)
           : a->pass == TUTTI_PIPELINE_WEIGHT ? weights(p, a)
                                              : backward(p, a, at);
}

/* ---- A step --------------------------------------------------------------------------------------------------- */

static tutti_status find_table(tutti_pipeline *p)
{
    const int m = p->step->micro_batches;

    p->table = p->opts.table ? p->opts.table : p->made;
    if (p->table && p->table->micro_batches == m)
        return TUTTI_OK;
    if (p->opts.table && m < p->opts.table->micro_batches) {
        p->table = NULL; /* fewer, as at the end of an epoch */
    } else if (p->opts.table) {
        return tutti__fail(
            TUTTI_ERR_ARG,
            "pipeline: %d micro-batches, and the table is of %d; expected at most as "
            "many",
            m, p->opts.table->micro_batches);
    }
    tutti_pipeline_table_free(p->made);
    p->made = NULL;
    TUTTI_TRY(tutti_pipeline_table_new(&p->made,
                                       p->chunks > 1 ? TUTTI_PIPELINE_INTERLEAVED : p->opts.kind,
                                       p->ranks, p->chunks, m));
    p->table = p->made;
    return TUTTI_OK;
}

static tutti_status check_step(const tutti_pipeline *p, const tutti_pipeline_step *step)
{
    TUTTI_TRY(TUTTI__NOT_NULL(step));
    if (step->micro_batches < 1 || !step->x)
        return tutti__fail(TUTTI_ERR_ARG, "pipeline: %d micro-batches%s; expected 1 or more",
                           step->micro_batches, step->x ? "" : ", and x is NULL");
    for (int m = 0; m < step->micro_batches; m++)
        if (step->x[m].shape.n < 1 || step->x[m].shape.d[0] < 1)
            return tutti__fail(TUTTI_ERR_ARG,
                               "pipeline: micro-batch %d has no samples; leave it out", m);
    if (tutti_pipeline_is_last(p) && !step->loss)
        return tutti__fail(TUTTI_ERR_ARG, "pipeline: this rank has the last stage, and no loss");
    if (p->cx->in_step)
        return tutti__fail(TUTTI_ERR_STATE, "pipeline: a step is open; end it with tutti_step_end");
    return TUTTI_OK;
}

/* That ranks whose gradients are averaged then divide them alike: their parameters would differ, and nobody notice. */
static tutti_status check_sizes(const tutti_pipeline *p)
{
    const int last = p->step->micro_batches - 1, size = tutti_group_size(p->ddp->group);
    int64_t own[3] = {last + 1, 0, p->step->x[last].shape.d[0]}, *all;
    tutti_status status;

    for (int m = 0; m <= last; m++)
        own[1] += p->step->x[m].shape.d[0];
    all = tutti__alloc((size_t)size * sizeof own);
    if (!all)
        return TUTTI_ERR_MEMORY;
    status = tutti_all_gather(p->ddp->group, TUTTI_CONST_BUF(own, 3, TUTTI_I64),
                              TUTTI_BUF(all, 3 * (size_t)size, TUTTI_I64), NULL);
    for (int r = 1; r < size && status == TUTTI_OK; r++)
        if (memcmp(all, all + 3 * r, sizeof own) != 0)
            status = tutti__fail(
                TUTTI_ERR_MISMATCH,
                "pipeline: rank %d has %lld micro-batches of %lld samples, the last one of %lld, "
                "and "
                "rank %d, whose gradients are averaged with its, has %lld, %lld and %lld; expected "
                "the same numbers",
                tutti_group_global_rank(p->ddp->group, 0), (long long)all[0], (long long)all[1],
                (long long)all[2], tutti_group_global_rank(p->ddp->group, r), (long long)all[3 * r],
                (long long)all[3 * r + 1], (long long)all[3 * r + 2]);
    free(all);
    return status;
}

static tutti_status run(tutti_pipeline *p)
{
    if (p->ddp)
        TUTTI_TRY(check_sizes(p));
    p->shared.next = 0;
    p->averaging = find_averaging(p);
    TUTTI_TRY(tutti__clock_begin(p));
    for (size_t i = 0; i < p->table->n[p->rank]; i++)
        TUTTI_TRY(act(p, i));
    TUTTI_TRY(tutti__shared_add(p, true));
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i]->chunk >= 0)
            TUTTI_TRY(tutti__slot_end(p, p->slots[i], true));
    TUTTI_TRY(tutti__shared_exchange(p));
    if (p->ddp && p->averaging == SIZE_MAX)
        TUTTI_TRY(tutti__ddp_average(p->ddp));
    return scale_to_mean(p);
}

/* Nobody waits for this rank any more, and it for nobody: in neither group, since those of the one do not hear of the other's end. */
static void abandon(tutti_pipeline *p, tutti_status status)
{
    char cause[2048];

    snprintf(cause, sizeof cause, "%s", tutti_last_error());
    tutti__group_abort_with(p->group, status, cause);
    if (p->ddp)
        tutti__group_abort_with(p->ddp->group, status, cause);
    tutti__tell_peers(p->cx, status);
    for (size_t i = 0; i < p->n_slots; i++)
        tutti__slot_abandon(p, p->slots[i]);
    tutti__message_drop(&p->shared.rows[0]);
    tutti__message_drop(&p->shared.rows[1]);
    (void)tutti__fail_again(status, cause);
}

tutti_status tutti_pipeline_run(tutti_pipeline *p, const tutti_pipeline_step *step)
{
    tutti_status status;

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_pipeline_step, step));
    TUTTI_TRY(TUTTI__NOT_NULL(p));
    p->step = step;
    p->waited_ns = 0;
    p->before = p->cx->step;
    status = check_step(p, step);
    if (status == TUTTI_OK)
        status = tutti__pipeline_list(p);
    if (status == TUTTI_OK)
        status = find_table(p);
    if (status == TUTTI_OK)
        status = run(p);
    if (status != TUTTI_OK)
        abandon(p, status);
    else
        p->cx->step = p->before + (uint64_t)step->micro_batches;
    p->steps += status == TUTTI_OK;
    p->step = NULL;
    return status;
}

/* ---- Evaluation ------------------------------------------------------------------------------------------------- */

static tutti_status forward_all(tutti_pipeline *p, tutti_array x, tutti_tensor **y_p)
{
    for (int c = 0; c < p->chunks; c++) {
        tutti__own_stage *chunk = &p->chunk[c];
        tutti_tensor *t, *y;

        if (chunk->stage == 0)
            t = tutti_input(p->cx, x);
        else
            TUTTI_TRY(tutti__eval_receive(p, chunk, x.shape.d[0], &t));
        y = tutti__model_run(p->model, p->blocks, chunk->first, chunk->end, t);
        if (!y)
            return tutti__fail(TUTTI_ERR_ARG,
                               "pipeline: a block of stage %d returned NULL; expected a tensor",
                               chunk->stage);
        TUTTI_TRY(tutti_tensor_status(y));
        if (chunk->stage == p->stages - 1)
            *y_p = y;
        else
            TUTTI_TRY(tutti__eval_send(p, chunk, y));
    }
    return TUTTI_OK;
}

tutti_status tutti_pipeline_forward(tutti_pipeline *p, tutti_array x, tutti_tensor **y_p)
{
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(p));
    TUTTI_TRY(TUTTI__NOT_NULL(y_p));
    *y_p = NULL;
    if (p->evaluated == p->cx->serial + 1) /* its messages are in the same memory */
        return tutti__fail(TUTTI_ERR_STATE, "tutti_pipeline_forward: the second one of a step; "
                                            "expected a step for each");
    p->evaluated = p->cx->serial + 1;
    status = forward_all(p, x, y_p);
    if (status != TUTTI_OK)
        abandon(p, status);
    return status;
}
