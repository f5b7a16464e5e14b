/* autograd_onednn.c -- oneDNN's kernels against the reference kernels, in chains, F32 and BF16.   SPDX-License-Identifier: MIT
 *
 * Single operations have their own test; here layouts meet: blocked ones with padding, row-major inputs, residuals, pools,
 * gradients joined from two uses. Every gradient of a small network must agree, for channel counts that do and do not fill
 * a block, with one and with two threads; and repetitions must be the same bits.
 * timeout: 120 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op/parameter.h"

#include <math.h>
#include <tutti/autograd.h>

#define MAX_PARAMETERS 16
#define N_BUFFERS      2
#define TOLERANCE      1e-4
/* For different roundings to 8 bits, and relus and maxima after them. */
#define TOLERANCE_BF16 0.1

typedef struct geometry {
    const char *name;
    int64_t batch, in, channels, size;
    int kernel, stride, pool;
    bool relu, residual, bias;
} geometry;

static const geometry geometries[] = {
    {"blocks", 4, 3, 32, 12, 3, 1, 0, true, true, false},
    {"wide", 4, 48, 32, 16, 3, 1, 0, true, true, false},
    {"edges", 4, 32, 48, 15, 3, 1, 0, true, true, true},
    {"no winograd", 3, 40, 40, 15, 3, 1, 0, true, true, true},
    {"stride, Winograd", 16, 32, 48, 15, 3, 2, 0, true, true, true},
    {"stride", 3, 16, 32, 9, 3, 2, 0, true, true, false},
    {"one by one", 2, 16, 64, 8, 1, 1, 0, true, true, true},
    {"padded block", 3, 10, 10, 7, 3, 1, 0, true, true, true},
    {"few channels", 2, 1, 3, 5, 3, 1, 0, true, true, true},
    {"half block", 2, 8, 24, 6, 3, 1, 0, true, false, true},
    {"large kernel", 2, 3, 16, 11, 5, 2, 0, true, true, false},
    {"no relu", 2, 4, 20, 6, 3, 1, 0, false, true, true},
    {"plain", 2, 4, 16, 6, 3, 1, 0, false, false, true},
    {"max pool", 2, 3, 16, 12, 3, 1, 1, true, true, true},
    {"max pool, padded block", 2, 3, 12, 9, 3, 1, 1, true, true, true},
    {"max pool, windows apart", 2, 16, 32, 15, 3, 1, 3, true, true, true},
    {"max pool, windows apart, padded block", 2, 3, 20, 9, 3, 1, 3, true, true, true},
    {"average pool", 2, 3, 16, 12, 3, 1, 2, true, true, true},
    {"average pool, odd", 1, 3, 5, 7, 3, 1, 2, true, true, true},
};

/* A network, its input, and the results of a step. */
typedef struct net {
    tutti_ctx *cx;
    const geometry *g;
    test_parameter parameters[MAX_PARAMETERS];
    int n, used;
    tutti_tensor *mean[N_BUFFERS], *var[N_BUFFERS];
    float *x, *dx;
    float loss;
    tutti_dtype autocast;
} net;

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

static tutti_tensor *parameter(net *m, tutti_shape shape, float scale, float offset)
{
    uint64_t state = 77 + (uint64_t)m->used;
    int64_t n = tutti_shape_count(shape);
    float *values;

    assert_true(m->used < MAX_PARAMETERS);
    if (m->used == m->n) {
        values = malloc((size_t)n * sizeof *values);
        for (int64_t i = 0; i < n; i++)
            values[i] = noise(&state) * scale + offset;
        test_parameter_init(&m->parameters[m->n++], m->cx, "w", shape, values);
        free(values);
    }
    return m->parameters[m->used++].t;
}

