/* amp: the scaler's arithmetic and order of calls, as torch.amp.GradScaler's.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"
#include "harness/memory.h"
#include "optim/optim.h"
#include <tutti/amp.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

typedef struct world {
    tutti_ctx *cx;
    tutti_module root;
    tutti_linear a;
    tutti_optim *optim;
    tutti_scaler *scaler;
} world;

static void open_world(world *w, const tutti_scaler_opts *opts)
{
    assert_int_equal(tutti_ctx_new(&w->cx, test_device(), NULL), TUTTI_OK);
    tutti_module_init(&w->root, w->cx);
    tutti_linear_init(&w->a, &w->root, "a", 5, 7);
    assert_int_equal(tutti_sgd_new(&w->optim, &w->root, &(tutti_sgd_opts){.lr = 1}), TUTTI_OK);
    assert_int_equal(tutti_scaler_new(&w->scaler, opts), TUTTI_OK);
}

static void close_world(world *w)
{
    tutti_scaler_free(w->scaler);
    tutti_optim_free(w->optim);
    tutti_module_destroy(&w->root);
    tutti_ctx_free(w->cx);
}

/* Sets gradients: every element is `gradient`, the last of the weight is `last`. */
static void give(world *w, float gradient, float last)
{
    tutti_optim_zero_grad(w->optim);
    for (size_t i = 0; i < 2; i++) {
        tutti_tensor *t = tutti_module_parameter(&w->root, i);
        tutti__parameter *p = t->parameter;
        float *values = test_keep(tutti__tensor_bytes(t));

        if (!p->grad)
            assert_int_equal(p->prepare(p->owner), TUTTI_OK);
        for (int64_t k = 0; k < tutti_shape_count(t->shape); k++)
            values[k] = gradient;
        if (t == w->a.weight)
            values[34] = last;
        test_grad_put(t, values);
        p->grad_round = *p->round;
    }
}

static bool step(world *w, float gradient, float last)
{
    bool stepped;

    give(w, gradient, last);
    assert_int_equal(tutti_scaler_step(w->scaler, w->optim, &stepped), TUTTI_OK);
    assert_int_equal(tutti_scaler_update(w->scaler), TUTTI_OK);
    return stepped;
}

static void says(tutti_status status, const char *part)
{
    assert_int_equal(status, TUTTI_ERR_STATE);
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
}

static void the_defaults_are_pytorchs(void **state)
{
    tutti_scaler *scaler;
    tutti_scaler_state s;

    (void)state;
    assert_int_equal(tutti_scaler_new(&scaler, NULL), TUTTI_OK);
    s = tutti_scaler_state_get(scaler);
    assert_true(s.scale == 65536 && s.growth_factor == 2 && s.backoff_factor == 0.5f);
    assert_int_equal(s.growth_interval, 2000);
    assert_int_equal(s.growth_tracker, 0);
    tutti_scaler_free(scaler);
}

static void the_loss_is_scaled_and_the_step_is_not(void **state)
{
    float before[35], x[5] = {1, 2, 3, 4, 5}, target[7] = {0};
    world w;

    (void)state;
    for (int scaled = 0; scaled < 2; scaled++) {
        float after[35];

        open_world(&w, &(tutti_scaler_opts){.disabled = !scaled});
        assert_true(tutti_scaler_get_scale(w.scaler) == (scaled ? 65536 : 1));
        tutti_step_begin(w.cx, NULL);
        assert_int_equal(
            tutti_backward(tutti_scaler_scale(
                w.scaler,
                tutti_mse_loss(
                    tutti_linear_forward(
                        &w.a, tutti_input(w.cx, (tutti_array){x, TUTTI_SHAPE(1, 5), TUTTI_F32})),
                    tutti_input(w.cx, (tutti_array){target, TUTTI_SHAPE(1, 7), TUTTI_F32})))),
            TUTTI_OK);
        tutti_step_end(w.cx);
        assert_int_equal(tutti_scaler_step(w.scaler, w.optim, NULL), TUTTI_OK);
        assert_int_equal(tutti_scaler_update(w.scaler), TUTTI_OK);
        assert_int_equal(tutti_tensor_read(w.a.weight, after), TUTTI_OK);
        if (scaled)
            assert_memory_equal(before, after,
                                sizeof after); /* scaling by a power of two is exact */
        memcpy(before, after, sizeof before);
        close_world(&w);
    }
}

static void an_infinity_leaves_the_step_out_and_halves_the_scale(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    float before[35], after[35];
    world w;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        open_world(&w, NULL);
        assert_int_equal(tutti_tensor_read(w.a.weight, before), TUTTI_OK);
        assert_false(step(&w, 1, bad[i]));
        assert_int_equal(tutti_tensor_read(w.a.weight, after), TUTTI_OK);
        assert_memory_equal(before, after, sizeof before);
        assert_true(tutti_scaler_get_scale(w.scaler) == 32768);
        assert_true(step(&w, 1, 3e38f));
        assert_true(tutti_scaler_get_scale(w.scaler) == 32768);
        close_world(&w);
    }
}

