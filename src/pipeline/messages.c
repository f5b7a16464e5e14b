/* messages.c -- what stages send each other, and the micro-batches that a rank has open.   SPDX-License-Identifier: MIT
 *
 * Nothing is copied: a result is sent from the memory of its step, which ends when it has been sent, and received into memory of the
 * slot, where the next stage's tape reads it. In the first step a description goes before each activation; later both ranks know it, so
 * that receives are posted before they are needed. */
#include "pipeline/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    AHEAD = 6,     /* actions whose messages are waited for while others are computed */
    FIRST_TAG = 64 /* others use smaller ones */
};

/* How a tensor looks that is sent next. */
typedef struct description {
    tutti_shape shape, tokens;
    int64_t dtype, dropout_calls, needs_grad;
} description;

/* ---- Memory ---------------------------------------------------------------------------------------------- */

tutti_status tutti__message_room(const tutti_ctx *cx, tutti__message *message, size_t bytes)
{
    if (bytes <= message->bytes)
        return TUTTI_OK;
    cx->device_ops->free(cx->device, message->p);
    message->bytes = 0;
    message->p = cx->device_ops->alloc(cx->device, bytes, false);
    if (!message->p)
        return TUTTI_ERR_MEMORY;
    message->bytes = bytes;
    return TUTTI_OK;
}

void tutti__message_drop(tutti__message *message)
{
    if (message->work)
        (void)!tutti_work_wait(message->work);
    message->work = NULL;
    message->posted = false;
}

void tutti__message_free(const tutti_ctx *cx, tutti__message *message)
{
    tutti__message_drop(message);
    cx->device_ops->free(cx->device, message->p);
    *message = (tutti__message){NULL};
}

tutti_tensor *tutti__received(tutti_ctx *cx, tutti_shape shape, tutti_dtype dtype, void *elements)
{
    tutti_tensor *t = tutti__tensor_new(cx, shape, dtype);

    if (!t)
        return NULL;
    t->data = elements;
    t->shared = true; /* the slot's: neither written nor used again */
    t->intermediate = false;
    return t;
}

/* ---- Slots ------------------------------------------------------------------------------------------------- */

tutti__micro_batch *tutti__slot_find(const tutti_pipeline *p, int chunk, int micro_batch)
{
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i]->chunk == chunk && p->slots[i]->micro_batch == micro_batch)
            return p->slots[i];
    return NULL;
}

static tutti__micro_batch *slot_new(tutti_pipeline *p)
{
    tutti__micro_batch **slots = realloc(p->slots, (p->n_slots + 1) * sizeof(tutti__micro_batch *));
    tutti__micro_batch *slot = slots ? tutti__alloc(sizeof *slot) : NULL;

    if (slots)
        p->slots = slots;
    if (!slot) {
        tutti__fail(TUTTI_ERR_MEMORY, "pipeline: no memory for another micro-batch");
        return NULL;
    }
    tutti__parked_init(p->cx, &slot->step);
    slot->chunk = -1;
    return p->slots[p->n_slots++] = slot;
}

tutti__micro_batch *tutti__slot_take(tutti_pipeline *p, int chunk, int micro_batch)
{
    tutti__micro_batch *slot = tutti__slot_find(p, chunk, micro_batch);

    for (size_t i = 0; i < p->n_slots && !slot; i++) {
        if (p->slots[i]->computed && tutti__slot_end(p, p->slots[i], false) != TUTTI_OK)
            return NULL;
        if (p->slots[i]->chunk < 0)
            slot = p->slots[i];
    }
    if (!slot)
        slot = slot_new(p);
    if (slot) {
        slot->chunk = chunk;
        slot->micro_batch = micro_batch;
    }
    return slot;
}

