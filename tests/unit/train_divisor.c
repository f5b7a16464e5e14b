/* train_divisor.c -- what a batch's mean loss was divided by: times it, the mean is the loss with the reduction SUM.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/session/task.h"

#include <math.h>

enum { N = 6, CLASSES = 3, PIXELS = 4 };

static tutti_ctx *cx;
static const float weights[CLASSES] = {1, 5, 0.25f};

/* Logits, or outputs, that differ. */
static tutti_tensor *outputs(tutti_shape shape)
{
    static float values[N * CLASSES * PIXELS];

    for (int i = 0; i < N * CLASSES * PIXELS; i++)
        values[i] = (float)(i * 37 % 23) * 0.125f - 1;
    return tutti_input(cx, (tutti_array){values, shape, TUTTI_F32});
}

/* The sum by the operation, and by the mean and its divisor. */
static void compare(const tutti__train_task *task, tutti_shape shape, tutti_array y, bool weighted)
{
    tutti_tensor *x, *target, *weight = NULL, *mean, *sum;
    double by_mean, divisor = tutti__task_divisor(task, y, weighted ? weights : NULL);

    tutti_step_begin(cx, NULL);
    x = outputs(shape);
    target = tutti_input(cx, y);
    if (weighted)
        weight = tutti_input(
            cx, (tutti_array){(void *)(uintptr_t)weights, TUTTI_SHAPE(CLASSES), TUTTI_F32});
    mean = tutti__task_loss(task, x, target,
                            &(tutti__loss_terms){.weight = weight, .label_smoothing = 0.1f});
    if (task->numbers > 0)
        sum = tutti_mse_loss_with(x, target, &(tutti_loss_opts){.reduction = TUTTI_REDUCTION_SUM});
    else
        sum = tutti_cross_entropy_with(
            x, target,
            &(tutti_cross_entropy_opts){
                .weight = weight, .label_smoothing = 0.1f, .reduction = TUTTI_REDUCTION_SUM});
    by_mean = (double)tutti_item(mean) * divisor;
    assert_true(fabs(by_mean - (double)tutti_item(sum)) < 1e-5 * fabs(by_mean));
    tutti_step_end(cx);
}

static void means_times_their_divisors_are_sums(void **state)
{
    const tutti__train_task labels = {.loss = tutti__loss_find("cross_entropy"),
                                      .kind = &tutti__task_kinds[0],
                                      .classes = CLASSES,
                                      .positions = 1};
    const tutti__train_task masks = {
        .loss = labels.loss, .kind = labels.kind, .classes = CLASSES, .positions = PIXELS};
    const tutti__train_task numbers = {
        .loss = tutti__loss_find("mse"), .kind = labels.kind, .numbers = CLASSES};
    int64_t classes[N * PIXELS];
    float rows[N * CLASSES];

    (void)state;
    for (int i = 0; i < N * PIXELS; i++)
        classes[i] = i % 5 == 4 ? -100 : i % CLASSES;
    for (int i = 0; i < N * CLASSES; i++)
        rows[i] = (float)(i % CLASSES) / 3;
    for (int weighted = 0; weighted < 2; weighted++) {
        compare(&labels, TUTTI_SHAPE(N, CLASSES), (tutti_array){classes, TUTTI_SHAPE(N), TUTTI_I64},
                weighted);
        compare(&labels, TUTTI_SHAPE(N, CLASSES),
                (tutti_array){rows, TUTTI_SHAPE(N, CLASSES), TUTTI_F32}, weighted);
        compare(&masks, TUTTI_SHAPE(N, CLASSES, PIXELS),
                (tutti_array){classes, TUTTI_SHAPE(N, PIXELS), TUTTI_I64}, weighted);
    }
    compare(&numbers, TUTTI_SHAPE(N, CLASSES),
            (tutti_array){rows, TUTTI_SHAPE(N, CLASSES), TUTTI_F32}, false);
    /* a loss of the program's own is a mean over samples */
    assert_true(tutti__task_divisor(&(tutti__train_task){.numbers = CLASSES},
                                    (tutti_array){rows, TUTTI_SHAPE(N, CLASSES), TUTTI_F32},
                                    NULL) == N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(means_times_their_divisors_are_sums)};
    int failed;

    if (tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL) != TUTTI_OK)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tutti_ctx_free(cx);
    return failed;
}
