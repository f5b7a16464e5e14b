/* autograd_lazy.c -- a batch norm whose result is not stored gives the bits of one that is.   SPDX-License-Identifier: MIT    timeout: 120
 *
 * oneDNN's kernels leave the result of batch norm without a residual to its readers (tensor.h). Each reader here is given it so, and
 * again after its elements were read, for which they are stored: results and gradients must be the same bits, in training and
 * in eval, and its memory is free again after each reader. Skipped where the build has no such kernels. On any CPU 3x3 convolutions are Winograd's, so that the layout is that of batch
 * norm's vectors, and there is 16 bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op/parameter.h"

#include <tutti/autograd.h>

enum { BATCH = 5, IN = 16, CHANNELS = 32, SIZE = 14, MAX_PARAMETERS = 12 };
enum { COUNT = BATCH * CHANNELS * SIZE * SIZE };

typedef struct net {
    tutti_ctx *cx;
    test_parameter parameters[MAX_PARAMETERS];
    int n, used;
    tutti_tensor *mean, *var;
    bool relu;
} net;

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

static tutti_tensor *parameter(net *m, tutti_shape shape, float scale)
{
    static float values[CHANNELS * SIZE * SIZE * CHANNELS];
    uint64_t state = 77 + (uint64_t)m->used;

    if (m->used == m->n) {
        for (int64_t i = 0; i < tutti_shape_count(shape); i++)
            values[i] = noise(&state) * scale;
        test_parameter_init(&m->parameters[m->n++], m->cx, "w", shape, values);
    }
    return m->parameters[m->used++].t;
}

static tutti_tensor *convolution(net *m, tutti_tensor *x, int kernel, int stride)
{
    return tutti_functional_conv2d(
        x, parameter(m, TUTTI_SHAPE(CHANNELS, tutti_tensor_shape(x).d[1], kernel, kernel), 0.2f),
        NULL, (tutti_conv2d_opts){.stride = stride, .padding = kernel / 2});
}

static tutti_tensor *batch_norm(net *m, tutti_tensor *x, bool relu, tutti_tensor *residual)
{
    tutti_batch_norm2d_args args = {
        .relu = relu, .residual = residual, .running_mean = m->mean, .running_var = m->var};

    args.weight = parameter(m, TUTTI_SHAPE(CHANNELS), 1);
    args.bias = parameter(m, TUTTI_SHAPE(CHANNELS), 0.5f);
    return tutti_functional_batch_norm2d(x, &args);
}

/* ---- Readers ---------------------------------------------------------------------------------------------- */

#define READER(name, expression)                                                                   \
    static tutti_tensor *name(net *m, tutti_tensor *y)                                             \
    {                                                                                              \
        (void)m;                                                                                   \
        return expression;                                                                         \
    }

READER(winograd, convolution(m, y, 3, 1))
READER(strided, convolution(m, y, 3, 2))
READER(one_by_one, convolution(m, y, 1, 1))
READER(large_kernel, convolution(m, y, 5, 1))
READER(norm, batch_norm(m, y, true, NULL))
READER(residual, batch_norm(m, convolution(m, y, 3, 1), true, y))
READER(residual_only, batch_norm(m, tutti_scale(y, 0.5f), false, y))
READER(relu, tutti_relu(y))
READER(gelu, tutti_gelu(y, TUTTI_GELU_EXACT))
READER(silu_and_half, tutti_add(tutti_silu(y), tutti_scale(y, 0.5f)))
READER(sum, tutti_add(y, y))
READER(product, tutti_mul(y, tutti_sigmoid(y)))
READER(max_pool, tutti_max_pool2d(y, (tutti_pool_opts){.kernel = 2, .stride = 2}))
READER(avg_pool, tutti_avg_pool2d(y, (tutti_pool_opts){.kernel = 2, .stride = 2}))
READER(mean, tutti_global_avg_pool2d(y))
READER(dropout, tutti_dropout(y, 0.5f))
READER(linear,
       tutti_functional_linear(tutti_flatten(y),
                               parameter(m, TUTTI_SHAPE(7, CHANNELS *SIZE *SIZE), 0.1f), NULL))
READER(half, tutti_cast(tutti_cast(y, TUTTI_BF16), TUTTI_F32))
READER(two, tutti_add(convolution(m, y, 3, 1), convolution(m, y, 1, 1)))
READER(itself, y)

static const struct reader {
    const char *name;
    tutti_tensor *(*build)(net *m, tutti_tensor *y);
} readers[] = {
    {"Winograd", winograd},
    {"Winograd of stride 2", strided},
    {"1x1", one_by_one},
    {"5x5", large_kernel},
    {"batch norm", norm},
    {"residual, and Winograd", residual},
    {"residual of a scaled one", residual_only},
    {"relu", relu},
    {"gelu", gelu},
    {"silu, and scaled", silu_and_half},
    {"add", sum},
    {"mul", product},
    {"max pool", max_pool},
    {"average pool", avg_pool},
    {"global average", mean},
    {"dropout", dropout},
    {"linear", linear},
    {"cast", half},
    {"two", two},
    {"none", itself},
};

/* ---- Comparing -------------------------------------------------------------------------------------------- */

/* What a step makes. */
typedef struct made {
    float y[COUNT], result[COUNT], dx[BATCH * IN * SIZE * SIZE];
    float gradients[MAX_PARAMETERS][CHANNELS * SIZE * SIZE * 8];
    int n;
} made;

