/* tutti_recompute: the same bits as without, in less memory: results, gradients, statistics, random numbers, the order in which
 * gradients become final; and what may not be read afterwards. In every kernel family.   SPDX-License-Identifier: MIT
 * devices: strict cuda */
#include "harness/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tutti/autograd.h>
#include <tutti/nn.h>
#include <tutti/operations.h>

enum { BATCH = 4, CHANNELS = 16, SIDE = 12, CLASSES = 5, DEPTH = 4, MAX_ORDER = 64 };

/* conv, norm, relu, dropout; views; a mask, which is not on the tape; a branch that the loss does not use; the sum with x */
typedef struct block {
    tutti_module base;
    tutti_conv2d conv1, conv2;
    tutti_batch_norm2d norm1, norm2;
    tutti_norm layer;
    int runs;
} block;

typedef struct net {
    tutti_ctx *cx;
    tutti_module base;
    tutti_conv2d first;
    block blocks[DEPTH];
    tutti_linear fc;
    tutti_tensor *order[MAX_ORDER], *ready[MAX_ORDER];
    size_t n_order, n_ready;
    int hooks;
} net;

static tutti_tensor *block_forward(tutti_module *module, tutti_tensor *x)
{
    block *m = (block *)module;
    const tutti_shape shape = tutti_tensor_shape(x);
    tutti_tensor *y, *rows, *mask;

    m->runs++;
    y = tutti_batch_norm2d_relu_forward(&m->norm1, tutti_conv2d_forward(&m->conv1, x), NULL);
    y = tutti_dropout(y, 0.2f);
    rows = tutti_reshape(y, TUTTI_SHAPE(BATCH * CHANNELS, SIDE * SIDE));
    mask = tutti_gt(rows, tutti_mean(rows));
    rows = tutti_mul(tutti_norm_forward(&m->layer, rows), mask);
    (void)tutti_exp(rows); /* which the loss does not use */
    y = tutti_conv2d_forward(&m->conv2, tutti_reshape(rows, shape));
    return tutti_batch_norm2d_relu_forward(&m->norm2, y, x);
}

static void count_hook(tutti_module *m, tutti_tensor *x, tutti_tensor *y, void *arg)
{
    (void)m;
    (void)x;
    assert_int_equal(tutti_tensor_status(y), TUTTI_OK);
    ++*(int *)arg;
}

static void conv_init(tutti_conv2d *m, tutti_module *parent, const char *name, int64_t in)
{
    tutti_conv2d_init(m, parent, name,
                      &(tutti_conv2d_layer_opts){
                          .in = in, .out = CHANNELS, .kernel = 3, .padding = 1, .no_bias = true});
}

static tutti_tensor *net_forward(tutti_module *module, tutti_tensor *x)
{
    net *m = (net *)((char *)module - offsetof(net, base));

    x = tutti_conv2d_forward(&m->first, x);
    for (int i = 0; i < DEPTH; i++)
        x = tutti_module_forward(&m->blocks[i].base, x);
    return tutti_linear_forward(&m->fc, tutti_flatten(tutti_global_avg_pool2d(x)));
}

static tutti_status begin(void *self, tutti_tensor *const *order, size_t n)
{
    net *m = self;

    assert_true(n <= MAX_ORDER);
    memcpy(m->order, order, n * sizeof(tutti_tensor *));
    m->n_order = n;
    m->n_ready = 0;
    return TUTTI_OK;
}

static void ready(void *self, tutti_tensor *parameter)
{
    net *m = self;

    m->ready[m->n_ready++] = parameter;
}

