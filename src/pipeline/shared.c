/* shared.c -- a table of vectors that is also the matrix of the head, on two ranks.   SPDX-License-Identifier: MIT
 *
 * Accumulation adds to its gradient, of each micro-batch, first the head's part, then a row for each token. A float's sum depends on that
 * order, and the ranks of the two stages get to a micro-batch at different times. So the rank of the head adds all: it leaves the
 * gradient of the product out of its backward, and computes it when the gradients of the same micro-batch's vectors, which are as large as an
 * activation, have come from the first stage, or are about to: after those of the micro-batch before. At the end the first stage gets the
 * sum; both then make the same update. If layers are divided among ranks, each has its rows of the table in both stages. */
#include "pipeline/pipeline.h"

#include "autograd/backward.h"
#include "ddp/ddp.h"

/* ---- Which --------------------------------------------------------------------------------------------------- */

/* The first and the last stage with the parameter. */
static int stages_of(const tutti_pipeline *p, const tutti_tensor *t, int *first_p, int *last_p)
{
    int n = 0;

    for (int s = 0; s < p->stages; s++)
        for (int i = p->cuts[s]; i < p->cuts[s + 1]; i++)
            if (tutti__tensor_selected(t, p->blocks[i].state)) {
                *first_p = n == 0 ? s : *first_p;
                *last_p = s;
                n++;
                break;
            }
    return n;
}

tutti_status tutti__shared_find(tutti_pipeline *p)
{
    tutti__shared_table *shared = &p->shared;
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_parameter(p->module, i)) != NULL; i++) {
        int first = 0, last = 0;

        if (stages_of(p, t, &first, &last) < 2)
            continue;
        if (shared->t || first != 0 || last % p->ranks == 0 || t->shape.n != 2)
            return tutti__fail(TUTTI_ERR_ARG,
                               "pipeline: parameter %s is of stages %d and %d of %d ranks%s%s; "
                               "expected at most one such, a table whose vectors stage 0 looks up, "
                               "and which another rank multiplies by",
                               t->name, first, last, p->ranks, shared->t ? ", as is " : "",
                               shared->t ? shared->t->name : "");
        shared->t = t;
        shared->first = first;
        shared->last = last;
        t->parameter->apart = true;
        t->parameter->counted_by_peer |= last % p->ranks == p->rank;
        tutti__parked_init(p->cx, &shared->step);
    }
    return TUTTI_OK;
}

bool tutti__shared_trains(const tutti_pipeline *p)
{
    return p->shared.t && p->shared.t->parameter->requires_grad;
}

static bool has_head(const tutti_pipeline *p)
{
    return tutti__shared_trains(p) && p->shared.last % p->ranks == p->rank;
}

/* ---- Of a step ------------------------------------------------------------------------------------------------ */

static tutti_status send_rows(tutti_pipeline *p, tutti__micro_batch *slot)
{
    const tutti__shared_table *shared = &p->shared;
    const tutti__node *n = tutti__backward_apart(p->cx, shared->t);

    if (!n || !n->op->by_rows || !n->dst->grad || n->src[0] != shared->t ||
        n->dst->grad->dtype != TUTTI_F32)
        return tutti__fail(TUTTI_ERR_STATE,
                           "pipeline: parameter %s is of stages %d and %d; expected that the first "
                           "one looks up vectors in it (tutti_embedding), once",
                           shared->t->name, shared->first, shared->last);
    return tutti__send_tensor(p, n->dst->grad, shared->last, TUTTI__TAG_ROWS, &slot->sending[2]);
}

tutti_status tutti__shared_computed(tutti_pipeline *p, tutti__micro_batch *slot)
{
    const int stage = p->chunk[slot->chunk].stage;

    if (tutti__shared_trains(p) && stage == p->shared.first)
        return send_rows(p, slot);
    slot->shared_left = tutti__shared_trains(p) && stage == p->shared.last;
    return TUTTI_OK;
}

