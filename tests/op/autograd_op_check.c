/* Operations of a program's own: what tutti_op_run refuses, and what tutti_op_check finds.   SPDX-License-Identifier: MIT
 * timeout: 60 */
#include "harness/device.h"
#include "tensor/tensor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/op.h>
#include <cmocka.h>

/* y = a * b^2, the backward of b wrong by a factor if the attribute says so. */
static void forward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = a[i] * b[i] * b[i];
}

static void backward(const tutti_op_args *p)
{
    const float *a = p->src[0], *b = p->src[1], factor = *(const float *)p->attributes;

    for (int64_t i = 0; p->dsrc[0] && i < p->count; i++)
        p->dsrc[0][i] = b[i] * b[i] * p->dy[i];
    for (int64_t i = 0; p->dsrc[1] && i < p->count; i++)
        p->dsrc[1][i] = factor * a[i] * b[i] * p->dy[i];
}

/* Depends on where a part begins. */
static void by_parts(const tutti_op_args *p)
{
    const float *a = p->src[0];

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = a[i] + (float)(p->count == 1 << 14);
}

static void pass(const tutti_op_args *p)
{
    memcpy(p->dsrc[0], p->dy, (size_t)p->count * sizeof(float));
}

/* Sums in parts of as many elements as there are threads. */
static tutti_status scalar(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    *y = (tutti_shape){0};
    return tutti_op_check_source(p, 0, "x", "[N,C]", *dtype);
}

static void sum(const tutti_op_args *p)
{
    const int64_t n = tutti_shape_count(tutti_tensor_shape(p->sources[0]));
    const float *x = p->src[0];
    float parts[3] = {0};

    for (int64_t i = 0; i < n; i++)
        parts[i % tutti_ctx_threads(p->cx)] += x[i];
    p->y[0] = parts[0] + parts[1] + parts[2];
}

static void spread(const tutti_op_args *p)
{
    const int64_t n = tutti_shape_count(tutti_tensor_shape(p->sources[0]));

    for (int64_t i = 0; i < n; i++)
        p->dsrc[0][i] = p->dy[0];
}

static tutti_status at_least_one(const tutti_op_args *p, tutti_shape *y, tutti_dtype *dtype)
{
    *y = tutti_tensor_shape(p->sources[0]);
    (void)dtype;
    return y->d[0] > 0 ? TUTTI_OK : tutti_fail(TUTTI_ERR_ARG, "x has no rows");
}

static const tutti_op product = {.name = "product",
                                 .forward = forward,
                                 .backward = backward,
                                 .elementwise = true,
                                 .backward_reads = 3,
                                 .activations = 3,
                                 .autocast = TUTTI_OP_WIDEST};
static const tutti_op sum_by_threads = {.name = "sum_by_threads",
                                        .shape = scalar,
                                        .forward = sum,
                                        .backward = spread,
                                        .activations = 1};
static const tutti_op picky = {.name = "picky",
                               .shape = at_least_one,
                               .forward = by_parts,
                               .backward = pass,
                               .elementwise = true,
                               .activations = 1};

/* NaN in 16 bit; the gradient of one element is NaN. */
static void narrow_nan(const tutti_op_args *p)
{
    const float *x = p->src[0];
    const bool narrow = tutti_tensor_dtype(p->sources[0]) != TUTTI_F32;

    for (int64_t i = 0; i < p->count; i++)
        p->y[i] = narrow && i == 0 ? NAN : x[i];
}

static void first_nan(const tutti_op_args *p)
{
    pass(p);
    p->dsrc[0][0] = NAN;
}

static const tutti_op nan_in_half = {.name = "nan_in_half",
                                     .forward = narrow_nan,
                                     .backward = pass,
                                     .elementwise = true,
                                     .activations = 1};
static const tutti_op nan_gradient = {.name = "nan_gradient",
                                      .forward = narrow_nan,
                                      .backward = first_nan,
                                      .elementwise = true,
                                      .activations = 1};

static float factor = 2;
static const float values[] = {0.1f, -1.3f, 2.7f, 0.21f, 1.9f, -0.77f};
static const tutti_array two[] = {{values, {2, {2, 3}}, TUTTI_F32}, {values, {1, {3}}, TUTTI_F32}};