static tutti_tensor *convolution(net *m, tutti_tensor *x, int64_t out, int kernel, int stride)
{
    const int64_t in = tutti_tensor_shape(x).d[1];
    const float bound = 1.5f / sqrtf((float)(in * kernel * kernel));
    tutti_tensor *w = parameter(m, TUTTI_SHAPE(out, in, kernel, kernel), bound, 0);
    tutti_tensor *b = m->g->bias ? parameter(m, TUTTI_SHAPE(out), 0.5f, 0) : NULL;

    return tutti_functional_conv2d(x, w, b,
                                   (tutti_conv2d_opts){.stride = stride, .padding = kernel / 2});
}

static tutti_tensor *batch_norm(net *m, int i, tutti_tensor *x, bool relu, tutti_tensor *residual)
{
    const int64_t c = tutti_tensor_shape(x).d[1];
    tutti_batch_norm2d_args args = {.relu = relu, .residual = residual};

    args.weight = parameter(m, TUTTI_SHAPE(c), 0.5f, 1);
    args.bias = parameter(m, TUTTI_SHAPE(c), 0.5f, 0);
    if (!m->mean[i]) {
        m->mean[i] = test_buffer_new(m->cx, TUTTI_SHAPE(c), 0);
        m->var[i] = test_buffer_new(m->cx, TUTTI_SHAPE(c), 1);
    }
    args.running_mean = m->mean[i];
    args.running_var = m->var[i];
    return tutti_functional_batch_norm2d(x, &args);
}

/* conv, norm, relu [, pool] (the trunk); conv, norm + trunk, relu; relu and add of the trunk; mean, linear, loss */
static tutti_tensor *forward(net *m, tutti_tensor *x, tutti_tensor *labels)
{
    const geometry *g = m->g;
    const tutti_pool_opts window = {.kernel = 3, .stride = 2, .padding = 1};
    const tutti_pool_opts apart = {.kernel = 2, .stride_w = 3};
    tutti_tensor *trunk, *y;

    m->used = 0;
    trunk = batch_norm(m, 0, convolution(m, x, g->channels, g->kernel, g->stride), g->relu, NULL);
    if (g->pool)
        trunk = g->pool == 2   ? tutti_avg_pool2d(trunk, window)
                : g->pool == 1 ? tutti_max_pool2d(trunk, window)
                               : tutti_max_pool2d(trunk, apart);
    y = batch_norm(m, 1, convolution(m, trunk, g->channels, 3, 1), g->relu,
                   g->residual ? trunk : NULL);
    y = tutti_add(tutti_relu(y), trunk);
    y = tutti_flatten(tutti_global_avg_pool2d(y));
    y = tutti_functional_linear(y, parameter(m, TUTTI_SHAPE(10, g->channels), 0.5f, 0),
                                parameter(m, TUTTI_SHAPE(10), 0.5f, 0));
    return tutti_cross_entropy(y, labels);
}

