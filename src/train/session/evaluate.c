/* evaluate.c -- loss and scores over the whole test set, each sample exactly once.   SPDX-License-Identifier: MIT
 *
 * Each rank computes its share; counts and sums, not means, are added at the end, so that the result does not
 * depend on the number of ranks. */
#include "train/session/evaluate.h"

#include "data/dataset.h"
#include "train/session/views.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory that is reused from batch to batch. */
typedef struct room {
    void *p;
    size_t bytes;
} room;

typedef struct rooms {
    room outputs, samples;
    room view, view_outputs; /* of one of several views */
    tutti_shape shape;       /* of outputs; n 0: this rank has none */
} rooms;

static tutti_status make_room(room *r, size_t bytes)
{
    if (bytes <= r->bytes)
        return TUTTI_OK;
    free(r->p);
    r->bytes = 0;
    r->p = tutti__alloc(bytes);
    if (!r->p)
        return TUTTI_ERR_MEMORY;
    r->bytes = bytes;
    return TUTTI_OK;
}

static size_t element_bytes(const tutti_batch *batch)
{
    return tutti_dtype_size(batch->x.dtype);
}

/* Fills up a smaller batch with zeros: kernels choose the order of sums by the batch size, and a sample's logits must not
 * depend on how many others are in the batch. */
static tutti_status fill_up(const tutti_batch *batch, size_t wanted, room *samples, tutti_array *x)
{
    const size_t each = (size_t)tutti_shape_count(batch->x.shape) / batch->n;

    *x = batch->x;
    if (batch->n >= wanted)
        return TUTTI_OK;
    TUTTI_TRY(make_room(samples, wanted * each * element_bytes(batch)));
    memset(samples->p, 0, wanted * each * element_bytes(batch));
    memcpy(samples->p, batch->x.p, batch->n * each * element_bytes(batch));
    x->p = samples->p;
    x->shape.d[0] = (int64_t)wanted;
    return TUTTI_OK;
}

/* Adds a batch's outputs [n, ...] to the tally. */
static tutti_status count(const tutti__session *s, const tutti__evaluation *e,
                          const tutti_batch *batch, tutti_array outputs)
{
    const tutti__train_task *task = &s->task;
    const size_t width = (size_t)tutti_shape_count(outputs.shape) / (size_t)outputs.shape.d[0];
    const bool own_loss = s->parts->own.loss;

    if (width != tutti__task_width(task) && (!own_loss || e->rows || task->positions > 0)) {
        TUTTI_TRY(tutti__task_check_output(task, s->config->model, outputs.shape));
        return tutti__fail(TUTTI_ERR_FORMAT, "the model's outputs do not fit the data");
    }
    TUTTI_TRY(tutti__task_check_targets(task, batch->y.p, batch->n));
    return tutti__tally_add(e->tally, outputs, batch->y, batch->n, !own_loss);
}

/* A forward pass of images, whose outputs become, or are added to, the batch's. */
static tutti_status compute_view(tutti__session *s, const tutti__evaluation *e,
                                 const tutti_batch *batch, tutti_array x, float weight,
                                 rooms *memory)
{
    const bool first = memory->shape.n == 0;
    room *to = first ? &memory->outputs : &memory->view_outputs;
    tutti_tensor *y, *loss;
    float *sum, *one;
    size_t n;

    if (s->pipeline)
        TUTTI_TRY(tutti_pipeline_forward(s->pipeline, x, &y));
    else
        TUTTI_TRY(tutti__session_forward(s, x, &y));
    if (!y) /* this rank has not the last stage */
        return TUTTI_OK;
    y = tutti_cast(y, TUTTI_F32);
    TUTTI_TRY(tutti_tensor_status(y));
    if (s->parts->own.loss) {
        TUTTI_TRY(tutti__session_loss(s, y, batch->y, &loss));
        TUTTI_TRY(tutti_tensor_status(loss));
        tutti__tally_add_loss(e->tally, (double)tutti_item(loss), batch->n);
    }
    memory->shape = tutti_tensor_shape(y);
    n = (size_t)tutti_shape_count(memory->shape);
    TUTTI_TRY(make_room(to, n * sizeof(float)));
    TUTTI_TRY(tutti_tensor_read(y, to->p));
    sum = memory->outputs.p;
    one = to->p;
    for (size_t i = 0; weight != 1 && i < n; i++)
        sum[i] = first ? weight * one[i] : sum[i] + weight * one[i];
    return TUTTI_OK;
}

