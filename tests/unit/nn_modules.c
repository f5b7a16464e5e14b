/* modules: names, initial values, sticking errors, flat memory, digests, models.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"
#include "harness/emulator.h"
#include "harness/memory.h"
#include "nn/nn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static tutti_ctx *context(uint64_t seed)
{
    const tutti_device device = test_device();
    const tutti_kernels kernels =
        device.kind == TUTTI_CPU ? TUTTI_KERNELS_REFERENCE : TUTTI_KERNELS_AUTO;
    tutti_ctx *cx;

    assert_int_equal(
        tutti_ctx_new(&cx, device,
                      &(tutti_ctx_opts){.seed = seed, .kernels = kernels, .threads = 1}),
        TUTTI_OK);
    return cx;
}

static int set_up(void **state)
{
    *state = context(1);
    return 0;
}

static int tear_down(void **state)
{
    tutti_ctx_free(*state);
    return 0;
}

static const tutti_model_opts pictures = {.channels = 3, .height = 8, .width = 8, .classes = 10};

static tutti_model *model_of(tutti_ctx *cx, const char *name)
{
    tutti_model *model;

    assert_int_equal(tutti_model_new(&model, cx, name, &pictures), TUTTI_OK);
    return model;
}

static void says(const char *part)
{
    if (!strstr(tutti_last_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), part);
}

/* ---- Names and models ---------------------------------------------------------------------------------- */

static void mini_resnet_is_the_network_of_the_benchmark(void **state)
{
    tutti_model *model = model_of(*state, "mini_resnet");
    tutti_module *m = tutti_model_module(model);
    size_t n = tutti_module_n_state(m);

    assert_int_equal(tutti_module_count(m), 2777674);
    assert_int_equal(tutti_module_n_parameters(m), 47);
    assert_int_equal(tutti_module_n_buffers(m), 45);
    assert_int_equal(n, 47 + 45);
    assert_string_equal(tutti_tensor_name(tutti_module_state(m, 0)), "stem.0.weight");
    assert_string_equal(tutti_tensor_name(tutti_module_state(m, 5)), "stem.1.num_batches_tracked");
    assert_string_equal(tutti_tensor_name(tutti_module_state(m, 6)), "layers.0.c1.weight");
    assert_string_equal(tutti_tensor_name(tutti_module_state(m, n - 1)), "fc.bias");
    assert_non_null(tutti_module_find(m, "layers.2.sc.1.running_var"));
    assert_null(tutti_module_find(m, "layers.1.sc.0.weight"));
    assert_null(tutti_module_state(m, n));
    assert_null(tutti_module_parameter(m, 47));
    tutti_model_free(model);
}

static void lists_of_a_child_hold_what_is_below_it(void **state)
{
    tutti_module root, child, empty;
    tutti_linear a, b;

    tutti_module_init(&root, *state);
    tutti_linear_init(&a, &root, "a", 2, 3);
    tutti_module_init_child(&child, &root, "child");
    tutti_linear_init(&b, &child, "b", 3, 4);
    tutti_module_init_child(&empty, &root, "empty");
    assert_int_equal(tutti_module_n_parameters(&root), 4);
    assert_int_equal(tutti_module_n_parameters(&child), 2);
    assert_string_equal(tutti_tensor_name(tutti_module_parameter(&child, 0)), "child.b.weight");
    assert_int_equal(tutti_module_count(&child), 16);
    assert_int_equal(tutti_module_n_state(&empty), 0);
    assert_null(tutti_module_parameter(&empty, 0));
    tutti_module_destroy(&root);
}

static void an_unknown_model_is_answered_with_the_known_ones(void **state)
{
    tutti_model *model;

    assert_int_equal(tutti_model_new(&model, *state, "mini-resent", &pictures), TUTTI_ERR_ARG);
    says("did you mean 'mini_resnet'?");
    says("mini_resnet, mlp, linear");
    assert_int_equal(tutti_model_new(&model, *state, NULL, &pictures), TUTTI_ERR_ARG);
    assert_int_equal(
        tutti_model_new(&model, *state, "mlp",
                        &(tutti_model_opts){.channels = 3, .height = 8, .width = 8, .classes = 0}),
        TUTTI_ERR_ARG);
    says("classes is 0");
    assert_int_equal(tutti_model_new(&model, NULL, "mlp", &pictures), TUTTI_ERR_STATE);
    assert_int_equal(tutti_model_new(&model, *state, "mlp", NULL), TUTTI_ERR_ARG);
    says("model mlp: no options, expected the input's size");
}

/* Making, walking and finding parameters takes constant time for each: with a search through all of them for
 * each, this takes half a minute. */
