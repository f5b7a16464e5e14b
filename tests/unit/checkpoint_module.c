/* A module's weights through a file: all of them, or nothing and a list of what is wrong.   SPDX-License-Identifier: MIT */
#include "checkpoint/safetensors.h"
#include <tutti/checkpoint.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct fixture {
    char path[64];
    tutti_ctx *cx;
    tutti_module root;
    tutti_linear fc;
    tutti_batch_norm2d bn;
} fixture;

static fixture f;

static void make_model(tutti_ctx *cx, tutti_module *root, tutti_linear *fc, tutti_batch_norm2d *bn,
                       int64_t in)
{
    tutti_module_init(root, cx);
    tutti_linear_init(fc, root, "fc", in, 3);
    tutti_batch_norm2d_init(bn, root, "bn", 4);
    assert_int_equal(tutti_module_status(root), TUTTI_OK);
}

static int set_up(void **state)
{
    int fd;

    (void)state;
    strcpy(f.path, "/tmp/tutti-weights-XXXXXX");
    fd = mkstemp(f.path);
    if (fd < 0 || tutti_ctx_new(&f.cx, (tutti_device){TUTTI_CPU, 0},
                                &(tutti_ctx_opts){.seed = 1, .threads = 1}) != TUTTI_OK)
        return -1;
    close(fd);
    make_model(f.cx, &f.root, &f.fc, &f.bn, 5);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tutti_module_destroy(&f.root);
    tutti_ctx_free(f.cx);
    return unlink(f.path);
}

static void what_is_saved_is_loaded(void **state)
{
    tutti_module other;
    tutti_linear fc;
    tutti_batch_norm2d bn;
    tutti_ctx *cx;
    char saved[33], before[33], after[33];
    int64_t tracked = 41, got = 0;

    (void)state;
    assert_int_equal(tutti_tensor_write(f.bn.num_batches_tracked, &tracked), TUTTI_OK);
    tutti_module_digest(&f.root, saved);
    assert_int_equal(tutti_module_save(&f.root, f.path), TUTTI_OK);
    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0},
                                   &(tutti_ctx_opts){.seed = 2, .threads = 1}),
                     TUTTI_OK);
    make_model(cx, &other, &fc, &bn, 5);
    tutti_module_digest(&other, before);
    assert_string_not_equal(before, saved);
    assert_int_equal(tutti_module_load(&other, f.path), TUTTI_OK);
    tutti_module_digest(&other, after);
    assert_string_equal(after, saved);
    assert_int_equal(tutti_tensor_read(bn.num_batches_tracked, &got), TUTTI_OK);
    assert_int_equal(got, 41);
    tutti_module_destroy(&other);
    tutti_ctx_free(cx);
}

static void what_does_not_fit_is_listed_and_nothing_changes(void **state)
{
    float values[20] = {0};
    int64_t integers[4] = {0};
    const tutti__safetensors_source sources[] = {
        {"fc.weight", {values, TUTTI_SHAPE(3, 4), TUTTI_F32}},
        {"fc.bias", {values, TUTTI_SHAPE(3), TUTTI_F32}},
        {"bn.weight", {integers, TUTTI_SHAPE(4), TUTTI_I64}},
        {"bn.bias", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.running_var", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"module.fc.bias", {values, TUTTI_SHAPE(3), TUTTI_F32}},
    };
    char before[33], after[33];

    (void)state;
    tutti_module_digest(&f.root, before);
    assert_int_equal(tutti__safetensors_write(f.path, sources, TUTTI__COUNT_OF(sources), NULL, 0),
                     TUTTI_OK);
    assert_int_equal(tutti_module_load(&f.root, f.path), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), f.path));
    assert_non_null(strstr(tutti_last_error(), "missing: bn.running_mean;"));
    assert_non_null(strstr(tutti_last_error(), "unexpected: module.fc.bias;"));
    assert_non_null(strstr(tutti_last_error(), "fc.weight (F32 [3,4], expected F32 [3,5])"));
    assert_non_null(strstr(tutti_last_error(), "bn.weight (I64 [4], expected F32 [4])"));
    tutti_module_digest(&f.root, after);
    assert_string_equal(before, after);
}

static void the_count_of_batches_may_be_missing(void **state)
{
    float values[20] = {0};
    const tutti__safetensors_source sources[] = {
        {"fc.weight", {values, TUTTI_SHAPE(3, 5), TUTTI_F32}},
        {"fc.bias", {values, TUTTI_SHAPE(3), TUTTI_F32}},
        {"bn.weight", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.bias", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.running_mean", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.running_var", {values, TUTTI_SHAPE(4), TUTTI_F32}},
    };
    float bias[3] = {1, 1, 1};

    (void)state;
    assert_int_equal(tutti__safetensors_write(f.path, sources, TUTTI__COUNT_OF(sources), NULL, 0),
                     TUTTI_OK);
    assert_int_equal(tutti_module_load(&f.root, f.path), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(f.fc.bias, bias), TUTTI_OK);
    assert_true(bias[0] == 0 && bias[2] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_saved_is_loaded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_listed_and_nothing_changes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_count_of_batches_may_be_missing, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