static void net_init(net *m, tutti_kernels kernels, bool recompute)
{
    const tutti_device device = test_family(&kernels);
    char name[2] = "0";

    memset(m, 0, sizeof *m);
    if (tutti_ctx_new(&m->cx, device, &(tutti_ctx_opts){.kernels = kernels, .seed = 3}) != TUTTI_OK)
        skip();
    tutti_module_init(&m->base, m->cx);
    tutti_module_set_forward(&m->base, net_forward);
    conv_init(&m->first, &m->base, "first", 3);
    for (int i = 0; i < DEPTH; i++) {
        block *b = &m->blocks[i];

        name[0] = (char)('0' + i);
        tutti_module_init_child(&b->base, &m->base, name);
        tutti_module_set_forward(&b->base, block_forward);
        tutti_module_set_recompute(&b->base, recompute);
        conv_init(&b->conv1, &b->base, "conv1", CHANNELS);
        tutti_batch_norm2d_init(&b->norm1, &b->base, "norm1", CHANNELS);
        tutti_layer_norm_init(&b->layer, &b->base, "layer", TUTTI_SHAPE(SIDE * SIDE));
        conv_init(&b->conv2, &b->base, "conv2", CHANNELS);
        tutti_batch_norm2d_init(&b->norm2, &b->base, "norm2", CHANNELS);
        tutti_module_set_forward_hook(&b->conv2.base, count_hook, &m->hooks);
    }
    tutti_linear_init(&m->fc, &m->base, "fc", CHANNELS, CLASSES);
    assert_int_equal(tutti_module_status(&m->base), TUTTI_OK);
    assert_int_equal(tutti_ctx_set_backward_listener(
                         m->cx, &(tutti_backward_listener){m, NULL, begin, ready, NULL, {0}}),
                     TUTTI_OK);
}

static void net_free(net *m)
{
    tutti_module_destroy(&m->base);
    tutti_ctx_free(m->cx);
}

/* A step's loss; the memory that it used. */
static float step(net *m, tutti_dtype autocast, size_t *used_p)
{
    static float images[BATCH * 3 * SIDE * SIDE];
    static const int64_t labels[BATCH] = {0, 3, 4, 1};
    tutti_tensor *x, *loss;
    float value;

    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        images[i] = (float)((i * 2654435761u) % 2048) / 1024 - 1;
    tutti_module_zero_grad(&m->base);
    tutti_step_begin(m->cx, &(tutti_step_opts){.autocast = autocast});
    x = tutti_input(m->cx, (tutti_array){images, TUTTI_SHAPE(BATCH, 3, SIDE, SIDE), TUTTI_F32});
    loss = tutti_cross_entropy(
        tutti_module_forward(&m->base, x),
        tutti_input(m->cx, (tutti_array){labels, TUTTI_SHAPE(BATCH), TUTTI_I64}));
    value = tutti_item(loss);
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    *used_p = tutti_ctx_memory_stats(m->cx).arena_used_bytes;
    tutti_step_end(m->cx);
    return value;
}

static void assert_same_tensors(const net *a, const net *b, bool gradients)
{
    static float x[1 << 14], y[1 << 14];
    tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_state(&a->base, i)) != NULL; i++) {
        tutti_tensor *u = tutti_module_state(&b->base, i);
        const size_t bytes = (size_t)tutti_shape_count(tutti_tensor_shape(t)) *
                             tutti_dtype_size(tutti_tensor_dtype(t));

        if (gradients && (!tutti_tensor_grad(t) || !tutti_tensor_grad(u)))
            continue;
        assert_true(bytes <= sizeof x);
        assert_int_equal((gradients ? tutti_tensor_grad_read : tutti_tensor_read)(t, x), TUTTI_OK);
        assert_int_equal((gradients ? tutti_tensor_grad_read : tutti_tensor_read)(u, y), TUTTI_OK);
        if (memcmp(x, y, bytes) != 0)
            fail_msg("%s of %s differs", gradients ? "gradient" : "value", tutti_tensor_name(t));
    }
}

