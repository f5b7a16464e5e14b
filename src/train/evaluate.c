/* evaluate.c -- loss and accuracy over the whole test set, each sample exactly once.   SPDX-License-Identifier: MIT
 *
 * Every rank computes its share alone; counts and sums, not means, are added up at the end, so that the result does not
 * depend on the number of ranks. */
#include "train/evaluate.h"
#include "train/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory that is kept from one batch to the next. */
typedef struct room {
    float *p;
    size_t n;
} room;

typedef struct rooms {
    room logits, pictures;
} rooms;

static tutti_status make_room(room *r, size_t n)
{
    if (n <= r->n)
        return TUTTI_OK;
    free(r->p);
    r->n = 0;
    r->p = tutti__alloc(n * sizeof *r->p);
    if (!r->p)
        return TUTTI_ERR_MEMORY;
    r->n = n;
    return TUTTI_OK;
}

/* A smaller batch filled up with zeros: kernels choose by the size of a batch how they add, and a sample's logits shall not depend
 * on how many others there are. */
static tutti_status fill_up(const tutti__run *run, const tutti_batch *batch, room *pictures,
                            tutti_array *x)
{
    const size_t batch_size = (size_t)run->config->batch_size;
    const size_t count = tutti_dataset_describe(run->test_data).count;
    const size_t wanted = batch_size < count ? batch_size : count;
    const size_t each = (size_t)tutti_shape_count(batch->x.shape) / batch->n;

    *x = batch->x;
    if (batch->n >= wanted)
        return TUTTI_OK;
    TUTTI_TRY(make_room(pictures, wanted * each));
    memset(pictures->p, 0, wanted * each * sizeof *pictures->p);
    memcpy(pictures->p, batch->x.p, batch->n * each * sizeof *pictures->p);
    x->p = pictures->p;
    x->shape.d[0] = (int64_t)wanted;
    return TUTTI_OK;
}

static tutti_status compute(tutti__run *run, const tutti__evaluation *e, const tutti_batch *batch,
                            rooms *memory)
{
    tutti_array x = batch->x;
    tutti_tensor *y;
    size_t n;

    TUTTI_TRY(fill_up(run, batch, &memory->pictures, &x));
    y = tutti_model_forward(run->model, tutti_input(run->cx, x));
    TUTTI_TRY(tutti_tensor_status(y));
    n = (size_t)tutti_shape_count(tutti_tensor_shape(y));
    if (n != (size_t)x.shape.d[0] * e->tally->classes)
        return tutti__fail(TUTTI_ERR_FORMAT, "the model has %zu classes and the data have %zu",
                           n / (size_t)x.shape.d[0], e->tally->classes);
    TUTTI_TRY(make_room(&memory->logits, n));
    TUTTI_TRY(tutti_tensor_read(y, memory->logits.p));
    return tutti__tally_add(e->tally, memory->logits.p, batch->y.p, batch->n);
}

/* How many batches the rank with the most has: rank 0, where shares differ. By shard they are dealt out one by one. */
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

/* One round: a batch, or at the end none, and what becomes of it. */
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
        status = e->rows(e->user, round, *more_p ? &batch : NULL, memory->logits.p);
    return status;
}

/* Ranks do as many rounds, with a batch or, at the end, without, because each round asks whether to stop. */
static tutti_status evaluate_share(tutti__run *run, const tutti__evaluation *e)
{
    const size_t rounds = rounds_of(run), count = tutti_dataset_describe(run->test_data).count;
    const size_t each = (size_t)run->size * (size_t)run->config->batch_size;
    rooms memory = {.logits = {NULL, 0}};
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
    free(memory.logits.p);
    free(memory.pictures.p);
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
    tutti__bar_count(user, "evaluation", "images", done, total);
    return true;
}

/* Sets run->at.val_loss and run->at.val_accuracy, unless a signal came. */
static tutti_status evaluate_test(tutti__run *run)
{
    tutti__tick tick = {show, &run->progress.bar};
    tutti__tally tally = {0};
    tutti_status status =
        tutti__tally_new(&tally, (size_t)tutti_dataset_describe(run->test_data).classes, false);

    if (status == TUTTI_OK)
        status = tutti__evaluate(run, &(tutti__evaluation){.tally = &tally, .tick = &tick});
    if (status == TUTTI_OK && !run->stopping) {
        run->at.val_loss = tutti__tally_loss(&tally);
        run->at.val_accuracy =
            (double)tutti__tally_correct(&tally) / (double)tutti__tally_samples(&tally);
    }
    tutti__tally_free(&tally);
    return status;
}

tutti_status tutti__run_evaluate(tutti__run *run)
{
    uint64_t begin_ns = tutti__now_ns();

    if (run->shards == 0) /* else they are the same everywhere */
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
    if (run->shards == 0) /* else tutti__members_write_lines does */
        tutti__logs_eval(&run->logs, &run->kept.eval);
    tutti__progress_say(&run->progress, "epoch %lld/%lld  test loss %.4f  test accuracy %.2f %%",
                        (long long)run->at.epoch, (long long)run->config->epochs, run->at.val_loss,
                        100 * run->at.val_accuracy);
    return TUTTI_OK;
}
