/* autograd_kernels.c -- incomplete tables of kernels: rejected by name, or completed by an operation's plain C; never a crash.
 * SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/kernel.h"
#include "tensor/op.h"

#include <string.h>

static tutti__kernels fastest(void)
{
    const tutti__kernels *k;

    return tutti__kernels_onednn(&k) == TUTTI_OK ? *k : tutti__kernels_reference;
}

static void refused(const tutti__kernels *k, bool half, const char *name)
{
    assert_int_equal(tutti__kernels_check(k, half), TUTTI_ERR_INTERNAL);
    if (!strstr(tutti_last_error(), name) || !strstr(tutti_last_error(), "kernel.h lists"))
        fail_msg("without %s: %s", name, tutti_last_error());
}

static void what_is_missing_is_named(void **state)
{
    const tutti__kernels whole = fastest();
    tutti__kernels k;

    (void)state;
    assert_int_equal(tutti__kernels_check(&whole, false), TUTTI_OK);
    assert_int_equal(tutti__kernels_check(&tutti__kernels_reference, false), TUTTI_OK);
    assert_int_equal(tutti__kernels_check(&tutti__kernels_strict, false), TUTTI_OK);
    assert_int_equal(tutti__kernels_check(&tutti__kernels_cuda, false), TUTTI_OK);
    assert_int_equal(tutti__kernels_check(&tutti__kernels_emulated, true), TUTTI_OK);
    if (whole.half)
        assert_int_equal(tutti__kernels_check(whole.half, true), TUTTI_OK);
#define WITHOUT(function)                                                                          \
    k = whole;                                                                                     \
    k.function = NULL;                                                                             \
    refused(&k, false, #function);
    TUTTI__KERNELS_REQUIRED(WITHOUT)
    TUTTI__KERNELS_REQUIRED_F32(WITHOUT)
    k = tutti__kernels_emulated;
    k.add_to = NULL;
    refused(&k, true, "of 16 bit lacks add_to");
    k = tutti__kernels_cuda;
    k.softmax_backward = NULL;
    refused(&k, false, "softmax_backward");
    k = tutti__kernels_cuda;
    k.mse_forward = NULL;
    refused(&k, false, "mse_forward");
}

static float loss_of(tutti_ctx *cx, float *gradient)
{
    const float values[] = {-2, -0.5f, 0.25f, 3};
    const int64_t label = 2;
    float loss;
    tutti_tensor *x, *l;

    tutti_step_begin(cx, NULL);
    x = tutti_input_with_grad(cx, (tutti_array){values, TUTTI_SHAPE(1, 4), TUTTI_F32});
    l = tutti_cross_entropy(tutti_softmax(tutti_relu(tutti_dropout(x, 0.25f))),
                            tutti_input(cx, (tutti_array){&label, TUTTI_SHAPE(1), TUTTI_I64}));
    assert_int_equal(tutti_backward(l), TUTTI_OK);
    assert_int_equal(tutti_tensor_grad_read(x, gradient), TUTTI_OK);
    loss = tutti_item(l);
    tutti_step_end(cx);
    return loss;
}

/* The same with a table without all optional entries. */
static void plain_c_takes_the_place(void **state)
{
    tutti__kernels k = fastest();
    float gradient[4], again[4], loss;
    tutti_ctx *cx;

    (void)state;
    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL), TUTTI_OK);
    loss = loss_of(cx, gradient);
#define CLEAR(function) k.function = NULL;
#define CLEAR_PAIR(name)                                                                           \
    k.name##_forward = NULL;                                                                       \
    k.name##_backward = NULL;
    TUTTI__KERNELS_OPTIONAL(CLEAR)
    TUTTI__KERNELS_OPTIONAL_PAIRS(CLEAR_PAIR)
    assert_int_equal(tutti__kernels_check(&k, false), TUTTI_OK);
    cx->kernels = cx->f32_kernels = &k;
    tutti_ctx_set_step(cx, 0); /* the same mask */
    assert_true(loss_of(cx, again) == loss);
    assert_memory_equal(gradient, again, sizeof gradient);
    tutti_ctx_free(cx);
}

static tutti_tensor *run(tutti_tensor *x, const tutti__op *op)
{
    return tutti__op_run(op, &x, 1, NULL, 0);
}

static void first_element(const tutti_op_args *p)
{
    p->y[0] = ((const float *)p->src[0])[0];
}

static tutti_status scalar(const tutti_op_args *p, tutti_shape *shape, tutti_dtype *dtype)
{
    (void)p;
    (void)dtype;
    *shape = (tutti_shape){0};
    return TUTTI_OK;
}

static int64_t one(const tutti_op_args *p)
{
    (void)p;
    return 1;
}

/* Errors in an operation's definition are reported when it runs. */
static void half_made_operations_are_refused(void **state)
{
    static const tutti__op nothing = {.plain = {.name = "nothing"}};
    static const tutti__op wrong = {
        .plain = {.name = "wrong", .shape = scalar, .forward = first_element, .elementwise = true}};
    static const tutti__op keeper = {
        .plain = {.name = "keeper", .forward = first_element, .elementwise = true, .keeps = one}};
    static const tutti__op forward_only = {
        .plain = {.name = "first", .shape = scalar, .forward = first_element}};
    const float values[] = {1, 2};
    const tutti_array array = {values, TUTTI_SHAPE(2), TUTTI_F32};
    tutti_ctx *cx;

    (void)state;
    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL), TUTTI_OK);
    tutti_step_begin(cx, NULL);
    assert_int_equal(tutti_tensor_status(run(tutti_input(cx, array), &nothing)),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "nothing: kernels "));
    assert_int_equal(tutti_tensor_status(run(tutti_input(cx, array), &wrong)), TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(tutti_last_error(), "declared elementwise, but source 0 is F32 [2]"));
    assert_int_equal(tutti_tensor_status(run(tutti_input(cx, array), &keeper)), TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(tutti_last_error(), "declared elementwise, but keeps floats"));
    assert_int_equal(tutti_backward(run(tutti_input_with_grad(cx, array), &forward_only)),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "backward of first: "));
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(plain_c_takes_the_place),
        cmocka_unit_test(half_made_operations_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
