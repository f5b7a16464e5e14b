/* Activations of 16 bit: every operation with them, on oneDNN's kernels where it has some, and emulated around oneDNN's and
 * the reference kernels, all to one unit in the last place of each other; products beside sums in double; dtypes as
 * autocast promises.   SPDX-License-Identifier: MIT
 * timeout: 120
 * devices: strict cuda */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "harness/device.h"
#include "op/parameter.h"

#include <math.h>
#include <tutti/autograd.h>

#define MAX_VALUES 20000

static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

static float rounded(float x, tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 ? tutti__f32_of_bf16(tutti__bf16_of_f32(x))
                               : tutti__f32_of_f16(tutti__f16_of_f32(x));
}

/* The elements of a tensor of any real dtype. */
static void read_floats(tutti_tensor *t, float *to)
{
    const int64_t n = tutti_shape_count(tutti_tensor_shape(t));
    uint16_t half[MAX_VALUES];
    const tutti_dtype dtype = tutti_tensor_dtype(t);

    assert_true(n <= MAX_VALUES);
    if (tutti_tensor_read(t, dtype == TUTTI_F32 ? (void *)to : half) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    for (int64_t i = 0; i < n && dtype != TUTTI_F32; i++)
        to[i] = dtype == TUTTI_BF16 ? tutti__f32_of_bf16(half[i]) : tutti__f32_of_f16(half[i]);
}

/* ---- The operations ---------------------------------------------------------------------------------- */

typedef struct row {
    const char *name;
    tutti_shape x, w; /* x also of the second activation */
    int stride, padding;
    bool bias, relu, residual;
    tutti_tensor *(*build)(const struct row *r, tutti_tensor *x, tutti_tensor *z,
                           tutti_tensor *const *p, tutti_tensor *const *statistics);
} row;

#define BUILD(name, call)                                                                          \
    static tutti_tensor *name(const row *r, tutti_tensor *x, tutti_tensor *z,                      \
                              tutti_tensor *const *p, tutti_tensor *const *s)                      \
    {                                                                                              \
        (void)r, (void)z, (void)p, (void)s;                                                        \
        return call;                                                                               \
    }
#define POOL ((tutti_pool_opts){.kernel = 3, .stride = r->stride, .padding = r->padding})

BUILD(conv2d,
      tutti_functional_conv2d(x, p[0], r->bias ? p[1] : NULL,
                              (tutti_conv2d_opts){.stride = r->stride, .padding = r->padding}))
BUILD(linear, tutti_functional_linear(x, p[0], r->bias ? p[1] : NULL))
BUILD(matmul, tutti_matmul_with(x, z, &(tutti_matmul_opts){.transpose_b = true}))
BUILD(matmul_weight, tutti_matmul(x, p[0]))
BUILD(matmul_turns, tutti_matmul_with(tutti_reshape(x, TUTTI_SHAPE(2, 1, 3, 6, 24)), z,
                                      &(tutti_matmul_opts){.transpose_a = true}))
BUILD(batch_norm, tutti_functional_batch_norm2d(x, &(tutti_batch_norm2d_args){
                                                       .weight = p[1],
                                                       .bias = p[2],
                                                       .running_mean = s[0],
                                                       .running_var = s[1],
                                                       .relu = r->relu,
                                                       .residual = r->residual ? z : NULL}))
BUILD(relu, tutti_relu(x))
BUILD(add, tutti_add(x, z))
BUILD(max_pool, tutti_max_pool2d(x, POOL))
BUILD(avg_pool, tutti_avg_pool2d(x, POOL))
BUILD(global_pool, tutti_global_avg_pool2d(x))
BUILD(dropout, tutti_dropout(x, 0.25f))
BUILD(flatten, tutti_flatten(x))
BUILD(reshape, tutti_reshape(x, TUTTI_SHAPE(8, -1)))

#define S TUTTI_SHAPE
static const row rows[] = {
    {"conv 3x3", {4, {3, 16, 8, 8}}, {4, {32, 16, 3, 3}}, 1, 1, true, false, false, conv2d},
    {"conv wide", {4, {2, 32, 12, 12}}, {4, {48, 32, 3, 3}}, 1, 1, false, false, false, conv2d},
    {"conv stride", {4, {2, 16, 9, 9}}, {4, {32, 16, 3, 3}}, 2, 1, false, false, false, conv2d},
    {"conv 1x1", {4, {2, 16, 6, 6}}, {4, {24, 16, 1, 1}}, 1, 0, true, false, false, conv2d},
    {"conv of images", {4, {4, 3, 8, 8}}, {4, {16, 3, 3, 3}}, 1, 1, false, false, false, conv2d},
    {"conv few", {4, {2, 1, 5, 5}}, {4, {3, 1, 3, 3}}, 1, 1, true, false, false, conv2d},
    {"conv of a pixel", {4, {4, 16, 1, 1}}, {4, {16, 16, 3, 3}}, 2, 1, false, false, false, conv2d},
    {"conv narrow", {4, {4, 16, 2, 2}}, {4, {16, 16, 5, 5}}, 3, 2, false, false, false, conv2d},
    {"linear", {2, {32, 64}}, {2, {48, 64}}, 0, 0, true, false, false, linear},
    {"linear odd", {2, {7, 13}}, {2, {10, 13}}, 0, 0, false, false, false, linear},
    {"linear rows", {3, {4, 5, 24}}, {2, {9, 24}}, 0, 0, true, false, false, linear},
    {"matmul", {4, {2, 3, 10, 24}}, {0, {0}}, 0, 0, false, false, false, matmul},
    {"matmul weight", {3, {4, 16, 24}}, {2, {24, 17}}, 0, 0, false, false, false, matmul_weight},
    {"matmul turns", {4, {2, 3, 6, 24}}, {0, {0}}, 0, 0, false, false, false, matmul_turns},
    {"norm", {4, {4, 16, 5, 5}}, {1, {16}}, 0, 0, false, false, false, batch_norm},
    {"norm relu", {4, {4, 16, 5, 5}}, {1, {16}}, 0, 0, false, true, false, batch_norm},
    {"norm relu add", {4, {4, 24, 6, 6}}, {1, {24}}, 0, 0, false, true, true, batch_norm},
    {"norm add", {4, {3, 5, 7, 7}}, {1, {5}}, 0, 0, false, false, true, batch_norm},
    {"relu", {4, {2, 5, 7, 7}}, {0, {0}}, 0, 0, false, false, false, relu},
    {"add", {3, {4, 5, 6}}, {0, {0}}, 0, 0, false, false, false, add},
    {"max pool", {4, {2, 16, 8, 8}}, {0, {0}}, 2, 1, false, false, false, max_pool},
    {"avg pool", {4, {2, 16, 8, 8}}, {0, {0}}, 2, 1, false, false, false, avg_pool},
    {"global pool", {4, {2, 16, 8, 8}}, {0, {0}}, 0, 0, false, false, false, global_pool},
    {"dropout", {2, {16, 33}}, {0, {0}}, 0, 0, false, false, false, dropout},
    {"flatten", {4, {2, 3, 4, 4}}, {0, {0}}, 0, 0, false, false, false, flatten},
    {"reshape", {4, {2, 3, 4, 4}}, {0, {0}}, 0, 0, false, false, false, reshape},
};

/* The results of a step of y . factors. */
typedef struct result {
    tutti_dtype dtype; /* of y */
    int64_t n_y, n_x, n_p[3];
    double bias; /* the largest */
    float y[MAX_VALUES], dx[MAX_VALUES], dz[MAX_VALUES], p[3][MAX_VALUES], statistics[2][64];
} result;

/* A weighted sum by operations in F32 only: the mean of (y - target)^2. */
static tutti_tensor *loss_of(tutti_ctx *cx, tutti_tensor *y)
{
    static float target[MAX_VALUES];
    uint64_t state = 77;

    for (int64_t i = 0; i < MAX_VALUES; i++)
        target[i] = noise(&state);
    return tutti_scale(
        tutti_mse_loss(y, tutti_input(cx, (tutti_array){target, tutti_tensor_shape(y), TUTTI_F32})),
        64);
}

static void run_row(tutti_ctx *cx, const row *r, tutti_dtype dtype, result *out)
{
    static float x_values[MAX_VALUES], z_values[MAX_VALUES], w_values[MAX_VALUES];
    const int64_t channels = r->w.n ? r->w.d[0] : 1;
    const tutti_shape of_p[3] = {r->w.n ? r->w : S(1), S(channels), S(channels)};
    test_parameter p[3];
    tutti_tensor *weights[3], *statistics[2], *x, *z, *y;
    uint64_t state = 3;

    for (int64_t i = 0; i < MAX_VALUES; i++) {
        x_values[i] = rounded(noise(&state), dtype);
        z_values[i] = rounded(noise(&state), dtype);
        w_values[i] = noise(&state) * 0.5f + 0.25f; /* not rounded: the operation does that */
    }
    for (int i = 0; i < 3; i++) {
        test_parameter_init(&p[i], cx, "p", of_p[i], w_values + i);
        weights[i] = p[i].t;
        out->n_p[i] = tutti_shape_count(of_p[i]);
    }
    out->bias = 0;
    for (int64_t i = 0; r->bias && i < channels; i++)
        out->bias = fmax(out->bias, fabs((double)w_values[1 + i]));
    statistics[0] = test_buffer_new(cx, S(channels), 0);
    statistics[1] = test_buffer_new(cx, S(channels), 1);
    for (int repetition = 0; repetition < 2; repetition++) { /* the second adds its gradients */
        tutti_ctx_set_step(cx, 5);
        tutti_step_begin(cx, &(tutti_step_opts){.autocast = dtype});
        x = tutti_input_with_grad(cx, (tutti_array){x_values, r->x, TUTTI_F32});
        z = tutti_input_with_grad(cx, (tutti_array){z_values, r->x, TUTTI_F32});
        y = r->build(r, tutti_cast(x, dtype), tutti_cast(z, dtype), weights, statistics);
        if (tutti_backward(loss_of(cx, y)) != TUTTI_OK)
            fail_msg("%s: %s", r->name, tutti_last_error());
        out->dtype = tutti_tensor_dtype(y);
        out->n_y = tutti_shape_count(tutti_tensor_shape(y));
        out->n_x = tutti_shape_count(r->x);
        read_floats(y, out->y);
        memcpy(out->dx, test_grad(x), (size_t)out->n_x * sizeof(float));
        memset(out->dz, 0, sizeof out->dz);
        if (tutti_tensor_grad(z))
            memcpy(out->dz, test_grad(z), (size_t)out->n_x * sizeof(float));
        tutti_step_end(cx);
    }
    for (int i = 0; i < 3; i++) {
        const float *grad = test_grad(p[i].t);

        memset(out->p[i], 0, sizeof out->p[i]);
        if (grad)
            memcpy(out->p[i], grad, (size_t)out->n_p[i] * sizeof(float));
        test_parameter_free(&p[i]);
    }
    for (int i = 0; i < 2; i++) {
        memcpy(out->statistics[i], test_values(statistics[i]), (size_t)channels * sizeof(float));
        test_buffer_free(statistics[i]);
    }
}

/* A unit in the last place: at most this part of the number. */
static double unit_of(tutti_dtype dtype)
{
    return dtype == TUTTI_BF16 ? 0x1p-7 : 0x1p-10;
}

/* On a GPU a bias causes another rounding: its own (linear), or of the sum to which it is added (conv2d). docs/amp.md */
static bool bias_is_rounded(double bias)
{
    return test_device().kind == TUTTI_CUDA && bias > 0;
}

/* Within `ulps` units in the last place of each element, and `terms` of the largest, the error of the sums' terms; sums in F32
 * lose little themselves. bias: the largest one added to the elements; other rounded values are it, or not larger than the
 * elements and it together. */
static void near(const char *name, const char *what, const float *got, const float *expected,
                 int64_t n, double ulps, double terms, double bias, tutti_dtype dtype)
{
    const double unit = unit_of(dtype);
    double largest = 0;

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    for (int64_t i = 0; i < n; i++) {
        const double e = (double)expected[i], d = fabs((double)got[i] - e);

        if (!(d <= ulps * unit * fabs(e) * 1.01 + (terms > 0 ? terms * unit : 3e-6) * largest +
                       (ulps > 0 ? 0x1p-24 : 0) +
                       (bias_is_rounded(bias) ? 0.5 * unit * (fabs(e) + bias) : 0)))
            fail_msg("%s: %s[%lld] is %.9g, expected %.9g (largest %g)", name, what, (long long)i,
                     (double)got[i], e, largest);
    }
}

static void compare(const row *r, const result *a, const result *b, tutti_dtype dtype)
{
    /* y's rounding may differ in some elements or (half a unit) in all, and with it dy and the results computed from it */
    const double terms = bias_is_rounded(b->bias) ? 0.5 : 0.1;

    assert_int_equal(a->dtype, dtype);
    assert_int_equal(b->dtype, dtype);
    near(r->name, "y", a->y, b->y, b->n_y, 1, 0, b->bias, dtype);
    near(r->name, "dx", a->dx, b->dx, b->n_x, 4, terms, 0, dtype);
    near(r->name, "dz", a->dz, b->dz, b->n_x, 2, terms, 0, dtype);
    near(r->name, "dw", a->p[0], b->p[0], b->n_p[0], 2, terms, 0, dtype);
    near(r->name, "db", a->p[1], b->p[1], b->n_p[1], 2, terms, 0, dtype);
    near(r->name, "dc", a->p[2], b->p[2], b->n_p[2], 2, terms, 0, dtype);
    for (int i = 0; i < 2; i++)
        near(r->name, "running statistics", a->statistics[i], b->statistics[i],
             r->w.n ? r->w.d[0] : 1, 0, 0, 0, dtype);
}

static tutti_ctx *open_ctx(tutti_kernels kernels, int threads, tutti_dtype dtype)
{
    const tutti_device device = test_family(&kernels);
    tutti_ctx *cx;
    tutti_status status =
        tutti_ctx_new(&cx, device, &(tutti_ctx_opts){.kernels = kernels, .threads = threads});

    if (status == TUTTI_OK && tutti_ctx_half_kernels_name(cx, dtype))
        return cx;
    print_message("skipped: %s\n", tutti_last_error());
    tutti_ctx_free(status == TUTTI_OK ? cx : NULL);
    skip();
    return NULL;
}

static void all_rows(tutti_kernels kernels, int threads, tutti_dtype dtype)
{
    static result got, expected; /* large */
    tutti_ctx *cx = open_ctx(kernels, threads, dtype);
    tutti_ctx *plain = open_ctx(TUTTI_KERNELS_REFERENCE, 1, dtype);

    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        run_row(cx, &rows[i], dtype, &got);
        run_row(plain, &rows[i], dtype, &expected);
        compare(&rows[i], &got, &expected, dtype);
    }
    tutti_ctx_free(cx);
    tutti_ctx_free(plain);
}