static void net_new(net *m, const geometry *g, tutti_kernels kernels, int threads)
{
    const int64_t count = g->batch * g->in * g->size * g->size;
    const tutti_ctx_opts opts = {.kernels = kernels, .threads = threads};
    tutti_status status;
    uint64_t state = 5;

    *m = (net){.g = g};
    status = tutti_ctx_new(&m->cx, (tutti_device){TUTTI_CPU, 0}, &opts);
    if (status == TUTTI_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(status, TUTTI_OK);
    m->x = malloc((size_t)count * sizeof *m->x);
    m->dx = malloc((size_t)count * sizeof *m->dx);
    for (int64_t i = 0; i < count; i++)
        m->x[i] = noise(&state) + 0.3f;
}

static void net_free(net *m)
{
    for (int i = 0; i < m->n; i++)
        test_parameter_free(&m->parameters[i]);
    for (int i = 0; i < N_BUFFERS && m->mean[i]; i++) {
        test_buffer_free(m->mean[i]);
        test_buffer_free(m->var[i]);
    }
    tutti_ctx_free(m->cx);
    free(m->x);
    free(m->dx);
}

static void step(net *m, bool zero_grad)
{
    const geometry *g = m->g;
    const tutti_shape shape = TUTTI_SHAPE(g->batch, g->in, g->size, g->size);
    int64_t labels[16];
    tutti_tensor *x, *loss;

    for (int i = 0; i < 16; i++)
        labels[i] = i % 10;
    for (int i = 0; i < m->n && zero_grad; i++)
        m->parameters[i].round++;
    tutti_step_begin(m->cx, &(tutti_step_opts){.autocast = m->autocast});
    x = tutti_input_with_grad(m->cx, (tutti_array){m->x, shape, TUTTI_F32});
    loss =
        forward(m, x, tutti_input(m->cx, (tutti_array){labels, TUTTI_SHAPE(g->batch), TUTTI_I64}));
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    m->loss = tutti_item(loss);
    assert_non_null(tutti_tensor_grad(x));
    memcpy(m->dx, tutti_tensor_grad(x), (size_t)tutti_shape_count(shape) * sizeof *m->dx);
    tutti_step_end(m->cx);
}

/* By the largest difference; in BF16 by the norm of all. */
static void near(const net *m, const char *what, int i, const float *got, const float *expected,
                 int64_t n)
{
    double error = 0, norm = 1e-30, squares = 0, of_error = 0;

    for (int64_t k = 0; k < n; k++) {
        error = fmax(error, fabs((double)got[k] - (double)expected[k]));
        norm = fmax(norm, fabs((double)expected[k]));
        of_error += pow((double)got[k] - (double)expected[k], 2);
        squares += pow((double)expected[k], 2);
        if (isnan(got[k]))
            fail_msg("%s: %s %d: NaN at %lld", m->g->name, what, i, (long long)k);
    }
    if (m->autocast == TUTTI_F32 && error > TOLERANCE * norm)
        fail_msg("%s: %s %d: largest difference %g, largest value %g", m->g->name, what, i, error,
                 norm);
    if (m->autocast != TUTTI_F32 && of_error > TOLERANCE_BF16 * TOLERANCE_BF16 * squares)
        fail_msg("%s: %s %d: norm of the difference %g, norm %g", m->g->name, what, i,
                 sqrt(of_error), sqrt(squares));
}

static void compare(const net *got, const net *expected)
{
    const geometry *g = got->g;

    near(got, "loss", 0, &got->loss, &expected->loss, 1);
    near(got, "gradient of the input", 0, got->dx, expected->dx,
         g->batch * g->in * g->size * g->size);
    for (int i = 0; i < N_BUFFERS; i++) {
        near(got, "running mean", i, got->mean[i]->data, expected->mean[i]->data, g->channels);
        near(got, "running variance", i, got->var[i]->data, expected->var[i]->data, g->channels);
    }
    for (int i = 0; i < got->n; i++) {
        /* a bias before batch norm has a gradient of 0: rounding only, so measured with its weight's */
        const float *a = got->parameters[i].p.grad, *b = expected->parameters[i].p.grad;
        const bool vain = g->bias && (i == 1 || i == 5);

        if (!vain)
            near(got, "gradient of parameter", i, a, b,
                 tutti_shape_count(got->parameters[i].t->shape));
        for (int64_t k = 0; vain && k < g->channels && got->autocast == TUTTI_F32; k++)
            assert_true(fabsf(a[k] - b[k]) < 1e-5f);
    }
}

static void check(const geometry *g, int threads, tutti_dtype autocast)
{
    net fast, plain;

    net_new(&fast, g, TUTTI_KERNELS_ONEDNN, threads);
    if (autocast != TUTTI_F32 && !tutti_ctx_half_kernels_name(fast.cx, autocast)) {
        print_message("skipped: %s\n", tutti_last_error());
        net_free(&fast);
        skip();
    }
    net_new(&plain, g, TUTTI_KERNELS_REFERENCE, 1);
    fast.autocast = plain.autocast = autocast;
    for (int i = 0; i < 3; i++) { /* the third step adds its gradients to the second's */
        step(&fast, i < 2);
        step(&plain, i < 2);
        compare(&fast, &plain);
    }
    net_free(&fast);
    net_free(&plain);
}

static void test_agrees(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(geometries); i++)
        check(&geometries[i], 1, TUTTI_F32);
}

