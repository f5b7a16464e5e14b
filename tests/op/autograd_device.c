/* A device's kernels compared with the reference at sizes, layouts and values beyond small row-major tensors: channels last and
 * in vectors, many blocks, wide rows, large means, statistics over ranks, 16 bit.
 * SPDX-License-Identifier: MIT
 * timeout: 120
 * devices: strict cuda */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/device.h"
#include "op/parameter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/autograd.h>

#define S TUTTI_SHAPE

static void ok(tutti_status status)
{
    if (status != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
}

/* ---- What a row computes: from x and z (activations), p (vectors of x's channels) and labels ---- */

enum { MAX_RESULTS = 9 };

typedef struct sources {
    tutti_tensor *x, *z, *p[4], *labels;
    tutti_tensor *mean, *var; /* running */
    const tutti_peers *peers;
} sources;

typedef tutti_tensor *build(const sources *s);

typedef struct row {
    const char *name;
    build *run;
    tutti_shape x;
    float mean;       /* of x's elements */
    tutti_dtype half; /* what they are cast to; F32: not */
    bool several;     /* statistics over two ranks with the same values */
    int64_t labels;   /* how many, below classes */
    int64_t classes;
    double agree; /* relative to the largest; 0: the default */
} row;

static tutti_tensor *normalised(const sources *s, tutti_tensor *residual, bool relu)
{
    return tutti_functional_batch_norm2d(s->x, &(tutti_batch_norm2d_args){.weight = s->p[0],
                                                                          .bias = s->p[1],
                                                                          .running_mean = s->mean,
                                                                          .running_var = s->var,
                                                                          .relu = relu,
                                                                          .residual = residual,
                                                                          .peers = s->peers});
}

static tutti_tensor *norm(const sources *s)
{
    return normalised(s, NULL, false);
}

static tutti_tensor *norm_relu(const sources *s)
{
    return normalised(s, NULL, true);
}

static tutti_tensor *norm_add_relu(const sources *s)
{
    return normalised(s, s->z, true);
}

/* Adds a channels-last tensor and a row-major one. */
static tutti_tensor *joined(const sources *s)
{
    return tutti_add(tutti_relu(norm(s)), s->z);
}

static tutti_tensor *max_pooled(const sources *s)
{
    return tutti_max_pool2d(norm(s), (tutti_pool_opts){.kernel = 3, .stride = 2, .padding = 1});
}

static tutti_tensor *avg_pooled(const sources *s)
{
    return tutti_avg_pool2d(norm(s), (tutti_pool_opts){.kernel = 3, .stride = 2, .padding = 1});
}

static tutti_tensor *global_pooled(const sources *s)
{
    return tutti_flatten(tutti_global_avg_pool2d(norm(s)));
}

static tutti_tensor *reshaped(const sources *s)
{
    return tutti_reshape(norm(s), TUTTI_SHAPE(-1, 7, 40));
}

static tutti_tensor *flattened(const sources *s)
{
    return tutti_flatten(norm(s));
}

static tutti_tensor *dropped(const sources *s)
{
    return tutti_dropout(norm(s), 0.3f);
}

static tutti_tensor *soft(const sources *s)
{
    return tutti_softmax(s->x);
}

static tutti_tensor *log_soft(const sources *s)
{
    return tutti_log_softmax(s->x);
}

static tutti_tensor *entropy(const sources *s)
{
    return tutti_cross_entropy_with(s->x, s->labels,
                                    &(tutti_cross_entropy_opts){.label_smoothing = 0.1f});
}

static tutti_tensor *squared(const sources *s)
{
    return tutti_mse_loss(s->x, s->z);
}

static tutti_tensor *embedded(const sources *s)
{
    return tutti_functional_embedding(s->x, s->labels);
}

static const row rows[] = {
    {"batch norm, 64 channels, many rows", norm, .x = S(9, 64, 33, 31)},
    {"batch norm, 300 channels", norm_relu, .x = S(7, 304, 5, 5)},
    {"batch norm, a large mean", norm, .x = S(9, 16, 17, 13), .mean = 3000, .agree = 2e-3},
    {"batch norm, 13 channels, a large mean", norm, .x = S(40, 13, 17, 13), .mean = -3000,
     .agree = 2e-3},
    {"batch norm, residual and relu", norm_add_relu, .x = S(5, 24, 17, 3)},
    {"batch norm, residual and relu, 7 channels", norm_add_relu, .x = S(5, 7, 17, 3)},
    {"batch norm over ranks", norm_add_relu, .x = S(5, 24, 7, 3), .several = true},
    {"batch norm over ranks, 5 channels", norm, .x = S(5, 5, 7, 3), .several = true},
    {"two orders meet", joined, .x = S(3, 40, 9, 11)},
    {"two orders meet, a thousand pixels", joined, .x = S(2, 33, 31, 37)},
    {"two orders meet, 3 channels", joined, .x = S(2, 3, 31, 37)},
    {"max pool of vectors", max_pooled, .x = S(3, 16, 9, 8)},
    {"max pool, 5 channels", max_pooled, .x = S(3, 5, 9, 8)},
    {"average pool of vectors", avg_pooled, .x = S(3, 16, 9, 8)},
    {"global pool of vectors", global_pooled, .x = S(3, 72, 9, 8)},
    {"global pool, 11 channels", global_pooled, .x = S(3, 11, 9, 8)},
    {"flatten", flattened, .x = S(3, 40, 6, 7)},
    {"reshape", reshaped, .x = S(3, 40, 6, 7)},
    {"dropout of vectors", dropped, .x = S(3, 16, 9, 8)},
    {"dropout, 5 channels", dropped, .x = S(3, 5, 9, 8)},
    {"dropout, one pixel", dropped, .x = S(30, 5, 1, 1)},
    {"softmax of wide rows", soft, .x = S(5, 1500)},
    {"log-softmax of wide rows", log_soft, .x = S(5, 1500)},
    {"log-softmax of large logits", log_soft, .x = S(5, 70), .mean = 5000},
    {"cross entropy of wide rows", entropy, .x = S(40, 1500), .labels = 40, .classes = 1500},
    {"cross entropy of many rows", entropy, .x = S(3000, 11), .labels = 3000, .classes = 11},
    {"squared error of many", squared, .x = S(3, 50000)},
    {"embedding, repeated rows", embedded, .x = S(5, 300), .labels = 700, .classes = 5},
    {"batch norm of BF16", norm_add_relu, .x = S(5, 24, 17, 3), .half = TUTTI_BF16},
    {"batch norm of F16", norm_relu, .x = S(5, 24, 17, 3), .half = TUTTI_F16},
    {"batch norm of BF16, 7 channels", norm_add_relu, .x = S(5, 7, 17, 3), .half = TUTTI_BF16},
    {"two orders meet, BF16", joined, .x = S(3, 40, 9, 11), .half = TUTTI_BF16},
    {"max pool of F16", max_pooled, .x = S(3, 16, 9, 8), .half = TUTTI_F16},
    {"average pool of BF16", avg_pooled, .x = S(3, 16, 9, 8), .half = TUTTI_BF16},
    {"global pool of BF16", global_pooled, .x = S(3, 72, 9, 8), .half = TUTTI_BF16},
    {"dropout of F16", dropped, .x = S(3, 16, 9, 8), .half = TUTTI_F16},
};

/* ---- Two ranks whose values are the same ---- */

static tutti_status gather(void *self, tutti_stream *stream, const float *values, size_t n,
                           float *all)
{
    (void)self;
    (void)stream;
    memcpy(all, values, n * sizeof *all);
    memcpy(all + n, values, n * sizeof *all);
    return TUTTI_OK;
}

static tutti_status sum(void *self, tutti_stream *stream, float *values, size_t n)
{
    (void)self;
    (void)stream;
    for (size_t i = 0; i < n; i++)
        values[i] *= 2;
    return TUTTI_OK;
}

static const tutti_peers twins = {.size = 2, .all_gather = gather, .sum = sum};

/* ---- Running a row ---- */

typedef struct result {
    float *values;
    int64_t n;
} result;

/* y, running mean and variance, and the gradients of x, z and p. */
typedef struct results {
    result of[MAX_RESULTS];
    int n;
} results;

static float *noise(int64_t n, float mean, uint64_t seed)
{
    float *x = malloc(((size_t)n + 1) * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = mean + (float)((double)(seed >> 40) / 8388608.0 - 1.0);
    }
    return x;
}

static void keep(results *to, tutti_tensor *t, bool gradient)
{
    result *r = &to->of[to->n++];

    ok(tutti_tensor_status(t));
    assert_true(to->n <= MAX_RESULTS);
    if (!gradient)
        t = tutti_cast(t, TUTTI_F32);
    r->n = tutti_shape_count(tutti_tensor_shape(t));
    r->values = malloc(((size_t)r->n + 1) * sizeof *r->values);
    assert_non_null(r->values);
    ok(gradient ? tutti_tensor_grad_read(t, r->values) : tutti_tensor_read(t, r->values));
}

static void keep_grad(results *to, tutti_tensor *t)
{
    if (t && tutti_tensor_grad(t))
        keep(to, t, true);
}

/* The host's arrays behind a row's sources. */
typedef struct arrays {
    float *x, *z, *p[4], *target;
    int64_t *labels;
} arrays;

static arrays arrays_new(const row *r)
{
    const int64_t n = tutti_shape_count(r->x), C = r->x.d[1];
    arrays a = {noise(n, r->mean, 1), noise(n, 0, 2), {0}, noise(n + 300 * r->labels, 0, 3), NULL};

    for (int i = 0; i < 4; i++)
        a.p[i] = noise(C, i == 0 || i == 3 ? 1.5f : 0, 4 + (uint64_t)i);
    a.labels = malloc(((size_t)r->labels + 1) * sizeof *a.labels);
    assert_non_null(a.labels);
    for (int64_t i = 0; i < r->labels; i++)
        a.labels[i] = i * i % 17 == 3 && r->run == entropy ? -100 : i * 31 % 7 * i % r->classes;
    return a;
}

static void arrays_end(arrays *a)
{
    free(a->x);
    free(a->z);
    for (int i = 0; i < 4; i++)
        free(a->p[i]);
    free(a->target);
    free(a->labels);
}

static tutti_tensor *input(tutti_ctx *cx, const void *p, tutti_shape shape, tutti_dtype half)
{
    tutti_tensor *t = tutti_input_with_grad(cx, (tutti_array){p, shape, TUTTI_F32});

    ok(tutti_tensor_status(t));
    return half == TUTTI_F32 ? t : tutti_cast(t, half);
}

static void run_row(const row *r, tutti_ctx *cx, results *to)
{
    arrays a = arrays_new(r);
    sources s = {.peers = r->several ? &twins : NULL};
    tutti_tensor *leaf, *y, *loss;

    s.mean = test_buffer_new(cx, S(r->x.d[1]), 0);
    s.var = test_buffer_new(cx, S(r->x.d[1]), 1);
    tutti_ctx_set_step(cx, 7); /* dropout's mask depends on it */
    tutti_step_begin(cx, NULL);
    leaf = input(cx, a.x, r->x, TUTTI_F32);
    s.x = r->half == TUTTI_F32 ? leaf : tutti_cast(leaf, r->half);
    s.z = input(cx, a.z, r->x, r->half);
    for (int i = 0; i < 4; i++)
        s.p[i] = input(cx, a.p[i], S(r->x.d[1]), TUTTI_F32);
    if (r->labels)
        s.labels = tutti_input(cx, (tutti_array){a.labels, S(r->labels), TUTTI_I64});
    y = r->run(&s);
    ok(tutti_tensor_status(y));
    loss = y;
    if (tutti_tensor_shape(y).n > 0)
        loss = tutti_mse_loss(
            tutti_cast(y, TUTTI_F32),
            tutti_input(cx, (tutti_array){a.target, tutti_tensor_shape(y), TUTTI_F32}));
    ok(tutti_backward(tutti_scale(loss, 1000)));
    keep(to, y, false);
    keep(to, s.mean, false);
    keep(to, s.var, false);
    keep_grad(to, leaf);
    keep_grad(to, s.z);
    for (int i = 0; i < 4; i++)
        keep_grad(to, s.p[i]);
    tutti_step_end(cx);
    test_buffer_free(s.mean);
    test_buffer_free(s.var);
    arrays_end(&a);
}

static void assert_agree(const row *r, int which, const result *got, const result *expected)
{
    double largest = 1e-6, tolerance = r->agree > 0 ? r->agree : 2e-5;

    if (r->half != TUTTI_F32) /* an element may be rounded differently, which changes gradients */
        tolerance = r->half == TUTTI_BF16 ? 2e-2 : 3e-3;
    assert_int_equal(got->n, expected->n);
    for (int64_t i = 0; i < got->n; i++)
        largest = fmax(largest, fabs((double)expected->values[i]));
    for (int64_t i = 0; i < got->n; i++)
        if (!(fabs((double)(got->values[i] - expected->values[i])) <= tolerance * largest))
            fail_msg("%s: result %d, element %lld of %lld: %.8g, expected %.8g", r->name, which,
                     (long long)i, (long long)got->n, (double)got->values[i],
                     (double)expected->values[i]);
}

/* The dropout mask must be equal, regardless of the tolerance. */
static void assert_same_zeros(const row *r, const result *got, const result *expected)
{
    for (int64_t i = 0; i < got->n; i++)
        if ((got->values[i] == 0) != (expected->values[i] == 0))
            fail_msg("%s: element %lld is %.8g, expected %.8g", r->name, (long long)i,
                     (double)got->values[i], (double)expected->values[i]);
}

static void results_free(results *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->of[i].values);
    r->n = 0;
}