/* Time that a rank waits is no computation's. */
static tutti_status wait_for(tutti_pipeline *p, tutti_work **work_p)
{
    const uint64_t begin_ns = tutti__now_ns();
    tutti_work *work = *work_p;
    tutti_status status;

    *work_p = NULL;
    status = work ? tutti_work_wait(work) : TUTTI_OK;
    p->waited_ns += tutti__now_ns() - begin_ns;
    return status;
}

static void forget(tutti_pipeline *p, tutti__micro_batch *slot)
{
    tutti__parked_swap(p->cx, &slot->step);
    tutti_step_end(p->cx);
    tutti__parked_swap(p->cx, &slot->step);
    slot->x = slot->y = NULL;
    slot->in.posted = slot->back.posted = false;
    slot->weights_left = slot->shared_left = slot->computed = false;
    slot->chunk = -1;
}

tutti_status tutti__slot_end(tutti_pipeline *p, tutti__micro_batch *slot, bool wait)
{
    if (slot->weights_left || slot->shared_left ||
        (!wait && p->planned && tutti__plan_is_sending(p, slot)))
        return TUTTI_OK;
    for (size_t i = 0; i < TUTTI__COUNT_OF(slot->sending); i++) {
        tutti_work *work = slot->sending[i];

        if (!work)
            continue;
        if (!wait && !tutti_work_done(work))
            return TUTTI_OK;
        TUTTI_TRY(wait_for(p, &slot->sending[i]));
    }
    forget(p, slot);
    return TUTTI_OK;
}

void tutti__slot_abandon(tutti_pipeline *p, tutti__micro_batch *slot)
{
    tutti__message_drop(&slot->in);
    tutti__message_drop(&slot->back);
    for (size_t i = 0; i < TUTTI__COUNT_OF(slot->sending); i++) {
        if (slot->sending[i])
            (void)!tutti_work_wait(slot->sending[i]);
        slot->sending[i] = NULL;
    }
    forget(p, slot);
}

/* ---- Sending, receiving --------------------------------------------------------------------------------------- */

/* A stage gets messages of one kind in the order of micro-batches, so that the tag need not name these. */
int tutti__tag_of(const tutti_pipeline *p, int stage, tutti__tag what)
{
    return FIRST_TAG + stage / p->ranks * TUTTI__N_TAGS + (int)what;
}

static int rank_of(const tutti_pipeline *p, int stage)
{
    return stage % p->ranks;
}

/* After a failure of a message between two stages: which, and of which micro-batch. what: "waits for the gradients". */
static tutti_status name_stage(const tutti_pipeline *p, tutti_status status, const char *what,
                               int stage, int other, int micro_batch)
{
    char why[1400];

    if (status == TUTTI_OK)
        return TUTTI_OK;
    snprintf(why, sizeof why, "%s", tutti_last_error());
    return tutti__fail(
        status, "pipeline: stage %d (rank %d) %s of micro-batch %d %s stage %d (rank %d): %s",
        stage, tutti_group_global_rank(p->group, rank_of(p, stage)), what, micro_batch,
        strncmp(what, "sends", 5) == 0 ? "to" : "from", other,
        tutti_group_global_rank(p->group, rank_of(p, other)), why);
}

static tutti_status post(const tutti_pipeline *p, tutti__message *message, tutti_shape shape,
                         tutti_dtype dtype, int from, int tag)
{
    const size_t count = (size_t)tutti_shape_count(shape);
    tutti_buf buf = {.count = count, .dtype = dtype, .stream = tutti_ctx_stream(p->cx)};

    TUTTI_TRY(tutti__message_room(p->cx, message, count * tutti_dtype_size(dtype)));
    buf.p = message->p;
    TUTTI_TRY(tutti_recv(p->group, buf, rank_of(p, from), tag, &message->work));
    message->posted = true;
    return TUTTI_OK;
}

