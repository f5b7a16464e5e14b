/* tensor: contexts and their options, inputs, reading and writing, and calls out of order.
 * SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "base/asan.h"
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

#define CPU ((tutti_device){TUTTI_CPU, 0})

static tutti_ctx *new_ctx(const tutti_ctx_opts *opts)
{
    tutti_ctx *cx;

    assert_int_equal(tutti_ctx_new(&cx, test_device(), opts), TUTTI_OK);
    return cx;
}

static const float six[6] = {1, -2, 3, -4, 5, -6};
static const tutti_array six_array = {six, {2, {2, 3}}, TUTTI_F32};

static void threads_are_the_ranks_share_of_the_cores(void **state)
{
    tutti_ctx *cx;

    (void)state;
    cx = new_ctx(NULL);
    assert_int_equal(tutti_ctx_threads(cx), tutti__cores());
    tutti_ctx_free(cx);
    setenv("LOCAL_WORLD_SIZE", "100000", 1);
    cx = new_ctx(NULL);
    assert_int_equal(tutti_ctx_threads(cx), 1);
    tutti_ctx_free(cx);
    setenv("TUTTI_THREADS", "3", 1);
    cx = new_ctx(NULL);
    assert_int_equal(tutti_ctx_threads(cx), 3);
    tutti_ctx_free(cx);
    cx = new_ctx(&(tutti_ctx_opts){.threads = 2});
    assert_int_equal(tutti_ctx_threads(cx), 2);
    tutti_ctx_free(cx);
    setenv("TUTTI_THREADS", "many", 1);
    assert_int_equal(tutti_ctx_new(&cx, CPU, NULL), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_THREADS is \"many\""));
    assert_null(cx);
    unsetenv("TUTTI_THREADS");
    setenv("LOCAL_WORLD_SIZE", "0", 1);
    assert_int_equal(tutti_ctx_new(&cx, CPU, NULL), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "LOCAL_WORLD_SIZE is \"0\""));
    unsetenv("LOCAL_WORLD_SIZE");
    assert_int_equal(tutti_ctx_new(&cx, CPU, &(tutti_ctx_opts){.threads = -1}), TUTTI_ERR_ARG);
}

static void kernels_are_chosen_by_option_then_environment(void **state)
{
    tutti_ctx *cx;

    (void)state;
    setenv("TUTTI_KERNELS", "reference", 1);
    cx = new_ctx(NULL);
    assert_string_equal(tutti_ctx_kernels_name(cx), "reference");
    tutti_ctx_free(cx);
    setenv("TUTTI_KERNELS", "refernce", 1);
    assert_int_equal(tutti_ctx_new(&cx, CPU, NULL), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "did you mean reference?"));
    cx = new_ctx(&(tutti_ctx_opts){.kernels = TUTTI_KERNELS_REFERENCE}); /* AUTO only */
    tutti_ctx_free(cx);
    unsetenv("TUTTI_KERNELS");
    if (tutti_ctx_new(&cx, CPU, &(tutti_ctx_opts){.kernels = TUTTI_KERNELS_ONEDNN}) == TUTTI_OK) {
        assert_int_equal(strncmp(tutti_ctx_kernels_name(cx), "onednn", 6), 0);
        tutti_ctx_free(cx);
        cx = new_ctx(NULL);
        assert_int_equal(strncmp(tutti_ctx_kernels_name(cx), "onednn", 6), 0);
        tutti_ctx_free(cx);
    } else {
        assert_non_null(strstr(tutti_last_error(), "reference"));
    }
}

