/* autograd: what the tape records, when parameters are final, and how gradients add up.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"
#include "op/parameter.h"
#include "tensor/op.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* y = fc2(relu(fc1(x))), 3 -> 4 -> 2, and the listener's calls. */
typedef struct net {
    tutti_ctx *cx;
    test_parameter w1, b1, w2, b2, unused;
    char heard[256]; /* "step begin(w2,b2) ready w2 ..." */
    tutti_status step_begin_status, begin_status, end_status, end_saw;
} net;

static const float x_data[6] = {1, -2, 3, 0.5f, 1.5f, -1};
static const float target_data[4] = {1, 0, -1, 2};
static const tutti_array x_array = {x_data, {2, {2, 3}}, TUTTI_F32};
static const tutti_array target_array = {target_data, {2, {2, 2}}, TUTTI_F32};

static void hear(net *n, const char *what, const char *name)
{
    size_t at = strlen(n->heard);

    snprintf(n->heard + at, sizeof n->heard - at, "%s%s ", what, name);
}

static tutti_status on_step_begin(void *self)
{
    net *n = self;

    hear(n, "step", "");
    return n->step_begin_status == TUTTI_OK ? TUTTI_OK
                                            : tutti__fail(n->step_begin_status, "rank 1 is gone");
}

static tutti_status on_begin(void *self, tutti_tensor *const *order, size_t n_order)
{
    net *n = self;

    hear(n, "begin", "");
    for (size_t i = 0; i < n_order; i++)
        hear(n, "-", tutti_tensor_name(order[i]));
    return n->begin_status == TUTTI_OK ? TUTTI_OK : tutti__fail(n->begin_status, "no bucket");
}

static void on_ready(void *self, tutti_tensor *parameter)
{
    hear(self, "+", tutti_tensor_name(parameter));
}

static void on_ready_but_rows(void *self, tutti_tensor *parameter)
{
    hear(self, "~", tutti_tensor_name(parameter));
}

static tutti_status on_end(void *self, tutti_status status)
{
    net *n = self;

    hear(n, "end", "");
    n->end_saw = status;
    return n->end_status == TUTTI_OK ? TUTTI_OK : tutti__fail(n->end_status, "a bucket timed out");
}

static void listen(net *n)
{
    const tutti_backward_listener listener = {.self = n,
                                              .step_begin = on_step_begin,
                                              .begin = on_begin,
                                              .ready = on_ready,
                                              .end = on_end};

    assert_int_equal(tutti_ctx_set_backward_listener(n->cx, &listener), TUTTI_OK);
    n->cx->ready_but_rows = on_ready_but_rows;
}

static int setup(void **state)
{
    net *n = calloc(1, sizeof *n);
    float values[12];

    for (int i = 0; i < 12; i++)
        values[i] = 0.1f * (float)(i % 5) - 0.15f;
    assert_int_equal(tutti_ctx_new(&n->cx, test_device(), NULL), TUTTI_OK);
    test_parameter_init(&n->w1, n->cx, "fc1.weight", TUTTI_SHAPE(4, 3), values);
    test_parameter_init(&n->b1, n->cx, "fc1.bias", TUTTI_SHAPE(4), values);
    test_parameter_init(&n->w2, n->cx, "fc2.weight", TUTTI_SHAPE(2, 4), values + 1);
    test_parameter_init(&n->b2, n->cx, "fc2.bias", TUTTI_SHAPE(2), values + 2);
    test_parameter_init(&n->unused, n->cx, "unused", TUTTI_SHAPE(2), values);
    *state = n;
    return 0;
}

static int teardown(void **state)
{
    net *n = *state;

    test_parameter_free(&n->w1);
    test_parameter_free(&n->b1);
    test_parameter_free(&n->w2);
    test_parameter_free(&n->b2);
    test_parameter_free(&n->unused);
    tutti_ctx_free(n->cx);
    free(n);
    return 0;
}

static tutti_tensor *forward(net *n)
{
    tutti_tensor *h =
        tutti_relu(tutti_functional_linear(tutti_input(n->cx, x_array), n->w1.t, n->b1.t));

    return tutti_functional_linear(h, n->w2.t, n->b2.t);
}

static tutti_tensor *loss_of(net *n)
{
    return tutti_mse_loss(forward(n), tutti_input(n->cx, target_array));
}

