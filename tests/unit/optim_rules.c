/* rmsprop, adagrad, lamb, muon, rates by name and clipping by value: options, the choice of parameters, bits on any number of threads.
 * SPDX-License-Identifier: MIT
 * That the rules are PyTorch's is shown by tests/golden/optim_rules.c.
 * devices: strict cuda */
#include "harness/device.h"
#include "harness/memory.h"
#include "optim/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

typedef struct net {
    tutti_ctx *cx;
    tutti_module root;
    tutti_embedding table;
    tutti_linear in, middle, out;
    tutti_conv2d conv;
} net;

static void open_net(net *n, int threads, int64_t width)
{
    memset(n, 0, sizeof *n);
    assert_int_equal(tutti_ctx_new(&n->cx, test_device(), &(tutti_ctx_opts){.threads = threads}),
                     TUTTI_OK);
    tutti_module_init(&n->root, n->cx);
    tutti_embedding_init(&n->table, &n->root, "table", 6, 4, false);
    tutti_linear_init(&n->in, &n->root, "in", 5, width);
    tutti_linear_init(&n->middle, &n->root, "middle", width, width + 3);
    tutti_conv2d_init(&n->conv, &n->root, "conv",
                      &(tutti_conv2d_layer_opts){.in = 2, .out = 6, .kernel = 3});
    tutti_linear_init(&n->out, &n->root, "out", width, 2);
    assert_int_equal(tutti_module_status(&n->root), TUTTI_OK);
}

static void close_net(net *n)
{
    tutti_module_destroy(&n->root);
    tutti_ctx_free(n->cx);
}

static void give_gradients(tutti_module *m, int salt)
{
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_parameter(m, i)); i++) {
        tutti__parameter *p = t->parameter;
        float *values = test_keep(tutti__tensor_bytes(t));

        if (!p->grad)
            assert_int_equal(p->prepare(p->owner), TUTTI_OK);
        for (int64_t k = 0; k < tutti_shape_count(t->shape); k++)
            values[k] = sinf((float)(k * 7 + salt * 3 + (int64_t)i));
        test_grad_put(t, values);
        p->grad_round = *p->round;
    }
}

static void says(const char *part)
{
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
}

typedef tutti_status make_optim(tutti_optim **optim_p, tutti_module *m);

static tutti_status make_rmsprop(tutti_optim **optim_p, tutti_module *m)
{
    return tutti_rmsprop_new(
        optim_p, m,
        &(tutti_rmsprop_opts){.momentum = 0.9f, .weight_decay = 0.1f, .centered = true});
}

static tutti_status make_adagrad(tutti_optim **optim_p, tutti_module *m)
{
    return tutti_adagrad_new(
        optim_p, m, &(tutti_adagrad_opts){.lr_decay = 0.1f, .initial_accumulator_value = 0.5f});
}

static tutti_status make_lamb(tutti_optim **optim_p, tutti_module *m)
{
    return tutti_lamb_new(optim_p, m, NULL);
}

static tutti_status make_muon(tutti_optim **optim_p, tutti_module *m)
{
    return tutti_muon_new(optim_p, m, &(tutti_muon_opts){.lr = 0.02f});
}

static make_optim *const all[] = {make_rmsprop, make_adagrad, make_lamb, make_muon};

/* ---- Bits ------------------------------------------------------------------------------------------------------------ */

static void train(make_optim *make, int threads, bool relayout, char digest[33])
{
    tutti_optim *optim;
    net n;

    open_net(&n, threads, 300); /* several parts of a parameter */
    assert_int_equal(make(&optim, &n.root), TUTTI_OK);
    for (int step = 0; step < 3; step++) {
        if (relayout && step == 1) {
            tutti_tensor *order[9];

            assert_int_equal(tutti_module_n_parameters(&n.root), 9);
            for (size_t i = 0; i < 9; i++)
                order[i] = tutti_module_parameter(&n.root, 8 - i);
            assert_int_equal(tutti_module_flat_layout(&n.root, order, NULL), TUTTI_OK);
        }
        tutti_optim_zero_grad(optim);
        give_gradients(&n.root, step);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    }
    tutti_module_digest(&n.root, digest);
    tutti_optim_free(optim);
    close_net(&n);
}

