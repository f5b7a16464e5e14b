/* Layers as modules: names of parameters, forward of containers, hooks, memory of children, and what is refused.
 * Their values: op/torch_models and the operations' own tests.   SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/nn.h>
#include <tutti/operations.h>

static tutti_ctx *cx;
static tutti_module root;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL), TUTTI_OK);
    tutti_module_init(&root, cx);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tutti_module_destroy(&root);
    tutti_ctx_free(cx);
    return 0;
}

static void assert_names(const char *expected)
{
    char names[1024] = "";
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_state(&root, i)) != NULL; i++) {
        strcat(names, i ? " " : "");
        strcat(names, tutti_tensor_name(t));
    }
    assert_string_equal(names, expected);
    assert_int_equal(tutti_module_status(&root), TUTTI_OK);
}

static void assert_refused(const char *message)
{
    assert_int_equal(tutti_module_status(&root), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), message))
        fail_msg("\"%s\" without \"%s\"", tutti_last_error(), message);
}

static tutti_tensor *input(tutti_shape shape)
{
    static const float zeros[1024];

    return tutti_input(cx, (tutti_array){zeros, shape, TUTTI_F32});
}

/* ---- Containers ---------------------------------------------------------------------------------- */

static void children_are_numbered_and_run_in_order(void **state)
{
    tutti_module features;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
    tutti_activation relu, flatten;
    tutti_dropout_layer dropout;
    tutti_linear fc;
    tutti_tensor *y;

    (void)state;
    tutti_module_init_child(&features, &root, "features");
    tutti_conv2d_init(&conv, &features, NULL,
                      &(tutti_conv2d_layer_opts){.in = 4, .out = 8, .kernel = 3, .groups = 4});
    tutti_batch_norm2d_init(&norm, &features, NULL, 8);
    tutti_activation_init(&relu, &features, NULL, tutti_relu);
    tutti_activation_init(&flatten, &root, NULL, tutti_flatten);
    tutti_dropout_init(&dropout, &root, NULL, 0.5f);
    tutti_linear_init_with(&fc, &root, NULL,
                           &(tutti_linear_layer_opts){.in = 72, .out = 2, .no_bias = true});
    assert_names(
        "features.0.weight features.0.bias features.1.weight features.1.bias "
        "features.1.running_mean features.1.running_var features.1.num_batches_tracked 3.weight");
    tutti_step_begin(cx, NULL);
    y = tutti_module_forward(&root, input(TUTTI_SHAPE(2, 4, 5, 5)));
    assert_int_equal(tutti_tensor_status(y), TUTTI_OK);
    assert_true(tutti_shape_equal(tutti_tensor_shape(y), TUTTI_SHAPE(2, 2)));
    tutti_step_end(cx);
}

static tutti_tensor *twice(tutti_module *m, tutti_tensor *x)
{
    tutti_module *child = m->first_child;

    return tutti_module_forward(child, tutti_module_forward(child, x));
}

static void a_forward_of_its_own_is_taken(void **state)
{
    tutti_module block;
    tutti_linear fc;
    tutti_tensor *y;

    (void)state;
    tutti_module_init_child(&block, &root, "block");
    tutti_linear_init(&fc, &block, "fc", 3, 3);
    tutti_module_set_forward(&block, twice);
    tutti_step_begin(cx, NULL);
    y = tutti_module_forward(&root, input(TUTTI_SHAPE(2, 3)));
    assert_int_equal(tutti_backward(tutti_mean(y)), TUTTI_OK);
    tutti_step_end(cx);
}

static void memory_of_children_is_zeroed_and_lasts(void **state)
{
    tutti_linear *layers;

    (void)state;
    layers = tutti_module_alloc(&root, 3 * sizeof *layers);
    assert_non_null(layers);
    for (size_t i = 0; i < sizeof *layers; i++)
        assert_int_equal(((const char *)layers)[i], 0);
    for (int i = 0; i < 3; i++)
        tutti_linear_init(&layers[i], &root, NULL, 2, 2);
    assert_names("0.weight 0.bias 1.weight 1.bias 2.weight 2.bias");
}