static void bf16_of_onednn_is_the_emulated(void **state)
{
    (void)state;
    all_rows(TUTTI_KERNELS_ONEDNN, 1, TUTTI_BF16);
    all_rows(TUTTI_KERNELS_ONEDNN, 2, TUTTI_BF16);
}

static void emulation_is_the_same_around_any_kernels(void **state)
{
    (void)state;
    setenv("TUTTI_EMULATE_HALF", "1", 1);
    all_rows(TUTTI_KERNELS_ONEDNN, 1, TUTTI_F16);
    unsetenv("TUTTI_EMULATE_HALF");
}

/* ---- Compared with sums in double ---------------------------------------------------------------------------- */

/* y = round(sum of round(x) round(w) + b), and results must not differ from it by more than a rounding. */
static void products_round_their_sources_once(tutti_kernels kernels, tutti_dtype dtype)
{
    enum { R = 6, K = 40, M = 8 };
    float x[R * K], w[M * K], b[M], y[R * M];
    tutti_ctx *cx = open_ctx(kernels, 1, dtype);
    test_parameter weight, bias;
    uint64_t state = 9;
    tutti_tensor *t;

    for (int i = 0; i < R * K; i++)
        x[i] = noise(&state);
    for (int i = 0; i < M * K; i++)
        w[i] = noise(&state);
    for (int i = 0; i < M; i++)
        b[i] = noise(&state);
    test_parameter_init(&weight, cx, "w", S(M, K), w);
    test_parameter_init(&bias, cx, "b", S(M), b);
    tutti_step_begin(cx, &(tutti_step_opts){.autocast = dtype});
    t = tutti_functional_linear(tutti_input(cx, (tutti_array){x, S(R, K), TUTTI_F32}), weight.t,
                                bias.t);
    assert_int_equal(tutti_tensor_dtype(t), dtype);
    read_floats(t, y);
    tutti_step_end(cx);
    for (int r = 0; r < R; r++)
        for (int m = 0; m < M; m++) {
            double sum = (double)b[m];

            for (int k = 0; k < K; k++)
                sum += (double)rounded(x[r * K + k], dtype) * (double)rounded(w[m * K + k], dtype);
            near("linear", "y", &y[r * M + m], &(float){(float)sum}, 1, 0.51, 0, fabs((double)b[m]),
                 dtype);
        }
    assert_memory_equal(test_values(weight.t), w, sizeof w); /* the master weights are untouched */
    test_parameter_free(&weight);
    test_parameter_free(&bias);
    tutti_ctx_free(cx);
}