/* Not filled up with the program's own loss, a mean over the batch, which would include the filling. */
static tutti_status compute(tutti__session *s, const tutti__evaluation *e, const tutti_batch *batch,
                            size_t wanted, rooms *memory)
{
    tutti_array x = batch->x;
    size_t n_views;
    const tutti__view *views = tutti__views_of(s->config->tta, &n_views);
    tutti_status status = TUTTI_OK;

    if (!s->parts->own.loss)
        TUTTI_TRY(fill_up(batch, wanted, &memory->samples, &x));
    memory->shape.n = 0;
    for (size_t k = 0; k < n_views && status == TUTTI_OK; k++) {
        tutti_array view = x;

        if (k > 0) {
            TUTTI_TRY(make_room(&memory->view, (size_t)tutti_shape_count(x.shape) * sizeof(float)));
            tutti__view_make(&views[k], x, memory->view.p);
            view.p = memory->view.p;
        }
        tutti_step_begin(s->cx, &(tutti_step_opts){.autocast = e->autocast, .eval = true});
        status = compute_view(s, e, batch, view, views[k].weight, memory);
        tutti_step_end(s->cx);
    }
    if (status != TUTTI_OK || memory->shape.n == 0)
        return status;
    return count(s, e, batch, (tutti_array){memory->outputs.p, memory->shape, TUTTI_F32});
}

size_t tutti__evaluate_at_once(const tutti__session *s)
{
    const size_t batch = (size_t)s->config->batch_size, width = tutti__task_width(&s->task);
    const size_t count = tutti_dataset_describe(s->data.test).count;
    const size_t all = batch < count ? batch : count, some = ((size_t)1 << 26) / (width + 1) + 1;

    return s->task.kind->is_language_modeling && !s->parts->own.loss && some < all ? some : all;
}

/* The samples of a batch from `at` on, at most n. */
static tutti_batch part_of(const tutti_batch *batch, size_t at, size_t n)
{
    tutti_batch part = *batch;
    tutti_array *const arrays[] = {&part.x, &part.y};

    part.n = n < batch->n - at ? n : batch->n - at;
    for (size_t i = 0; i < TUTTI__COUNT_OF(arrays); i++) {
        tutti_array *a = arrays[i];
        const size_t each = (size_t)tutti_shape_count(a->shape) / batch->n;

        a->p = (char *)a->p + at * each * tutti_dtype_size(a->dtype);
        a->shape.d[0] = (int64_t)part.n;
    }
    return part;
}

static tutti_status compute_parts(tutti__session *s, const tutti__evaluation *e,
                                  const tutti_batch *batch, rooms *memory)
{
    const size_t n = tutti__evaluate_at_once(s);
    tutti_status status = TUTTI_OK;

    for (size_t at = 0; at < batch->n && status == TUTTI_OK; at += n) {
        const tutti_batch part = part_of(batch, at, n);

        status = compute(s, e, &part, n, memory);
    }
    return status;
}

/* The most batches of any rank: rank 0's, if they differ. By shard, batches are assigned one by one. */
static size_t rounds_of(const tutti__session *s)
{
    const size_t shards = (size_t)s->shards;
    const size_t size = (size_t)tutti__session_data_size(s);
    const size_t batch = (size_t)s->config->batch_size;
    const size_t share = (tutti_dataset_describe(s->data.test).count + size - 1) / size;

    if (shards > 0)
        return (tutti_loader_batches(s->data.test_loader) * shards + size - 1) / size;
    return (share + batch - 1) / batch;
}

/* This rank's batch of a round; by shard some rounds have none for it. */
static bool next_batch(tutti__session *s, size_t round, tutti_batch *batch)
{
    const size_t shards = (size_t)s->shards, size = (size_t)s->size;
    const size_t here = round * size + (size_t)s->rank, next = here + size;

    if (shards == 0)
        return tutti_loader_next(s->data.test_loader, batch);
    tutti_loader_ask(s->data.test_loader, here / shards, (int)(here % shards), 0);
    tutti_loader_ask(s->data.test_loader, next / shards, (int)(next % shards), 0);
    return tutti_loader_take(s->data.test_loader, here / shards, (int)(here % shards), batch);
}