static void threads_and_layout_change_no_bit(void **state)
{
    char one[33], three[33], moved[33];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(all); i++) {
        train(all[i], 1, false, one);
        train(all[i], 3, false, three);
        train(all[i], 1, true, moved);
        assert_string_equal(one, three);
        assert_string_equal(one, moved);
    }
}

/* Its singular values are near 1 whatever the gradient's are: the rows of the update of a wide matrix are nearly orthogonal. */
static void muon_makes_updates_orthogonal(void **state)
{
    float before[300 * 303], *after;
    tutti_optim *optim;
    net n;
    double dot = 0, one = 0, two = 0;

    (void)state;
    open_net(&n, 1, 300);
    memcpy(before, test_values(n.middle.weight), sizeof before);
    assert_int_equal(
        tutti_muon_new(&optim, &n.root, &(tutti_muon_opts){.lr = 1, .weight_decay = TUTTI_ZERO}),
        TUTTI_OK);
    give_gradients(&n.root, 1);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    after = test_values(n.middle.weight);
    for (size_t i = 0; i < TUTTI__COUNT_OF(before); i++)
        before[i] -= after[i];
    for (size_t k = 0; k < 300; k++) {
        one += (double)before[k] * (double)before[k];
        two += (double)before[300 + k] * (double)before[300 + k];
        dot += (double)before[k] * (double)before[300 + k];
    }
    assert_true(fabs(dot) < 0.3 * sqrt(one * two)); /* of the gradient's: cos(7 * 300) */
    tutti_optim_free(optim);
    close_net(&n);
}

/* ---- Who is updated how ------------------------------------------------------------------------------------------ */

static bool is_matrix(const tutti_optim *optim, const tutti_tensor *t)
{
    return optim->matrix[t->parameter->index];
}

static void muon_takes_hidden_matrices(void **state)
{
    float buffer[18 * 6];
    tutti_optim *optim;
    net n;

    (void)state;
    open_net(&n, 1, 8);
    assert_int_equal(tutti_muon_new(&optim, &n.root, NULL), TUTTI_OK);
    assert_false(is_matrix(optim, n.table.weight)); /* an embedding */
    assert_false(is_matrix(optim, n.in.weight));    /* the first */
    assert_true(is_matrix(optim, n.middle.weight));
    assert_true(is_matrix(optim, n.conv.weight));
    assert_false(is_matrix(optim, n.conv.bias));
    assert_false(is_matrix(optim, n.out.weight)); /* the last */
    assert_string_equal(tutti_optim_state_name(optim, 0), "momentum_buffer");
    assert_string_equal(tutti_optim_state_name(optim, 1), "exp_avg");
    assert_string_equal(tutti_optim_state_name(optim, 2), "exp_avg_sq");
    give_gradients(&n.root, 1);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    assert_int_equal(tutti_optim_state_read(optim, 0, n.conv.weight, buffer), TUTTI_OK);
    assert_true(buffer[0] != 0);
    assert_int_equal(tutti_optim_state_read(optim, 1, n.conv.weight, buffer), TUTTI_OK);
    assert_true(buffer[0] == 0);
    tutti_optim_free(optim);

    assert_int_equal(
        tutti_muon_new(&optim, &n.root, &(tutti_muon_opts){.adamw = "out,middle.weight"}),
        TUTTI_OK);
    assert_true(is_matrix(optim, n.in.weight));
    assert_false(is_matrix(optim, n.middle.weight));
    assert_false(is_matrix(optim, n.out.weight));
    tutti_optim_free(optim);
    assert_int_equal(tutti_muon_new(&optim, &n.root, &(tutti_muon_opts){.adamw = "outer"}),
                     TUTTI_ERR_ARG);
    says("muon: adamw: \"outer\" is not a parameter");
    assert_int_equal(tutti_muon_new(&optim, &n.root, &(tutti_muon_opts){.adamw = "*"}),
                     TUTTI_ERR_ARG);
    says("has no matrix that is left to it");
    assert_int_equal(tutti_muon_new(&optim, &n.in.base, NULL), TUTTI_ERR_ARG);
    says("has no matrix between its first and its last");
    close_net(&n);
}

static double rate_of(const tutti_optim *optim, const tutti_tensor *t)
{
    return optim->groups[tutti__optim_group_of(optim, t->parameter->index)].lr_factor;
}

