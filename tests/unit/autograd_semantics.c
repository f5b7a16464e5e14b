/* autograd: operations agree with PyTorch's where a formula is ambiguous: ties, padding, running statistics, ignored
 * labels, extreme numbers. In every kernel family of the build.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"
#include "op/parameter.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct fixture {
    tutti_ctx *cx;
} fixture;

static int setup_family(void **state, tutti_kernels kernels)
{
    const tutti_device device = test_family(&kernels);
    fixture *f = calloc(1, sizeof *f);

    *state = f;
    if (tutti_ctx_new(&f->cx, device, &(tutti_ctx_opts){.kernels = kernels}) != TUTTI_OK)
        f->cx = NULL;
    return 0;
}

static int setup_reference(void **state)
{
    return setup_family(state, TUTTI_KERNELS_REFERENCE);
}

static int setup_onednn(void **state)
{
    return setup_family(state, TUTTI_KERNELS_ONEDNN);
}

static int teardown(void **state)
{
    fixture *f = *state;

    tutti_ctx_free(f->cx);
    free(f);
    return 0;
}

/* The open step's context; skips where the build lacks the family. */
static tutti_ctx *begin(void **state, const tutti_step_opts *opts)
{
    tutti_ctx *cx = ((fixture *)*state)->cx;

    if (!cx)
        skip();
    tutti_step_begin(cx, opts);
    return cx;
}

static tutti_array f32(const float *p, tutti_shape shape)
{
    return (tutti_array){p, shape, TUTTI_F32};
}

static tutti_array i64(const int64_t *p, int64_t n)
{
    return (tutti_array){p, TUTTI_SHAPE(n), TUTTI_I64};
}