static void train_step(net *n)
{
    tutti_step_begin(n->cx, NULL);
    assert_int_equal(tutti_backward(loss_of(n)), TUTTI_OK);
    tutti_step_end(n->cx);
}

static void zero_grad(net *n)
{
    n->w1.round++;
    n->b1.round++;
    n->w2.round++;
    n->b2.round++;
}

static void parameters_get_ready_in_the_announced_order(void **state)
{
    net *n = *state;

    listen(n);
    train_step(n);
    assert_string_equal(n->heard, "step begin -fc2.weight -fc2.bias -fc1.weight -fc1.bias "
                                  "+fc2.weight +fc2.bias +fc1.weight +fc1.bias end ");
    assert_int_equal(n->end_saw, TUTTI_OK);
    assert_null(tutti_tensor_grad(n->unused.t));
    assert_int_equal(n->unused.prepared, 0);
    assert_int_equal(n->w1.prepared, 1);
}

static void shared_weight_is_final_once_and_holds_both_contributions(void **state)
{
    net *n = *state;
    float w[9], first[9], both[9];
    test_parameter shared;
    const float *grad;

    for (int i = 0; i < 9; i++)
        w[i] = 0.1f * (float)i;
    test_parameter_init(&shared, n->cx, "shared", TUTTI_SHAPE(3, 3), w);
    listen(n);
    tutti_step_begin(n->cx, NULL);
    {
        tutti_tensor *x = tutti_input(n->cx, x_array),
                     *h = tutti_functional_linear(x, shared.t, NULL);

        assert_int_equal(
            tutti_backward(tutti_mse_loss(tutti_functional_linear(h, shared.t, NULL), x)),
            TUTTI_OK);
    }
    assert_string_equal(n->heard, "step begin -shared +shared end ");
    grad = test_grad(shared.t);
    memcpy(both, grad, sizeof both);
    tutti_step_end(n->cx);
    /* by parts: each use by a separate leaf */
    memset(first, 0, sizeof first);
    {
        tutti_array array = {w, {2, {3, 3}}, TUTTI_F32};
        tutti_tensor *x, *a, *b;

        tutti_step_begin(n->cx, NULL);
        x = tutti_input(n->cx, x_array);
        a = tutti_input_with_grad(n->cx, array);
        b = tutti_input_with_grad(n->cx, array);
        assert_int_equal(
            tutti_backward(tutti_mse_loss(
                tutti_functional_linear(tutti_functional_linear(x, a, NULL), b, NULL), x)),
            TUTTI_OK);
        for (int i = 0; i < 9; i++)
            first[i] = test_grad(a)[i] + test_grad(b)[i];
        tutti_step_end(n->cx);
    }
    for (int i = 0; i < 9; i++)
        assert_float_equal(both[i], first[i], 1e-5);
    test_parameter_free(&shared);
}

static void parameter_on_a_branch_without_loss_is_unused(void **state)
{
    net *n = *state;
    tutti_tensor *loss;

    listen(n);
    tutti_step_begin(n->cx, NULL);
    loss = loss_of(n);
    tutti_relu(n->unused.t); /* read by the tape, but not by the loss */
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    assert_string_equal(n->heard, "step begin -fc2.weight -fc2.bias -fc1.weight -fc1.bias "
                                  "+fc2.weight +fc2.bias +fc1.weight +fc1.bias end ");
    assert_null(tutti_tensor_grad(n->unused.t));
    tutti_step_end(n->cx);
}

static void frozen_parameter_is_neither_ordered_nor_computed(void **state)
{
    net *n = *state;

    n->w1.p.requires_grad = n->w1.t->needs_grad = false;
    listen(n);
    train_step(n);
    assert_string_equal(
        n->heard,
        "step begin -fc2.weight -fc2.bias -fc1.bias +fc2.weight +fc2.bias +fc1.bias end ");
    assert_null(tutti_tensor_grad(n->w1.t));
}

static void freezing_after_forward_changes_nothing_for_this_step(void **state)
{
    net *n = *state;
    tutti_tensor *loss;

    listen(n);
    n->b1.t->needs_grad = n->b1.p.requires_grad = false;
    tutti_step_begin(n->cx, NULL);
    loss = loss_of(n);
    n->b1.t->needs_grad = n->b1.p.requires_grad = true;
    n->b2.t->needs_grad = n->b2.p.requires_grad = false;
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    assert_non_null(strstr(n->heard, "+fc2.weight +fc2.bias +fc1.weight end"));
    assert_non_null(tutti_tensor_grad(n->b2.t));
    assert_null(tutti_tensor_grad(n->b1.t));
    tutti_step_end(n->cx);
}