static void products_are_sums_in_f32(void **state)
{
    (void)state;
    products_round_their_sources_once(TUTTI_KERNELS_REFERENCE, TUTTI_BF16);
    products_round_their_sources_once(TUTTI_KERNELS_REFERENCE, TUTTI_F16);
    products_round_their_sources_once(TUTTI_KERNELS_ONEDNN, TUTTI_BF16);
}

/* ---- Categories ------------------------------------------------------------------------------------------ */

static void autocast_gives_each_operation_its_dtype(void **state)
{
    static float x[2 * 3 * 4 * 4], w[5 * 3], images[4 * 3 * 3 * 3];
    static int64_t labels[2];
    tutti_ctx *cx = open_ctx(TUTTI_KERNELS_REFERENCE, 1, TUTTI_BF16);
    test_parameter fc, conv;
    tutti_tensor *wide, *low, *logits;

    (void)state;
    test_parameter_init(&fc, cx, "fc", S(5, 3), w);
    test_parameter_init(&conv, cx, "conv", S(4, 3, 3, 3), images);
    tutti_step_begin(cx, &(tutti_step_opts){.autocast = TUTTI_BF16});
    wide = tutti_input(cx, (tutti_array){x, S(2, 3, 4, 4), TUTTI_F32});
    low = tutti_functional_conv2d(wide, conv.t, NULL, (tutti_conv2d_opts){.padding = 1});
    logits =
        tutti_functional_linear(tutti_input(cx, (tutti_array){x, S(2, 3), TUTTI_F32}), fc.t, NULL);
#define DTYPE(expression) tutti_tensor_dtype(expression)
    assert_int_equal(DTYPE(low), TUTTI_BF16);
    assert_int_equal(DTYPE(logits), TUTTI_BF16);
    assert_int_equal(DTYPE(tutti_relu(wide)), TUTTI_F32);
    assert_int_equal(DTYPE(tutti_relu(low)), TUTTI_BF16);
    assert_int_equal(DTYPE(tutti_flatten(low)), TUTTI_BF16);
    assert_int_equal(DTYPE(tutti_add(low, low)), TUTTI_BF16);
    assert_int_equal(DTYPE(tutti_add(low, tutti_cast(low, TUTTI_F32))), TUTTI_F32);
    assert_int_equal(DTYPE(tutti_add(low, tutti_cast(low, TUTTI_F16))), TUTTI_F32);
    assert_int_equal(DTYPE(tutti_softmax(logits)), TUTTI_F32);
    assert_int_equal(DTYPE(tutti_log_softmax(logits)), TUTTI_F32);
    assert_int_equal(DTYPE(tutti_mse_loss(logits, logits)), TUTTI_F32);
    assert_int_equal(
        DTYPE(tutti_cross_entropy(logits, tutti_input(cx, (tutti_array){labels, S(2), TUTTI_I64}))),
        TUTTI_F32);
    /* a region without autocast */
    assert_int_equal(tutti_ctx_set_autocast(cx, TUTTI_F32), TUTTI_OK);
    assert_int_equal(DTYPE(tutti_functional_linear(logits, tutti_cast(logits, TUTTI_F32), NULL)),
                     TUTTI_F32);
    tutti_step_end(cx);
    tutti_step_begin(cx, NULL); /* a step begins without autocast */
    wide = tutti_input(cx, (tutti_array){x, S(2, 3, 4, 4), TUTTI_F32});
    assert_int_equal(DTYPE(tutti_functional_conv2d(wide, conv.t, NULL, (tutti_conv2d_opts){0})),
                     TUTTI_F32);
    tutti_step_end(cx);
    test_parameter_free(&fc);
    test_parameter_free(&conv);
    tutti_ctx_free(cx);
}