static void assert_values(tutti_tensor *t, const float *expected, int n)
{
    float values[64];

    assert_int_equal(tutti_shape_count(tutti_tensor_shape(t)), n);
    if (tutti_tensor_read(t, values) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    for (int i = 0; i < n; i++)
        if (!(fabsf(values[i] - expected[i]) <= 1e-5f * (1 + fabsf(expected[i]))))
            fail_msg("element %d is %g, expected %g", i, (double)values[i], (double)expected[i]);
}

static void assert_grad(tutti_tensor *leaf, const float *expected, int n)
{
    const float *grad = test_grad(leaf);

    assert_non_null(grad);
    for (int i = 0; i < n; i++)
        if (!(fabsf(grad[i] - expected[i]) <= 1e-5f * (1 + fabsf(expected[i]))))
            fail_msg("gradient %d is %g, expected %g", i, (double)grad[i], (double)expected[i]);
}

/* y[h,w] = x[h,w] - 2 x[h+1,w+1] + 0.5: the kernel is not flipped. */
static void conv2d_correlates(void **state)
{
    static const float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, w[4] = {1, 0, 0, -2}, b[1] = {0.5f};
    static const float expected[4] = {1 - 10 + 0.5f, 2 - 12 + 0.5f, 4 - 16 + 0.5f, 5 - 18 + 0.5f};
    tutti_ctx *cx = begin(state, NULL);

    assert_values(tutti_functional_conv2d(tutti_input(cx, f32(x, TUTTI_SHAPE(1, 1, 3, 3))),
                                          tutti_input(cx, f32(w, TUTTI_SHAPE(1, 1, 2, 2))),
                                          tutti_input(cx, f32(b, TUTTI_SHAPE(1))),
                                          (tutti_conv2d_opts){0}),
                  expected, 4);
    tutti_step_end(cx);
}

static void max_pool_gives_ties_to_the_first(void **state)
{
    static const float x[16] = {1, 1, 2, 2, 1, 1, 2, 2, -3, -3, 0, 0, -3, -3, 0, 0}, zeros[4] = {0};
    static const float grads[16] = {0.5f, 0, 1, 0, 0, 0, 0, 0, -1.5f, 0, 0, 0, 0, 0, 0, 0};
    static const float expected[4] = {1, 2, -3, 0};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *in = tutti_input_with_grad(cx, f32(x, TUTTI_SHAPE(1, 1, 4, 4)));
    tutti_tensor *y = tutti_max_pool2d(in, (tutti_pool_opts){.kernel = 2});

    assert_values(y, expected, 4);
    assert_int_equal(
        tutti_backward(tutti_mse_loss(y, tutti_input(cx, f32(zeros, TUTTI_SHAPE(1, 1, 2, 2))))),
        TUTTI_OK);
    assert_grad(in, grads, 16);
    tutti_step_end(cx);
}

static void max_pool_pads_with_minus_infinity(void **state)
{
    static const float x[4] = {-1, -2, -3, -4}, expected[4] = {-1, -2, -3, -4};
    tutti_ctx *cx = begin(state, NULL);

    assert_values(tutti_max_pool2d(tutti_input(cx, f32(x, TUTTI_SHAPE(1, 1, 2, 2))),
                                   (tutti_pool_opts){.kernel = 2, .stride = 2, .padding = 1}),
                  expected, 4);
    tutti_step_end(cx);
}

static void avg_pool_counts_the_padding(void **state)
{
    static const float x[4] = {4, 8, 12, 16}, expected[4] = {1, 2, 3, 4};
    tutti_ctx *cx = begin(state, NULL);

    assert_values(tutti_avg_pool2d(tutti_input(cx, f32(x, TUTTI_SHAPE(1, 1, 2, 2))),
                                   (tutti_pool_opts){.kernel = 2, .stride = 2, .padding = 1}),
                  expected, 4);
    tutti_step_end(cx);
}

static void relu_has_no_gradient_at_zero(void **state)
{
    static const float x[3] = {-1, 0, 2}, target[3] = {3, 3, 3}, grads[3] = {0, 0, -2.0f / 3};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *in = tutti_input_with_grad(cx, f32(x, TUTTI_SHAPE(3)));

    assert_int_equal(tutti_backward(tutti_mse_loss(tutti_relu(in),
                                                   tutti_input(cx, f32(target, TUTTI_SHAPE(3))))),
                     TUTTI_OK);
    assert_grad(in, grads, 3);
    tutti_step_end(cx);
}

static void batch_norm_normalises_biased_and_runs_unbiased(void **state)
{
    /* mean 3, variance 3.5 or 14/3 */
    static const float x[4] = {1, 2, 3, 6}, w[1] = {2}, b[1] = {1};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *mean = test_buffer_new(cx, TUTTI_SHAPE(1), 0),
                 *var = test_buffer_new(cx, TUTTI_SHAPE(1), 1);
    test_parameter weight, bias;
    float expected[4], running;
    tutti_batch_norm2d_args args = {.running_mean = mean, .running_var = var};

    args.weight = test_parameter_init(&weight, cx, "weight", TUTTI_SHAPE(1), w);
    args.bias = test_parameter_init(&bias, cx, "bias", TUTTI_SHAPE(1), b);
    for (int i = 0; i < 4; i++)
        expected[i] = (x[i] - 3) / sqrtf(3.5f + 1e-5f) * 2 + 1;
    assert_values(
        tutti_functional_batch_norm2d(tutti_input(cx, f32(x, TUTTI_SHAPE(2, 1, 1, 2))), &args),
        expected, 4);
    running = 0.3f;
    assert_values(mean, &running, 1);
    running = 0.9f + 0.1f * 14 / 3;
    assert_values(var, &running, 1);
    tutti_step_end(cx);

    tutti_step_begin(cx, &(tutti_step_opts){.eval = true});
    for (int i = 0; i < 4; i++)
        expected[i] = (x[i] - 0.3f) / sqrtf(running + 1e-5f) * 2 + 1;
    assert_values(
        tutti_functional_batch_norm2d(tutti_input(cx, f32(x, TUTTI_SHAPE(2, 1, 1, 2))), &args),
        expected, 4);
    assert_values(var, &running, 1); /* eval leaves them alone */
    tutti_step_end(cx);
    test_parameter_free(&weight);
    test_parameter_free(&bias);
    test_buffer_free(mean);
    test_buffer_free(var);
}

static void batch_norm_takes_zero_momentum_and_eps(void **state)
{
    static const float x[4] = {1, 2, 3, 6}, one[1] = {1}, zero[1] = {0}, unset[1] = {1};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *mean = test_buffer_new(cx, TUTTI_SHAPE(1), 0),
                 *var = test_buffer_new(cx, TUTTI_SHAPE(1), 1);
    test_parameter weight, bias;
    float expected[4];
    tutti_batch_norm2d_args args = {
        .running_mean = mean, .running_var = var, .momentum = TUTTI_ZERO, .eps = TUTTI_ZERO};

    args.weight = test_parameter_init(&weight, cx, "weight", TUTTI_SHAPE(1), one);
    args.bias = test_parameter_init(&bias, cx, "bias", TUTTI_SHAPE(1), zero);
    for (int i = 0; i < 4; i++)
        expected[i] = (x[i] - 3) * 1e-3f / sqrtf(3.5e-6f);
    /* Of values this small, 1e-5 would be most of the variance. */
    assert_values(tutti_functional_batch_norm2d(
                      tutti_scale(tutti_input(cx, f32(x, TUTTI_SHAPE(2, 1, 1, 2))), 1e-3f), &args),
                  expected, 4);
    assert_values(mean, zero, 1);
    assert_values(var, unset, 1);
    tutti_step_end(cx);
    test_parameter_free(&weight);
    test_parameter_free(&bias);
    test_buffer_free(mean);
    test_buffer_free(var);
}

static void softmax_survives_extreme_numbers(void **state)
{
    static const float x[6] = {1000, 1000, -1000, -1e30f, 0, -1e30f};
    static const float soft[6] = {0.5f, 0.5f, 0, 0, 1, 0};
    static const float logs[3] = {-0.6931472f, -0.6931472f, -2000.6931f};
    tutti_ctx *cx = begin(state, NULL);

    assert_values(tutti_softmax(tutti_input(cx, f32(x, TUTTI_SHAPE(2, 3)))), soft, 6);
    assert_values(tutti_log_softmax(tutti_input(cx, f32(x, TUTTI_SHAPE(1, 3)))), logs, 3);
    tutti_step_end(cx);
}

/* Rows of logits with known log-probabilities: log of (1/4, 1/4, 1/2), of (1/8, 1/8, 3/4), of thirds. */
static const double probabilities[9] = {0.25, 0.25,    0.5,     0.125,  0.125,
                                        0.75, 1 / 3.0, 1 / 3.0, 1 / 3.0};

static void log_probabilities(float *logits)
{
    for (int i = 0; i < 9; i++)
        logits[i] = (float)log(probabilities[i]) + 5; /* a shift that softmax does not see */
}

static void cross_entropy_leaves_ignored_rows_out_of_the_mean(void **state)
{
    static const int64_t labels[3] = {2, -100, 0};
    tutti_ctx *cx = begin(state, NULL);
    float logits[9], expected = (float)(-(log(0.5) + log(1 / 3.0)) / 2), grads[9];
    tutti_tensor *x, *loss;

    log_probabilities(logits);
    x = tutti_input_with_grad(cx, f32(logits, TUTTI_SHAPE(3, 3)));
    loss = tutti_cross_entropy(x, tutti_input(cx, i64(labels, 3)));
    assert_values(loss, &expected, 1);
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    for (int i = 0; i < 9; i++)
        grads[i] = i / 3 == 1 ? 0 : (float)(probabilities[i] - (i == 2 || i == 6)) / 2;
    assert_grad(x, grads, 9);
    tutti_step_end(cx);
}

/* (1 - s) * nll + s * mean over classes of -log p; rows ignored by another index than -100. */
static void cross_entropy_smooths_and_ignores_as_told(void **state)
{
    static const int64_t labels[3] = {2, 1, 0};
    const tutti_cross_entropy_opts opts = {
        .label_smoothing = 0.3f, .has_ignore_index = true, .ignore_index = 1};
    tutti_ctx *cx = begin(state, NULL);
    float logits[9], expected, grads[9];
    double smooth = -(2 * log(0.25) + log(0.5)) / 3 - log(1 / 3.0);
    tutti_tensor *x, *loss;

    log_probabilities(logits);
    expected = (float)((0.7 * (-log(0.5) - log(1 / 3.0)) + 0.3 * smooth) / 2);
    x = tutti_input_with_grad(cx, f32(logits, TUTTI_SHAPE(3, 3)));
    loss = tutti_cross_entropy_with(x, tutti_input(cx, i64(labels, 3)), &opts);
    assert_values(loss, &expected, 1);
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    for (int i = 0; i < 9; i++)
        grads[i] = i / 3 == 1 ? 0 : (float)(probabilities[i] - 0.1 - 0.7 * (i == 2 || i == 6)) / 2;
    assert_grad(x, grads, 9);
    tutti_step_end(cx);
}

static void cross_entropy_of_ignored_rows_only_is_nan_without_gradient(void **state)
{
    static const int64_t labels[3] = {-100, -100, -100};
    static const float zeros[9] = {0};
    tutti_ctx *cx = begin(state, NULL);
    float logits[9];
    tutti_tensor *x, *loss;

    log_probabilities(logits);
    x = tutti_input_with_grad(cx, f32(logits, TUTTI_SHAPE(3, 3)));
    loss = tutti_cross_entropy(x, tutti_input(cx, i64(labels, 3)));
    assert_int_equal(tutti_tensor_status(loss), TUTTI_OK);
    assert_true(isnan(tutti_item(loss)));
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    assert_grad(x, zeros, 9);
    tutti_step_end(cx);
}

static void label_out_of_range_is_named_with_its_row(void **state)
{
    static const int64_t above[3] = {0, 3, 1}, below[3] = {0, 1, -1};
    tutti_ctx *cx = begin(state, NULL);
    float logits[9];
    tutti_tensor *x;

    log_probabilities(logits);
    x = tutti_input_with_grad(cx, f32(logits, TUTTI_SHAPE(3, 3)));
    assert_int_equal(tutti_backward(tutti_cross_entropy(x, tutti_input(cx, i64(above, 3)))),
                     TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(),
                        "cross_entropy: the label of row 1 is 3, but there are 3 classes: expected "
                        "0 to 2, or -100 to ignore the row");
    assert_int_equal(tutti_tensor_status(tutti_cross_entropy(x, tutti_input(cx, i64(below, 3)))),
                     TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "row 2 is -1"));
    tutti_step_end(cx);
}

