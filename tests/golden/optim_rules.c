/* optimizers, schedules and clipping compared with PyTorch's (tools/make_golden.py).   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "optim/optim.h"

#include "golden/golden.h"
#include "harness/device.h"
#include "harness/memory.h"

#include <math.h>

#define N_A 35
#define N_B 3

typedef struct two {
    tutti_ctx *cx;
    tutti_module module;
    tutti_tensor *a, *b;
} two;

/* a: 5x7, or 7x5x1x1, as of a convolution. */
static void open_two(two *t, bool tall)
{
    assert_int_equal(tutti_ctx_new(&t->cx, test_device(), NULL), TUTTI_OK);
    tutti_module_init(&t->module, t->cx);
    t->a = tutti_parameter_new(&t->module, "a", tall ? TUTTI_SHAPE(7, 5, 1, 1) : TUTTI_SHAPE(5, 7),
                               TUTTI_INIT_ZEROS, 0);
    t->b = tutti_parameter_new(&t->module, "b", TUTTI_SHAPE(N_B), TUTTI_INIT_ZEROS, 0);
    assert_int_equal(tutti_module_status(&t->module), TUTTI_OK);
}

static void close_two(two *t)
{
    tutti_module_destroy(&t->module);
    tutti_ctx_free(t->cx);
}

/* As if backward had made it. */
static void set_gradient(tutti_tensor *t, const float *values)
{
    tutti_flat flat;

    assert_int_equal(tutti_module_flat(((struct tutti_root *)t->parameter->owner)->module, &flat),
                     TUTTI_OK);
    test_grad_put(t, values);
    t->parameter->grad_round = *t->parameter->round;
}

/* Puts parameter b into its own group. */
static tutti_status with_group(tutti_status status, tutti_optim *const *optim_p, tutti_module *m,
                               const tutti_optim_group_opts *opts)
{
    tutti_tensor *b = tutti_module_find(m, "b");

    return status == TUTTI_OK ? tutti_optim_add_group(*optim_p, &b, 1, opts) : status;
}

static tutti_status make_rmsprop(const char *name, tutti_optim **optim_p, tutti_module *m)
{
    tutti_rmsprop_opts opts = {.lr = 0.02f, .alpha = 0.9f, .momentum = 0.8f, .centered = true};

    if (strcmp(name, "rmsprop") == 0)
        return tutti_rmsprop_new(optim_p, m, NULL);
    if (strcmp(name, "rmsprop_groups") == 0)
        return with_group(
            tutti_rmsprop_new(optim_p, m, &(tutti_rmsprop_opts){.lr = 0.02f, .centered = true}),
            optim_p, m,
            &(tutti_optim_group_opts){.lr_factor = 0.5f, .momentum = 0.5f, .alpha = 0.8f});
    if (strcmp(name, "rmsprop_centered") == 0)
        opts.momentum = 0;
    if (strcmp(name, "rmsprop_momentum") == 0) {
        opts.centered = false;
        opts.eps = 1e-6f;
        opts.weight_decay = 0.1f;
    }
    return tutti_rmsprop_new(optim_p, m, &opts);
}

static tutti_status make_lamb(const char *name, tutti_optim **optim_p, tutti_module *m)
{
    if (strcmp(name, "lamb") == 0)
        return tutti_lamb_new(optim_p, m, &(tutti_lamb_opts){.lr = 0.01f});
    TUTTI_TRY(tutti_lamb_new(
        optim_p, m,
        &(tutti_lamb_opts){
            .lr = 0.02f, .beta1 = 0.8f, .beta2 = 0.99f, .eps = 1e-8f, .weight_decay = 0.1f}));
    return tutti_optim_no_decay(*optim_p);
}

/* airbench94's, whose matrices have no decay; rates are tutti_optim_lr_groups' products of decimals. */
static tutti_status make_muon_with_sgd(tutti_optim **optim_p, tutti_module *m)
{
    const tutti_muon_opts opts = {.lr = 0.24f,
                                  .momentum = 0.6f,
                                  .weight_decay = 0.1f,
                                  .ns_steps = 3,
                                  .normalize = true,
                                  .others_by_sgd = true,
                                  .sgd_momentum = 0.85f,
                                  .adamw_lr_factor = 0.053f / 0.24f,
                                  .adamw = "b"};

    TUTTI_TRY(tutti_muon_new(optim_p, m, &opts));
    return tutti_optim_decay_groups(*optim_p, "a=0");
}