/* With zero 3 all ranks gather the parameters of each forward pass together: those with less samples in a round compute zeros as often
 * as the others compute samples. */
static tutti_status keep_up(tutti__session *s, tutti_dtype autocast, size_t round, size_t n,
                            room *samples)
{
    const size_t size = (size_t)tutti__session_data_size(s);
    const size_t batch = (size_t)s->config->batch_size;
    const size_t share = (tutti_dataset_describe(s->data.test).count + size - 1) / size;
    const size_t most = share - round * batch < batch ? share - round * batch : batch;
    const size_t at_once = tutti__evaluate_at_once(s);
    tutti_array x = tutti__dataset_array(
        s->data.test, 0, (int64_t)at_once,
        tutti__dataset_has_images(s->data.test) ? s->parts->model->channels : 0);
    const size_t bytes = (size_t)tutti_shape_count(x.shape) * tutti_dtype_size(x.dtype);
    const size_t passes = (most + at_once - 1) / at_once - (n + at_once - 1) / at_once;
    tutti_status status = TUTTI_OK;
    tutti_tensor *y;
    size_t n_views;

    tutti__views_of(s->config->tta, &n_views);
    for (size_t k = 0; k < passes * n_views && status == TUTTI_OK; k++) {
        TUTTI_TRY(make_room(samples, bytes));
        memset(samples->p, 0, bytes);
        x.p = samples->p;
        tutti_step_begin(s->cx, &(tutti_step_opts){.autocast = autocast, .eval = true});
        status = tutti__session_forward(s, x, &y);
        if (status == TUTTI_OK)
            status = tutti_tensor_status(y);
        tutti_step_end(s->cx);
    }
    return status;
}

/* One round, with a batch or, at the end, without. */
static tutti_status do_round(tutti__session *s, const tutti__evaluation *e, size_t round,
                             bool *more_p, rooms *memory)
{
    tutti_batch batch;
    tutti_status status = TUTTI_OK;

    *more_p = (*more_p || s->shards > 0) && next_batch(s, round, &batch);
    if (!*more_p)
        TUTTI_TRY(tutti_loader_status(s->data.test_loader));
    else
        status = compute_parts(s, e, &batch, memory);
    if (status == TUTTI_OK && s->zero && s->config->zero == 3 && s->shards == 0)
        status = keep_up(s, e->autocast, round, *more_p ? batch.n : 0, &memory->samples);
    if (status == TUTTI_OK && e->rows)
        status = e->rows(e->user, round, *more_p ? &batch : NULL, memory->outputs.p);
    return status;
}

/* All ranks do the same number of rounds, at the end without a batch, because each round exchanges whether to stop. */
static tutti_status evaluate_share(tutti__session *s, const tutti__evaluation *e)
{
    const size_t rounds = rounds_of(s), count = tutti_dataset_describe(s->data.test).count;
    const size_t each = (size_t)tutti__session_data_size(s) * (size_t)s->config->batch_size;
    rooms memory = {.outputs = {NULL, 0}};
    tutti_status status = TUTTI_OK;
    bool more = true;

    for (size_t i = 0; i < rounds && status == TUTTI_OK && !s->stop.stopping; i++) {
        status = tutti__session_ask_to_stop(s);
        if (status == TUTTI_OK)
            status = do_round(s, e, i, &more, &memory);
        if (status == TUTTI_OK)
            status = tutti__session_hear_of_stop(s);
        if (status == TUTTI_OK)
            status = tutti__tick_call(e->tick, i + 1 < rounds ? (i + 1) * each : count, count);
    }
    free(memory.outputs.p);
    free(memory.samples.p);
    free(memory.view.p);
    free(memory.view_outputs.p);
    return status;
}

tutti_status tutti__evaluate(tutti__session *s, const tutti__evaluation *e)
{
    tutti__tally_clear(e->tally);
    tutti_loader_set_epoch(s->data.test_loader, 0);
    TUTTI_TRY(evaluate_share(s, e));
    if (s->stop.stopping)
        return TUTTI_OK;
    if (s->pipeline) /* ranks without the last stage have added nothing */
        TUTTI_TRY(tutti__tally_sum(e->tally, tutti_mesh_group(s->mesh, "pipeline")));
    return tutti__tally_sum(e->tally, tutti__session_data_group(s));
}