/* Neither alone nor added to a gradient that is there. */
static void an_embedding_has_no_gradient_for_its_padding(void **state)
{
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    static const int64_t indices[4] = {2, 1, 2, 0};
    tutti_ctx *cx = begin(state, NULL);
    test_parameter table;

    tutti_step_end(cx);
    test_parameter_init(&table, cx, "table", TUTTI_SHAPE(3, 2), values);
    for (int with_plain = 0; with_plain < 2; with_plain++) {
        const float expected[3] = {(float)(1 + with_plain), (float)(1 + with_plain),
                                   (float)(2 * with_plain)};
        tutti_tensor *rows, *padded, *plain;

        table.round++;
        tutti_step_begin(cx, NULL);
        rows = tutti_input(cx, i64(indices, 4));
        padded = tutti_functional_embedding_with(
            table.t, rows, &(tutti_embedding_opts){.has_padding_idx = true, .padding_idx = -1});
        padded = tutti_scale(tutti_mean(padded), 8);
        /* recorded later, so its gradient is the first */
        plain = tutti_scale(tutti_mean(tutti_functional_embedding(table.t, rows)), 8);
        assert_int_equal(tutti_backward(with_plain ? tutti_add(padded, plain) : padded), TUTTI_OK);
        for (int i = 0; i < 6; i++)
            assert_true(fabsf(test_grad(table.t)[i] - expected[i / 2]) < 1e-5f);
        tutti_step_end(cx);
    }
    test_parameter_free(&table);
}