static void the_scale_doubles_after_an_interval_without_infinities(void **state)
{
    world w;

    (void)state;
    open_world(&w, &(tutti_scaler_opts){.init_scale = 8, .growth_interval = 3});
    assert_true(step(&w, 1, 1) && step(&w, 1, 1));
    assert_int_equal(tutti_scaler_state_get(w.scaler).growth_tracker, 2);
    assert_false(step(&w, 1, NAN)); /* the count restarts */
    assert_true(tutti_scaler_get_scale(w.scaler) == 4);
    for (int i = 0; i < 2; i++)
        assert_true(step(&w, 1, 1) && tutti_scaler_get_scale(w.scaler) == 4);
    assert_true(step(&w, 1, 1) && tutti_scaler_get_scale(w.scaler) == 8);
    close_world(&w);
    open_world(&w, &(tutti_scaler_opts){.init_scale = 2e38f, .growth_interval = 1});
    assert_true(step(&w, 1, 1));
    assert_true(tutti_scaler_get_scale(w.scaler) == 2e38f); /* never infinite */
    close_world(&w);
}

static void calls_out_of_order_are_refused(void **state)
{
    world w;

    (void)state;
    open_world(&w, NULL);
    says(tutti_scaler_update(w.scaler), "no gradients were looked at");
    give(&w, 1, 1);
    assert_int_equal(tutti_scaler_unscale(w.scaler, w.optim), TUTTI_OK);
    says(tutti_scaler_unscale(w.scaler, w.optim), "already called");
    assert_int_equal(tutti_scaler_step(w.scaler, w.optim, NULL), TUTTI_OK);
    says(tutti_scaler_step(w.scaler, w.optim, NULL), "already called");
    says(tutti_scaler_unscale(w.scaler, w.optim), "after tutti_scaler_step");
    assert_int_equal(tutti_scaler_update(w.scaler), TUTTI_OK);
    says(tutti_scaler_update(w.scaler), "no gradients were looked at");
    assert_true(step(&w, 1, 1));
    close_world(&w);
}

/* Unscale, clip, step: the norm is of the unscaled gradient. */
static void clipping_sees_unscaled_gradients(void **state)
{
    float norm;
    world w;

    (void)state;
    open_world(&w, &(tutti_scaler_opts){.init_scale = 1024});
    give(&w, 1024, 1024);
    assert_int_equal(tutti_scaler_unscale(w.scaler, w.optim), TUTTI_OK);
    assert_int_equal(tutti_clip_grad_norm(&w.root, 1, &norm), TUTTI_OK);
    assert_true(fabsf(norm - sqrtf(42)) < 1e-5f);
    assert_int_equal(tutti_scaler_step(w.scaler, w.optim, NULL), TUTTI_OK);
    close_world(&w);
}

/* One optimizer's infinity does not skip the other's step, and halves the scale of both. */
static void optimizers_skip_each_by_itself(void **state)
{
    tutti_linear b;
    tutti_optim *other;
    bool stepped;
    world w;

    (void)state;
    open_world(&w, NULL);
    tutti_linear_init(&b, &w.root, "b", 5, 7);
    tutti_optim_free(w.optim);
    assert_int_equal(tutti_sgd_new(&w.optim, &w.a.base, &(tutti_sgd_opts){.lr = 1}), TUTTI_OK);
    assert_int_equal(tutti_sgd_new(&other, &b.base, &(tutti_sgd_opts){.lr = 1}), TUTTI_OK);
    give(&w, 1, INFINITY);
    b.weight->parameter->grad_round = *b.weight->parameter->round; /* zeros */
    assert_int_equal(tutti_scaler_step(w.scaler, w.optim, &stepped), TUTTI_OK);
    assert_false(stepped);
    assert_int_equal(tutti_scaler_step(w.scaler, other, &stepped), TUTTI_OK);
    assert_true(stepped);
    assert_int_equal(tutti_scaler_update(w.scaler), TUTTI_OK);
    assert_true(tutti_scaler_get_scale(w.scaler) == 32768);
    tutti_optim_free(other);
    close_world(&w);
}

static void state_travels_and_nonsense_is_refused(void **state)
{
    tutti_scaler *scaler;
    tutti_scaler_state s = {.scale = 4,
                            .growth_factor = 3,
                            .backoff_factor = 0.25f,
                            .growth_interval = 7,
                            .growth_tracker = 6};
    world w;

    (void)state;
    open_world(&w, NULL);
    assert_int_equal(tutti_scaler_state_set(w.scaler, &s), TUTTI_OK);
    assert_true(step(&w, 1, 1));
    assert_true(tutti_scaler_get_scale(w.scaler) == 12);
    s.scale = -1;
    assert_int_equal(tutti_scaler_state_set(w.scaler, &s), TUTTI_ERR_ARG);
    assert_true(tutti_scaler_get_scale(w.scaler) == 12);
    assert_int_equal(tutti_scaler_new(&scaler, &(tutti_scaler_opts){.growth_factor = 1}),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_scaler_new(&scaler, &(tutti_scaler_opts){.backoff_factor = 1}),
                     TUTTI_ERR_ARG);
    assert_int_equal(tutti_scaler_new(&scaler, &(tutti_scaler_opts){.growth_interval = -1}),
                     TUTTI_ERR_ARG);
    assert_null(scaler);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_pytorchs),
        cmocka_unit_test(the_loss_is_scaled_and_the_step_is_not),
        cmocka_unit_test(an_infinity_leaves_the_step_out_and_halves_the_scale),
        cmocka_unit_test(the_scale_doubles_after_an_interval_without_infinities),
        cmocka_unit_test(calls_out_of_order_are_refused),
        cmocka_unit_test(clipping_sees_unscaled_gradients),
        cmocka_unit_test(optimizers_skip_each_by_itself),
        cmocka_unit_test(state_travels_and_nonsense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