static void inputs_are_read_back(void **state)
{
    tutti_ctx *cx = new_ctx(NULL);
    float out[6];
    int64_t label = 7;
    tutti_tensor *x;

    (void)state;
    tutti_step_begin(cx, NULL);
    x = tutti_input(cx, six_array);
    assert_int_equal(tutti_tensor_read(x, out), TUTTI_OK);
    assert_memory_equal(out, six, sizeof six);
    assert_true(tutti_shape_equal(tutti_tensor_shape(x), TUTTI_SHAPE(2, 3)));
    assert_int_equal(tutti_tensor_dtype(x), TUTTI_F32);
    assert_string_equal(tutti_tensor_name(x), "");
    assert_true(tutti_item(tutti_input(cx, (tutti_array){&label, {0, {0}}, TUTTI_I64})) == 7);
    assert_true(isnan(tutti_item(x)));
    assert_non_null(strstr(tutti_last_error(), "[2,3]"));
    assert_int_equal(tutti_tensor_write(x, six), TUTTI_ERR_ARG);
    assert_null(tutti_tensor_grad(x));
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static void assert_poison(tutti_tensor *t, tutti_status status, const char *text)
{
    assert_int_equal(tutti_tensor_status(t), status);
    if (!strstr(tutti_last_error(), text))
        fail_msg("the message is \"%s\", expected \"%s\" in it", tutti_last_error(), text);
}

static void bad_inputs_are_poisoned(void **state)
{
    tutti_ctx *cx = new_ctx(NULL);

    (void)state;
    tutti_step_begin(cx, NULL);
    assert_poison(tutti_input(cx, (tutti_array){six, {2, {3, 0}}, TUTTI_F32}), TUTTI_ERR_ARG,
                  "[3,0]");
    assert_poison(tutti_input(cx, (tutti_array){six, {2, {-1, 3}}, TUTTI_F32}), TUTTI_ERR_ARG,
                  "[-1,3]");
    assert_poison(tutti_input(cx, (tutti_array){six, {9, {1}}, TUTTI_F32}), TUTTI_ERR_ARG,
                  "9 dimensions");
    assert_poison(tutti_input(cx, (tutti_array){six, {1, {3}}, TUTTI_F64}), TUTTI_ERR_ARG, "F64");
    assert_poison(tutti_input(cx, (tutti_array){NULL, {1, {3}}, TUTTI_F32}), TUTTI_ERR_ARG, "NULL");
    assert_poison(tutti_input(cx, (tutti_array){six, {3, {1ll << 40, 1ll << 30, 3}}, TUTTI_F32}),
                  TUTTI_ERR_MEMORY, "does not fit");
    assert_poison(tutti_input_with_grad(cx, (tutti_array){six, {1, {3}}, TUTTI_I64}), TUTTI_ERR_ARG,
                  "only F32");
    assert_null(tutti_relu(NULL));
    assert_poison(tutti_relu(NULL), TUTTI_ERR_ARG, "NULL");
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static void calls_out_of_order_are_said_to_be_so(void **state)
{
    tutti_ctx *cx = new_ctx(NULL), *other = new_ctx(NULL);
    test_parameter p;
    tutti_tensor *x;

    (void)state;
    test_parameter_init(&p, cx, "weight", TUTTI_SHAPE(6), six);
    assert_poison(tutti_input(cx, six_array), TUTTI_ERR_STATE, "no step is open");
    assert_poison(tutti_relu(p.t), TUTTI_ERR_STATE, "relu: no step is open");
    tutti_step_end(cx); /* harmless */
    tutti_step_begin(cx, NULL);
    tutti_step_begin(cx, NULL);
    assert_poison(tutti_relu(p.t), TUTTI_ERR_STATE, "still open");
    assert_poison(tutti_input(cx, six_array), TUTTI_ERR_STATE, "still open");
    tutti_step_end(cx);
    tutti_step_begin(cx, NULL);
    x = tutti_input(cx, six_array);
    assert_int_equal(tutti_tensor_status(tutti_relu(x)), TUTTI_OK);
    tutti_step_begin(other, NULL);
    assert_poison(tutti_add(tutti_input(other, six_array), x), TUTTI_ERR_ARG, "different contexts");
    tutti_step_end(cx);
    assert_poison(x, TUTTI_ERR_STATE, "a step that has ended");
    tutti_step_begin(cx, NULL);
    assert_int_equal(tutti_tensor_read(x, NULL), TUTTI_ERR_STATE);
    assert_null(tutti_tensor_grad(x));
    tutti_step_end(cx);
    test_parameter_free(&p);
    tutti_ctx_free(cx);
    tutti_ctx_free(other);
    tutti_ctx_free(NULL);
}

static void written_parameters_are_what_operations_read(void **state)
{
    static const float eye[4] = {1, 0, 0, 1}, twice[4] = {2, 0, 0, 2};
    tutti_ctx *cx = new_ctx(NULL);
    test_parameter p;
    float out[2];

    (void)state;
    test_parameter_init(&p, cx, "weight", TUTTI_SHAPE(2, 2), eye);
    tutti_step_begin(cx, &(tutti_step_opts){.eval = true});
    for (int i = 1; i <= 2; i++) {
        tutti_tensor *x = tutti_input(cx, (tutti_array){six, {2, {1, 2}}, TUTTI_F32});

        assert_int_equal(tutti_tensor_read(tutti_functional_linear(x, p.t, NULL), out), TUTTI_OK);
        assert_true(out[0] == (float)i && out[1] == (float)i * -2);
        assert_int_equal(tutti_tensor_write(p.t, twice), TUTTI_OK);
    }
    tutti_step_end(cx);
    test_parameter_free(&p);
    tutti_ctx_free(cx);
}

static void only_training_steps_are_counted(void **state)
{
    tutti_ctx *cx = new_ctx(NULL);

    (void)state;
    for (int i = 0; i < 4; i++) {
        tutti_step_begin(cx, &(tutti_step_opts){.eval = i == 1, .no_grad = i == 2});
        tutti_step_end(cx);
    }
    assert_int_equal(tutti_ctx_step(cx), 2);
    tutti_ctx_set_step(cx, 100);
    tutti_step_begin(cx, NULL);
    assert_int_equal(tutti_ctx_step(cx), 101);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void memory_given_back_is_an_error_to_asan(void **state)
{
    (void)state;
#ifdef TUTTI__ASAN
    tutti_ctx *cx = new_ctx(NULL);
    char *p;

    if (!cx->device_ops->is_host) {
        tutti_ctx_free(cx);
        skip();
    }
    tutti_step_begin(cx, NULL);
    p = tutti__scratch_take(cx, 128);
    assert_false(__asan_address_is_poisoned(p + 127));
    tutti__scratch_give(cx, p, 128);
    assert_true(__asan_address_is_poisoned(p) && __asan_address_is_poisoned(p + 127));
    assert_ptr_equal(tutti__scratch_take(cx, 128), p);
    assert_false(__asan_address_is_poisoned(p) || __asan_address_is_poisoned(p + 127));
    tutti__scratch_give(cx, p, 128);
    tutti_step_end(cx);
    tutti_step_begin(cx, NULL); /* which reuses the block */
    p = tutti__scratch_take(cx, 4096);
    assert_null(__asan_region_is_poisoned(p, 4096));
    tutti_step_end(cx);
    tutti_ctx_free(cx);
#else
    skip();
#endif
}

/* However many they are, and in whatever order they are given back. */
static void pieces_side_by_side_make_room_for_a_large_one(void **state)
{
    enum { PIECES = 1 << 17, PIECE = 64, STRIDE = 12345 };
    tutti_ctx *cx = new_ctx(NULL);
    char *first = NULL;

    (void)state;
    tutti_step_begin(cx, NULL);
    assert_non_null(tutti__scratch_take(cx, PIECE));
    tutti_step_end(cx);
    for (int step = 0; step < 2; step++) { /* in the second, all is one block */
        tutti_step_begin(cx, NULL);
        for (int i = 0; i < PIECES; i++) {
            char *p = tutti__scratch_take(cx, PIECE);

            assert_non_null(p);
            first = i == 0 ? p : first;
            if (step == 1)
                assert_ptr_equal(p, first + (size_t)i * PIECE);
        }
        if (step == 1) {
            for (uint32_t i = 0; i < PIECES; i++)
                tutti__scratch_give(cx, first + (size_t)(i * STRIDE % PIECES) * PIECE, PIECE);
            assert_ptr_equal(tutti__scratch_take(cx, (size_t)PIECES * PIECE), first);
        }
        tutti_step_end(cx);
    }
    tutti_ctx_free(cx);
}

/* ---- Dropout ------------------------------------------------------------------------------------------ */

#define N 10000

/* The mask of the call-th dropout of a step: zeros and scaled ones. */
static void mask_of(const tutti_ctx_opts *opts, uint64_t step, int call, float *out)
{
    static float ones[N];
    tutti_ctx *cx = new_ctx(opts);
    tutti_tensor *x, *y = NULL;

    for (int i = 0; i < N; i++)
        ones[i] = 1;
    tutti_ctx_set_step(cx, step - 1);
    tutti_step_begin(cx, NULL);
    x = tutti_input(cx, (tutti_array){ones, {1, {N}}, TUTTI_F32});
    for (int i = 0; i <= call; i++)
        y = tutti_dropout(x, 0.3f);
    assert_int_equal(tutti_tensor_read(y, out), TUTTI_OK);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static int equal_elements(const float *a, const float *b)
{
    int n = 0;

    for (int i = 0; i < N; i++)
        n += a[i] == b[i];
    return n;
}

static void dropout_is_a_function_of_seed_step_shard_and_call(void **state)
{
    static float base[N], other[N];
    const tutti_kernels others =
        test_device().kind == TUTTI_CUDA ? TUTTI_KERNELS_AUTO : TUTTI_KERNELS_REFERENCE;
    int zeros = 0;

    (void)state;
    mask_of(&(tutti_ctx_opts){.seed = 1}, 5, 0, base);
    for (int i = 0; i < N; i++) {
        zeros += base[i] == 0;
        assert_true(base[i] == 0 || fabsf(base[i] - 1 / 0.7f) < 1e-6f);
    }
    assert_in_range(zeros, 2850, 3150); /* 3.3 standard deviations */
    mask_of(&(tutti_ctx_opts){.seed = 1, .threads = 2, .kernels = others}, 5, 0, other);
    assert_memory_equal(base, other, sizeof base);
    for (int k = 0; k < 4; k++) {
        mask_of(&(tutti_ctx_opts){.seed = k == 0 ? 2 : 1, .shard = k == 1}, k == 2 ? 6 : 5, k == 3,
                other);
        assert_in_range(equal_elements(base, other), 5600, 6000); /* 0.58 of independent masks */
    }
}

static void dropout_passes_through_in_eval(void **state)
{
    tutti_ctx *cx = new_ctx(NULL);
    tutti_tensor *x;

    (void)state;
    tutti_step_begin(cx, &(tutti_step_opts){.eval = true});
    x = tutti_input(cx, six_array);
    assert_ptr_equal(tutti_dropout(x, 0.9f), x);
    assert_poison(tutti_dropout(x, -1), TUTTI_ERR_ARG, "p is -1");
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static void shapes_count_and_compare(void **state)
{
    (void)state;
    assert_int_equal(tutti_shape_count(TUTTI_SHAPE(2, 3, 4)), 24);
    assert_int_equal(tutti_shape_count((tutti_shape){0}), 1);
    assert_true(tutti_shape_equal(TUTTI_SHAPE(2, 3), TUTTI_SHAPE(2, 3)));
    assert_false(tutti_shape_equal(TUTTI_SHAPE(2, 3), TUTTI_SHAPE(2, 3, 1)));
    assert_false(tutti_shape_equal(TUTTI_SHAPE(2, 3), TUTTI_SHAPE(3, 2)));
    assert_string_equal(tutti__shape_text(TUTTI_SHAPE(32, 3, 8, 8)), "[32,3,8,8]");
    assert_string_equal(tutti__shape_text((tutti_shape){0}), "[]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_the_ranks_share_of_the_cores),
        cmocka_unit_test(inputs_are_read_back),
        cmocka_unit_test(bad_inputs_are_poisoned),
        cmocka_unit_test(calls_out_of_order_are_said_to_be_so),
        cmocka_unit_test(written_parameters_are_what_operations_read),
        cmocka_unit_test(only_training_steps_are_counted),
        cmocka_unit_test(memory_given_back_is_an_error_to_asan),
        cmocka_unit_test(pieces_side_by_side_make_room_for_a_large_one),
        cmocka_unit_test(dropout_is_a_function_of_seed_step_shard_and_call),
        cmocka_unit_test(dropout_passes_through_in_eval),
        cmocka_unit_test(shapes_count_and_compare),
        cmocka_unit_test(kernels_are_chosen_by_option_then_environment), /* the CPU's only */
    };
    const size_t n = TUTTI__COUNT_OF(tests) - (test_device().kind == TUTTI_CPU ? 0 : 1);

    unsetenv("TUTTI_KERNELS");
    unsetenv("TUTTI_THREADS");
    unsetenv("LOCAL_WORLD_SIZE");
    return _cmocka_run_group_tests("contexts", tests, n, NULL, NULL);
}