tutti_status tutti__receive_rows(tutti_pipeline *p, tutti__message *message, tutti_shape shape,
                                 int stage, int from, int micro_batch, bool wait)
{
    tutti_status status = TUTTI_OK;

    if (!message->posted)
        status = post(p, message, shape, TUTTI_F32, from, tutti__tag_of(p, stage, TUTTI__TAG_ROWS));
    if (status == TUTTI_OK && wait)
        status = wait_for(p, &message->work);
    return status == TUTTI_OK ? TUTTI_OK
                              : name_stage(p, status, "waits for the gradients of vectors", stage,
                                           from, micro_batch);
}

static tutti_shape tokens_of(const tutti__boundary *b, int64_t samples)
{
    tutti_shape tokens = b->tokens;

    tokens.d[0] = samples;
    return tokens;
}

static tutti_shape shape_in(const tutti_pipeline *p, const tutti__boundary *b, int64_t samples)
{
    tutti_shape shape = b->shape;

    shape.d[0] = b->rows ? tutti__parallel_own_rows(p->module, tokens_of(b, samples)) : samples;
    return shape;
}

tutti__boundary tutti__boundary_of(const tutti_module *m, tutti_shape shape, tutti_dtype dtype,
                                   tutti_shape tokens)
{
    tutti__boundary b = {.known = true, .shape = shape, .dtype = dtype, .tokens = tokens};

    b.rows = tokens.n > 0 && shape.n == 2 && shape.d[0] == tutti__parallel_own_rows(m, tokens);
    return b;
}

static int64_t samples_of(const tutti_pipeline *p, int m)
{
    return p->step->x[m].shape.d[0];
}

static tutti_status post_input(const tutti_pipeline *p, tutti__micro_batch *slot)
{
    const tutti__own_stage *c = &p->chunk[slot->chunk];

    if (slot->in.posted || c->stage == 0 || !c->in.known)
        return TUTTI_OK;
    return post(p, &slot->in, shape_in(p, &c->in, samples_of(p, slot->micro_batch)), c->in.dtype,
                c->stage - 1, tutti__tag_of(p, c->stage, TUTTI__TAG_INPUT));
}

static tutti_status post_gradient(const tutti_pipeline *p, tutti__micro_batch *slot)
{
    const tutti__own_stage *c = &p->chunk[slot->chunk];

    if (slot->back.posted || c->stage == p->stages - 1 || !c->out.needs_grad)
        return TUTTI_OK;
    return post(p, &slot->back, shape_in(p, &c->out, samples_of(p, slot->micro_batch)),
                c->out.dtype, c->stage + 1, tutti__tag_of(p, c->stage, TUTTI__TAG_GRADIENT));
}

tutti_status tutti__receive_ahead(tutti_pipeline *p, size_t at)
{
    const size_t n = p->table->n[p->rank];

    for (size_t i = at; i < n && i < at + AHEAD; i++) {
        const tutti_pipeline_action *a = &p->table->actions[p->rank][i];
        tutti__micro_batch *slot = tutti__slot_find(p, a->chunk, a->micro_batch);

        if (a->pass == TUTTI_PIPELINE_FORWARD && p->chunk[a->chunk].in.known &&
            p->chunk[a->chunk].stage > 0) {
            slot = tutti__slot_take(p, a->chunk, a->micro_batch);
            if (!slot)
                return TUTTI_ERR_MEMORY;
            TUTTI_TRY(post_input(p, slot));
        } else if (slot && slot->y && a->pass != TUTTI_PIPELINE_FORWARD &&
                   a->pass != TUTTI_PIPELINE_WEIGHT) {
            TUTTI_TRY(post_gradient(p, slot));
        }
    }
    return TUTTI_OK;
}

/* ---- Descriptions ------------------------------------------------------------------------------------------------ */