static void gradients_add_until_zero_grad(void **state)
{
    net *n = *state;
    float once[12];

    train_step(n);
    memcpy(once, test_grad(n->w1.t), sizeof once);
    train_step(n);
    for (int i = 0; i < 12; i++)
        assert_float_equal(test_grad(n->w1.t)[i], 2 * once[i], 1e-6);
    zero_grad(n);
    assert_null(tutti_tensor_grad(n->w1.t));
    train_step(n);
    assert_memory_equal(test_grad(n->w1.t), once, sizeof once);
}

static void second_backward_in_a_step_is_an_error(void **state)
{
    net *n = *state;
    tutti_tensor *loss;

    tutti_step_begin(n->cx, NULL);
    loss = loss_of(n);
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    assert_int_equal(tutti_backward(loss), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "had its backward already"));
    assert_true(isfinite(tutti_item(loss))); /* results stay readable */
    tutti_step_end(n->cx);
    tutti_step_begin(n->cx, &(tutti_step_opts){.eval = true});
    assert_int_equal(tutti_backward(loss_of(n)), TUTTI_ERR_STATE);
    tutti_step_end(n->cx);
}

static void poison_travels_to_backward_with_its_first_cause(void **state)
{
    static const float bad[4] = {0};
    net *n = *state;
    tutti_tensor *y, *loss;

    listen(n);
    tutti_step_begin(n->cx, NULL);
    y = tutti_functional_linear(tutti_input(n->cx, (tutti_array){bad, {2, {2, 2}}, TUTTI_F32}),
                                n->w1.t, n->b1.t);
    loss = tutti_mse_loss(tutti_functional_linear(tutti_relu(y), n->w2.t, n->b2.t),
                          tutti_input(n->cx, target_array));
    assert_true(isnan(tutti_item(loss)));
    assert_int_equal(tutti_backward(loss), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "linear \"fc1.weight\": x is [2,2] but weight is [4,3]");
    assert_string_equal(n->heard, "step end ");
    assert_int_equal(n->end_saw, TUTTI_ERR_ARG);
    tutti_step_end(n->cx);
    tutti__fail(TUTTI_ERR_IO, "something else");
    n->heard[0] = '\0';
    train_step(n); /* the next step works again */
}

static void listener_failures_become_the_results(void **state)
{
    net *n = *state;

    listen(n);
    n->step_begin_status = TUTTI_ERR_PEER;
    tutti_step_begin(n->cx, NULL);
    assert_int_equal(tutti_backward(loss_of(n)), TUTTI_ERR_PEER);
    assert_string_equal(tutti_last_error(), "rank 1 is gone");
    tutti_step_end(n->cx);
    n->step_begin_status = TUTTI_OK;

    n->begin_status = TUTTI_ERR_MISMATCH;
    n->end_status = TUTTI_ERR_TIMEOUT; /* the first cause counts */
    n->heard[0] = '\0';
    tutti_step_begin(n->cx, NULL);
    assert_int_equal(tutti_backward(loss_of(n)), TUTTI_ERR_MISMATCH);
    assert_string_equal(tutti_last_error(), "no bucket");
    assert_null(strchr(n->heard, '+'));
    assert_null(tutti_tensor_grad(n->w1.t));
    tutti_step_end(n->cx);

    n->begin_status = TUTTI_OK;
    tutti_step_begin(n->cx, NULL);
    assert_int_equal(tutti_backward(loss_of(n)), TUTTI_ERR_TIMEOUT);
    assert_string_equal(tutti_last_error(), "a bucket timed out");
    tutti_step_end(n->cx);
    assert_int_equal(tutti_ctx_set_backward_listener(n->cx, &n->cx->listener), TUTTI_ERR_STATE);
    assert_int_equal(tutti_ctx_set_backward_listener(n->cx, NULL), TUTTI_OK);
}