/* ---- Hooks ---------------------------------------------------------------------------------------- */

static void count(tutti_module *m, tutti_tensor *x, tutti_tensor *y, void *arg)
{
    assert_true(tutti_tensor_shape(x).d[1] == 3 && tutti_tensor_shape(y).d[1] == 2);
    assert_string_equal(m->name, "fc");
    ++*(int *)arg;
}

static void hooks_see_every_forward(void **state)
{
    tutti_linear fc;
    int calls = 0;

    (void)state;
    tutti_linear_init(&fc, &root, "fc", 3, 2);
    tutti_module_set_forward_hook(&fc.base, count, &calls);
    tutti_step_begin(cx, NULL);
    tutti_linear_forward(&fc, input(TUTTI_SHAPE(1, 3)));
    tutti_module_forward(&root, input(TUTTI_SHAPE(1, 3)));
    tutti_linear_forward(&fc, input(TUTTI_SHAPE(1, 4))); /* fails: there is no result to see */
    tutti_module_set_forward_hook(&fc.base, NULL, NULL);
    tutti_linear_forward(&fc, input(TUTTI_SHAPE(1, 3)));
    tutti_step_end(cx);
    assert_int_equal(calls, 2);
}

static void count_any(tutti_module *m, tutti_tensor *x, tutti_tensor *y, void *arg)
{
    (void)m, (void)x, (void)y;
    ++*(int *)arg;
}

static void hooks_see_forwards_of_programs(void **state)
{
    tutti_module block;
    tutti_linear fc;
    int of_block = 0, of_fc = 0;

    (void)state;
    tutti_module_init_child(&block, &root, "block");
    tutti_linear_init(&fc, &block, "fc", 3, 3);
    tutti_module_set_forward(&block, twice);
    tutti_module_set_forward_hook(&block, count_any, &of_block);
    tutti_module_set_forward_hook(&fc.base, count_any, &of_fc);
    tutti_step_begin(cx, NULL);
    tutti_module_forward(&root, input(TUTTI_SHAPE(2, 3)));
    tutti_step_end(cx);
    assert_int_equal(of_block, 1);
    assert_int_equal(of_fc, 2);
}

static void a_models_module_computes_the_model(void **state)
{
    const tutti_model_opts opts = {.channels = 1, .height = 2, .width = 3, .classes = 4};
    tutti_model *model;
    tutti_tensor *y;
    int calls = 0;

    (void)state;
    assert_int_equal(tutti_model_new(&model, cx, "mlp", &opts), TUTTI_OK);
    tutti_module_set_forward_hook(tutti_model_module(model), count_any, &calls);
    tutti_step_begin(cx, NULL);
    y = tutti_module_forward(tutti_model_module(model), input(TUTTI_SHAPE(2, 1, 2, 3)));
    assert_int_equal(tutti_tensor_status(y), TUTTI_OK);
    assert_int_equal(
        tutti_tensor_status(tutti_model_forward(model, input(TUTTI_SHAPE(2, 1, 2, 3)))), TUTTI_OK);
    tutti_step_end(cx);
    tutti_model_free(model);
    assert_int_equal(calls, 2);
}

/* ---- Layers ---------------------------------------------------------------------------------------- */

