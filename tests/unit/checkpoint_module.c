/* A module's weights through a file: all of them, or none and a list of the errors.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "checkpoint/safetensors.h"
#include "harness/device.h"
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
    if (fd < 0 ||
        tutti_ctx_new(&f.cx, test_device(), &(tutti_ctx_opts){.seed = 1, .threads = 1}) != TUTTI_OK)
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
    assert_int_equal(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.seed = 2, .threads = 1}),
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

static void the_count_of_batches_may_be_missing_or_halved(void **state)
{
    float values[20] = {0};
    uint16_t count = 0x4d00; /* 20 as F16 */
    int64_t tracked = 0;
    const tutti__safetensors_source sources[] = {
        {"fc.weight", {values, TUTTI_SHAPE(3, 5), TUTTI_F32}},
        {"fc.bias", {values, TUTTI_SHAPE(3), TUTTI_F32}},
        {"bn.weight", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.bias", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.running_mean", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.running_var", {values, TUTTI_SHAPE(4), TUTTI_F32}},
        {"bn.num_batches_tracked", {&count, {.n = 0}, TUTTI_F16}},
    };
    const size_t n = TUTTI__COUNT_OF(sources);
    float bias[3] = {1, 1, 1};

    (void)state;
    assert_int_equal(tutti__safetensors_write(f.path, sources, n - 1, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_module_load(&f.root, f.path), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(f.fc.bias, bias), TUTTI_OK);
    assert_true(bias[0] == 0 && bias[2] == 0);
    assert_int_equal(tutti__safetensors_write(f.path, sources, n, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_module_load(&f.root, f.path), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(f.bn.num_batches_tracked, &tracked), TUTTI_OK);
    assert_int_equal(tracked, 20);
    count = 0x3e00; /* 1.5 */
    assert_int_equal(tutti__safetensors_write(f.path, sources, n, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_module_load(&f.root, f.path), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "element 0 of \"bn.num_batches_tracked\" (F16)"));
}

/* fc.weight, fc.bias, bn.*: all of them, as `prefix`NAME, with fc of this many classes. */
static void write_weights(const char *prefix, tutti_dtype dtype, int64_t classes,
                          const void *values)
{
    static const struct {
        const char *name;
        int n;
        int64_t d[2];
    } ROWS[] = {{"fc.weight", 2, {0, 5}}, {"fc.bias", 1, {0}},         {"bn.weight", 1, {4}},
                {"bn.bias", 1, {4}},      {"bn.running_mean", 1, {4}}, {"bn.running_var", 1, {4}}};
    tutti__safetensors_source sources[TUTTI__COUNT_OF(ROWS)];
    char names[TUTTI__COUNT_OF(ROWS)][64];

    for (size_t i = 0; i < TUTTI__COUNT_OF(ROWS); i++) {
        tutti_shape shape = {ROWS[i].n, {ROWS[i].d[0] ? ROWS[i].d[0] : classes, ROWS[i].d[1]}};

        snprintf(names[i], sizeof names[i], "%s%s", prefix, ROWS[i].name);
        sources[i] = (tutti__safetensors_source){names[i], {values, shape, dtype}};
    }
    assert_int_equal(tutti__safetensors_write(f.path, sources, TUTTI__COUNT_OF(ROWS), NULL, 0),
                     TUTTI_OK);
}

static void ddps_prefix_and_halves_are_taken_with_a_word(void **state)
{
    uint16_t ones[20];
    float bias[3];
    char said[1024];

    (void)state;
    for (size_t i = 0; i < 20; i++)
        ones[i] = 0x3f80; /* 1 as BF16 */
    write_weights("_orig_mod.module.", TUTTI_BF16, 3, ones);
    assert_int_equal(tutti_module_load_with(&f.root, f.path, NULL, said, sizeof said), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(f.fc.bias, bias), TUTTI_OK);
    assert_true(bias[0] == 1 && bias[2] == 1);
    assert_non_null(strstr(said, "6 of 7 tensors from "));
    assert_non_null(strstr(said, "\"_orig_mod.module.\" removed"));
    assert_non_null(strstr(said, "BF16 as F32"));
    assert_non_null(strstr(said, "left as they were: bn.num_batches_tracked"));
}

static void a_new_head_keeps_its_values_where_what_fits_is_taken(void **state)
{
    const tutti_load_opts partial = {.partial = true};
    float ones[50], before[15], after[15], mean[4];
    char said[1024];

    (void)state;
    for (size_t i = 0; i < 50; i++)
        ones[i] = 1;
    write_weights("", TUTTI_F32, 10, ones);
    assert_int_equal(tutti_tensor_read(f.fc.weight, before), TUTTI_OK);
    assert_int_equal(tutti_module_load(&f.root, f.path), TUTTI_ERR_FORMAT);
    assert_int_equal(tutti_module_load_with(&f.root, f.path, &partial, said, sizeof said),
                     TUTTI_OK);
    assert_int_equal(tutti_tensor_read(f.fc.weight, after), TUTTI_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(tutti_tensor_read(f.bn.running_mean, mean), TUTTI_OK);
    assert_true(mean[3] == 1);
    assert_non_null(strstr(said, "4 of 7 tensors"));
    assert_non_null(strstr(said, "fc.weight (F32 [10,5], expected F32 [3,5])"));
}

static void only_what_is_named_is_taken_and_all_of_it_must_fit(void **state)
{
    const tutti_load_opts fc = {.only = "fc.bias,bn.running_*"}, slip = {.only = "bn,fx"};
    const tutti_load_opts head = {.only = "fc"};
    float ones[50], bias[3], weight[4];

    (void)state;
    for (size_t i = 0; i < 50; i++)
        ones[i] = 7;
    write_weights("", TUTTI_F32, 3, ones);
    assert_int_equal(tutti_module_load_with(&f.root, f.path, &fc, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(f.fc.bias, bias), TUTTI_OK);
    assert_true(bias[0] == 7);
    assert_int_equal(tutti_tensor_read(f.bn.running_var, weight), TUTTI_OK);
    assert_true(weight[0] == 7);
    assert_int_equal(tutti_tensor_read(f.bn.weight, weight), TUTTI_OK);
    assert_true(weight[0] == 1); /* as it was made */
    assert_int_equal(tutti_module_load_with(&f.root, f.path, &slip, NULL, 0), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "\"fx\" is not a tensor or part of the model"));
    write_weights("", TUTTI_F32, 10, ones);
    assert_int_equal(tutti_module_load_with(&f.root, f.path, &head, NULL, 0), TUTTI_ERR_FORMAT);
    assert_non_null(strstr(tutti_last_error(), "fc.bias (F32 [10], expected F32 [3])"));
}

static void nan_is_refused_by_name_where_that_is_asked_for(void **state)
{
    const tutti_load_opts finite = {.finite = true};
    float values[20] = {0};

    (void)state;
    values[2] = -1 / values[0];
    write_weights("", TUTTI_F32, 3, values);
    assert_int_equal(tutti_module_load_with(&f.root, f.path, &finite, NULL, 0), TUTTI_ERR_FORMAT);
    assert_non_null(
        strstr(tutti_last_error(), "NaN or infinity in fc.weight (the first at element 2 of 15)"));
    assert_int_equal(tutti_module_load(&f.root, f.path), TUTTI_OK);
}

static void a_pt_file_goes_both_ways(void **state)
{
    char path[80], saved[33], loaded[33];
    float zeros[15] = {0};

    (void)state;
    snprintf(path, sizeof path, "%s.pt", f.path);
    tutti_module_digest(&f.root, saved);
    assert_int_equal(tutti_module_save(&f.root, path), TUTTI_OK);
    assert_int_equal(tutti_tensor_write(f.fc.weight, zeros), TUTTI_OK);
    assert_int_equal(tutti_module_load(&f.root, path), TUTTI_OK);
    tutti_module_digest(&f.root, loaded);
    assert_string_equal(saved, loaded);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_saved_is_loaded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_listed_and_nothing_changes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_count_of_batches_may_be_missing_or_halved, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(ddps_prefix_and_halves_are_taken_with_a_word, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_new_head_keeps_its_values_where_what_fits_is_taken,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_what_is_named_is_taken_and_all_of_it_must_fit, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nan_is_refused_by_name_where_that_is_asked_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_pt_file_goes_both_ways, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
