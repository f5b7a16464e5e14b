/* planned.c -- a stage of which only this rank exists (comm's tutti__group_plan).   SPDX-License-Identifier: MIT
 *
 * Messages are neither sent nor awaited; what they would look like is known from a whole model. They come at once, except the gradients of
 * a shared table's vectors: how many micro-batches wait for these is what the last stage's memory depends on, so they come when the table's
 * clock says so. What is sent after a backward is still on its way when the next action begins, so that this takes a micro-batch's memory
 * more.
 * The same clock tells ranks that gather parameters together (zero 3) when to add these rows, instead of their arrival, so that all of a stage
 * read parameters in the same order. Waiting for them there cannot block for ever: in the clock's order each action comes after all that
 * it waits for. */
#include "pipeline/pipeline.h"

#include "ddp/ddp.h"

#include <stdlib.h>

/* Runs block after block. */
static tutti_status note_blocks(const tutti_pipeline *p, tutti__boundary *after, tutti_tensor *y)
{
    tutti_module *m = tutti_model_module(p->whole);

    for (int i = 0; i < p->n_blocks; i++) {
        y = tutti__model_run(p->whole, p->blocks, i, i + 1, y);
        if (!y)
            return tutti__fail(TUTTI_ERR_ARG, "pipeline: block %s returned NULL",
                               p->blocks[i].name);
        TUTTI_TRY(tutti_tensor_status(y));
        after[i] = tutti__boundary_of(m, y->shape, y->dtype, tutti__parallel_divided_tokens(m));
        after[i].needs_grad = y->needs_grad;
        after[i].dropout_calls = y->cx->dropout_calls;
    }
    return TUTTI_OK;
}

tutti_status tutti__plan_boundaries(tutti__boundary **after_p, const tutti_pipeline *p,
                                    tutti_array x, tutti_dtype autocast)
{
    tutti_status status;

    *after_p = tutti__alloc((size_t)p->n_blocks * sizeof **after_p);
    if (!*after_p)
        return TUTTI_ERR_MEMORY;
    tutti_step_begin(p->cx, &(tutti_step_opts){.autocast = autocast});
    status = note_blocks(p, *after_p, tutti_input(p->cx, x));
    tutti_step_end(p->cx);
    return status;
}

tutti_status tutti__pipeline_plan(tutti_pipeline *p, const tutti__boundary *after)
{
    p->planned = true;
    for (int c = 0; c < p->chunks; c++)
        if (p->chunk[c].first > 0)
            p->chunk[c].in = after[p->chunk[c].first - 1];
    return TUTTI_OK;
}

/* ---- The table's clock ---------------------------------------------------------------------------------------- */

tutti_status tutti__clock_begin(tutti_pipeline *p)
{
    const size_t cells = 3 * (size_t)p->stages * (size_t)p->table->micro_batches;

    free(p->clock.ends);
    p->clock.ends = NULL;
    if (!p->planned && !(p->ddp && tutti__zero_has_parameters(p->ddp)))
        return TUTTI_OK;
    p->clock.ends = tutti__alloc(cells * sizeof *p->clock.ends);
    return p->clock.ends ? tutti__table_ends(p->table, p->clock.ends) : TUTTI_ERR_MEMORY;
}

static double end_of(const tutti_pipeline *p, int pass, int stage, int m)
{
    return p->clock.ends[(pass * p->stages + stage) * p->table->micro_batches + m];
}

void tutti__clock_act(tutti_pipeline *p, size_t at)
{
    const tutti_pipeline_action *a = at > 0 ? &p->table->actions[p->rank][at - 1] : NULL;

    p->clock.at = at;
    p->clock.now = 0;
    if (a)
        p->clock.now = end_of(p,
                              a->pass == TUTTI_PIPELINE_FORWARD  ? 0
                              : a->pass == TUTTI_PIPELINE_WEIGHT ? 2
                                                                 : 1,
                              tutti__stage_of(p, a->chunk), a->micro_batch);
}

bool tutti__plan_is_sending(const tutti_pipeline *p, const tutti__micro_batch *slot)
{
    return slot->sends && p->clock.at <= slot->computed_at + 1;
}

bool tutti__clock_has_rows(const tutti_pipeline *p, int micro_batch)
{
    return end_of(p, 1, p->shared.first, micro_batch) < p->clock.now;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static size_t used(const tutti__parked *step)
{
    return step->arena.most + step->small.most + step->memory.most;
}

size_t tutti__pipeline_arenas(const tutti_pipeline *p)
{
    size_t bytes = used(&p->shared.step);

    for (size_t i = 0; i < p->n_slots; i++)
        bytes += used(&p->slots[i]->step);
    return bytes;
}