static void many_parameters_take_no_longer_each(void **state)
{
    /* A GPU's stand-in is slow for each block of memory, an emulator for each mprotect. */
    const bool few = test_device().kind == TUTTI_CUDA || test_emulated("of fewer parameters");
    const size_t N = few ? 1000 : 40000;
    clock_t begin = clock();
    tutti_module root, child;
    char name[16], digest[33];

    tutti_module_init(&root, *state);
    tutti_module_init_child(&child, &root, "child");
    for (size_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "p%zu", i);
        assert_non_null(tutti_parameter_new(&child, name, TUTTI_SHAPE(1), TUTTI_INIT_ZEROS, 0));
        snprintf(name, sizeof name, "b%zu", i);
        assert_non_null(
            tutti_buffer_new(&child, name, TUTTI_SHAPE(1), TUTTI_F32, TUTTI_INIT_ZEROS));
    }
    for (size_t i = 0; i < N; i++) {
        const tutti_tensor *p = tutti_module_parameter(&child, i);

        snprintf(name, sizeof name, "child.p%zu", i);
        assert_string_equal(tutti_tensor_name(p), name);
        assert_ptr_equal(tutti_module_parameter(&root, i), p);
        assert_ptr_equal(tutti_module_find(&root, name), p);
        assert_ptr_equal(tutti_module_state(&root, 2 * i), p);
        assert_ptr_equal(tutti_module_buffer(&root, i), tutti_module_state(&root, 2 * i + 1));
    }
    assert_null(tutti_module_parameter(&root, N));
    snprintf(name, sizeof name, "child.p%zu", N);
    assert_null(tutti_module_find(&root, name));
    tutti_module_digest(&root, digest);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
    tutti_module_destroy(&root);
}

/* ---- Initial values --------------------------------------------------------------------------------------- */

static void initial_values_depend_on_seed_and_number_only(void **state)
{
    tutti_ctx *same = context(1), *other = context(2);
    tutti_model *a = model_of(*state, "mlp"), *b = model_of(same, "mlp"),
                *c = model_of(other, "mlp");
    char x[33], y[33], z[33];
    tutti_module root;
    tutti_tensor *t;

    tutti_module_digest(tutti_model_module(a), x);
    tutti_module_digest(tutti_model_module(b), y);
    tutti_module_digest(tutti_model_module(c), z);
    assert_string_equal(x, y);
    assert_string_not_equal(x, z);

    /* The first parameter of another shape and name begins with the same draws. */
    tutti_module_init(&root, *state);
    t = tutti_parameter_new(&root, "w", TUTTI_SHAPE(100), TUTTI_INIT_UNIFORM,
                            (float)(1 / sqrt(192.0))); /* mlp's fc1: 3 * 8 * 8 inputs */
    assert_memory_equal(test_values(t),
                        test_values(tutti_module_parameter(tutti_model_module(a), 0)),
                        100 * sizeof(float));
    tutti_module_destroy(&root);
    tutti_model_free(a);
    tutti_model_free(b);
    tutti_model_free(c);
    tutti_ctx_free(same);
    tutti_ctx_free(other);
}

static void uniform_fills_the_open_interval_evenly(void **state)
{
    enum { N = 100000 };
    tutti_module root;
    tutti_tensor *t;
    const float *x;
    double sum = 0, squares = 0;

    tutti_module_init(&root, *state);
    t = tutti_parameter_new(&root, "w", TUTTI_SHAPE(N), TUTTI_INIT_UNIFORM, 0.25f);
    x = test_values(t);
    for (int i = 0; i < N; i++) {
        assert_true(fabsf(x[i]) < 0.25f && x[i] != 0);
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    assert_true(fabs(sum / N) < 0.002);
    assert_true(fabs(sqrt(squares / N) - 0.25 / sqrt(3)) < 0.001);
    tutti_module_destroy(&root);
}

/* The first filters are those that pass a channel on, the others as without. */
static void dirac_begins_with_the_identity(void **state)
{
    enum { IN = 5, OUT = 7, KERNEL = 3, FILTER = IN * KERNEL * KERNEL };
    tutti_module root, other;
    tutti_conv2d conv, plain;
    const float *w, *drawn;

    tutti_module_init(&root, *state);
    tutti_module_init(&other, *state);
    tutti_conv2d_init(&conv, &root, "c",
                      &(tutti_conv2d_layer_opts){
                          .in = IN, .out = OUT, .kernel = KERNEL, .no_bias = true, .dirac = true});
    tutti_conv2d_init(
        &plain, &other, "c",
        &(tutti_conv2d_layer_opts){.in = IN, .out = OUT, .kernel = KERNEL, .no_bias = true});
    w = test_values(conv.weight);
    drawn = test_values(plain.weight);
    for (int i = 0; i < IN * FILTER; i++)
        assert_true(w[i] == (i % FILTER == i / FILTER * KERNEL * KERNEL + 4));
    assert_memory_equal(w + IN * FILTER, drawn + IN * FILTER, (OUT - IN) * FILTER * sizeof *w);
    tutti_module_destroy(&other);
    assert_null(tutti_parameter_new(&root, "w", TUTTI_SHAPE(3), TUTTI_INIT_DIRAC, 1));
    assert_non_null(strstr(tutti_last_error(), "expected [out,in,kh,kw]"));
    tutti_module_destroy(&root);
    tutti_module_init(&root, *state);
    tutti_conv2d_init(
        &conv, &root, "c",
        &(tutti_conv2d_layer_opts){.in = 4, .out = 4, .kernel = 3, .groups = 2, .dirac = true});
    assert_int_equal(tutti_module_status(&root), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "dirac with 2 groups"));
    tutti_module_destroy(&root);
}

