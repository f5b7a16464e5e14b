/* pipeline_step.c -- an optimizer step's gradients by a pipeline.   SPDX-License-Identifier: MIT
 *
 * All ranks of the pipeline read the same batches, because the first stage needs their inputs and the last one their targets. They are
 * copied: the loader's memory holds one at a time, and several are in flight. */
#include "data/loader.h"
#include "pipeline/pipeline.h"
#include "tensor/tensor.h"
#include "train/output/trace.h"
#include "train/session/amp.h"
#include "train/session/digests.h"
#include "train/session/session.h"

#include <stdlib.h>
#include <string.h>

typedef struct copies {
    tutti__session *s;
    size_t n, capacity;
    tutti_array *x, *y;
    void **memory; /* of x and y of each */
    size_t *samples;
    tutti_tensor *loss; /* the last one, without the scaler's scale */
} copies;

static void copies_free(copies *c)
{
    for (size_t i = 0; i < 2 * c->n; i++)
        free(c->memory[i]);
    free(c->memory);
    free(c->x);
    free(c->y);
    free(c->samples);
}

static tutti_status copies_new(copies *c, tutti__session *s)
{
    const size_t n = (size_t)s->config->grad_accumulation;

    *c = (copies){.s = s, .capacity = n};
    c->x = tutti__alloc(n * sizeof *c->x);
    c->y = tutti__alloc(n * sizeof *c->y);
    c->memory = tutti__alloc(2 * n * sizeof *c->memory);
    c->samples = tutti__alloc(n * sizeof *c->samples);
    return c->x && c->y && c->memory && c->samples ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void *copy_of(tutti_array from, tutti_array *to)
{
    const size_t bytes = (size_t)tutti_shape_count(from.shape) * tutti_dtype_size(from.dtype);
    void *p = tutti__alloc_unset(bytes + 1);

    if (p)
        memcpy(p, from.p, bytes);
    *to = from;
    to->p = p;
    return p;
}

static tutti_status copies_add(copies *c, const tutti_batch *batch)
{
    const size_t i = c->n++;

    c->samples[i] = batch->n;
    c->memory[2 * i] = copy_of(batch->x, &c->x[i]);
    c->memory[2 * i + 1] = copy_of(batch->y, &c->y[i]);
    return c->memory[2 * i] && c->memory[2 * i + 1] ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* The batches of a step, the first of which is there. */
static tutti_status collect(copies *c, tutti_batch *batch, uint64_t begin_ns)
{
    tutti__session *s = c->s;

    for (;;) {
        s->step.taken = batch->index + 1;
        s->step.n_samples += batch->n;
        TUTTI_TRY(copies_add(c, batch));
        if (c->n == c->capacity || batch->index + 1 == s->step.batches)
            break;
        if (!tutti__session_next_batch(s, batch->index + 1, batch))
            return tutti_loader_status(s->data.train_loader);
    }
    tutti__record(s->cx->recorder, "step", "data", (int64_t)s->step.number, TUTTI__THREAD_MAIN,
                  begin_ns, tutti__now_ns());
    s->step.data_seconds = (double)(tutti__now_ns() - begin_ns) * 1e-9;
    return TUTTI_OK;
}

static tutti_tensor *loss(void *self, int m, tutti_tensor *output)
{
    copies *c = self;
    const tutti_status status = tutti__session_loss(c->s, output, c->y[m], &c->loss);

    if (status != TUTTI_OK)
        return tutti__poisoned(c->s->cx, status);
    tutti__digests_loss(c->s, c->loss);
    return tutti__session_objective(c->s, c->loss, c->y[m]);
}

/* Right after it was made. */
static tutti_status computed(void *self, int m, tutti_tensor *scaled)
{
    const copies *c = self;

    (void)scaled;
    c->s->step.images += (double)c->samples[m];
    TUTTI_TRY(tutti__loss_ask(&c->s->loss, c->loss));
    return tutti__session_take_loss(c->s, c->samples[m]);
}

static tutti_status pipeline_gradients(tutti__session *s, tutti_batch *batch, uint64_t begin_ns)
{
    copies c;
    tutti_status status;

    tutti_optim_zero_grad(s->optim);
    s->step.n_samples = 0;
    status = copies_new(&c, s);
    if (status == TUTTI_OK)
        status = collect(&c, batch, begin_ns);
    if (status == TUTTI_OK)
        status = tutti_pipeline_run(s->pipeline,
                                    &(tutti_pipeline_step){.micro_batches = (int)c.n,
                                                           .x = c.x,
                                                           .loss = loss,
                                                           .computed = computed,
                                                           .self = &c,
                                                           .autocast = tutti__amp_dtype(s)});
    s->step.stages_seconds = tutti__pipeline_waited(s->pipeline);
    copies_free(&c);
    return status;
}

/* Here, since a step on one rank knows nothing of pipelines. */
tutti_status tutti__session_gradients(tutti__session *s, tutti_batch *batch, uint64_t begin_ns)
{
    double rest = 1;

    s->step.data_seconds = 0;
    TUTTI_TRY(s->pipeline ? pipeline_gradients(s, batch, begin_ns)
                          : tutti__session_accumulate(s, batch, begin_ns, &rest));
    return tutti__session_complete(s, rest);
}

tutti_status tutti__session_share_sums(const tutti__session *s, double *sums, size_t n)
{
    return s->pipeline ? tutti_all_reduce(tutti_mesh_group(s->mesh, "pipeline"),
                                          TUTTI_BUF(sums, n, TUTTI_F64), TUTTI_SUM, NULL)
                       : TUTTI_OK;
}