static tutti_status make_muon(const char *name, tutti_optim **optim_p, tutti_module *m)
{
    tutti_muon_opts opts = {.lr = 0.02f, .weight_decay = 0.1f, .adamw = "b"};

    if (strstr(name, "sgd"))
        return make_muon_with_sgd(optim_p, m);
    if (!strstr(name, "match") && !strstr(name, "spectral"))
        return tutti_muon_new(optim_p, m, &opts);
    opts.lr = 0.01f;
    opts.weight_decay = 0.2f;
    opts.adjust_lr = TUTTI_ADJUST_LR_SPECTRAL_UNCLAMPED;
    if (strstr(name, "match"))
        opts = (tutti_muon_opts){.lr = 0.01f,
                                 .momentum = 0.8f,
                                 .weight_decay = 0.2f,
                                 .ns_coefficients = {3.4f, -4.7f, 2},
                                 .ns_steps = 3,
                                 .adjust_lr = TUTTI_ADJUST_LR_MATCH_RMS_ADAMW,
                                 .no_nesterov = true,
                                 .adamw = "b"};
    return tutti_muon_new(optim_p, m, &opts);
}

static tutti_status make_adagrad(const char *name, tutti_optim **optim_p, tutti_module *m)
{
    return tutti_adagrad_new(optim_p, m,
                             strcmp(name, "adagrad") == 0
                                 ? NULL
                                 : &(tutti_adagrad_opts){.lr = 0.1f,
                                                         .lr_decay = 0.2f,
                                                         .eps = 1e-6f,
                                                         .initial_accumulator_value = 0.3f,
                                                         .weight_decay = 0.1f});
}

static tutti_status make_groups(const char *name, tutti_optim **optim_p, tutti_module *m)
{
    if (strcmp(name, "sgd_groups") == 0)
        return with_group(
            tutti_sgd_new(optim_p, m,
                          &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f, .weight_decay = 5e-4f}),
            optim_p, m,
            &(tutti_optim_group_opts){
                .lr_factor = 0.5f, .momentum = 0.5f, .weight_decay = TUTTI_ZERO});
    if (strcmp(name, "sgd_momentum_of_one_group") == 0) {
        tutti_tensor *a = tutti_module_find(m, "a");

        TUTTI_TRY(tutti_sgd_new(optim_p, m, &(tutti_sgd_opts){.lr = 0.1f}));
        return tutti_optim_add_group(*optim_p, &a, 1, &(tutti_optim_group_opts){.momentum = 0.9f});
    }
    if (strcmp(name, "adam_groups") == 0)
        return with_group(tutti_adam_new(optim_p, m,
                                         &(tutti_adam_opts){.lr = 0.01f,
                                                            .beta1 = 0.8f,
                                                            .beta2 = 0.99f,
                                                            .eps = 1e-6f,
                                                            .weight_decay = 0.1f}),
                          optim_p, m,
                          &(tutti_optim_group_opts){
                              .lr_factor = 2, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f});
    TUTTI_TRY(tutti_adamw_new(optim_p, m, &(tutti_adam_opts){.lr = 0.01f, .weight_decay = 0.1f}));
    return tutti_optim_no_decay(*optim_p);
}

