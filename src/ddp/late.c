/* late.c -- tables that a loss reads by rows first and as a matrix last: an embedding and the head that is tied to it.
 * SPDX-License-Identifier: MIT
 *
 * Backward finishes the head's part of the gradient, all of the table, at its start, and the embedding's, a few rows, at its end. The tape
 * says when only the latter is left (ready_but_rows), and the reducer sends the table then, and those rows at the end (late_rows.c of
 * the reducer). docs/design/ddp.md */
#include "ddp/ddp.h"

#include "nn/nn.h"
#include "tensor/op.h"

#include <stdlib.h>
#include <string.h>

static bool can_be_late(const tutti_ddp *ddp, const tutti_tensor *t)
{
    return !t->parameter->touched && t->shape.n == 2 && t->shape.d[0] < INT32_MAX &&
           tutti_group_size(ddp->group) > 1 && tutti__on_host(tutti__ddp_stream(ddp)) &&
           (!ddp->hook.run || ddp->plain_means);
}

bool tutti__ddp_is_late(const tutti_ddp *ddp, const tutti_tensor *t)
{
    return t->parameter->rest_place != TUTTI__NOT_LATE && can_be_late(ddp, t);
}

bool tutti__ddp_may_be_late(const tutti_ddp *ddp, const tutti_tensor *t)
{
    const tutti__state *state = tutti__state_of(t);

    return ddp->roles[t->parameter->index] == TUTTI__AVERAGED && state->next_tied &&
           tutti__is_embedding(state->owner) && can_be_late(ddp, t);
}

/* What operations ask for while the rest is being sent. */
static tutti_status get_rows(void *self, const tutti_tensor *parameter, float **values_p,
                             const int32_t **place_p)
{
    const tutti_ddp *ddp = self;

    return tutti__reducer_late_rows(ddp->reducer, parameter->parameter->index, values_p, place_p);
}

tutti_status tutti__ddp_take_late(tutti_ddp *ddp, const bool *late)
{
    size_t most = 0;

    for (size_t i = 0; i < ddp->n; i++)
        if (late[i] && (size_t)ddp->parameters[i]->shape.d[0] > most)
            most = (size_t)ddp->parameters[i]->shape.d[0];
    if (most == 0)
        return TUTTI_OK;
    ddp->late = tutti__alloc(2 * ddp->n * sizeof *ddp->late);
    ddp->row_marks = tutti__alloc(most);
    if (!ddp->late || !ddp->row_marks)
        return TUTTI_ERR_MEMORY;
    memcpy(ddp->late, late, ddp->n * sizeof *late);
    ddp->rows_left = ddp->late + ddp->n;
    ddp->late_rows = (tutti__late_rows){.self = ddp, .get = get_rows};
    return TUTTI_OK;
}

/* Marks the rows to which the tape's operations add; also those that have done it, at no cost but their bytes. */
static void mark_rows(const tutti_ddp *ddp, const tutti_tensor *t)
{
    const tutti_ctx *cx = tutti_module_ctx(ddp->module);

    memset(ddp->row_marks, 0, (size_t)t->shape.d[0]);
    for (const tutti__node *n = cx->first_node; n; n = n->next) {
        const int64_t *index = n->op->by_rows && n->src[0] == t ? n->src[1]->host : NULL;

        for (int64_t i = 0; index && i < tutti_shape_count(n->src[1]->shape); i++)
            ddp->row_marks[index[i]] = 1;
    }
}

void tutti__ddp_ready_but_rows(void *self, tutti_tensor *parameter)
{
    tutti_ddp *ddp = self;
    size_t i;

    if (!ddp->in_step || !ddp->late || !tutti__ddp_find(ddp, parameter, &i) || !ddp->late[i])
        return;
    mark_rows(ddp, parameter);
    ddp->rows_left[i] = true;
    parameter->parameter->late_rows = &ddp->late_rows;
    (void)!tutti__reducer_ready_but_rows(ddp->reducer, i, ddp->row_marks); /* finish reports it */
}