static void net_new(net *m, int threads)
{
    const tutti_ctx_opts opts = {.kernels = TUTTI_KERNELS_ONEDNN, .threads = threads};
    tutti_status status;

    *m = (net){.relu = threads == 1};
    status = tutti_ctx_new(&m->cx, (tutti_device){TUTTI_CPU, 0}, &opts);
    if (status == TUTTI_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", tutti_last_error());
        skip();
    }
    assert_int_equal(status, TUTTI_OK);
    m->mean = test_buffer_new(m->cx, TUTTI_SHAPE(CHANNELS), 0.1f);
    m->var = test_buffer_new(m->cx, TUTTI_SHAPE(CHANNELS), 0.7f);
}

static void net_free(net *m)
{
    for (int i = 0; i < m->n; i++)
        test_parameter_free(&m->parameters[i]);
    test_buffer_free(m->mean);
    test_buffer_free(m->var);
    tutti_ctx_free(m->cx);
}

static void gradients(net *m, tutti_tensor *x, tutti_tensor *loss, made *out)
{
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_int_equal(tutti_tensor_grad_read(x, out->dx), TUTTI_OK);
    for (out->n = 0; out->n < m->used; out->n++) {
        tutti_tensor *t = m->parameters[out->n].t;

        assert_true(tutti__tensor_bytes(t) <= sizeof out->gradients[0]);
        assert_int_equal(tutti_tensor_grad_read(t, out->gradients[out->n]), TUTTI_OK);
    }
}

/* A step; before: read y's elements before anything else does. */
static void step(const struct reader *r, int threads, bool eval, bool before, made *out)
{
    static float images[BATCH * IN * SIZE * SIZE], zeros[COUNT];
    tutti_tensor *x, *y, *result, *loss;
    uint64_t state = 5;
    net m;

    for (size_t i = 0; i < TUTTI__COUNT_OF(images); i++)
        images[i] = noise(&state);
    memset(out, 0, sizeof *out);
    net_new(&m, threads);
    tutti_step_begin(m.cx, &(tutti_step_opts){.eval = eval});
    x = tutti_input_with_grad(m.cx,
                              (tutti_array){images, TUTTI_SHAPE(BATCH, IN, SIZE, SIZE), TUTTI_F32});
    y = batch_norm(&m, convolution(&m, x, 3, 1), m.relu, NULL);
    assert_true(y->lazy && !y->data);
    if (before)
        assert_int_equal(tutti_tensor_read(y, out->y), TUTTI_OK);
    result = r->build(&m, y);
    assert_int_equal(tutti_tensor_read(result, out->result), TUTTI_OK);
    loss = tutti_mse_loss(
        result, tutti_input(m.cx, (tutti_array){zeros, tutti_tensor_shape(result), TUTTI_F32}));
    if (!eval)
        gradients(&m, x, loss, out);
    assert_true(y->lazy && !y->data);
    assert_int_equal(tutti_tensor_read(y, out->y), TUTTI_OK);
    tutti_step_end(m.cx);
    net_free(&m);
}

static void every_reader_sees_the_stored_bits(void **unused)
{
    static made stored, lazy;

    (void)unused;
    for (size_t i = 0; i < TUTTI__COUNT_OF(readers); i++)
        for (int k = 0; k < 4; k++) {
            const struct reader *r = &readers[i];
            const int threads = k % 2 ? 3 : 1; /* and without relu */

            step(r, threads, k / 2, true, &stored);
            step(r, threads, k / 2, false, &lazy);
            print_message("%s, %d thread%s, %s\n", r->name, threads, threads == 1 ? "" : "s",
                          k / 2 ? "eval" : "training");
            assert_memory_equal(lazy.y, stored.y, sizeof lazy.y);
            assert_memory_equal(lazy.result, stored.result, sizeof lazy.result);
            assert_memory_equal(lazy.dx, stored.dx, sizeof lazy.dx);
            assert_int_equal(lazy.n, stored.n);
            assert_memory_equal(lazy.gradients, stored.gradients, sizeof lazy.gradients);
        }
}

/* Gradients of what a Winograd convolution and a batch norm's residual make of a gelu's result, which is kept, or as within models
 * computed again. */
static void gelu_step(bool in_model, made *out)
{
    static float images[BATCH * IN * SIZE * SIZE];
    tutti_tensor *x, *y;
    uint64_t state = 9;
    net m;

    for (size_t i = 0; i < TUTTI__COUNT_OF(images); i++)
        images[i] = noise(&state);
    memset(out, 0, sizeof *out);
    net_new(&m, 1);
    tutti_step_begin(m.cx, NULL);
    x = tutti_input_with_grad(m.cx,
                              (tutti_array){images, TUTTI_SHAPE(BATCH, IN, SIZE, SIZE), TUTTI_F32});
    m.cx->in_model = in_model;
    y = tutti_gelu(convolution(&m, x, 3, 1), TUTTI_GELU_EXACT);
    assert_true((y->lazy != NULL) == in_model);
    y = residual(&m, y);
    m.cx->in_model = false;
    y = tutti_sum(tutti_mul(y, y));
    gradients(&m, x, y, out);
    tutti_step_end(m.cx);
    net_free(&m);
}

static void what_is_computed_again_has_the_same_bits(void **unused)
{
    static made kept, again;

    (void)unused;
    gelu_step(false, &kept);
    gelu_step(true, &again);
    assert_memory_equal(again.dx, kept.dx, sizeof again.dx);
    assert_memory_equal(again.gradients, kept.gradients, sizeof again.gradients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reader_sees_the_stored_bits),
        cmocka_unit_test(what_is_computed_again_has_the_same_bits),
    };

    if (setenv("TUTTI_CONV", "winograd", 1) || setenv("TUTTI_EMULATE_HALF", "1", 1))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