static int64_t count_of(tutti_tensor *counter)
{
    int64_t n = -1;

    assert_int_equal(tutti_tensor_read(counter, &n), TUTTI_OK);
    return n;
}

static void layers_begin_as_in_pytorch(void **state)
{
    tutti_model *model = model_of(*state, "mini_resnet");
    tutti_module *m = tutti_model_module(model);
    const float *mean = test_values(tutti_module_find(m, "stem.1.running_mean"));
    const float *var = test_values(tutti_module_find(m, "stem.1.running_var"));
    const float *weight = test_values(tutti_module_find(m, "stem.1.weight"));
    const float *conv = test_values(tutti_module_find(m, "stem.0.weight"));
    float largest = 0;

    for (int i = 0; i < 64; i++)
        assert_true(mean[i] == 0 && var[i] == 1 && weight[i] == 1);
    assert_int_equal(count_of(tutti_module_find(m, "stem.1.num_batches_tracked")), 0);
    for (int i = 0; i < 64 * 27; i++)
        largest = fmaxf(largest, fabsf(conv[i]));
    assert_true(largest < 1 / sqrtf(27) && largest > 0.99f / sqrtf(27));
    tutti_model_free(model);
}

/* ---- Errors stick --------------------------------------------------------------------------------------- */

static void the_first_error_sticks_and_names_its_place(void **state)
{
    tutti_module root, layers;
    tutti_linear fc;
    tutti_ctx *cx = *state;
    float x[4] = {1, 2, 3, 4}, loss;
    tutti_tensor *y;

    tutti_module_init(&root, cx);
    tutti_module_init_child(&layers, &root, "layers");
    tutti_linear_init(&fc, &layers, "fc", 0, 10);
    tutti_parameter_new(&root, "a.b", TUTTI_SHAPE(1), TUTTI_INIT_ZEROS, 0);
    assert_int_equal(tutti_module_status(&fc.base), TUTTI_ERR_ARG);
    says("layers.fc: linear from 0 to 10 features");
    tutti_step_begin(cx, NULL);
    y = tutti_linear_forward(&fc, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(2, 2), TUTTI_F32}));
    loss = tutti_item(y);
    assert_true(isnan(loss));
    assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_ARG);
    says("layers.fc: linear from 0 to 10 features");
    tutti_step_end(cx);
    tutti_module_destroy(&root);
}

static void refused(tutti_ctx *cx, const char *name, tutti_shape shape, tutti_init init,
                    float bound, const char *why)
{
    tutti_module root;

    tutti_module_init(&root, cx);
    assert_non_null(tutti_parameter_new(&root, "taken", TUTTI_SHAPE(2), TUTTI_INIT_ONES, 0));
    assert_null(tutti_parameter_new(&root, name, shape, init, bound));
    assert_int_equal(tutti_module_status(&root), TUTTI_ERR_ARG);
    says(why);
    tutti_module_destroy(&root);
}

