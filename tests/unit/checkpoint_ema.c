/* optim/ema.c: the average of a module's weights, also in a checkpoint.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/checkpoint_path.h"
#include "harness/device.h"
#include "optim/ema.h"
#include <tutti/tutti.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 35 }; /* the weight, [7,5] */

typedef struct world {
    tutti_ctx *cx;
    tutti_module root;
    tutti_linear fc;
    tutti_batch_norm2d bn;
    tutti_ema *ema;
} world;

static void open_world(world *w, float decay)
{
    memset(w, 0, sizeof *w);
    assert_int_equal(tutti_ctx_new(&w->cx, test_device(), NULL), TUTTI_OK);
    tutti_module_init(&w->root, w->cx);
    tutti_linear_init(&w->fc, &w->root, "fc", 5, 7);
    tutti_batch_norm2d_init(&w->bn, &w->root, "bn", 3);
    assert_int_equal(tutti_ema_new(&w->ema, &w->root, &(tutti_ema_opts){.decay = decay}), TUTTI_OK);
}

static void close_world(world *w)
{
    tutti_ema_free(w->ema);
    tutti_module_destroy(&w->root);
    tutti_ctx_free(w->cx);
}

static void set(world *w, float first)
{
    float values[N];

    for (int i = 0; i < N; i++)
        values[i] = first + 0.25f * (float)i;
    assert_int_equal(tutti_tensor_write(w->fc.weight, values), TUTTI_OK);
}

static float first_of(tutti_tensor *t)
{
    float values[N];

    assert_int_equal(tutti_tensor_read(t, values), TUTTI_OK);
    return values[0];
}

static float average_of(world *w, int i)
{
    float values[N];

    assert_int_equal(tutti_ema_read(w->ema, w->fc.weight, values), TUTTI_OK);
    return values[i];
}

/* Expected: what PyTorch's AveragedModel with get_ema_multi_avg_fn(0.9) has after the same values. */
static void test_formula(void **unused)
{
    static const float values[] = {1, 2, -3, 0.5f};
    static const double expected[] = {1, 1.1, 0.69, 0.671};
    world w;

    (void)unused;
    open_world(&w, 0.9f);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        set(&w, values[i]);
        assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
        assert_int_equal(tutti_ema_updates(w.ema), i + 1);
        assert_true(fabs((double)average_of(&w, 0) - expected[i]) < 1e-6);
        assert_true(fabs((double)average_of(&w, N - 1) - expected[i] - 0.25 * (N - 1)) < 1e-5);
        assert_true(first_of(w.fc.weight) == values[i]);
    }
    close_world(&w);
}

/* Buffers are the module's own; swapping twice changes nothing. */
static void test_swap(void **unused)
{
    const float mean[3] = {4, 5, 6};
    char own[33], average[33], again[33];
    world w;

    (void)unused;
    open_world(&w, 0.5f);
    set(&w, 1);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    set(&w, 3);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    assert_int_equal(tutti_tensor_write(w.bn.running_mean, mean), TUTTI_OK);
    tutti_module_digest(&w.root, own);
    assert_int_equal(tutti_ema_swap(w.ema), TUTTI_OK);
    assert_true(first_of(w.fc.weight) == 2);
    assert_true(first_of(w.bn.running_mean) == 4);
    tutti_module_digest(&w.root, average);
    assert_string_not_equal(own, average);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "tutti_ema_swap"));
    assert_int_equal(tutti_ema_read(w.ema, w.fc.weight, (float[N]){0}), TUTTI_ERR_STATE);
    assert_int_equal(tutti_ema_swap(w.ema), TUTTI_OK);
    tutti_module_digest(&w.root, again);
    assert_string_equal(own, again);
    assert_true(average_of(&w, 0) == 2);
    close_world(&w);
}

/* DDP lays parameters out anew: the averages go with them. */
static void test_layout(void **unused)
{
    tutti_tensor *order[4];
    world w;

    (void)unused;
    open_world(&w, 0.5f);
    set(&w, 1);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    set(&w, 3);
    for (size_t i = 0; i < 4; i++)
        order[i] = tutti_module_parameter(&w.root, 3 - i);
    assert_int_equal(tutti_module_flat_layout(&w.root, order, NULL), TUTTI_OK);
    assert_true(average_of(&w, 0) == 1);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    assert_true(average_of(&w, 0) == 2 && average_of(&w, N - 1) == 2 + 0.25f * (N - 1));
    close_world(&w);
}