static tutti_status make(const char *name, tutti_optim **optim_p, tutti_module *m)
{
    if (strstr(name, "rmsprop"))
        return make_rmsprop(name, optim_p, m);
    if (strstr(name, "adagrad"))
        return make_adagrad(name, optim_p, m);
    if (strstr(name, "lamb"))
        return make_lamb(name, optim_p, m);
    if (strstr(name, "muon"))
        return make_muon(name, optim_p, m);
    if (strstr(name, "group") || strstr(name, "no_decay"))
        return make_groups(name, optim_p, m);
    if (strcmp(name, "sgd") == 0)
        return tutti_sgd_new(optim_p, m, &(tutti_sgd_opts){.lr = 0.1f});
    if (strcmp(name, "sgd_decay") == 0)
        return tutti_sgd_new(optim_p, m, &(tutti_sgd_opts){.lr = 0.1f, .weight_decay = 0.01f});
    if (strcmp(name, "sgd_momentum") == 0)
        return tutti_sgd_new(
            optim_p, m, &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f, .weight_decay = 5e-4f});
    if (strcmp(name, "sgd_dampening") == 0)
        return tutti_sgd_new(optim_p, m,
                             &(tutti_sgd_opts){.lr = 0.1f, .momentum = 0.9f, .dampening = 0.3f});
    if (strcmp(name, "sgd_nesterov") == 0)
        return tutti_sgd_new(
            optim_p, m,
            &(tutti_sgd_opts){
                .lr = 0.1f, .momentum = 0.9f, .weight_decay = 5e-4f, .nesterov = true});
    if (strcmp(name, "adam") == 0)
        return tutti_adam_new(optim_p, m, NULL);
    if (strcmp(name, "adam_decay") == 0)
        return tutti_adam_new(
            optim_p, m,
            &(tutti_adam_opts){
                .lr = 0.01f, .beta1 = 0.8f, .beta2 = 0.99f, .eps = 1e-6f, .weight_decay = 0.1f});
    return tutti_adamw_new(optim_p, m, &(tutti_adam_opts){.lr = 0.01f, .weight_decay = 0.1f});
}

static void assert_near(const char *name, int step, const float *got, const float *expected,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - expected[i]) <= 1e-6f))
            fail_msg("%s, step %d, element %zu: %.9g, PyTorch has %.9g", name, step, i,
                     (double)got[i], (double)expected[i]);
}

static void train(const golden *g, const char *name)
{
    char key[64];
    float ga[N_A], gb[N_B];
    tutti__mt19937 mt;
    tutti_optim *optim;
    const float *expected;
    size_t n;
    two t;

    snprintf(key, sizeof key, "optimizer.%s", name);
    expected = golden_tensor(g, key, "F32", &n);
    assert_int_equal(n, 5 * (N_A + N_B));
    open_two(&t, strstr(name, "tall"));
    tutti__mt19937_seed(&mt, 2);
    draw_uniform(&mt, ga, N_A);
    draw_uniform(&mt, gb, N_B);
    assert_int_equal(tutti_tensor_write(t.a, ga), TUTTI_OK);
    assert_int_equal(tutti_tensor_write(t.b, gb), TUTTI_OK);
    assert_int_equal(make(name, &optim, &t.module), TUTTI_OK);
    for (int step = 0; step < 5; step++, expected += N_A + N_B) {
        draw_uniform(&mt, ga, N_A);
        draw_uniform(&mt, gb, N_B);
        tutti_optim_zero_grad(optim);
        set_gradient(t.a, ga);
        if (step >= 2)
            set_gradient(t.b, gb);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
        assert_near(name, step, test_values(t.a), expected, N_A);
        assert_near(name, step, test_values(t.b), expected + N_A, N_B);
    }
    tutti_optim_free(optim);
    close_two(&t);
}

static void optimizers_do_what_torch_optim_does(void **state)
{
    static const char *const names[] = {"sgd",
                                        "sgd_decay",
                                        "sgd_momentum",
                                        "sgd_dampening",
                                        "sgd_nesterov",
                                        "adam",
                                        "adam_decay",
                                        "adamw",
                                        "sgd_groups",
                                        "sgd_momentum_of_one_group",
                                        "adam_groups",
                                        "adamw_no_decay",
                                        "rmsprop",
                                        "rmsprop_momentum",
                                        "rmsprop_centered",
                                        "rmsprop_both",
                                        "rmsprop_groups",
                                        "adagrad",
                                        "adagrad_all",
                                        "lamb",
                                        "lamb_no_decay_groups",
                                        "muon",
                                        "muon_tall",
                                        "muon_match",
                                        "muon_spectral_tall",
                                        "muon_sgd_tall",
                                        "muon_sgd"};
    golden g;

    (void)state;
    golden_open(&g, "rules");
    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++)
        train(&g, names[i]);
    golden_close(&g);
}

