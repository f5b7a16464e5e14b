/* evaluate.c -- loss and accuracy over the whole test set, each sample exactly once.   SPDX-License-Identifier: MIT
 *
 * Each rank computes its share; counts and sums, not means, are added at the end, so that the result does not
 * depend on the number of ranks. */
#include "train/session/evaluate.h"

#include "data/dataset.h"
#include "train/metrics/trace.h"

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
static tutti_status fill_up(const tutti__run *run, const tutti_batch *batch, room *samples,
                            tutti_array *x)
{
    const size_t batch_size = (size_t)run->config->batch_size;
    const size_t count = tutti_dataset_describe(run->test_data).count;
    const size_t wanted = batch_size < count ? batch_size : count;
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

/* Adds a batch's outputs [n, ...] to the tally. width: elements of one output. */
static tutti_status count(const tutti__run *run, const tutti__evaluation *e,
                          const tutti_batch *batch, const float *outputs, size_t width)
{
    const size_t classes = e->tally->classes;
    const size_t targets = (size_t)tutti_dataset_describe(run->test_data).targets;
    const bool own_loss = run->parts->own.loss;

    if (classes > 0 && width != classes)
        return tutti__fail(TUTTI_ERR_FORMAT, "the model has %zu classes and the data have %zu",
                           width, classes);
    if (classes > 0)
        return tutti__tally_add(e->tally, outputs, batch->y.p, batch->n, own_loss);
    if ((!own_loss || e->rows) && width != targets)
        return tutti__fail(TUTTI_ERR_FORMAT,
                           "the model gives %zu numbers a sample and the data have %zu targets%s",
                           width, targets,
                           own_loss ? "; predictions have a column for each target: for other "
                                      "outputs, load the weights in a program (tutti_module_load)"
                                    : "");
    if (!own_loss)
        tutti__tally_add_errors(e->tally, outputs, batch->y.p, batch->n, targets);
    return TUTTI_OK;
}

/* Not filled up with the program's own loss, a mean over the batch, which would include the filling. */
static tutti_status compute(tutti__run *run, const tutti__evaluation *e, const tutti_batch *batch,
                            rooms *memory)
{
    const bool own_loss = run->parts->own.loss;
    tutti_array x = batch->x;
    tutti_tensor *y, *loss;
    size_t n;

    if (!own_loss)
        TUTTI_TRY(fill_up(run, batch, &memory->samples, &x));
    TUTTI_TRY(tutti__run_forward(run, x, &y));
    TUTTI_TRY(tutti_tensor_status(y));
    if (own_loss) {
        TUTTI_TRY(tutti__run_loss(run, y, batch->y, &loss));
        TUTTI_TRY(tutti_tensor_status(loss));
        tutti__tally_add_loss(e->tally, (double)tutti_item(loss), batch->n);
    }
    n = (size_t)tutti_shape_count(tutti_tensor_shape(y));
    TUTTI_TRY(make_room(&memory->outputs, n * sizeof(float)));
    TUTTI_TRY(tutti_tensor_read(y, memory->outputs.p));
    return count(run, e, batch, memory->outputs.p, n / (size_t)x.shape.d[0]);
}

/* The most batches of any rank: rank 0's, if they differ. By shard, batches are assigned one by one. */
static size_t rounds_of(const tutti__run *run)
{
    const size_t shards = (size_t)run->shards;
    const size_t size = (size_t)run->size, batch = (size_t)run->config->batch_size;
    const size_t share = (tutti_dataset_describe(run->test_data).count + size - 1) / size;

    if (shards > 0)
        return (tutti_loader_batches(run->test_loader) * shards + size - 1) / size;
    return (share + batch - 1) / batch;
}

/* This rank's batch of a round; by shard some rounds have none for it. */
static bool next_batch(tutti__run *run, size_t round, tutti_batch *batch)
{
    const size_t shards = (size_t)run->shards, size = (size_t)run->size;
    const size_t here = round * size + (size_t)run->rank, next = here + size;

    if (shards == 0)
        return tutti_loader_next(run->test_loader, batch);
    tutti_loader_ask(run->test_loader, here / shards, (int)(here % shards), 0);
    tutti_loader_ask(run->test_loader, next / shards, (int)(next % shards), 0);
    return tutti_loader_take(run->test_loader, here / shards, (int)(here % shards), batch);
}

/* One round, with a batch or, at the end, without. */
static tutti_status do_round(tutti__run *run, const tutti__evaluation *e, size_t round,
                             bool *more_p, rooms *memory)
{
    tutti_batch batch;
    tutti_status status = TUTTI_OK;

    *more_p = (*more_p || run->shards > 0) && next_batch(run, round, &batch);
    if (!*more_p)
        TUTTI_TRY(tutti_loader_status(run->test_loader));
    else {
        tutti_step_begin(run->cx, &(tutti_step_opts){.eval = true});
        status = compute(run, e, &batch, memory);
        tutti_step_end(run->cx);
    }
    if (status == TUTTI_OK && e->rows)
        status = e->rows(e->user, round, *more_p ? &batch : NULL, memory->outputs.p);
    return status;
}

/* All ranks do the same number of rounds, at the end without a batch, because each round exchanges whether to stop. */
static tutti_status evaluate_share(tutti__run *run, const tutti__evaluation *e)
{
    const size_t rounds = rounds_of(run), count = tutti_dataset_describe(run->test_data).count;
    const size_t each = (size_t)run->size * (size_t)run->config->batch_size;
    rooms memory = {.outputs = {NULL, 0}};
    tutti_status status = TUTTI_OK;
    bool more = true;

    for (size_t i = 0; i < rounds && status == TUTTI_OK && !run->stopping; i++) {
        status = tutti__run_ask_to_stop(run);
        if (status == TUTTI_OK)
            status = do_round(run, e, i, &more, &memory);
        if (status == TUTTI_OK)
            status = tutti__run_hear_of_stop(run);
        if (status == TUTTI_OK)
            status = tutti__tick_call(e->tick, i + 1 < rounds ? (i + 1) * each : count, count);
    }
    free(memory.outputs.p);
    free(memory.samples.p);
    return status;
}

tutti_status tutti__evaluate(tutti__run *run, const tutti__evaluation *e)
{
    tutti__tally_clear(e->tally);
    tutti_loader_set_epoch(run->test_loader, 0);
    TUTTI_TRY(evaluate_share(run, e));
    return run->stopping ? TUTTI_OK : tutti__tally_sum(e->tally, run->group);
}

/* ---- In training -------------------------------------------------------------------------------------------- */

static bool show(void *user, size_t done, size_t total)
{
    tutti__run *run = user;

    tutti__bar_count(&run->progress.bar, "evaluation", tutti__dataset_noun(run->test_data), done,
                     total);
    return true;
}

/* Sets run->at.val_loss and run->at.val_accuracy, unless a signal came. */
static tutti_status evaluate_test(tutti__run *run)
{
    tutti__tick tick = {show, run};
    tutti__tally tally = {0};
    tutti_status status =
        tutti__tally_new(&tally, (size_t)tutti_dataset_describe(run->test_data).classes, false);

    if (status == TUTTI_OK)
        status = tutti__evaluate(run, &(tutti__evaluation){.tally = &tally, .tick = &tick});
    if (status == TUTTI_OK && !run->stopping) {
        run->at.val_loss = tutti__tally_loss(&tally);
        run->at.val_accuracy = tutti__tally_accuracy(&tally);
    }
    tutti__tally_free(&tally);
    return status;
}

void tutti__run_tell_eval(const tutti__run *run, const tutti__eval_metrics *eval)
{
    const tutti_trainer_opts *own = &run->parts->own;

    if (run->rank == 0 && own->on_eval)
        own->on_eval(own->self, &(tutti_trainer_eval){.step = (uint64_t)eval->step,
                                                      .epoch = eval->epoch,
                                                      .loss = eval->val_loss,
                                                      .accuracy = eval->val_accuracy,
                                                      .seconds = eval->time_s});
}

tutti_status tutti__run_evaluate(tutti__run *run)
{
    uint64_t begin_ns = tutti__now_ns();
    char accuracy[48] = "";

    if (run->shards == 0) /* else they are the same on all ranks */
        TUTTI_TRY(tutti_ddp_broadcast_buffers(run->ddp));
    TUTTI_TRY(evaluate_test(run));
    if (run->stopping)
        return TUTTI_OK;
    tutti__record(run->recorder, "step", "evaluate", (int64_t)run->at.step, TUTTI__THREAD_MAIN,
                  begin_ns, tutti__now_ns());
    tutti__ledger_add(&run->ledger, TUTTI__TIME_EVALUATION,
                      (double)(tutti__now_ns() - begin_ns) * 1e-9);
    if (!isfinite(run->at.val_loss))
        return tutti__fail(
            TUTTI_ERR_STATE,
            "the loss on the test set is %s after step %llu: training has diverged; lower "
            "the learning rate or set clip_grad_norm",
            isnan(run->at.val_loss) ? "NaN" : "infinite", (unsigned long long)run->at.step);
    run->kept.eval = (tutti__eval_metrics){.epoch = run->at.epoch,
                                           .val_loss = run->at.val_loss,
                                           .val_accuracy = run->at.val_accuracy,
                                           .time_s = tutti__run_seconds(run),
                                           .step = (int64_t)run->at.step};
    if (run->shards == 0) { /* else tutti__members_write_lines does */
        tutti__logs_eval(&run->logs, &run->kept.eval);
        tutti__run_tell_eval(run, &run->kept.eval);
    }
    if (!isnan(run->at.val_accuracy))
        snprintf(accuracy, sizeof accuracy, "  test accuracy %.2f %%", 100 * run->at.val_accuracy);
    tutti__progress_say(&run->progress, "epoch %lld/%lld  test loss %.4f%s",
                        (long long)run->at.epoch, (long long)run->config->epochs, run->at.val_loss,
                        accuracy);
    return TUTTI_OK;
}