static void recurrent_layers_have_pytorchs_names(void **state)
{
    tutti_recurrent lstm;
    tutti_tensor *h, *c, *y;

    (void)state;
    tutti_lstm_init(
        &lstm, &root, "lstm",
        &(tutti_recurrent_layer_opts){
            .in = 3, .hidden = 4, .layers = 2, .bidirectional = true, .batch_first = true});
    assert_names("lstm.weight_ih_l0 lstm.weight_hh_l0 lstm.bias_ih_l0 lstm.bias_hh_l0 "
                 "lstm.weight_ih_l0_reverse lstm.weight_hh_l0_reverse lstm.bias_ih_l0_reverse "
                 "lstm.bias_hh_l0_reverse "
                 "lstm.weight_ih_l1 lstm.weight_hh_l1 lstm.bias_ih_l1 lstm.bias_hh_l1 "
                 "lstm.weight_ih_l1_reverse lstm.weight_hh_l1_reverse lstm.bias_ih_l1_reverse "
                 "lstm.bias_hh_l1_reverse");
    assert_true(tutti_shape_equal(tutti_tensor_shape(lstm.weights[2][0]), TUTTI_SHAPE(16, 8)));
    tutti_step_begin(cx, NULL);
    y = tutti_recurrent_forward(&lstm, input(TUTTI_SHAPE(2, 5, 3)), &h, &c);
    assert_true(tutti_shape_equal(tutti_tensor_shape(y), TUTTI_SHAPE(2, 5, 8)));
    assert_true(tutti_shape_equal(tutti_tensor_shape(h), TUTTI_SHAPE(4, 2, 4)));
    assert_true(tutti_shape_equal(tutti_tensor_shape(c), TUTTI_SHAPE(4, 2, 4)));
    assert_int_equal(tutti_backward(tutti_add(tutti_mean(y), tutti_mean(c))), TUTTI_OK);
    tutti_step_end(cx);
}

static void other_layers_run(void **state)
{
    tutti_conv2d conv1;
    tutti_conv_transpose2d up;
    tutti_norm layer, rms, group, instance;
    tutti_tensor *x;

    (void)state;
    tutti_conv1d_init(
        &conv1, &root, "conv1",
        &(tutti_conv2d_layer_opts){.in = 2, .out = 4, .kernel = 3, .dilation = 2, .no_bias = true});
    tutti_conv_transpose2d_init(
        &up, &root, "up", &(tutti_conv2d_layer_opts){.in = 4, .out = 2, .kernel = 2, .stride = 2},
        0);
    tutti_layer_norm_init(&layer, &root, "layer", TUTTI_SHAPE(3, 4));
    tutti_rms_norm_init(&rms, &root, "rms", TUTTI_SHAPE(4));
    tutti_group_norm_init(&group, &root, "group", 2, 4);
    tutti_instance_norm_init(&instance, &root, "instance", 4, false);
    assert_names("conv1.weight up.weight up.bias layer.weight layer.bias rms.weight group.weight "
                 "group.bias");
    tutti_step_begin(cx, NULL);
    assert_true(tutti_shape_equal(
        tutti_tensor_shape(tutti_conv1d_forward(&conv1, input(TUTTI_SHAPE(2, 2, 9)))),
        TUTTI_SHAPE(2, 4, 5)));
    x = input(TUTTI_SHAPE(2, 4, 3, 4));
    assert_true(tutti_shape_equal(tutti_tensor_shape(tutti_conv_transpose2d_forward(&up, x)),
                                  TUTTI_SHAPE(2, 2, 6, 8)));
    for (int i = 0; i < 4; i++)
        x = tutti_norm_forward((tutti_norm *[]){&layer, &rms, &group, &instance}[i], x);
    assert_int_equal(tutti_tensor_status(x), TUTTI_OK);
    tutti_step_end(cx);
}

static void groups_must_divide(void **state)
{
    tutti_conv2d conv;

    (void)state;
    tutti_conv2d_init(
        &conv, &root, "conv",
        &(tutti_conv2d_layer_opts){.in = 6, .out = 4, .kernel = 3, .groups = 4, .no_bias = true});
    assert_refused("conv: conv2d from 6 to 4 channels in 4 groups, which do not divide both");
}

static void too_many_layers_are_refused(void **state)
{
    tutti_recurrent gru;

    (void)state;
    tutti_gru_init(&gru, &root, "gru",
                   &(tutti_recurrent_layer_opts){.in = 1, .hidden = 1, .layers = 17});
    assert_refused("gru: from 1 to 1 features in 17 layers");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(children_are_numbered_and_run_in_order),
        TEST(a_forward_of_its_own_is_taken),
        TEST(memory_of_children_is_zeroed_and_lasts),
        TEST(hooks_see_every_forward),
        TEST(hooks_see_forwards_of_programs),
        TEST(a_models_module_computes_the_model),
        TEST(recurrent_layers_have_pytorchs_names),
        TEST(other_layers_run),
        TEST(groups_must_divide),
        TEST(too_many_layers_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