static void bad_parameters_are_refused(void **state)
{
    refused(*state, "taken", TUTTI_SHAPE(3), TUTTI_INIT_ONES, 0, "taken: the name is taken");
    refused(*state, "a.b", TUTTI_SHAPE(3), TUTTI_INIT_ONES, 0, "'a.b'");
    refused(*state, "", TUTTI_SHAPE(3), TUTTI_INIT_ONES, 0, "''");
    refused(*state, NULL, TUTTI_SHAPE(3), TUTTI_INIT_ONES, 0, "(null)");
    refused(*state, "a_name_of_more_than_forty_seven_characters_is_too_long", TUTTI_SHAPE(3),
            TUTTI_INIT_ONES, 0, "1 to 47 characters");
    refused(*state, "w", TUTTI_SHAPE(3, 0), TUTTI_INIT_ONES, 0, "w: the shape is [3,0]");
    refused(*state, "w", TUTTI_SHAPE(3, -1), TUTTI_INIT_ONES, 0, "w: the shape is [3,-1]");
    refused(*state, "w", TUTTI_SHAPE(INT64_MAX, INT64_MAX), TUTTI_INIT_ONES, 0, "at most 2^40");
    refused(*state, "w", (tutti_shape){.n = 7}, TUTTI_INIT_ONES, 0, "7 dimensions");
    refused(*state, "w", TUTTI_SHAPE(3), TUTTI_INIT_UNIFORM, 0, "expected > 0");
    refused(*state, "w", TUTTI_SHAPE(3), TUTTI_INIT_UNIFORM, NAN, "expected > 0");
}

static void names_too_deep_to_write_are_refused(void **state)
{
    tutti_module chain[12];

    tutti_module_init(&chain[0], *state);
    for (int i = 1; i < 12; i++)
        tutti_module_init_child(&chain[i], &chain[i - 1], "a_rather_long_name");
    assert_null(tutti_parameter_new(&chain[11], "weight", TUTTI_SHAPE(1), TUTTI_INIT_ZEROS, 0));
    assert_int_equal(tutti_module_status(&chain[0]), TUTTI_ERR_ARG);
    says("'weight' has more than 127 characters");
    tutti_module_destroy(&chain[0]);
}

static void a_module_without_a_root_says_so(void **state)
{
    tutti_module root, child;
    tutti_flat flat;

    (void)state;
    tutti_module_init(&root, NULL);
    assert_int_equal(tutti_module_status(&root), TUTTI_ERR_STATE);
    tutti_module_init_child(&child, NULL, "lost");
    assert_null(tutti_parameter_new(&child, "w", TUTTI_SHAPE(1), TUTTI_INIT_ZEROS, 0));
    assert_int_equal(tutti_module_status(&child), TUTTI_ERR_STATE);
    assert_int_equal(tutti_module_flat(&child, &flat), TUTTI_ERR_STATE);
    assert_int_equal(tutti_module_n_state(&child), 0);
    tutti_module_zero_grad(&child);
    tutti_module_destroy(&child);
    tutti_module_destroy(&root);
}

/* ---- Flat memory ------------------------------------------------------------------------------------------ */

typedef struct three {
    tutti_module root;
    tutti_tensor *t[3];
} three;

static void open_three(three *m, tutti_ctx *cx)
{
    static const char *const names[] = {"a", "b", "c"};
    static const int64_t sizes[] = {5, 20, 16};

    tutti_module_init(&m->root, cx);
    for (int i = 0; i < 3; i++)
        m->t[i] =
            tutti_parameter_new(&m->root, names[i], TUTTI_SHAPE(sizes[i]), TUTTI_INIT_UNIFORM, 1);
    assert_int_equal(tutti_module_status(&m->root), TUTTI_OK);
}

static void flat_memory_begins_in_creation_order(void **state)
{
    tutti_flat flat;
    three m;

    open_three(&m, *state);
    assert_int_equal(tutti_module_flat_size(&m.root), 16 + 32 + 16);
    assert_int_equal(tutti_module_flat(&m.root, &flat), TUTTI_OK);
    assert_int_equal(flat.n, 64);
    assert_int_equal(flat.n_parameters, 3);
    assert_int_equal(flat.offsets[0], 0);
    assert_int_equal(flat.offsets[1], 16);
    assert_int_equal(flat.offsets[2], 48);
    assert_int_equal((uintptr_t)flat.parameters % 64, 0);
    assert_int_equal((uintptr_t)flat.gradients % 64, 0);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(m.t[i]->data, flat.parameters + flat.offsets[i]);
    flat.parameters = test_look(*state, flat.parameters, 16 * sizeof(float));
    for (int i = 5; i < 16; i++)
        assert_true(flat.parameters[i] == 0);
    assert_null(tutti_parameter_new(&m.root, "late", TUTTI_SHAPE(1), TUTTI_INIT_ZEROS, 0));
    assert_int_equal(tutti_module_status(&m.root), TUTTI_ERR_STATE);
    says("late: made after the parameters were laid out");
    tutti_module_destroy(&m.root);
}