static tutti_status send_description(const tutti_pipeline *p, const tutti_tensor *y, int to)
{
    description d = {.shape = y->shape,
                     .tokens = tutti__parallel_divided_tokens(p->module),
                     .dtype = (int64_t)y->dtype,
                     .dropout_calls = (int64_t)p->cx->dropout_calls,
                     .needs_grad = y->needs_grad};

    return tutti_send(p->group, TUTTI_CONST_BUF(&d, sizeof d, TUTTI_U8), rank_of(p, to),
                      tutti__tag_of(p, to, TUTTI__TAG_HEAD), NULL);
}

static tutti_status receive_description(const tutti_pipeline *p, int stage, tutti__boundary *b)
{
    description d;

    TUTTI_TRY(tutti_recv(p->group, TUTTI_BUF(&d, sizeof d, TUTTI_U8), rank_of(p, stage - 1),
                         tutti__tag_of(p, stage, TUTTI__TAG_HEAD), NULL));
    *b = tutti__boundary_of(p->module, d.shape, (tutti_dtype)d.dtype, d.tokens);
    b->dropout_calls = (uint32_t)d.dropout_calls;
    b->needs_grad = d.needs_grad != 0;
    return TUTTI_OK;
}

/* ---- Of a step --------------------------------------------------------------------------------------------------- */

tutti_status tutti__receive_input(tutti_pipeline *p, tutti__micro_batch *slot)
{
    tutti__own_stage *c = &p->chunk[slot->chunk];
    tutti_status status = TUTTI_OK;

    if (p->steps == 0 && !p->planned)
        status = receive_description(p, c->stage, &c->in);
    if (status == TUTTI_OK)
        status = post_input(p, slot);
    if (status == TUTTI_OK)
        status = wait_for(p, &slot->in.work);
    return status == TUTTI_OK ? TUTTI_OK
                              : name_stage(p, status, "waits for the activations", c->stage,
                                           c->stage - 1, slot->micro_batch);
}

tutti_tensor *tutti__input_of(const tutti_pipeline *p, const tutti__micro_batch *slot)
{
    const tutti__boundary *b = &p->chunk[slot->chunk].in;
    const int64_t samples = samples_of(p, slot->micro_batch);
    tutti_tensor *x = tutti__received(p->cx, shape_in(p, b, samples), b->dtype, slot->in.p);

    tutti__parallel_set_divided_tokens(p->module, tokens_of(b, samples));
    if (x)
        x->needs_grad = b->needs_grad;
    return x;
}

tutti_status tutti__receive_gradient(tutti_pipeline *p, tutti__micro_batch *slot)
{
    const tutti__own_stage *c = &p->chunk[slot->chunk];
    tutti_status status = post_gradient(p, slot);

    if (status == TUTTI_OK && slot->back.posted)
        status = wait_for(p, &slot->back.work);
    return status == TUTTI_OK ? TUTTI_OK
                              : name_stage(p, status, "waits for the gradients", c->stage,
                                           c->stage + 1, slot->micro_batch);
}

tutti_status tutti__send_tensor(const tutti_pipeline *p, tutti_tensor *t, int stage,
                                tutti__tag what, tutti_work **work_p)
{
    const void *elements;

    TUTTI_TRY(tutti__tensor_row_major(t, &elements));
    return tutti_send(p->group,
                      (tutti_const_buf){.p = elements,
                                        .count = (size_t)tutti_shape_count(t->shape),
                                        .dtype = t->dtype,
                                        .stream = tutti_ctx_stream(p->cx)},
                      rank_of(p, stage), tutti__tag_of(p, stage, what), work_p);
}