static void of_several_scattered_to_one_place_the_last_counts(void **state)
{
    static const float x[3] = {1, 2, 3}, src[4] = {10, 20, 30, 40};
    static const int64_t index[4] = {1, 0, 1, 0};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *in = tutti_input_with_grad(cx, f32(x, TUTTI_SHAPE(3)));
    tutti_tensor *from = tutti_input_with_grad(cx, f32(src, TUTTI_SHAPE(4)));
    tutti_tensor *y = tutti_functional_scatter(in, 0, tutti_input(cx, i64(index, 4)), from);
    float grad[4];

    assert_values(y, (const float[]){40, 30, 3}, 3);
    assert_int_equal(tutti_backward(tutti_scale(tutti_mean(y), 3)), TUTTI_OK);
    test_must(tutti_tensor_grad_read(in, grad));
    assert_memory_equal(grad, ((const float[]){0, 0, 1}), 3 * sizeof(float));
    test_must(tutti_tensor_grad_read(from, grad));
    assert_memory_equal(grad, ((const float[]){0, 0, 1, 1}), 4 * sizeof(float));
    tutti_step_end(cx);
}

static void beta_of_zero_hides_what_is_not_a_number(void **state)
{
    static const float nan[1] = {NAN}, ones[4] = {1, 1, 1, 1};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *a = tutti_input(cx, f32(ones, TUTTI_SHAPE(2, 2)));

    assert_values(tutti_addmm(tutti_input(cx, f32(nan, TUTTI_SHAPE(1))), a, a, 0, 3),
                  (const float[]){6, 6, 6, 6}, 4);
    tutti_step_end(cx);
}

