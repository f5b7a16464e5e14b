/* optimizers: which parameters are updated, state in new layouts, errors, edges of schedules.   SPDX-License-Identifier: MIT
 * That the rules are PyTorch's is shown by tests/golden/optim_rules.c.
 * devices: strict cuda */
#include "harness/device.h"
#include "harness/memory.h"
#include "optim/optim.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int set_up(void **state)
{
    return tutti_ctx_new((tutti_ctx **)state, test_device(), NULL) == TUTTI_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    tutti_ctx_free(*state);
    return 0;
}

typedef struct pair {
    tutti_module root;
    tutti_linear a, b; /* 35 + 7 and 14 + 2 elements */
} pair;

static void open_pair(pair *m, tutti_ctx *cx)
{
    tutti_module_init(&m->root, cx);
    tutti_linear_init(&m->a, &m->root, "a", 5, 7);
    tutti_linear_init(&m->b, &m->root, "b", 7, 2);
    assert_int_equal(tutti_module_status(&m->root), TUTTI_OK);
}

/* Sets a gradient: numbers that depend on the element and `salt`. */
static void give_gradient(tutti_tensor *t, int salt)
{
    tutti__parameter *p = t->parameter;
    float *values = test_keep(tutti__tensor_bytes(t));

    if (!p->grad)
        assert_int_equal(p->prepare(p->owner), TUTTI_OK);
    for (int64_t i = 0; i < tutti_shape_count(t->shape); i++)
        values[i] = sinf((float)(i * 7 + salt * 3 + (int64_t)p->index));
    test_grad_put(t, values);
    p->grad_round = *p->round;
}

static void give_gradients(tutti_module *m, int salt)
{
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_parameter(m, i)); i++)
        give_gradient(t, salt);
}

static void says(const char *part)
{
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
}

static const tutti_sgd_opts with_momentum = {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f};

/* ---- Who is updated ----------------------------------------------------------------------------------------- */

static void parameters_without_a_gradient_keep_value_and_state(void **state)
{
    float weight[35], bias[7], buffer[35], kept[35];
    tutti_optim *optim;
    pair m;

    open_pair(&m, *state);
    assert_int_equal(tutti_sgd_new(&optim, &m.root, &with_momentum), TUTTI_OK);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK); /* none has one: nothing happens */
    give_gradients(&m.root, 1);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    memcpy(weight, test_values(m.a.weight), sizeof weight);
    memcpy(bias, test_values(m.a.bias), sizeof bias);
    assert_int_equal(tutti_optim_state_read(optim, 0, m.a.weight, buffer), TUTTI_OK);
    tutti_optim_zero_grad(optim);
    give_gradient(m.a.bias, 2);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    assert_memory_equal(weight, test_values(m.a.weight), sizeof weight);
    assert_int_equal(tutti_optim_state_read(optim, 0, m.a.weight, kept), TUTTI_OK);
    assert_memory_equal(buffer, kept, sizeof buffer);
    assert_memory_not_equal(bias, test_values(m.a.bias), sizeof bias);
    assert_int_equal(optim->steps[0], 1);
    assert_int_equal(optim->steps[1], 2);
    tutti_optim_free(optim);
    tutti_module_destroy(&m.root);
}

static void an_optimizer_of_a_part_leaves_the_rest(void **state)
{
    float before[35];
    tutti_optim *optim;
    pair m;

    open_pair(&m, *state);
    assert_int_equal(tutti_adam_new(&optim, &m.b.base, NULL), TUTTI_OK);
    give_gradients(&m.root, 1);
    memcpy(before, test_values(m.a.weight), sizeof before);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    assert_memory_equal(before, test_values(m.a.weight), sizeof before);
    assert_int_equal(optim->steps[0], 0);
    assert_int_equal(optim->steps[2], 1);
    tutti_optim_free(optim);
    tutti_module_destroy(&m.root);
}