/* That y is as in the first step. */
static tutti_status check_output(tutti_pipeline *p, tutti__own_stage *c, int m,
                                 const tutti_tensor *y)
{
    const int64_t samples = samples_of(p, m);
    const tutti__boundary b = tutti__boundary_of(p->module, y->shape, y->dtype,
                                                 tutti__parallel_divided_tokens(p->module));

    if (y->shape.n < 1 || (!b.rows && y->shape.d[0] != samples))
        return tutti__fail(TUTTI_ERR_ARG,
                           "pipeline: stage %d (%s) makes %s of %lld samples; expected samples in "
                           "the first dimension between stages",
                           c->stage, tutti_pipeline_stage(p, c->stage), tutti__shape_text(y->shape),
                           (long long)samples);
    if (!c->out.known) {
        c->out = b;
        c->out.needs_grad = y->needs_grad;
    }
    if (tutti_shape_equal(shape_in(p, &c->out, samples), y->shape) && c->out.dtype == y->dtype)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "pipeline: stage %d (%s) makes %s %s of micro-batch %d, and made %s before; "
                       "only the number of samples may change",
                       c->stage, tutti_pipeline_stage(p, c->stage), tutti_dtype_name(y->dtype),
                       tutti__shape_text(y->shape), m, tutti__shape_text(c->out.shape));
}

tutti_status tutti__send_output(tutti_pipeline *p, tutti__micro_batch *slot)
{
    tutti__own_stage *c = &p->chunk[slot->chunk];
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(check_output(p, c, slot->micro_batch, slot->y));
    if (p->steps == 0 && !p->planned)
        status = send_description(p, slot->y, c->stage + 1);
    if (status == TUTTI_OK)
        status = tutti__send_tensor(p, slot->y, c->stage + 1, TUTTI__TAG_INPUT, &slot->sending[0]);
    return name_stage(p, status, "sends the activations", c->stage, c->stage + 1,
                      slot->micro_batch);
}

tutti_status tutti__send_gradient(tutti_pipeline *p, tutti__micro_batch *slot)
{
    const tutti__own_stage *c = &p->chunk[slot->chunk];

    if (!slot->x->grad)
        return tutti__fail(TUTTI_ERR_STATE,
                           "pipeline: the loss does not depend on what stage %d (%s) gets",
                           c->stage, tutti_pipeline_stage(p, c->stage));
    return tutti__send_tensor(p, slot->x->grad, c->stage - 1, TUTTI__TAG_GRADIENT,
                              &slot->sending[1]);
}

/* ---- Of an evaluation --------------------------------------------------------------------------------------------- */

/* Without the mixed precision of a step. */
static tutti__boundary in_evaluation(const tutti_pipeline *p, tutti__boundary b, int64_t samples)
{
    b.shape = shape_in(p, &b, samples);
    b.tokens = tokens_of(&b, samples);
    b.dtype = tutti__is_half(b.dtype) ? TUTTI_F32 : b.dtype;
    return b;
}

tutti_status tutti__eval_receive(tutti_pipeline *p, tutti__own_stage *chunk, int64_t samples,
                                 tutti_tensor **x_p)
{
    tutti__boundary b;
    tutti_status status = TUTTI_OK;

    if (p->planned)
        b = in_evaluation(p, chunk->in, samples);
    else
        status = receive_description(p, chunk->stage, &b);
    if (status == TUTTI_OK)
        status = post(p, &chunk->eval, b.shape, b.dtype, chunk->stage - 1,
                      tutti__tag_of(p, chunk->stage, TUTTI__TAG_INPUT));
    if (status == TUTTI_OK)
        status = wait_for(p, &chunk->eval.work);
    chunk->eval.posted = false;
    if (status != TUTTI_OK)
        return name_stage(p, status, "waits for the activations", chunk->stage, chunk->stage - 1,
                          0);
    tutti__parallel_set_divided_tokens(p->module, b.tokens);
    *x_p = tutti__received(p->cx, b.shape, b.dtype, chunk->eval.p);
    return *x_p ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

tutti_status tutti__eval_send(const tutti_pipeline *p, const tutti__own_stage *chunk,
                              tutti_tensor *y)
{
    if (!p->planned)
        TUTTI_TRY(send_description(p, y, chunk->stage + 1));
    return tutti__send_tensor(p, y, chunk->stage + 1, TUTTI__TAG_INPUT, NULL);
}