static void the_rest_of_an_array_of_parts_is_null(void **state)
{
    static const float x[4] = {1, 2, 3, 4};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *in = tutti_input(cx, f32(x, TUTTI_SHAPE(4))), *parts[5];

    assert_int_equal(tutti_chunk(in, 3, 0, parts), 2);
    assert_null(parts[2]);
    assert_values(parts[1], (const float[]){3, 4}, 2);
    assert_int_equal(tutti_split(in, 3, -1, parts, 5), 2);
    assert_null(parts[2]);
    assert_values(parts[1], (const float[]){4}, 1);
    assert_int_equal(tutti_split(in, 1, 0, parts, 3), 0);
    assert_int_equal(tutti_tensor_status(parts[2]), TUTTI_ERR_ARG);
    tutti_step_end(cx);
}

static void not_a_number_is_not_hidden(void **state)
{
    static const float x[4] = {NAN, 1, 2, 3};
    tutti_ctx *cx = begin(state, NULL);
    tutti_tensor *in = tutti_input(cx, f32(x, TUTTI_SHAPE(1, 1, 2, 2)));

    assert_true(isnan(tutti_item(tutti_global_avg_pool2d(tutti_relu(in)))));
    assert_true(isnan(tutti_item(tutti_mse_loss(in, in))));
    tutti_step_end(cx);
}

int main(void)
{
#define TEST(f)                                                                                    \
    {#f " (reference)", f, setup_reference, teardown, NULL},                                       \
    {                                                                                              \
#f " (onednn)", f, setup_onednn, teardown, NULL                                            \
    }
    const struct CMUnitTest tests[] = {
        TEST(conv2d_correlates),
        TEST(max_pool_gives_ties_to_the_first),
        TEST(max_pool_pads_with_minus_infinity),
        TEST(avg_pool_counts_the_padding),
        TEST(relu_has_no_gradient_at_zero),
        TEST(batch_norm_normalises_biased_and_runs_unbiased),
        TEST(batch_norm_takes_zero_momentum_and_eps),
        TEST(softmax_survives_extreme_numbers),
        TEST(cross_entropy_leaves_ignored_rows_out_of_the_mean),
        TEST(cross_entropy_smooths_and_ignores_as_told),
        TEST(cross_entropy_of_ignored_rows_only_is_nan_without_gradient),
        TEST(label_out_of_range_is_named_with_its_row),
        TEST(an_embedding_has_no_gradient_for_its_padding),
        TEST(of_several_scattered_to_one_place_the_last_counts),
        TEST(beta_of_zero_hides_what_is_not_a_number),
        TEST(the_rest_of_an_array_of_parts_is_null),
        TEST(not_a_number_is_not_hidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