static void a_new_layout_keeps_values_and_gradients(void **state)
{
    tutti_tensor *order[3];
    tutti_ctx *cx = *state;
    float *bucket = cx->device_ops->alloc(cx->device, 64 * sizeof(float), true), *held;
    char before[33], after[33];
    tutti_flat flat;
    three m;

    open_three(&m, *state);
    tutti_module_digest(&m.root, before);
    assert_int_equal(tutti_module_flat(&m.root, &flat), TUTTI_OK);
    test_put(cx, m.t[1]->parameter->grad + 19, &(float){7}, sizeof(float));
    m.t[1]->parameter->grad_round = *m.t[1]->parameter->round;
    test_put(cx, m.t[0]->parameter->grad, &(float){8}, sizeof(float)); /* of no round: forgotten */
    for (int i = 0; i < 3; i++)
        order[i] = m.t[2 - i];
    assert_int_equal(tutti_module_flat_layout(&m.root, order, bucket), TUTTI_OK);
    assert_int_equal(tutti_module_flat(&m.root, &flat), TUTTI_OK);
    assert_ptr_equal(flat.gradients, bucket);
    assert_int_equal(flat.offsets[2], 0);
    assert_int_equal(flat.offsets[1], 16);
    assert_int_equal(flat.offsets[0], 48);
    held = test_look(cx, bucket, 64 * sizeof(float));
    for (int i = 0; i < 64; i++)
        assert_true(held[i] == (i == 16 + 19 ? 7 : 0));
    tutti_module_digest(&m.root, after);
    assert_string_equal(before, after);

    /* Back to memory of its own: the order stays. */
    assert_int_equal(tutti_module_flat_layout(&m.root, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_module_flat(&m.root, &flat), TUTTI_OK);
    cx->device_ops->free(cx->device, bucket);
    assert_int_equal(flat.offsets[2], 0);
    assert_true(test_grad(m.t[1])[19] == 7);
    tutti_module_zero_grad(&m.root);
    tutti_module_digest(&m.root, after);
    assert_string_equal(before, after);
    tutti_module_destroy(&m.root);
}

static void a_wrong_order_is_refused_and_changes_nothing(void **state)
{
    tutti_flat flat;
    three m, other;
    tutti_module child;

    open_three(&m, *state);
    open_three(&other, *state);
    assert_int_equal(
        tutti_module_flat_layout(&m.root, (tutti_tensor *[]){m.t[0], m.t[1], m.t[1]}, NULL),
        TUTTI_ERR_ARG);
    says("names b twice");
    assert_int_equal(
        tutti_module_flat_layout(&m.root, (tutti_tensor *[]){m.t[0], other.t[1], m.t[2]}, NULL),
        TUTTI_ERR_ARG);
    says("place 1");
    assert_int_equal(
        tutti_module_flat_layout(&m.root, (tutti_tensor *[]){m.t[0], NULL, m.t[2]}, NULL),
        TUTTI_ERR_ARG);
    assert_int_equal(tutti_module_flat(&m.root, &flat), TUTTI_OK);
    assert_int_equal(flat.offsets[1], 16);
    tutti_module_init_child(&child, &m.root, "child");
    assert_int_equal(tutti_module_flat(&child, &flat), TUTTI_ERR_ARG);
    says("'child' is part of another module");
    tutti_module_destroy(&m.root);
    tutti_module_destroy(&other.root);
}

static void zero_grad_forgets_for_all_or_for_a_part(void **state)
{
    tutti_module root;
    tutti_linear a, b;

    tutti_module_init(&root, *state);
    tutti_linear_init(&a, &root, "a", 2, 2);
    tutti_linear_init(&b, &root, "b", 2, 2);
    for (size_t i = 0; i < 4; i++) {
        tutti__parameter *p = tutti_module_parameter(&root, i)->parameter;

        assert_int_equal(p->prepare(p->owner), TUTTI_OK);
        p->grad_round = *p->round;
    }
    tutti_module_zero_grad(&a.base);
    assert_null(tutti_tensor_grad(a.weight));
    assert_non_null(tutti_tensor_grad(b.weight));
    tutti_module_zero_grad(&root);
    assert_null(tutti_tensor_grad(b.weight));
    tutti_module_destroy(&root);
}

/* ---- Digest, counters, frozen parameters --------------------------------------------------------------------- */

static void digest_follows_names_not_creation(void **state)
{
    tutti_module x, y;
    char dx[33], dy[33];

    tutti_module_init(&x, *state);
    tutti_module_init(&y, *state);
    tutti_parameter_new(&x, "one", TUTTI_SHAPE(3), TUTTI_INIT_ONES, 0);
    tutti_buffer_new(&x, "zero", (tutti_shape){0}, TUTTI_I64, TUTTI_INIT_ZEROS);
    tutti_buffer_new(&y, "zero", (tutti_shape){0}, TUTTI_I64, TUTTI_INIT_ZEROS);
    tutti_parameter_new(&y, "one", TUTTI_SHAPE(3), TUTTI_INIT_ONES, 0);
    tutti_module_digest(&x, dx);
    tutti_module_digest(&y, dy);
    assert_string_equal(dx, dy);
    assert_int_equal(strlen(dx), 32);
    assert_int_equal(tutti_tensor_write(tutti_module_parameter(&y, 0), (const float[]){1, 1, 2}),
                     TUTTI_OK);
    tutti_module_digest(&y, dy);
    assert_string_not_equal(dx, dy);
    tutti_module_destroy(&x);
    tutti_module_destroy(&y);
}

static void batches_are_counted_in_training_only(void **state)
{
    static const float x[2 * 3 * 2 * 2] = {1, 2, 3, 4};
    static const tutti_step_opts steps[] = {{0}, {.eval = true}, {.no_grad = true}};
    static const int64_t counts[] = {1, 1, 2};
    tutti_ctx *cx = *state;
    tutti_batch_norm2d norm;
    tutti_module root;

    tutti_module_init(&root, cx);
    tutti_batch_norm2d_init(&norm, &root, "norm", 3);
    for (int i = 0; i < 3; i++) {
        tutti_tensor *y;

        tutti_step_begin(cx, &steps[i]);
        y = tutti_batch_norm2d_forward(
            &norm, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(2, 3, 2, 2), TUTTI_F32}));
        assert_int_equal(tutti_tensor_status(y), TUTTI_OK);
        tutti_step_end(cx);
        assert_int_equal(count_of(norm.num_batches_tracked), counts[i]);
    }
    tutti_module_destroy(&root);
}