static void assert_same_steps(tutti_kernels kernels, tutti_dtype autocast)
{
    net plain, again;
    size_t used_plain = 0, used_again = 0;

    net_init(&plain, kernels, false);
    net_init(&again, kernels, true);
    if (autocast != TUTTI_F32 && !tutti_ctx_half_kernels_name(plain.cx, autocast))
        goto end;
    for (int i = 1; i <= 2; i++) {
        const float a = step(&plain, autocast, &used_plain);
        const float b = step(&again, autocast, &used_again);

        assert_memory_equal(&a, &b, sizeof a);
        assert_same_tensors(&plain, &again, true);
        assert_same_tensors(&plain, &again, false);
        assert_int_equal(again.hooks, DEPTH * i);
        assert_int_equal(again.blocks[0].runs, i);
        assert_int_equal(again.n_order, plain.n_order);
        assert_int_equal(again.n_ready, plain.n_order);
        for (size_t k = 0; k < plain.n_order; k++) {
            assert_string_equal(tutti_tensor_name(again.order[k]),
                                tutti_tensor_name(plain.order[k]));
            assert_ptr_equal(again.ready[k], again.order[k]);
        }
    }
    if (used_again >= used_plain)
        fail_msg("%zu bytes, without recomputation %zu", used_again, used_plain);
end:
    net_free(&plain);
    net_free(&again);
}

static void bits_are_those_without(void **state)
{
    (void)state;
    assert_same_steps(TUTTI_KERNELS_AUTO, TUTTI_F32);
}

static void bits_are_those_without_in_reference(void **state)
{
    (void)state;
    assert_same_steps(TUTTI_KERNELS_REFERENCE, TUTTI_F32);
}

static void bits_are_those_without_in_bf16(void **state)
{
    (void)state;
    assert_same_steps(TUTTI_KERNELS_AUTO, TUTTI_BF16);
}

/* ---- Any function ---------------------------------------------------------------------------------- */

typedef struct inside {
    tutti_tensor *kept, *w;
    int runs;
} inside;

static tutti_tensor *product(tutti_tensor *const *inputs, void *arg)
{
    inside *in = arg;

    in->runs++;
    in->kept = tutti_mul(inputs[0], inputs[1]);
    return tutti_sin(tutti_exp(in->kept));
}

static tutti_tensor *twice(tutti_tensor *const *inputs, void *arg)
{
    tutti_tensor *y = tutti_recompute(product, arg, inputs, 2);

    return tutti_mul(y, tutti_recompute(product, arg, (tutti_tensor *[]){y, inputs[1]}, 2));
}

static tutti_tensor *itself(tutti_tensor *const *inputs, void *arg)
{
    (void)arg;
    return inputs[0];
}

static tutti_tensor *view(tutti_tensor *const *inputs, void *arg)
{
    (void)arg;
    return tutti_reshape(tutti_exp(inputs[0]), TUTTI_SHAPE(3, 1));
}

static tutti_ctx *function_context(void)
{
    tutti_kernels kernels = TUTTI_KERNELS_AUTO;
    const tutti_device device = test_family(&kernels);
    tutti_ctx *cx;

    assert_int_equal(tutti_ctx_new(&cx, device, &(tutti_ctx_opts){.kernels = kernels}), TUTTI_OK);
    return cx;
}

static const float A[3] = {0.5f, -1, 2}, B[3] = {0.25f, 1.5f, -0.5f};

static tutti_tensor *leaf(tutti_ctx *cx, const float *p)
{
    return tutti_input_with_grad(cx, (tutti_array){p, TUTTI_SHAPE(3), TUTTI_F32});
}