static tutti_shape rows_of(const tutti_pipeline *p, int m)
{
    tutti_shape shape = tutti__parallel_own_shape(p->shared.t, p->step->x[m]);

    shape.d[shape.n++] = p->shared.t->shape.d[1];
    return shape;
}

/* Adds a row of the gradient for each token, as backward of the embedding does. */
static tutti_status add_rows(tutti_pipeline *p, int m, void *rows)
{
    tutti_tensor *t = p->shared.t, *y, *dy;
    tutti_status status;

    tutti_ddp_pause(p->ddp);
    tutti__parked_swap(p->cx, &p->shared.step);
    tutti_step_begin(p->cx, NULL);
    t->parameter->apart = false;
    y = tutti_functional_embedding(
        t, tutti__parallel_own_indices(t, tutti_input(p->cx, p->step->x[m])));
    dy = tutti__received(p->cx, rows_of(p, m), TUTTI_F32, rows);
    status = !y || !dy ? TUTTI_ERR_MEMORY : tutti_tensor_status(y);
    if (status == TUTTI_OK)
        status = tutti__backward_from(y, dy, false);
    t->parameter->apart = true;
    tutti_step_end(p->cx);
    tutti__parked_swap(p->cx, &p->shared.step);
    return status;
}

static tutti_status add_one(tutti_pipeline *p, tutti__micro_batch *slot, tutti__message *rows)
{
    const int m = p->shared.next;
    tutti_status status;

    TUTTI_TRY(tutti__scale_gradient(p, p->shared.t, m));
    tutti__parked_swap(p->cx, &slot->step);
    status = tutti__backward_weights(p->cx, true);
    tutti__parked_swap(p->cx, &slot->step);
    TUTTI_TRY(status);
    slot->shared_left = false;
    TUTTI_TRY(add_rows(p, m, rows->p));
    rows->posted = false;
    p->shared.next++;
    return tutti__slot_end(p, slot, false);
}

tutti_status tutti__shared_add(tutti_pipeline *p, bool all)
{
    tutti__shared_table *shared = &p->shared;

    while (has_head(p) && shared->next < p->step->micro_batches) {
        tutti__micro_batch *slot = tutti__slot_find(p, shared->last / p->ranks, shared->next);
        tutti__message *rows = &shared->rows[shared->next % 2];

        if (!slot || !slot->shared_left)
            return TUTTI_OK;
        TUTTI_TRY(tutti__receive_rows(p, rows, rows_of(p, shared->next), shared->last,
                                      shared->first, shared->next, false));
        if (!all &&
            !(p->clock.ends ? tutti__clock_has_rows(p, shared->next) : tutti_work_done(rows->work)))
            return TUTTI_OK;
        TUTTI_TRY(tutti__receive_rows(p, rows, rows_of(p, shared->next), shared->last,
                                      shared->first, shared->next, true));
        TUTTI_TRY(add_one(p, slot, rows));
    }
    return TUTTI_OK;
}

tutti_status tutti__shared_exchange(tutti_pipeline *p)
{
    const tutti__shared_table *shared = &p->shared;
    const int tag = tutti__tag_of(p, shared->first, TUTTI__TAG_TABLE);
    tutti__parameter *parameter = tutti__shared_trains(p) ? shared->t->parameter : NULL;
    tutti_buf buf = {.dtype = TUTTI_F32, .stream = tutti_ctx_stream(p->cx)};

    if (!parameter)
        return TUTTI_OK;
    buf.p = parameter->grad;
    buf.count = (size_t)tutti_shape_count(shared->t->shape);
    if (has_head(p))
        return tutti_send(p->group, tutti_buf_const(buf), shared->first % p->ranks, tag, NULL);
    if (parameter->bring_grad)
        TUTTI_TRY(parameter->bring_grad(shared->t));
    TUTTI_TRY(tutti_recv(p->group, buf, shared->last % p->ranks, tag, NULL));
    parameter->grad_round = *parameter->round;
    parameter->all_touched = true;
    return TUTTI_OK;
}