static void a_frozen_parameter_gets_no_gradient(void **state)
{
    static const float x[4] = {1, 2, 3, 4}, target[4] = {0};
    tutti_ctx *cx = *state;
    tutti_module root;
    tutti_linear fc;

    tutti_module_init(&root, cx);
    tutti_linear_init(&fc, &root, "fc", 2, 2);
    tutti_parameter_set_requires_grad(fc.weight, false);
    tutti_step_begin(cx, NULL);
    assert_int_equal(tutti_backward(tutti_mse_loss(
                         tutti_linear_forward(
                             &fc, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(2, 2), TUTTI_F32})),
                         tutti_input(cx, (tutti_array){target, TUTTI_SHAPE(2, 2), TUTTI_F32}))),
                     TUTTI_OK);
    assert_null(tutti_tensor_grad(fc.weight));
    assert_non_null(tutti_tensor_grad(fc.bias));
    tutti_step_end(cx);
    tutti_module_destroy(&root);
}

/* Vectors of N(0, 1), as in PyTorch; looked up in any shape; an index that is too large is named with its position. */
static void an_embedding_is_a_table_of_normal_vectors(void **state)
{
    static const int64_t numbers[] = {4, 0, 4, 99, 1, 100};
    tutti_ctx *cx = *state;
    tutti_embedding table, bad;
    tutti_module m;
    tutti_tensor *y;
    float values[100][32], seen[6][32];
    double mean = 0, variance = 0;

    tutti_module_init(&m, cx);
    tutti_embedding_init(&table, &m, "words", 100, 32, true);
    assert_int_equal(tutti_module_status(&m), TUTTI_OK);
    assert_string_equal(tutti_tensor_name(table.weight), "words.weight");
    assert_int_equal(tutti_tensor_read(table.weight, values), TUTTI_OK);
    for (int i = 0; i < 3200; i++)
        mean += (double)values[i / 32][i % 32] / 3200;
    for (int i = 0; i < 3200; i++)
        variance += pow((double)values[i / 32][i % 32] - mean, 2) / 3200;
    assert_true(fabs(mean) < 0.08 && fabs(variance - 1) < 0.12);
    tutti_step_begin(cx, NULL);
    y = tutti_embedding_forward(
        &table, tutti_input(cx, (tutti_array){numbers, TUTTI_SHAPE(5, 1), TUTTI_I64}));
    assert_int_equal(tutti_tensor_shape(y).n, 3);
    assert_int_equal(tutti_tensor_read(y, seen), TUTTI_OK);
    for (int i = 0; i < 5; i++)
        assert_memory_equal(seen[i], values[numbers[i]], sizeof seen[i]);
    y = tutti_embedding_forward(&table,
                                tutti_input(cx, (tutti_array){numbers, TUTTI_SHAPE(6), TUTTI_I64}));
    assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(),
                           "embedding \"words.weight\": index 5 of indices [6] is 100, but weight "
                           "has 100 rows"));
    tutti_step_end(cx);
    tutti_embedding_init(&bad, &m, "none", 0, 3, false);
    assert_int_equal(tutti_module_status(&m), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "none: embedding of 0 vectors of 3 numbers"));
    tutti_module_destroy(&m);
}