/* Trains five steps; relayout: before the third, parameters move. The digest of the result. */
static void train(tutti_ctx *cx, bool relayout, char digest[33])
{
    tutti_optim *optim;
    pair m;

    open_pair(&m, cx);
    assert_int_equal(tutti_adamw_new(&optim, &m.root, &(tutti_adam_opts){.weight_decay = 0.1f}),
                     TUTTI_OK);
    for (int step = 0; step < 5; step++) {
        tutti_tensor *const order[] = {m.b.bias, m.a.weight, m.b.weight, m.a.bias};

        if (relayout && step == 2)
            assert_int_equal(tutti_module_flat_layout(&m.root, order, NULL), TUTTI_OK);
        tutti_optim_zero_grad(optim);
        give_gradients(&m.root, step);
        if (step == 1) /* another number of updates from here on: two runs */
            m.a.bias->parameter->grad_round = 0;
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
    tutti_module_digest(&m.root, digest);
    tutti_optim_free(optim);
    tutti_module_destroy(&m.root);
}

static void a_new_layout_changes_no_bit_of_training(void **state)
{
    char still[33], moved[33];

    train(*state, false, still);
    train(*state, true, moved);
    assert_string_equal(still, moved);
}

static void vector_code_has_the_bits_of_the_formula(void **state)
{
    enum { N = 1003 };
    static float p[N], b[N];
    tutti_module root;
    tutti_optim *optim;
    tutti_tensor *t;

    tutti_module_init(&root, *state);
    t = tutti_parameter_new(&root, "w", TUTTI_SHAPE(N), TUTTI_INIT_UNIFORM, 1);
    memcpy(p, test_values(t), sizeof p);
    assert_int_equal(tutti_sgd_new(&optim, &root, &with_momentum), TUTTI_OK);
    for (int step = 0; step < 3; step++) {
        const float *grad;

        give_gradient(t, step);
        grad = test_grad(t);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
        for (int i = 0; i < N; i++) {
            volatile float decayed = 0.01f * p[i], g = grad[i] + decayed; /* one rounding each */
            volatile float kept = 0.9f * b[i], sum = kept + g, move;

            b[i] = sum;
            move = 0.1f * b[i];
            p[i] = p[i] - move;
        }
        assert_memory_equal(p, test_values(t), sizeof p);
    }
    tutti_optim_free(optim);
    tutti_module_destroy(&root);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void refuse_sgd(tutti_module *m, tutti_sgd_opts opts, const char *why)
{
    tutti_optim *optim;

    assert_int_equal(tutti_sgd_new(&optim, m, &opts), TUTTI_ERR_ARG);
    says(why);
}

static void refuse_adam(tutti_module *m, tutti_adam_opts opts, const char *why)
{
    tutti_optim *optim;

    assert_int_equal(tutti_adamw_new(&optim, m, &opts), TUTTI_ERR_ARG);
    says(why);
}

static void wrong_options_are_named(void **state)
{
    tutti_optim *optim;
    tutti_module empty;
    pair m;

    open_pair(&m, *state);
    refuse_sgd(&m.root, (tutti_sgd_opts){.lr = -1}, "sgd: lr is -1, expected a number >= 0");
    refuse_sgd(&m.root, (tutti_sgd_opts){.lr = NAN}, "lr is nan");
    refuse_sgd(&m.root, (tutti_sgd_opts){.lr = INFINITY}, "lr is inf");
    refuse_sgd(&m.root, (tutti_sgd_opts){.lr = 1, .momentum = -0.1f}, "momentum is -0.1");
    refuse_sgd(&m.root, (tutti_sgd_opts){.lr = 1, .dampening = NAN}, "dampening is nan");
    refuse_sgd(&m.root, (tutti_sgd_opts){.lr = 1, .weight_decay = -1}, "weight_decay is -1");
    refuse_sgd(&m.root, (tutti_sgd_opts){.lr = 1, .nesterov = true}, "nesterov with momentum 0");
    refuse_sgd(&m.root,
               (tutti_sgd_opts){.lr = 1, .momentum = 0.9f, .dampening = 0.5f, .nesterov = true},
               "dampening 0.5");
    refuse_adam(&m.root, (tutti_adam_opts){.lr = -1}, "adamw: lr is -1");
    refuse_adam(&m.root, (tutti_adam_opts){.beta1 = 1},
                "beta1 is 1, expected a number >= 0 and < 1");
    refuse_adam(&m.root, (tutti_adam_opts){.beta2 = -0.5f}, "beta2 is -0.5");
    refuse_adam(&m.root, (tutti_adam_opts){.eps = -1}, "eps is -1");
    tutti_module_init(&empty, *state);
    assert_int_equal(tutti_sgd_new(&optim, &empty, &with_momentum), TUTTI_ERR_ARG);
    says("no parameters");
    tutti_module_destroy(&empty);
    tutti_module_destroy(&m.root);
}

static void wrong_groups_are_named(void **state)
{
    tutti_optim *sgd, *adam, *part;
    tutti_tensor *bias, *weight;
    pair m;

    open_pair(&m, *state);
    bias = m.a.bias;
    weight = m.b.weight;
    assert_int_equal(tutti_sgd_new(&sgd, &m.root, &(tutti_sgd_opts){.lr = 0.1f}), TUTTI_OK);
    assert_int_equal(tutti_adam_new(&adam, &m.root, NULL), TUTTI_OK);
    assert_int_equal(tutti_sgd_new(&part, &m.b.base, NULL), TUTTI_OK);
#define REFUSED(optim, ...)                                                                        \
    assert_int_equal(                                                                              \
        tutti_optim_add_group(optim, &bias, 1, &(tutti_optim_group_opts){__VA_ARGS__}),            \
        TUTTI_ERR_ARG)
    REFUSED(sgd, .weight_decay = -1);
    says("sgd: weight_decay is -1, expected a number >= 0");
    REFUSED(sgd, .lr_factor = -1);
    says("sgd: lr_factor is -1");
    REFUSED(sgd, .beta1 = 0.5f);
    says("sgd: a group's beta1 is 0.5, but sgd has none");
    REFUSED(adam, .momentum = 0.5f);
    says("adam: a group's momentum is 0.5, but adam has none");
    REFUSED(part, .weight_decay = TUTTI_ZERO);
    says("sgd: place 0 of a group holds a.bias, expected a parameter of the optimizer's module");
    assert_int_equal(tutti_optim_add_group(sgd, (tutti_tensor *[]){NULL}, 1, NULL), TUTTI_ERR_ARG);
    says("holds no parameter");
    give_gradients(&m.root, 1);
    assert_int_equal(tutti_optim_step(sgd), TUTTI_OK);
    assert_int_equal(
        tutti_optim_add_group(sgd, &weight, 1, &(tutti_optim_group_opts){.momentum = 0.9f}),
        TUTTI_ERR_STATE);
    says("after the first step of an optimizer without");
    tutti_optim_free(part);
    tutti_optim_free(adam);
    tutti_optim_free(sgd);
    tutti_module_destroy(&m.root);
}

/* A group with the optimizer's own options changes no bit, although it cuts runs; the next group takes its parameters. */
static void a_group_is_only_its_options(void **state)
{
    char digest[2][33];

    for (int grouped = 0; grouped < 2; grouped++) {
        tutti_optim *optim;
        tutti_tensor *of[2];
        pair m;

        open_pair(&m, *state);
        of[0] = m.a.bias;
        of[1] = m.b.weight;
        for (size_t i = 0; i < tutti_module_n_parameters(&m.root); i++) {
            tutti_tensor *t = tutti_module_parameter(&m.root, i);
            float *values = test_keep(tutti__tensor_bytes(t));

            for (int64_t k = 0; k < tutti_shape_count(t->shape); k++)
                values[k] = cosf((float)(k + (int64_t)i));
            assert_int_equal(tutti_tensor_write(t, values), TUTTI_OK);
        }
        assert_int_equal(tutti_adamw_new(&optim, &m.root, &(tutti_adam_opts){.weight_decay = 0.1f}),
                         TUTTI_OK);
        if (grouped) {
            assert_int_equal(tutti_optim_no_decay(optim), TUTTI_OK);
            assert_int_equal(
                tutti_optim_add_group(optim, (tutti_tensor *[]){m.a.bias, m.b.bias}, 2, NULL),
                TUTTI_OK);
            assert_int_equal(
                tutti_optim_add_group(optim, of, 2, &(tutti_optim_group_opts){.lr_factor = 1}),
                TUTTI_OK);
        }
        for (int step = 0; step < 3; step++) {
            tutti_optim_zero_grad(optim);
            give_gradients(&m.root, step);
            assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
        }
        tutti_module_digest(&m.root, digest[grouped]);
        tutti_optim_free(optim);
        tutti_module_destroy(&m.root);
    }
    assert_string_equal(digest[0], digest[1]);
}

static void a_bad_rate_stops_the_step_before_it_spoils_weights(void **state)
{
    char before[33], after[33];
    tutti_optim *optim;
    pair m;

    open_pair(&m, *state);
    assert_int_equal(tutti_sgd_new(&optim, &m.root, &with_momentum), TUTTI_OK);
    tutti_module_digest(&m.root, before);
    give_gradients(&m.root, 1);
    tutti_optim_set_lr(optim, NAN);
    assert_int_equal(tutti_optim_step(optim), TUTTI_ERR_ARG);
    says("lr is nan");
    tutti_module_digest(&m.root, after);
    assert_string_equal(before, after);
    tutti_optim_set_lr(optim, 0.5f);
    assert_true(tutti_optim_lr(optim) == 0.5f);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    /* in the wrong order on purpose: free must not look at the module */
    tutti_module_destroy(&m.root);
    tutti_optim_free(optim);
    tutti_optim_free(NULL);
}

/* ---- Clipping and schedules ------------------------------------------------------------------------------------- */

static void clipping_measures_what_has_a_gradient(void **state)
{
    float norm = -1;
    pair m;

    open_pair(&m, *state);
    assert_int_equal(tutti_clip_grad_norm(&m.root, 1, &norm), TUTTI_OK);
    assert_true(norm == 0);
    give_gradient(m.b.bias, 0);
    test_grad_put(m.b.bias, (const float[]){3, 4});
    assert_int_equal(tutti_clip_grad_norm(&m.root, 0, &norm), TUTTI_OK);
    assert_true(norm == 5 && test_grad(m.b.bias)[0] == 3);
    assert_int_equal(tutti_clip_grad_norm(&m.root, 6, &norm), TUTTI_OK);
    assert_true(test_grad(m.b.bias)[0] == 3);
    assert_int_equal(tutti_clip_grad_norm(&m.root, 1, NULL), TUTTI_OK);
    assert_true(fabsf(test_grad(m.b.bias)[1] - 0.8f) < 1e-6f);
    assert_int_equal(tutti_clip_grad_norm(&m.root, -1, NULL), TUTTI_ERR_ARG);
    says("max_norm is -1");
    assert_int_equal(tutti_clip_grad_norm(&m.root, NAN, NULL), TUTTI_ERR_ARG);
    test_grad_put(m.b.bias, (const float[]){NAN, 0});
    assert_int_equal(tutti_clip_grad_norm(&m.root, 1, &norm), TUTTI_OK);
    assert_true(isnan(norm));
    tutti_module_destroy(&m.root);
}

static void the_norm_has_the_same_bits_in_every_layout(void **state)
{
    float norms[2];
    pair m;

    open_pair(&m, *state);
    for (int k = 0; k < 2; k++) {
        tutti_tensor *const order[] = {m.b.bias, m.a.weight, m.b.weight, m.a.bias};

        if (k == 1)
            assert_int_equal(tutti_module_flat_layout(&m.root, order, NULL), TUTTI_OK);
        give_gradients(&m.root, 5);
        assert_int_equal(tutti_clip_grad_norm(&m.root, 0, &norms[k]), TUTTI_OK);
    }
    assert_memory_equal(&norms[0], &norms[1], sizeof(float));
    tutti_module_destroy(&m.root);
}

static void schedules_end_where_they_should(void **state)
{
    tutti_schedule s = {.kind = TUTTI_SCHEDULE_COSINE,
                        .lr = 1,
                        .final_lr = 0.25f,
                        .total_steps = 12,
                        .warmup_steps = 4};

    (void)state;
    assert_true(tutti_schedule_lr(&s, 0) == 0.25f); /* a quarter of the warm-up */
    assert_true(tutti_schedule_lr(&s, 3) == 1);
    assert_true(tutti_schedule_lr(&s, 4) == 1);
    assert_true(fabsf(tutti_schedule_lr(&s, 8) - 0.625f) < 1e-6f);
    assert_true(tutti_schedule_lr(&s, 12) == 0.25f);
    assert_true(tutti_schedule_lr(&s, UINT64_MAX) == 0.25f);
    s.total_steps = 4; /* nothing but warm-up */
    assert_true(tutti_schedule_lr(&s, 4) == 0.25f);
    s.total_steps = 0;
    assert_true(tutti_schedule_lr(&s, 1000) == 1);
    s = (tutti_schedule){.kind = TUTTI_SCHEDULE_STEP, .lr = 1, .gamma = 0.5f};
    assert_true(tutti_schedule_lr(&s, 1000) == 1);
    s.period = 3;
    assert_true(tutti_schedule_lr(&s, 2) == 1 && tutti_schedule_lr(&s, 3) == 0.5f);
    s = (tutti_schedule){.kind = TUTTI_SCHEDULE_CONSTANT, .lr = 1, .warmup_steps = 2};
    assert_true(tutti_schedule_lr(&s, 0) == 0.5f && tutti_schedule_lr(&s, 9) == 1);
}

/* ---- Zero ------------------------------------------------------------------------------------------------------ */

/* One step with these options from the same start, and gradients of which one is zero; the weight of `a` afterwards. */
typedef tutti_status make_optim(tutti_optim **optim_p, tutti_module *m, const void *opts);

static tutti_status make_sgd(tutti_optim **optim_p, tutti_module *m, const void *opts)
{
    return tutti_sgd_new(optim_p, m, opts);
}

static tutti_status make_adam(tutti_optim **optim_p, tutti_module *m, const void *opts)
{
    return tutti_adam_new(optim_p, m, opts);
}

static tutti_status make_adamw(tutti_optim **optim_p, tutti_module *m, const void *opts)
{
    return tutti_adamw_new(optim_p, m, opts);
}

static void step_with(tutti_ctx *cx, make_optim *make, const void *opts, int n_steps,
                      float weight[35])
{
    tutti_optim *optim;
    tutti_flat flat;
    const float *values;
    pair m;

    open_pair(&m, cx);
    assert_int_equal(make(&optim, &m.root, opts), TUTTI_OK);
    for (int i = 0; i < n_steps; i++) {
        float *gradient;

        give_gradients(&m.root, i);
        gradient = test_grad(m.a.weight);
        gradient[34] = 0;
        test_grad_put(m.a.weight, gradient);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
    memcpy(weight, test_values(m.a.weight), 35 * sizeof(float));
    assert_int_equal(tutti_module_flat(&m.root, &flat), TUTTI_OK);
    values = test_look(cx, flat.parameters, flat.n * sizeof *values);
    for (size_t i = flat.offsets[0] + 35; i < flat.offsets[1]; i++)
        assert_true(values[i] == 0); /* gaps stay zeros */
    tutti_optim_free(optim);
    tutti_module_destroy(&m.root);
}

static void a_rate_of_zero_changes_nothing(void **state)
{
    const tutti_sgd_opts sgd = {.lr = TUTTI_ZERO, .momentum = 0.9f, .weight_decay = 1};
    const tutti_adam_opts adam = {.lr = TUTTI_ZERO, .weight_decay = 1};
    float before[35], after[35];

    step_with(*state, make_sgd, NULL, 0, before);
    step_with(*state, make_sgd, &sgd, 3, after);
    assert_memory_equal(before, after, sizeof after);
    step_with(*state, make_adam, &adam, 3, after);
    assert_memory_equal(before, after, sizeof after);
    step_with(*state, make_adamw, &adam, 3, after);
    assert_memory_equal(before, after, sizeof after);
}

static void no_rate_is_a_thousandth_everywhere(void **state)
{
    float expected[35], said[35];
    tutti_optim *optim;
    pair m;

    open_pair(&m, *state);
    assert_int_equal(tutti_sgd_new(&optim, &m.root, NULL), TUTTI_OK);
    assert_true(tutti_optim_lr(optim) == 1e-3f);
    tutti_optim_set_lr(optim, 0); /* a setter's zero is zero */
    assert_true(tutti_optim_lr(optim) == 0);
    tutti_optim_set_lr(optim, TUTTI_ZERO);
    assert_true(tutti_optim_lr(optim) == 0 && !signbit(tutti_optim_lr(optim)));
    tutti_optim_free(optim);
    tutti_module_destroy(&m.root);
    step_with(*state, make_sgd, &(tutti_sgd_opts){.lr = 1e-3f}, 2, said);
    step_with(*state, make_sgd, &(tutti_sgd_opts){0}, 2, expected);
    assert_memory_equal(expected, said, sizeof said);
    step_with(*state, make_adam, &(tutti_adam_opts){.lr = 1e-3f}, 2, said);
    step_with(*state, make_adam, NULL, 2, expected);
    assert_memory_equal(expected, said, sizeof said);
}

/* Without memory and without eps Adam's first step is lr * sign(g); an element that never had a gradient stays. */
static void adam_without_betas_and_eps_is_the_sign(void **state)
{
    const tutti_adam_opts opts = {
        .lr = 0.5f, .beta1 = TUTTI_ZERO, .beta2 = TUTTI_ZERO, .eps = TUTTI_ZERO};
    float before[35], after[35];

    step_with(*state, make_adam, &opts, 0, before);
    step_with(*state, make_adam, &opts, 1, after);
    for (int i = 1; i < 34; i++)
        assert_true(fabsf(after[i] - (before[i] - copysignf(0.5f, sinf((float)(i * 7))))) < 1e-6f);
    assert_true(after[34] == before[34]);
    step_with(*state, make_adam, &(tutti_adam_opts){.lr = 0.5f}, 2, before);
    step_with(*state, make_adam, &opts, 2, after); /* another rule from the second step on */
    assert_memory_not_equal(before, after, sizeof after);
}

static void decimals_are_read_as_written(void **state)
{
    (void)state;
    assert_true(tutti__optim_decimal(0.999f) == 0.999);
    assert_true(tutti__optim_decimal(1e-8f) == 1e-8);
    assert_true(tutti__optim_decimal(0) == 0);
    assert_true(tutti__optim_decimal(1.0f / 3) == strtod("0.33333334", NULL));
    assert_true(isnan(tutti__optim_decimal(NAN)));
    assert_true(isinf(tutti__optim_decimal(INFINITY)));
}

static pthread_t caller;
static _Atomic int n_others;

/* Every thread but the caller fails, and the caller makes sure that there is another. */
static tutti_status update_fails_elsewhere(tutti_stream *stream, const tutti__flat_run *run)
{
    (void)stream;
    (void)run;
    if (!pthread_equal(pthread_self(), caller)) {
        n_others++;
        return tutti__fail(TUTTI_ERR_STATE, "the other thread's own words");
    }
    for (uint64_t end = tutti__now_ns() + 10000000000u; n_others == 0 && tutti__now_ns() < end;)
        sched_yield();
    return TUTTI_OK;
}

/* Messages are thread-local, and the failing thread is not the caller. */
static void a_failure_in_another_thread_keeps_its_words(void **state)
{
    static const tutti__optim_rule rule = {.name = "broken", .update = update_fails_elsewhere};
    static const tutti__optim_options options;
    tutti_module root;
    tutti_linear layer;
    tutti_optim *optim;
    tutti_ctx *cx;

    (void)state;
    if (test_device().kind != TUTTI_CPU)
        return;
    caller = pthread_self();
    assert_int_equal(tutti_ctx_new(&cx, test_device(), &(tutti_ctx_opts){.threads = 2}), TUTTI_OK);
    tutti_module_init(&root, cx);
    tutti_linear_init(&layer, &root, "a", 1000, 1000); /* several parts */
    assert_int_equal(tutti__optim_new(&optim, &root, &rule, 0.1f, &options), TUTTI_OK);
    give_gradients(&root, 1);
    assert_int_equal(tutti_optim_step(optim), TUTTI_ERR_STATE);
    assert_string_equal(tutti_last_error(), "the other thread's own words");
    tutti_optim_free(optim);
    tutti_module_destroy(&root);
    tutti_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_without_a_gradient_keep_value_and_state),
        cmocka_unit_test(an_optimizer_of_a_part_leaves_the_rest),
        cmocka_unit_test(a_new_layout_changes_no_bit_of_training),
        cmocka_unit_test(vector_code_has_the_bits_of_the_formula),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(wrong_groups_are_named),
        cmocka_unit_test(a_group_is_only_its_options),
        cmocka_unit_test(a_bad_rate_stops_the_step_before_it_spoils_weights),
        cmocka_unit_test(clipping_measures_what_has_a_gradient),
        cmocka_unit_test(the_norm_has_the_same_bits_in_every_layout),
        cmocka_unit_test(schedules_end_where_they_should),
        cmocka_unit_test(a_rate_of_zero_changes_nothing),
        cmocka_unit_test(no_rate_is_a_thousandth_everywhere),
        cmocka_unit_test(adam_without_betas_and_eps_is_the_sign),
        cmocka_unit_test(decimals_are_read_as_written),
        cmocka_unit_test(a_failure_in_another_thread_keeps_its_words),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