static void test_agrees_in_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(geometries); i++)
        check(&geometries[i], 1, TUTTI_BF16);
}

static void test_agrees_with_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(geometries); i++)
        check(&geometries[i], 2, TUTTI_F32);
}

static void same_bits_and_no_allocation(tutti_dtype autocast)
{
    for (int threads = 1; threads <= 2; threads++) {
        net a, b;
        uint64_t allocations = 0;

        net_new(&a, &geometries[1], TUTTI_KERNELS_ONEDNN, threads);
        net_new(&b, &geometries[1], TUTTI_KERNELS_ONEDNN, threads);
        a.autocast = b.autocast = autocast;
        if (autocast != TUTTI_F32 && !tutti_ctx_half_kernels_name(a.cx, autocast))
            a.autocast = b.autocast = TUTTI_F32;
        for (int i = 0; i < 4; i++) {
            step(&a, true);
            step(&b, true);
            if (i == 1)
                allocations = tutti_ctx_memory_stats(a.cx).allocations;
        }
        assert_int_equal(allocations, tutti_ctx_memory_stats(a.cx).allocations);
        for (int i = 0; i < a.n; i++)
            assert_memory_equal(a.parameters[i].p.grad, b.parameters[i].p.grad,
                                tutti__tensor_bytes(a.parameters[i].t));
        net_free(&a);
        net_free(&b);
    }
}

static void test_same_bits_and_no_allocation(void **state)
{
    (void)state;
    same_bits_and_no_allocation(TUTTI_F32);
    same_bits_and_no_allocation(TUTTI_BF16);
}

/* Batch norm of values far from 0: one pass must not lose the variance. */
static void test_far_mean(void **state)
{
    enum { N = 6, C = 16, S = 25 };
    static float x[N * C * S], y[2][N * C * S];
    uint64_t noise_state = 1;

    (void)state;
    for (int i = 0; i < N * C * S; i++)
        x[i] = 1000.0f + (float)(i / S % C) + noise(&noise_state);
    for (int k = 0; k < 2; k++) {
        net m;
        tutti_tensor *result;

        net_new(&m, &geometries[0], k ? TUTTI_KERNELS_ONEDNN : TUTTI_KERNELS_REFERENCE, 1);
        tutti_step_begin(m.cx, NULL);
        result = batch_norm(&m, 0,
                            tutti_input(m.cx, (tutti_array){x, TUTTI_SHAPE(N, C, 5, 5), TUTTI_F32}),
                            false, NULL);
        assert_int_equal(tutti_tensor_read(result, y[k]), TUTTI_OK);
        tutti_step_end(m.cx);
        net_free(&m);
    }
    near(&(net){.g = &geometries[0]}, "y", 0, y[1], y[0], N * C * S);
}

static void test_eval(void **state)
{
    net m[2];
    float loss[2];
    int64_t labels[4] = {0, 1, 2, 3};

    (void)state;
    for (int k = 0; k < 2; k++) {
        const geometry *g = &geometries[0];

        net_new(&m[k], g, k ? TUTTI_KERNELS_ONEDNN : TUTTI_KERNELS_REFERENCE, 1);
        step(&m[k], true);
        tutti_step_begin(m[k].cx, &(tutti_step_opts){.eval = true});
        loss[k] = tutti_item(forward(
            &m[k],
            tutti_input(
                m[k].cx,
                (tutti_array){m[k].x, TUTTI_SHAPE(g->batch, g->in, g->size, g->size), TUTTI_F32}),
            tutti_input(m[k].cx, (tutti_array){labels, TUTTI_SHAPE(4), TUTTI_I64})));
        tutti_step_end(m[k].cx);
        net_free(&m[k]);
    }
    near(&(net){.g = &geometries[0]}, "loss in eval", 0, &loss[1], &loss[0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees),
        cmocka_unit_test(test_agrees_in_bf16),
        cmocka_unit_test(test_agrees_with_threads),
        cmocka_unit_test(test_same_bits_and_no_allocation),
        cmocka_unit_test(test_far_mean),
        cmocka_unit_test(test_eval),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