static void models_give_logits_for_every_class(void **state)
{
    static const char *const names[] = {"linear", "mlp", "mini_resnet"};
    static float x[2 * 3 * 8 * 8];
    tutti_ctx *cx = *state;

    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++) {
        tutti_model *model = model_of(cx, names[i]);
        tutti_tensor *y;

        tutti_step_begin(cx, NULL);
        y = tutti_model_forward(
            model, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(2, 3, 8, 8), TUTTI_F32}));
        assert_int_equal(tutti_tensor_status(y), TUTTI_OK);
        assert_true(tutti_shape_equal(tutti_tensor_shape(y), TUTTI_SHAPE(2, 10)));
        tutti_step_end(cx);
        tutti_model_free(model);
    }
}

typedef struct stack {
    tutti_module base;
    tutti_conv2d conv[4];
    tutti_tensor *inside, *view; /* of the last forward */
} stack;

static void stack_init(tutti_module *m, const tutti_model_opts *opts)
{
    static const char *const names[] = {"a", "b", "c", "d"};

    (void)opts;
    for (int i = 0; i < 4; i++)
        tutti_conv2d_init(&((stack *)m)->conv[i], m, names[i],
                          &(tutti_conv2d_layer_opts){
                              .in = 3, .out = 3, .kernel = 3, .padding = 1, .no_bias = true});
}

static tutti_tensor *stack_forward(tutti_module *m, tutti_tensor *x)
{
    stack *s = (stack *)m;

    for (int i = 0; i < 4; i++) {
        if (i == 2) {
            s->inside = x;
            s->view = tutti_flatten(x);
        }
        x = tutti_conv2d_forward(&s->conv[i], x);
    }
    return tutti_flatten(x); /* a view of what is made inside */
}

/* The model's intermediate tensors are invalid after backward, not before; its result stays valid. */
static void backward_uses_the_memory_of_what_a_model_makes(void **state)
{
    enum { N = 32, COUNT = N * 3 * 32 * 32 };
    static const tutti_model_kind kind = {
        .name = "stack", .bytes = sizeof(stack), .init = stack_init, .forward = stack_forward};
    static float x[COUNT], zeros[COUNT], inside[COUNT], again[COUNT], before[COUNT], after[COUNT];
    tutti_model_opts opts = pictures;
    tutti_ctx *cx = *state;
    tutti_model *model;
    const stack *s;
    tutti_tensor *y, *loss;
    size_t forward;

    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i % 7) - 3;
    opts.kind = &kind;
    assert_int_equal(tutti_model_new(&model, cx, "stack", &opts), TUTTI_OK);
    tutti_step_begin(cx, NULL);
    y = tutti_model_forward(
        model, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(N, 3, 32, 32), TUTTI_F32}));
    loss =
        tutti_mse_loss(y, tutti_input(cx, (tutti_array){zeros, tutti_tensor_shape(y), TUTTI_F32}));
    s = (const stack *)tutti_model_module(model);
    assert_int_equal(tutti_tensor_read(s->inside, inside), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(s->view, inside), TUTTI_OK);
    assert_int_equal(tutti_tensor_read(y, before), TUTTI_OK);
    forward = tutti_ctx_memory_stats(cx).arena_used_bytes;
    assert_int_equal(tutti_backward(loss), TUTTI_OK);
    assert_true(tutti_ctx_memory_stats(cx).arena_used_bytes - forward < 4 * sizeof x);
    assert_int_equal(tutti_tensor_read(y, after), TUTTI_OK);
    assert_memory_equal(after, before, sizeof after);
    assert_int_equal(tutti_tensor_read(s->inside, again), TUTTI_ERR_STATE);
    says("read it before tutti_backward");
    if (tutti_tensor_read(s->view, again) == TUTTI_OK) /* kernels whose layout made it a copy */
        assert_memory_equal(again, inside, sizeof again);
    else
        says("read it before tutti_backward");
    tutti_step_end(cx);
    tutti_model_free(model);
}

typedef struct norms {
    tutti_module base;
    tutti_conv2d conv[2];
    tutti_batch_norm2d norm[2];
    tutti_tensor *inside; /* of the last forward */
} norms;