static double decay_of(const tutti_optim *optim, const tutti_tensor *t)
{
    return optim->groups[tutti__optim_group_of(optim, t->parameter->index)].options.weight_decay;
}

static void rates_by_name_keep_other_options(void **state)
{
    tutti_optim *optim;
    net n;

    (void)state;
    open_net(&n, 1, 8);
    assert_int_equal(tutti_adamw_new(&optim, &n.root, &(tutti_adam_opts){.weight_decay = 0.1f}),
                     TUTTI_OK);
    assert_int_equal(tutti_optim_no_decay(optim), TUTTI_OK);
    assert_int_equal(tutti_optim_lr_groups(optim, "in=0.1,*.bias=0.5,middle=0,out.bias=1"),
                     TUTTI_OK);
    assert_true(rate_of(optim, n.in.weight) == 0.1 && decay_of(optim, n.in.weight) == 0.1);
    assert_true(rate_of(optim, n.in.bias) == 0.5 && decay_of(optim, n.in.bias) == 0);
    assert_true(rate_of(optim, n.middle.bias) == 0 && decay_of(optim, n.middle.bias) == 0);
    assert_true(rate_of(optim, n.middle.weight) == 0);
    assert_true(rate_of(optim, n.out.weight) == 1 && decay_of(optim, n.out.weight) == 0.1);
    assert_true(rate_of(optim, n.out.bias) == 1 && decay_of(optim, n.out.bias) == 0);
    assert_int_equal(tutti_optim_lr_groups(optim, ""), TUTTI_OK);
    assert_int_equal(tutti_optim_lr_groups(optim, "in=0.5"), TUTTI_OK);
    assert_true(rate_of(optim, n.in.weight) == 0.05);

    assert_int_equal(tutti_optim_lr_groups(optim, "inn=0.5"), TUTTI_ERR_ARG);
    says("lr_groups: \"inn\" is not a parameter or part of the model, such as table.weight");
    assert_int_equal(tutti_optim_lr_groups(optim, "in"), TUTTI_ERR_ARG);
    says("lr_groups: \"in\" is not PATTERN=FACTOR");
    for (size_t i = 0; i < 6; i++) {
        static const char *const wrong[] = {"in=",     "in=-1", "in=nan",
                                            "in=1e39", "=1",    "out=1,,in=1"};

        assert_int_equal(tutti_optim_lr_groups(optim, wrong[i]), TUTTI_ERR_ARG);
        says("is not PATTERN=FACTOR with a factor of at least 0");
    }
    assert_true(rate_of(optim, n.in.weight) == 0.05); /* a wrong list changes nothing */
    tutti_optim_free(optim);
    close_net(&n);
}

static double own_rate_of(const tutti_optim *optim, const tutti_tensor *t)
{
    return optim->groups[tutti__optim_group_of(optim, t->parameter->index)].lr;
}

static void decay_and_schedules_by_name_keep_rates(void **state)
{
    tutti_optim *optim;
    net n;

    (void)state;
    open_net(&n, 1, 8);
    assert_int_equal(
        tutti_sgd_new(&optim, &n.root, &(tutti_sgd_opts){.lr = 0.5f, .weight_decay = 0.25f}),
        TUTTI_OK);
    assert_int_equal(tutti_optim_decay_groups(optim, "*.bias=0,out=4"), TUTTI_OK);
    assert_int_equal(tutti_optim_lr_groups(optim, "out=2"), TUTTI_OK);
    assert_int_equal(tutti__optim_lengths(optim, "out.bias=3,conv=5"), TUTTI_OK);
    assert_true(decay_of(optim, n.in.weight) == 0.25 && decay_of(optim, n.in.bias) == 0);
    assert_true(decay_of(optim, n.out.weight) == 1 && rate_of(optim, n.out.weight) == 2);
    assert_true(decay_of(optim, n.out.bias) == 1 && rate_of(optim, n.out.bias) == 2);
    assert_true(tutti__optim_length(optim, 0) + tutti__optim_length(optim, 1) +
                    tutti__optim_length(optim, 2) ==
                5 + 5 + 3); /* conv's bias has another decay */
    assert_true(tutti__optim_length(optim, 3) == 0);
    tutti__optim_set_length_lr(optim, 3, 0.125);
    tutti__optim_set_length_lr(optim, 5, 0);
    give_gradients(&n.root, 1);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    assert_true(own_rate_of(optim, n.in.weight) == 0.5 && own_rate_of(optim, n.out.weight) == 1);
    assert_true(own_rate_of(optim, n.out.bias) == 0.25 && own_rate_of(optim, n.conv.weight) == 0);
    assert_int_equal(tutti_optim_decay_groups(optim, "inn=0.5"), TUTTI_ERR_ARG);
    says("decay_groups: \"inn\" is not a parameter or part of the model");
    assert_int_equal(tutti__optim_lengths(optim, "in=-1"), TUTTI_ERR_ARG);
    says("lr_group_epochs: \"in=-1\" is not PATTERN=EPOCHS with a number of at least 0");
    tutti_optim_free(optim);
    close_net(&n);
}