static void gradients(tutti_tensor *(*fn)(tutti_tensor *const *inputs, void *arg), bool recompute,
                      inside *in, float da[3], float db[3])
{
    tutti_ctx *cx = function_context();
    tutti_tensor *inputs[2];

    tutti_step_begin(cx, NULL);
    inputs[0] = leaf(cx, A);
    inputs[1] = leaf(cx, B);
    assert_int_equal(
        tutti_backward(tutti_sum(recompute ? tutti_recompute(fn, in, inputs, 2) : fn(inputs, in))),
        TUTTI_OK);
    assert_int_equal(tutti_tensor_grad_read(inputs[0], da), TUTTI_OK);
    assert_int_equal(tutti_tensor_grad_read(inputs[1], db), TUTTI_OK);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static void functions_may_be_nested(void **state)
{
    float a[2][3], b[2][3];
    inside in = {0};

    (void)state;
    gradients(twice, false, &in, a[0], b[0]);
    in.runs = 0;
    gradients(twice, true, &in, a[1], b[1]);
    assert_int_equal(in.runs, 2);
    assert_memory_equal(a[0], a[1], sizeof a[0]);
    assert_memory_equal(b[0], b[1], sizeof b[0]);
}

static void what_is_inside_cannot_be_read_afterwards(void **state)
{
    tutti_ctx *cx = function_context();
    tutti_tensor *inputs[2], *y;
    inside in = {0};
    float got[3];

    (void)state;
    tutti_step_begin(cx, NULL);
    inputs[0] = leaf(cx, A);
    inputs[1] = leaf(cx, B);
    y = tutti_recompute(product, &in, inputs, 2);
    assert_int_equal(tutti_tensor_read(in.kept, got), TUTTI_ERR_STATE);
    assert_non_null(strstr(tutti_last_error(), "a block of tutti_recompute"));
    assert_int_equal(tutti_tensor_status(tutti_exp(in.kept)), TUTTI_ERR_STATE);
    assert_int_equal(tutti_tensor_read(y, got), TUTTI_OK);
    tutti_step_end(cx);
    tutti_step_begin(cx, &(tutti_step_opts){.no_grad = true}); /* no tape: nothing is dropped */
    inputs[0] = leaf(cx, A);
    inputs[1] = leaf(cx, B);
    tutti_recompute(product, &in, inputs, 2);
    assert_int_equal(tutti_tensor_read(in.kept, got), TUTTI_OK);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static void results_that_look_at_others_stay(void **state)
{
    tutti_ctx *cx = function_context();
    tutti_tensor *x, *y;
    float got[3];

    (void)state;
    tutti_step_begin(cx, NULL);
    x = tutti_input(cx, (tutti_array){A, TUTTI_SHAPE(3), TUTTI_F32}); /* not on the tape */
    assert_ptr_equal(tutti_recompute(itself, NULL, &x, 1), x);
    y = tutti_recompute(view, NULL, &x, 1);
    for (int i = 0; i < 4; i++) /* would take memory that was dropped */
        (void)tutti_scale(x, 100);
    assert_int_equal(tutti_tensor_read(y, got), TUTTI_OK);
    for (int i = 0; i < 3; i++)
        assert_true(got[i] < 10);
    assert_int_equal(tutti_tensor_read(x, got), TUTTI_OK);
    assert_memory_equal(got, A, sizeof got);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

static tutti_tensor *wrong(tutti_tensor *const *inputs, void *arg)
{
    (void)arg;
    return tutti_add(inputs[0], tutti_reshape(inputs[1], TUTTI_SHAPE(5)));
}

static void failures_are_told(void **state)
{
    tutti_ctx *cx = function_context();
    tutti_tensor *inputs[2];

    (void)state;
    assert_null(tutti_recompute(product, NULL, NULL, 0));
    tutti_step_begin(cx, NULL);
    inputs[0] = leaf(cx, A);
    inputs[1] = leaf(cx, B);
    assert_int_equal(tutti_tensor_status(tutti_recompute(NULL, NULL, inputs, 2)), TUTTI_ERR_ARG);
    assert_int_equal(tutti_tensor_status(tutti_recompute(wrong, NULL, inputs, 2)), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "reshape"));
    assert_int_equal(tutti_tensor_status(tutti_exp(inputs[0])), TUTTI_OK);
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_without),
        cmocka_unit_test(bits_are_those_without_in_reference),
        cmocka_unit_test(bits_are_those_without_in_bf16),
        cmocka_unit_test(functions_may_be_nested),
        cmocka_unit_test(what_is_inside_cannot_be_read_afterwards),
        cmocka_unit_test(results_that_look_at_others_stay),
        cmocka_unit_test(failures_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