static void norms_init(tutti_module *m, const tutti_model_opts *opts)
{
    norms *s = (norms *)m;

    (void)opts;
    for (int i = 0; i < 2; i++) {
        tutti_conv2d_init(
            &s->conv[i], m, i ? "c" : "a",
            &(tutti_conv2d_layer_opts){
                .in = i ? 32 : 3, .out = 32, .kernel = 3, .padding = 1, .no_bias = true});
        tutti_batch_norm2d_init(&s->norm[i], m, i ? "d" : "b", 32);
    }
}

static tutti_tensor *norms_forward(tutti_module *m, tutti_tensor *x)
{
    norms *s = (norms *)m;

    s->inside =
        tutti_batch_norm2d_relu_forward(&s->norm[0], tutti_conv2d_forward(&s->conv[0], x), NULL);
    return tutti_batch_norm2d_relu_forward(&s->norm[1],
                                           tutti_conv2d_forward(&s->conv[1], s->inside), NULL);
}

/* Kernels may leave a norm's result to its readers (tensor.h): what it is made of is not gone before it is. */
static void a_norm_that_a_model_returns_can_be_read_behind_backward(void **state)
{
    enum { N = 4, PIXELS = N * 8 * 8 };
    static const tutti_model_kind kind = {
        .name = "norms", .bytes = sizeof(norms), .init = norms_init, .forward = norms_forward};
    static float x[PIXELS * 3], before[PIXELS * 32], after[PIXELS * 32];
    tutti_model_opts opts = pictures;
    tutti_ctx *cx = *state;
    tutti_model *model;
    tutti_tensor *y, *loss;

    for (int i = 0; i < PIXELS * 3; i++)
        x[i] = (float)(i % 7) - 3;
    opts.kind = &kind;
    assert_int_equal(tutti_model_new(&model, cx, "norms", &opts), TUTTI_OK);
    for (int later = 0; later < 2; later++) { /* read before it, and for the first time behind */
        tutti_step_begin(cx, NULL);
        y = tutti_model_forward(
            model, tutti_input(cx, (tutti_array){x, TUTTI_SHAPE(N, 3, 8, 8), TUTTI_F32}));
        loss = tutti_mean(tutti_relu(
            tutti_functional_conv2d(y, ((norms *)tutti_model_module(model))->conv[1].weight, NULL,
                                    (tutti_conv2d_opts){.padding = 1})));
        if (!later)
            assert_int_equal(tutti_tensor_read(y, before), TUTTI_OK);
        if (tutti_backward(loss) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        assert_int_equal(tutti_tensor_read(y, after), TUTTI_OK);
        assert_memory_equal(after, before, sizeof after);
        assert_int_equal(tutti_tensor_read(((norms *)tutti_model_module(model))->inside, after),
                         TUTTI_ERR_STATE);
        says("read it before tutti_backward");
        tutti_step_end(cx);
    }
    tutti_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mini_resnet_is_the_network_of_the_benchmark),
        cmocka_unit_test(lists_of_a_child_hold_what_is_below_it),
        cmocka_unit_test(many_parameters_take_no_longer_each),
        cmocka_unit_test(an_unknown_model_is_answered_with_the_known_ones),
        cmocka_unit_test(initial_values_depend_on_seed_and_number_only),
        cmocka_unit_test(uniform_fills_the_open_interval_evenly),
        cmocka_unit_test(dirac_begins_with_the_identity),
        cmocka_unit_test(layers_begin_as_in_pytorch),
        cmocka_unit_test(the_first_error_sticks_and_names_its_place),
        cmocka_unit_test(bad_parameters_are_refused),
        cmocka_unit_test(names_too_deep_to_write_are_refused),
        cmocka_unit_test(a_module_without_a_root_says_so),
        cmocka_unit_test(flat_memory_begins_in_creation_order),
        cmocka_unit_test(a_new_layout_keeps_values_and_gradients),
        cmocka_unit_test(a_wrong_order_is_refused_and_changes_nothing),
        cmocka_unit_test(zero_grad_forgets_for_all_or_for_a_part),
        cmocka_unit_test(digest_follows_names_not_creation),
        cmocka_unit_test(batches_are_counted_in_training_only),
        cmocka_unit_test(a_frozen_parameter_gets_no_gradient),
        cmocka_unit_test(an_embedding_is_a_table_of_normal_vectors),
        cmocka_unit_test(models_give_logits_for_every_class),
        cmocka_unit_test(backward_uses_the_memory_of_what_a_model_makes),
        cmocka_unit_test(a_norm_that_a_model_returns_can_be_read_behind_backward),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