/* Scaled to the norm of rows of norm 1, whatever it was; without a rate nothing else changes. */
static void muon_scales_matrices(void **state)
{
    tutti_optim *optim;
    double squares = 0;
    float *values;
    net n;

    (void)state;
    open_net(&n, 1, 8);
    assert_int_equal(
        tutti_muon_new(
            &optim, &n.root,
            &(tutti_muon_opts){.lr = TUTTI_ZERO, .normalize = true, .others_by_sgd = true}),
        TUTTI_OK);
    assert_string_equal(tutti_optim_state_name(optim, 0), "momentum_buffer");
    assert_null(tutti_optim_state_name(optim, 1));
    give_gradients(&n.root, 1);
    assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
    values = test_values(n.conv.weight);
    for (int i = 0; i < 6 * 18; i++)
        squares += (double)values[i] * (double)values[i];
    assert_true(fabs(squares - 6) < 1e-4);
    tutti_optim_free(optim);
    close_net(&n);
}

static void a_rate_by_name_is_a_groups_rate(void **state)
{
    char digest[2][33];

    (void)state;
    for (int named = 0; named < 2; named++) {
        tutti_optim *optim;
        net n;

        open_net(&n, 1, 8);
        assert_int_equal(make_adagrad(&optim, &n.root), TUTTI_OK);
        if (named)
            assert_int_equal(tutti_optim_lr_groups(optim, "conv=0.25"), TUTTI_OK);
        else
            assert_int_equal(
                tutti_optim_add_group(optim, (tutti_tensor *[]){n.conv.weight, n.conv.bias}, 2,
                                      &(tutti_optim_group_opts){.lr_factor = 0.25f}),
                TUTTI_OK);
        give_gradients(&n.root, 1);
        assert_int_equal(tutti_optim_step(optim), TUTTI_OK);
        tutti_module_digest(&n.root, digest[named]);
        tutti_optim_free(optim);
        close_net(&n);
    }
    assert_string_equal(digest[0], digest[1]);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------- */

static void wrong_options_are_named(void **state)
{
    tutti_optim *optim;
    tutti_tensor *weight;
    net n;

    (void)state;
    open_net(&n, 1, 8);
    weight = n.in.weight;
#define REFUSED(rule, words, ...)                                                                  \
    do {                                                                                           \
        assert_int_equal(tutti_##rule##_new(&optim, &n.root, &(tutti_##rule##_opts){__VA_ARGS__}), \
                         TUTTI_ERR_ARG);                                                           \
        says(words);                                                                               \
    } while (0)
    REFUSED(rmsprop, "rmsprop: alpha is 1, expected a number >= 0 and < 1", .alpha = 1);
    REFUSED(rmsprop, "rmsprop: momentum is -1", .momentum = -1);
    REFUSED(rmsprop, "rmsprop: eps is nan", .eps = NAN);
    REFUSED(rmsprop, "rmsprop: lr is -1", .lr = -1);
    REFUSED(adagrad, "adagrad: lr_decay is -1", .lr_decay = -1);
    REFUSED(adagrad, "adagrad: initial_accumulator_value is -1", .initial_accumulator_value = -1);
    REFUSED(lamb, "lamb: beta2 is 1", .beta2 = 1);
    REFUSED(muon, "muon: ns_steps is 100, expected a number >= 0 and < 100", .ns_steps = 100);
    REFUSED(muon, "muon: momentum is -1", .momentum = -1);
    REFUSED(muon, "muon: sgd_momentum is -1", .sgd_momentum = -1);
    REFUSED(muon, "muon: adjust_lr is 3", .adjust_lr = (tutti_adjust_lr)3);
    assert_int_equal(make_lamb(&optim, &n.root), TUTTI_OK);
    assert_int_equal(
        tutti_optim_add_group(optim, &weight, 1, &(tutti_optim_group_opts){.alpha = 0.5f}),
        TUTTI_ERR_ARG);
    says("lamb: a group's alpha is 0.5, but lamb has none");
    tutti_optim_free(optim);
    close_net(&n);
}

static void values_are_clipped_where_there_is_a_gradient(void **state)
{
    net n;

    (void)state;
    open_net(&n, 1, 8);
    give_gradients(&n.root, 0);
    test_grad_put(n.out.bias, (const float[]){-3, NAN});
    assert_int_equal(tutti_clip_grad_value(&n.out.base, 0.25f), TUTTI_OK);
    assert_true(test_grad(n.out.bias)[0] == -0.25f && isnan(test_grad(n.out.bias)[1]));
    assert_true(test_grad(n.in.weight)[1] == sinf(8)); /* not below n.out */
    assert_int_equal(tutti_clip_grad_value(&n.root, 0.25f), TUTTI_OK);
    assert_true(test_grad(n.in.weight)[1] == 0.25f);
    assert_int_equal(tutti_clip_grad_value(&n.root, 0), TUTTI_ERR_ARG);
    says("clip_grad_value: limit is 0, expected a number above 0");
    assert_int_equal(tutti_clip_grad_value(&n.root, NAN), TUTTI_ERR_ARG);
    close_net(&n);
}

static void schedules_refuse_what_they_cannot_mean(void **state)
{
    tutti_schedule s = {
        .kind = TUTTI_SCHEDULE_ONECYCLE, .lr = 1, .total_steps = 10, .pct_start = 0.3f};

    (void)state;
    assert_true(isnan(tutti_schedule_lr(&s, 0)));
    says("schedule onecycle: div_factor is 0, expected a number above 0");
    s.div_factor = 10;
    assert_true(fabsf(tutti_schedule_lr(&s, 0) - 0.1f) < 1e-6f && tutti_schedule_lr(&s, 2) == 1);
    assert_true(tutti_schedule_lr(&s, 9) == 0 && tutti_schedule_lr(&s, 1000) == 0);
    s.pct_start = 0; /* nothing but the way down */
    assert_true(tutti_schedule_lr(&s, 9) == 0 && tutti_schedule_lr(&s, 0) < 1);
    s.pct_start = 1; /* nothing but the way up */
    assert_true(tutti_schedule_lr(&s, 8) > 0.9f);
    s.total_steps = 1;
    assert_true(tutti_schedule_lr(&s, 0) == 0);
    s.pct_start = 1.5f;
    assert_true(isnan(tutti_schedule_lr(&s, 0)));
    says("pct_start is 1.5, expected 0 to 1");
    s = (tutti_schedule){.kind = TUTTI_SCHEDULE_RESTARTS, .lr = 1};
    assert_true(isnan(tutti_schedule_lr(&s, 0)));
    says("t_mult is 0");
    s.t_mult = 1;
    assert_true(tutti_schedule_lr(&s, 1000) == 1); /* no period */
    s.period = 3;
    assert_true(tutti_schedule_lr(&s, 3000) == 1);
    s.t_mult = UINT64_MAX;
    assert_true(tutti_schedule_lr(&s, UINT64_MAX) <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_layout_change_no_bit),
        cmocka_unit_test(muon_makes_updates_orthogonal),
        cmocka_unit_test(muon_takes_hidden_matrices),
        cmocka_unit_test(rates_by_name_keep_other_options),
        cmocka_unit_test(decay_and_schedules_by_name_keep_rates),
        cmocka_unit_test(muon_scales_matrices),
        cmocka_unit_test(a_rate_by_name_is_a_groups_rate),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(values_are_clipped_where_there_is_a_gradient),
        cmocka_unit_test(schedules_refuse_what_they_cannot_mean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