/* An empty batch gives an empty result, and gradients of zero. */
static void an_empty_batch_is_computed(tutti_kernels kernels)
{
    static float w[4 * 3 * 3 * 3], x[1];
    static int64_t labels[1];
    tutti_ctx *cx = open_ctx(kernels, 1, TUTTI_BF16);
    test_parameter conv, fc;
    tutti_tensor *y;
    const float *grad;

    test_parameter_init(&conv, cx, "conv", S(4, 3, 3, 3), w);
    test_parameter_init(&fc, cx, "fc", S(5, 4), w);
    tutti_step_begin(cx, &(tutti_step_opts){.autocast = TUTTI_BF16});
    y = tutti_functional_conv2d(tutti_input(cx, (tutti_array){x, S(0, 3, 6, 6), TUTTI_F32}), conv.t,
                                NULL, (tutti_conv2d_opts){.padding = 1});
    y = tutti_flatten(tutti_global_avg_pool2d(tutti_relu(tutti_add(y, y))));
    y = tutti_cross_entropy(tutti_functional_linear(y, fc.t, NULL),
                            tutti_input(cx, (tutti_array){labels, S(0), TUTTI_I64}));
    if (tutti_backward(y) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    grad = test_grad(conv.t);
    for (int i = 0; i < 4 * 3 * 3 * 3; i++)
        assert_true(grad[i] == 0);
    tutti_step_end(cx);
    test_parameter_free(&conv);
    test_parameter_free(&fc);
    tutti_ctx_free(cx);
}

static void empty_batches_are_computed(void **state)
{
    (void)state;
    an_empty_batch_is_computed(TUTTI_KERNELS_REFERENCE);
    an_empty_batch_is_computed(TUTTI_KERNELS_ONEDNN);
}

static void wrong_dtypes_are_refused(void **state)
{
    static float x[4];
    tutti_ctx *cx = open_ctx(TUTTI_KERNELS_REFERENCE, 1, TUTTI_BF16);
    tutti_tensor *t;

    (void)state;
    assert_int_equal(tutti_ctx_set_autocast(cx, TUTTI_I64), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "autocast: the dtype is I64, expected BF16, F16 or F32 "
                                            "(off)");
    tutti_step_begin(cx, &(tutti_step_opts){.autocast = TUTTI_U8});
    t = tutti_relu(tutti_input(cx, (tutti_array){x, S(4), TUTTI_F32}));
    assert_int_equal(tutti_tensor_status(t), TUTTI_ERR_ARG);
    tutti_step_end(cx);
    tutti_step_begin(cx, NULL);
    t = tutti_cast(tutti_input(cx, (tutti_array){x, S(4), TUTTI_F32}), TUTTI_I8);
    assert_int_equal(tutti_tensor_status(t), TUTTI_ERR_ARG);
    assert_string_equal(tutti_last_error(), "cast: the dtype is I8, expected F32, BF16 or F16");
    tutti_step_end(cx);
    tutti_ctx_free(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_of_onednn_is_the_emulated),
        cmocka_unit_test(emulation_is_the_same_around_any_kernels),
        cmocka_unit_test(products_are_sums_in_f32),
        cmocka_unit_test(autocast_gives_each_operation_its_dtype),
        cmocka_unit_test(empty_batches_are_computed),
        cmocka_unit_test(wrong_dtypes_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
