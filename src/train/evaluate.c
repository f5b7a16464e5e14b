/* evaluate.c -- loss and accuracy over the whole test set, each sample exactly once.   SPDX-License-Identifier: MIT
 *
 * Every rank computes its share alone; counts and sums, not means, are added up at the end, so that the result does not
 * depend on the number of ranks. */
#include "train/run.h"

#include <math.h>
#include <stdlib.h>

/* How many rows of logits [n, classes] are largest at their label. */
static int64_t count_correct(const float *logits, const int64_t *labels, size_t n, size_t classes)
{
    int64_t correct = 0;

    for (size_t i = 0; i < n; i++) {
        const float *row = logits + i * classes;
        size_t best = 0;

        for (size_t k = 1; k < classes; k++)
            if (row[k] > row[best])
                best = k;
        correct += (int64_t)best == labels[i];
    }
    return correct;
}

static tutti_status evaluate_batch(tutti__run *run, const tutti_batch *batch, float **logits_p,
                                   size_t *capacity, double *loss_sum, int64_t *correct)
{
    tutti_tensor *logits = tutti_model_forward(run->model, tutti_input(run->cx, batch->x));
    tutti_tensor *loss = tutti_cross_entropy(logits, tutti_input(run->cx, batch->y));
    size_t classes, elements;

    TUTTI_TRY(tutti_tensor_status(loss));
    elements = (size_t)tutti_shape_count(tutti_tensor_shape(logits));
    classes = elements / batch->n;
    if (elements > *capacity) {
        free(*logits_p);
        *capacity = 0;
        *logits_p = tutti__alloc(elements * sizeof **logits_p);
        if (!*logits_p)
            return TUTTI_ERR_MEMORY;
        *capacity = elements;
    }
    TUTTI_TRY(tutti_tensor_read(logits, *logits_p));
    *correct += count_correct(*logits_p, batch->y.p, batch->n, classes);
    *loss_sum += (double)tutti_item(loss) * (double)batch->n;
    return TUTTI_OK;
}

/* How many batches the rank with the most has: rank 0, where shares differ. */
static size_t rounds_of(const tutti__run *run)
{
    size_t size = (size_t)run->size, batch = (size_t)run->config->batch_size;
    size_t share = (tutti_dataset_describe(run->test_data).count + size - 1) / size;

    return (share + batch - 1) / batch;
}

/* Ranks do as many rounds, with a batch or, at the end, without, because each round asks whether to stop. */
static tutti_status evaluate_share(tutti__run *run, double *loss_sum, int64_t *correct)
{
    const size_t rounds = rounds_of(run);
    float *logits = NULL;
    size_t capacity = 0;
    tutti_batch batch;
    tutti_status status = TUTTI_OK;
    bool more = true;

    for (size_t i = rounds; i > 0 && status == TUTTI_OK && !run->stopping; i--) {
        status = tutti__run_ask_to_stop(run);
        more = more && tutti_loader_next(run->test_loader, &batch);
        if (status == TUTTI_OK && more) {
            tutti_step_begin(run->cx, &(tutti_step_opts){.eval = true});
            status = evaluate_batch(run, &batch, &logits, &capacity, loss_sum, correct);
            tutti_step_end(run->cx);
        } else if (status == TUTTI_OK)
            status = tutti_loader_status(run->test_loader);
        if (status == TUTTI_OK)
            status = tutti__run_hear_of_stop(run);
        tutti__progress_count(&run->progress, "evaluation", "batches", rounds - i + 1, rounds);
    }
    free(logits);
    return status;
}

/* Sums over all ranks in place. */
static tutti_status add_up(tutti__run *run, double *loss, int64_t *correct)
{
    TUTTI_TRY(tutti_all_reduce(run->group, (tutti_buf){loss, 1, TUTTI_F64}, TUTTI_SUM, NULL));
    return tutti_all_reduce(run->group, (tutti_buf){correct, 1, TUTTI_I64}, TUTTI_SUM, NULL);
}

tutti_status tutti__run_evaluate(tutti__run *run)
{
    double loss = 0, count = (double)tutti_dataset_describe(run->test_data).count;
    int64_t correct = 0;
    uint64_t begin_ns = tutti__now_ns();

    TUTTI_TRY(tutti_ddp_broadcast_buffers(run->ddp));
    tutti_loader_set_epoch(run->test_loader, 0);
    TUTTI_TRY(evaluate_share(run, &loss, &correct));
    if (run->stopping)
        return TUTTI_OK;
    TUTTI_TRY(add_up(run, &loss, &correct));
    tutti__record(run->recorder, "step", "evaluate", (int64_t)run->step, 0, begin_ns,
                  tutti__now_ns());
    tutti__ledger_add(&run->ledger, TUTTI__TIME_EVALUATION,
                      (double)(tutti__now_ns() - begin_ns) * 1e-9);
    loss /= count;
    run->val_loss = loss;
    run->val_accuracy = (double)correct / count;
    if (!isfinite(loss))
        return tutti__fail(
            TUTTI_ERR_STATE,
            "the loss on the test set is %s after step %llu: training has diverged; lower "
            "the learning rate or set clip_grad_norm",
            isnan(loss) ? "NaN" : "infinite", (unsigned long long)run->step);
    tutti__logs_eval(&run->logs, &(tutti__eval_metrics){.epoch = run->epoch,
                                                        .val_loss = loss,
                                                        .val_accuracy = run->val_accuracy,
                                                        .time_s = tutti__run_seconds(run),
                                                        .step = (int64_t)run->step});
    tutti__progress_say(&run->progress, "epoch %lld/%lld  test loss %.4f  test accuracy %.2f %%",
                        (long long)run->epoch, (long long)run->config->epochs, loss,
                        100 * run->val_accuracy);
    return TUTTI_OK;
}