static tutti_ctx *oracle, *tested;

static int set_up(void **state)
{
    tutti_ctx_opts opts = {.seed = 5, .kernels = TUTTI_KERNELS_REFERENCE};

    (void)state;
    ok(tutti_ctx_new(&oracle, (tutti_device){TUTTI_CPU, 0}, &opts));
    opts.kernels = TUTTI_KERNELS_AUTO;
    ok(tutti_ctx_new(&tested, test_device(), &opts));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tutti_ctx_free(oracle);
    tutti_ctx_free(tested);
    return 0;
}

static void agrees(void **state)
{
    const row *r = *state;
    results expected = {.n = 0}, got = {.n = 0}, again = {.n = 0};

    run_row(r, oracle, &expected);
    run_row(r, tested, &got);
    run_row(r, tested, &again);
    assert_int_equal(got.n, expected.n);
    for (int i = 0; i < got.n; i++) {
        assert_agree(r, i, &got.of[i], &expected.of[i]);
        assert_memory_equal(got.of[i].values, again.of[i].values,
                            (size_t)got.of[i].n * sizeof(float));
    }
    if (r->run == dropped)
        assert_same_zeros(r, &got.of[0], &expected.of[0]);
    results_free(&expected);
    results_free(&got);
    results_free(&again);
}

int main(void)
{
    struct CMUnitTest tests[sizeof rows / sizeof *rows];

    setenv("TUTTI_EMULATE_HALF", "1", 1); /* for CPUs that lack it */
    (void)test_device();                  /* skips the program if there is none */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, agrees, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