/* z = r + (r + r) + relu(r), r = relu(x): gradients are added where all, some or none may be overwritten. */
static tutti_tensor *residual(tutti_tensor *const *inputs, void *arg)
{
    tutti_tensor *r = tutti_relu(inputs[0]), *twice = tutti_add(r, r);

    (void)arg;
    return tutti_mse_loss(tutti_add(tutti_add(r, twice), tutti_relu(r)), inputs[1]);
}

static void one_tensor_read_many_times_gets_the_sum(void **state)
{
    static const float t[6] = {0.5f, 1, -1, 2, 0, 1};
    net *n = *state;
    const tutti_array inputs[2] = {x_array, {t, {2, {2, 3}}, TUTTI_F32}};
    double error;

    assert_int_equal(tutti_gradient_check(n->cx, residual, NULL, inputs, 2, NULL, &error),
                     TUTTI_OK);
    assert_true(error < 1e-2);
    tutti_step_begin(n->cx, NULL);
    {
        tutti_tensor *in[2] = {tutti_input_with_grad(n->cx, inputs[0]),
                               tutti_input(n->cx, inputs[1])};
        const float *grad;

        assert_int_equal(tutti_backward(residual(in, NULL)), TUTTI_OK);
        grad = test_grad(in[0]);
        for (int i = 0; i < 6; i++)
            assert_float_equal(grad[i], x_data[i] > 0 ? 2.0f / 6 * 4 * (4 * x_data[i] - t[i]) : 0,
                               1e-5);
    }
    tutti_step_end(n->cx);
}

static void parameter_in_any_operation_gets_its_gradient(void **state)
{
    net *n = *state;
    const float *grad;

    tutti_step_begin(n->cx, NULL);
    {
        tutti_tensor *b = n->b2.t; /* read by add twice and by relu */
        tutti_tensor *sum = tutti_add(tutti_add(b, b), tutti_relu(b));
        static const float zeros[2] = {0};

        assert_int_equal(tutti_backward(tutti_mse_loss(
                             sum, tutti_input(n->cx, (tutti_array){zeros, {1, {2}}, TUTTI_F32}))),
                         TUTTI_OK);
        grad = test_grad(b);
        for (int i = 0; i < 2; i++) {
            float v = test_values(b)[i], slope = v > 0 ? 3 : 2;

            assert_float_equal(grad[i], slope * slope * v, 1e-6);
        }
    }
    tutti_step_end(n->cx);
}

static void steps_allocate_nothing_after_warm_up(void **state)
{
    net *n = *state;
    tutti_ctx_memory settled;

    train_step(n);
    train_step(n);
    settled = tutti_ctx_memory_stats(n->cx);
    for (int i = 0; i < 5; i++)
        train_step(n);
    assert_int_equal(tutti_ctx_memory_stats(n->cx).allocations, settled.allocations);
    assert_int_equal(tutti_ctx_memory_stats(n->cx).arena_bytes, settled.arena_bytes);
    assert_int_equal(tutti_ctx_memory_stats(n->cx).arena_used_bytes, 0);
}

/* A chain of 40 equal relus: backward's gradients take turns in a few buffers. */
static void gradients_of_activations_are_recycled(void **state)
{
    static float big[40000], zeros[40000];
    net *n = *state;
    size_t before;
    tutti_array array = {big, {1, {40000}}, TUTTI_F32}, target = {zeros, {1, {40000}}, TUTTI_F32};
    tutti_tensor *x, *loss;

    tutti_step_begin(n->cx, NULL);
    x = tutti_input_with_grad(n->cx, array);
    for (int i = 0; i < 40; i++)
        x = tutti_relu(x);
    loss = tutti_mse_loss(x, tutti_input(n->cx, target));
    before = tutti_ctx_memory_stats(n->cx).arena_used_bytes;
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    assert_true(tutti_ctx_memory_stats(n->cx).arena_used_bytes - before < 3 * sizeof big);
    tutti_step_end(n->cx);
}

static void loss_must_be_one_number_that_depends_on_a_parameter(void **state)
{
    net *n = *state;

    tutti_step_begin(n->cx, NULL);
    assert_int_equal(tutti_backward(forward(n)), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "[2,2]"));
    tutti_step_end(n->cx);
    tutti_step_begin(n->cx, NULL);
    assert_int_equal(
        tutti_backward(tutti_mse_loss(tutti_input(n->cx, x_array), tutti_input(n->cx, x_array))),
        TUTTI_ERR_ARG);
    tutti_step_end(n->cx);
    assert_int_equal(tutti_backward(NULL), TUTTI_ERR_ARG);
}