static void test_threads(void **unused)
{
    float *values = calloc(700 * 300, sizeof *values);
    char digests[2][33];

    (void)unused;
    assert_non_null(values);
    for (int k = 0; k < 2; k++) {
        tutti_module root;
        tutti_linear fc;
        tutti_ema *ema;
        tutti_ctx *cx;

        assert_int_equal(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 1 + 2 * k}),
                         TUTTI_OK);
        tutti_module_init(&root, cx);
        tutti_linear_init(&fc, &root, "fc", 300, 700);
        assert_int_equal(tutti_ema_new(&ema, &root, NULL), TUTTI_OK);
        for (int i = 0; i < 3; i++) {
            for (int j = 0; j < 700 * 300; j++)
                values[j] = sinf((float)(j + 1000 * i));
            assert_int_equal(tutti_tensor_write(fc.weight, values), TUTTI_OK);
            assert_int_equal(tutti_ema_update(ema), TUTTI_OK);
        }
        assert_int_equal(tutti_ema_swap(ema), TUTTI_OK);
        tutti_module_digest(&root, digests[k]);
        tutti_ema_free(ema);
        tutti_module_destroy(&root);
        tutti_ctx_free(cx);
    }
    assert_string_equal(digests[0], digests[1]);
    free(values);
}

static void test_errors(void **unused)
{
    tutti_module empty;
    tutti_linear other;
    tutti_ema *ema;
    world w;

    (void)unused;
    open_world(&w, TUTTI_ZERO);
    set(&w, 1);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    set(&w, 7);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    assert_true(average_of(&w, 0) == 7); /* decay 0: the last weights */
    assert_int_equal(tutti_ema_new(&ema, &w.root, &(tutti_ema_opts){.decay = 1}), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "ema: decay is 1, expected a number >= 0 and < 1");
    assert_null(ema);
    assert_int_equal(tutti_ema_new(&ema, &w.fc.base, NULL), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "ema: 'fc' is part of another module; pass the root");
    tutti_module_init(&empty, w.cx);
    assert_int_equal(tutti_ema_new(&ema, &empty, NULL), TUTTI_ERR_ARG);
    tutti_linear_init(&other, &empty, "fc", 2, 2);
    assert_int_equal(tutti_ema_read(w.ema, other.weight, (float[N]){0}), TUTTI_ERR_ARG);
    assert_int_equal(tutti_ema_read(w.ema, w.bn.running_mean, (float[N]){0}), TUTTI_ERR_ARG);
    tutti_module_destroy(&empty);
    close_world(&w);
}

/* A program's own checkpoint: continues as if it had not ended. */
static void test_checkpoint(void **unused)
{
    char file[160];
    world w, v;

    (void)unused;
    assert_int_equal(path_new(), 0);
    open_world(&w, 0.9f);
    open_world(&v, 0.9f);
    set(&w, 1);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    set(&w, 2);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    for (int with = 0; with < 2; with++) {
        const tutti_checkpoint_opts saved = {.ema = with ? w.ema : NULL}, loaded = {.ema = v.ema};

        assert_int_equal(tutti_checkpoint_save_with(path, &w.root, NULL, NULL, &saved), TUTTI_OK);
        assert_int_equal(tutti_checkpoint_load_with(path, &v.root, NULL, NULL, &loaded),
                         with ? TUTTI_OK : TUTTI_ERR_ARG);
    }
    set(&w, -3);
    set(&v, -3);
    assert_int_equal(tutti_ema_update(w.ema), TUTTI_OK);
    assert_int_equal(tutti_ema_update(v.ema), TUTTI_OK);
    assert_int_equal(tutti_ema_updates(v.ema), 3);
    for (int i = 0; i < N; i++)
        assert_true(average_of(&w, i) == average_of(&v, i));
    assert_int_equal(tutti_ema_swap(w.ema), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_save_with(path, &w.root, NULL, NULL,
                                                &(tutti_checkpoint_opts){.ema = w.ema}),
                     TUTTI_ERR_STATE);
    /* the file of the averages is one of weights */
    snprintf(file, sizeof file, "%s/ema.safetensors", path);
    assert_int_equal(tutti_module_load(&v.root, file), TUTTI_OK);
    close_world(&w);
    close_world(&v);
    assert_int_equal(path_remove(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula), cmocka_unit_test(test_swap),
        cmocka_unit_test(test_layout),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_errors),  cmocka_unit_test(test_checkpoint)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