static void schedules_are_torch_lr_schedulers(void **state)
{
    static const struct {
        const char *name;
        tutti_schedule schedule;
    } rows[] = {
        {"schedule.cosine",
         {.kind = TUTTI_SCHEDULE_COSINE, .lr = 0.1f, .final_lr = 0.001f, .total_steps = 30}},
        {"schedule.step", {.kind = TUTTI_SCHEDULE_STEP, .lr = 0.1f, .gamma = 0.5f, .period = 10}},
        {"schedule.warm_cosine",
         {.kind = TUTTI_SCHEDULE_COSINE,
          .lr = 0.1f,
          .final_lr = 0.001f,
          .total_steps = 30,
          .warmup_steps = 5}},
        {"schedule.warm_step",
         {.kind = TUTTI_SCHEDULE_STEP, .lr = 0.1f, .gamma = 0.5f, .period = 10, .warmup_steps = 5}},
        {"schedule.linear",
         {.kind = TUTTI_SCHEDULE_LINEAR, .lr = 0.1f, .final_lr = 0.001f, .total_steps = 30}},
        {"schedule.onecycle",
         {.kind = TUTTI_SCHEDULE_ONECYCLE,
          .lr = 0.1f,
          .final_lr = 0.1f / 25 / 1e4f,
          .total_steps = 31,
          .pct_start = 0.3f,
          .div_factor = 25}},
        {"schedule.onecycle_late",
         {.kind = TUTTI_SCHEDULE_ONECYCLE,
          .lr = 0.1f,
          .final_lr = 0.1f / 7 / 300,
          .total_steps = 31,
          .pct_start = 0.65f,
          .div_factor = 7}},
        {"schedule.restarts_1",
         {.kind = TUTTI_SCHEDULE_RESTARTS,
          .lr = 0.1f,
          .final_lr = 0.001f,
          .period = 7,
          .t_mult = 1}},
        {"schedule.restarts_2",
         {.kind = TUTTI_SCHEDULE_RESTARTS,
          .lr = 0.1f,
          .final_lr = 0.001f,
          .period = 7,
          .t_mult = 2}},
    };
    golden g;

    (void)state;
    golden_open(&g, "rules");
    for (size_t k = 0; k < TUTTI__COUNT_OF(rows); k++) {
        size_t n;
        const double *expected = golden_tensor(&g, rows[k].name, "F64", &n);

        for (size_t i = 0; i < n; i++) {
            double lr = (double)tutti_schedule_lr(&rows[k].schedule, i);

            if (fabs(lr - expected[i]) > 1e-7 * 0.1)
                fail_msg("%s at step %zu: %.9g, PyTorch has %.9g", rows[k].name, i, lr,
                         expected[i]);
        }
    }
    golden_close(&g);
}

static void clipping_is_torchs(void **state)
{
    float a[N_A], b[N_B], norm;
    tutti__mt19937 mt;
    const float *expected;
    golden g;
    size_t n;
    two t;

    (void)state;
    golden_open(&g, "rules");
    open_two(&t, false);
    tutti__mt19937_seed(&mt, 3);
    draw_uniform(&mt, a, N_A);
    draw_uniform(&mt, b, N_B);
    set_gradient(t.a, a);
    set_gradient(t.b, b);
    assert_int_equal(tutti_clip_grad_norm(&t.module, 0.5f, &norm), TUTTI_OK);
    expected = golden_tensor(&g, "clip.norm", "F32", &n);
    assert_near("norm", 0, &norm, expected, 1);
    expected = golden_tensor(&g, "clip.gradients", "F32", &n);
    assert_near("gradients", 0, test_grad(t.a), expected, N_A);
    assert_near("gradients", 0, test_grad(t.b), expected + N_A, N_B);
    assert_int_equal(tutti_clip_grad_value(&t.module, 0.05f), TUTTI_OK);
    expected = golden_tensor(&g, "clip.value", "F32", &n);
    assert_near("clamped", 0, test_grad(t.a), expected, N_A);
    assert_near("clamped", 0, test_grad(t.b), expected + N_A, N_B);
    close_two(&t);
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers_do_what_torch_optim_does),
        cmocka_unit_test(schedules_are_torch_lr_schedulers),
        cmocka_unit_test(clipping_is_torchs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