/* A rank as a thread: its own context and parameters; its result is fc1's gradient. */
static void *rank(void *arg)
{
    net *n;
    void *state;
    float *grad = arg;

    setup(&state);
    n = state;
    for (int i = 0; i < 20; i++) {
        zero_grad(n);
        tutti_step_begin(n->cx, NULL);
        if (tutti_backward(loss_of(n)) == TUTTI_OK)
            memcpy(grad, test_grad(n->w1.t), 12 * sizeof *grad);
        tutti_step_end(n->cx);
    }
    teardown(&state);
    return NULL;
}

static void contexts_of_several_threads_do_not_meet(void **state)
{
    pthread_t threads[4];
    float grads[4][12] = {{0}}, alone[12];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rank, grads[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    rank(alone);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(grads[i], alone, sizeof alone);
}

static void backward_is_a_span_of_the_trace(void **state)
{
    net *n = *state;
    tutti__time_span event;

    n->cx->recorder = tutti__recorder_new(16);
    train_step(n);
    train_step(n);
    assert_int_equal(tutti__recorder_read(n->cx->recorder, &event, 1), 1);
    assert_string_equal(event.name, "backward");
    assert_string_equal(event.category, "step");
    assert_int_equal(event.arg, 2);
    assert_true(event.end_ns >= event.begin_ns);
    tutti__recorder_free(n->cx->recorder);
}

/* What a loss makes of a table [4,3]: rows of it, before or after a product with it. */
static void hear_table(net *n, bool rows, bool product, bool rows_last, const char *heard)
{
    static const int64_t words[2] = {3, 3};
    tutti_tensor *w, *h, *loss;

    n->heard[0] = '\0';
    tutti_step_begin(n->cx, NULL);
    h = tutti_input(n->cx, x_array);
    w = tutti_input(n->cx, (tutti_array){words, TUTTI_SHAPE(2), TUTTI_I64});
    if (rows && !rows_last)
        h = tutti_functional_embedding(n->w1.t, w);
    h = tutti_mul(h, n->unused.t);
    loss = product ? tutti_mean(tutti_functional_linear(h, n->w1.t, NULL)) : tutti_mean(h);
    if (rows && rows_last)
        loss = tutti_add(loss, tutti_mean(tutti_functional_embedding(n->w1.t, w)));
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    tutti_step_end(n->cx);
    assert_string_equal(n->heard, heard);
}

/* When nothing but rows of a gradient is left to be added, the listener knows. */
static void a_gradient_is_ready_before_its_last_rows(void **state)
{
    static const float ones[3] = {1, 1, 1};
    net *n = *state;

    test_parameter_free(&n->unused);
    test_parameter_init(&n->unused, n->cx, "scale", TUTTI_SHAPE(3), ones);
    listen(n);
    hear_table(n, true, true, false,
               "step begin -scale -fc1.weight ~fc1.weight +scale +fc1.weight end ");
    hear_table(n, false, true, false, "step begin -fc1.weight -scale +fc1.weight +scale end ");
    hear_table(n, true, false, false, "step begin -scale -fc1.weight +scale +fc1.weight end ");
    hear_table(n, true, true, true, "step begin -fc1.weight -scale +fc1.weight +scale end ");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(parameters_get_ready_in_the_announced_order),
        TEST(shared_weight_is_final_once_and_holds_both_contributions),
        TEST(parameter_on_a_branch_without_loss_is_unused),
        TEST(frozen_parameter_is_neither_ordered_nor_computed),
        TEST(freezing_after_forward_changes_nothing_for_this_step),
        TEST(gradients_add_until_zero_grad),
        TEST(second_backward_in_a_step_is_an_error),
        TEST(poison_travels_to_backward_with_its_first_cause),
        TEST(listener_failures_become_the_results),
        TEST(one_tensor_read_many_times_gets_the_sum),
        TEST(parameter_in_any_operation_gets_its_gradient),
        TEST(steps_allocate_nothing_after_warm_up),
        TEST(gradients_of_activations_are_recycled),
        TEST(loss_must_be_one_number_that_depends_on_a_parameter),
        TEST(contexts_of_several_threads_do_not_meet),
        TEST(backward_is_a_span_of_the_trace),
        TEST(a_gradient_is_ready_before_its_last_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