static tutti_tensor *call_product(tutti_tensor *const *src, void *arg)
{
    return tutti_op_run(&product, src, 2, arg, sizeof factor);
}

static tutti_tensor *call_sum(tutti_tensor *const *src, void *arg)
{
    (void)arg;
    return tutti_op_run(&sum_by_threads, src, 1, NULL, 0);
}

static tutti_tensor *call_picky(tutti_tensor *const *src, void *arg)
{
    (void)arg;
    return tutti_op_run(&picky, src, 1, NULL, 0);
}

static tutti_tensor *call_one(tutti_tensor *const *src, void *arg)
{
    return tutti_op_run(arg, src, 1, NULL, 0);
}

static void nan_is_no_agreement(void **state)
{
    (void)state;
    assert_int_equal(tutti_op_check(call_one, (void *)&nan_in_half, two, 1, NULL),
                     TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(tutti_last_error(), "16 bit: BF16 differs from F32 by inf"));
    assert_int_equal(tutti_op_check(call_one, (void *)&nan_gradient, two, 1, NULL),
                     TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(tutti_last_error(), "backward differs from finite differences by"));
}

static void a_right_one_passes(void **state)
{
    (void)state;
    factor = 2;
    assert_int_equal(tutti_op_check(call_product, &factor, two, 2, NULL), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "tutti_op_check, threads: product: b is "));
    /* the second source is broadcast: no batch */
    assert_int_equal(
        tutti_op_check(call_product, &factor, two, 2, &(tutti_op_check_opts){.weights = 1 << 1}),
        TUTTI_OK);
}

static void what_is_wrong_is_told(void **state)
{
    (void)state;
    factor = 2.5f;
    assert_int_equal(
        tutti_op_check(call_product, &factor, two, 2, &(tutti_op_check_opts){.weights = 1 << 1}),
        TUTTI_ERR_INTERNAL);
    assert_non_null(
        strstr(tutti_last_error(),
               "tutti_op_check, gradients: backward differs from finite differences by "));
    assert_int_equal(tutti_op_check(call_sum, NULL, two, 1, NULL), TUTTI_ERR_INTERNAL);
    assert_non_null(
        strstr(tutti_last_error(), "tutti_op_check, threads: three threads give other bits"));
    assert_int_equal(tutti_op_check(call_picky, NULL, two, 1, NULL), TUTTI_ERR_ARG);
    assert_non_null(
        strstr(tutti_last_error(), "tutti_op_check, an empty batch: picky: x has no rows"));
    assert_int_equal(tutti_op_check(call_picky, NULL, two, 17, NULL), TUTTI_ERR_ARG);
    assert_int_equal(tutti_op_check(NULL, NULL, two, 1, NULL), TUTTI_ERR_ARG);
}

static void wrong_operations_are_refused(void **state)
{
    static const tutti_op nameless = {.forward = forward};
    static const tutti_op newer = {.name = "newer", .forward = forward, .reserved = {1}};
    tutti_tensor *x, *many[17];
    tutti_ctx *cx;

    (void)state;
    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL), TUTTI_OK);
    tutti_step_begin(cx, NULL);
    x = tutti_input(cx, two[0]);
    for (int i = 0; i < 17; i++)
        many[i] = x;
    assert_int_equal(tutti_tensor_status(tutti_op_run(&nameless, &x, 1, NULL, 0)), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "the operation has no name or no forward"));
    assert_int_equal(tutti_tensor_status(tutti_op_run(&newer, &x, 1, NULL, 0)), TUTTI_ERR_ARG);
    assert_int_equal(tutti_tensor_status(tutti_op_run(&product, many, 17, NULL, 0)), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "product: 17 sources, expected 1 to 16"));
    assert_null(tutti_op_run(&product, (tutti_tensor *[]){NULL, NULL}, 2, NULL, 0));
    assert_int_equal(
        tutti_tensor_status(tutti_op_run(&product, (tutti_tensor *[]){x, NULL}, 2, &factor, 4)),
        TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "product: b is NULL"));
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_one_passes),
        cmocka_unit_test(what_is_wrong_is_told),
        cmocka_unit_test(nan_is_no_agreement),
        cmocka_unit_test(wrong_operations_are_refused),
    };

    setenv("TUTTI_EMULATE_HALF", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
