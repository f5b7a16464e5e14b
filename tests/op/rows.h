/* rows.h -- a row that declares an operation and its sources, and its checks.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_OP_ROWS_H
#define TUTTI_TESTS_OP_ROWS_H

#include "harness/device.h"
#include "op/parameter.h"
#include "tensor/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MAX_INPUTS 9

/* ---- A row ------------------------------------------------------------------------------------------- */

typedef enum fill {
    NONE,
    UNIFORM,  /* in (-1, 1) */
    POSITIVE, /* in (0.5, 1.5) */
    APART, /* distinct, at least 0.05 from each other and 0.025 from 0: no kink within a finite difference */
    SIGNED, /* around -5 or 5 */
    LABELS  /* 0 .. C-1 of the first input, I64 */
} fill;

typedef struct input {
    fill fill;
    tutti_shape shape;
    bool weight; /* a parameter in a module */
} input;

struct bench;
typedef struct row {
    const char *name;
    tutti_tensor *(*build)(const struct row *r, tutti_tensor *const *in, struct bench *b);
    input in[MAX_INPUTS];
    int kernel, stride, padding;
    float f;                 /* p, label smoothing */
    bool relu;               /* of batch norm */
    int ignored;             /* every ignored-th label is -100; 0: none */
    double agree, gradient;  /* tolerances; 0: the defaults */
    const char *error;       /* the row must fail with this in its message */
    bool large;              /* for --time only */
    const struct row *inner; /* of a row that wraps another one: that one */
    tutti_dtype half;        /* dtype of that one */
} row;

/* Kernels on a device. */
typedef struct family {
    tutti_device device;
    tutti_kernels kernels;
    int threads; /* 0: one */
} family;

static const family reference_family = {{TUTTI_CPU, 0}, TUTTI_KERNELS_REFERENCE, 0};

/* A row with its context. */
typedef struct bench {
    const row *row;
    tutti_ctx *cx;
    tutti_array arrays[MAX_INPUTS];
    int n_inputs;
    tutti_tensor *running_mean[2], *running_var[2];
    float *factors; /* of the weighted sum, on the device */
    float *host_factors;
    bool has_base;
    double base;
} bench;

#define BUILD(name, call)                                                                          \
    static tutti_tensor *name(const row *r, tutti_tensor *const *in, bench *b)                     \
    {                                                                                              \
        (void)r, (void)b;                                                                          \
        return call;                                                                               \
    }
#define S(...)                                                                                     \
    {                                                                                              \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* ---- Data -------------------------------------------------------------------------------------------- */

static float uniform(uint32_t input_index, uint32_t i)
{
    uint32_t words[4];

    tutti__philox(7, (tutti__philox_counter){{i, input_index, 0, 0}}, words);
    return tutti__unit_float(words[0]) * 2 - 1;
}

static float value_of(fill f, uint32_t input_index, int64_t i, int64_t count)
{
    float u = uniform(input_index, (uint32_t)i);
    int64_t step = 61; /* a permutation of 0 .. count-1 as long as they have no common factor */

    switch (f) {
    case POSITIVE:
        return 1 + u / 2;
    case APART:
        while (count % 61 == 0 && step == 61)
            step = 67;
        return 0.05f * ((float)(i * step % count - count / 2) + 0.5f);
    case SIGNED:
        return (uniform(input_index + 100, (uint32_t)i) > 0 ? 5.0f : -5.0f) + u / 4;
    default:
        return u;
    }
}

static tutti_array array_new(const row *r, int index)
{
    const input *in = &r->in[index];
    int64_t count = tutti_shape_count(in->shape),
            classes = r->in[0].shape.n > 1 ? r->in[0].shape.d[1] : 1;
    void *p = tutti__alloc((size_t)count * sizeof(int64_t) + 1);

    for (int64_t i = 0; i < count; i++) {
        if (in->fill != LABELS)
            ((float *)p)[i] = value_of(in->fill, (uint32_t)index, i, count);
        else
            ((int64_t *)p)[i] = r->ignored && i % r->ignored == 0 ? -100 : i * 5 % classes;
    }
    return (tutti_array){p, in->shape, in->fill == LABELS ? TUTTI_I64 : TUTTI_F32};
}

static void bench_init(bench *b, const row *r, family f)
{
    *b = (bench){.row = r};
    assert_int_equal(tutti_ctx_new(&b->cx, f.device,
                                   &(tutti_ctx_opts){.seed = 3,
                                                     .threads = f.threads ? f.threads : 1,
                                                     .kernels = f.kernels}),
                     TUTTI_OK);
    while (b->n_inputs < MAX_INPUTS && r->in[b->n_inputs].fill != NONE) {
        b->arrays[b->n_inputs] = array_new(r, b->n_inputs);
        b->n_inputs++;
    }
    for (int i = 0; i < 2; i++) {
        tutti_shape channels = TUTTI_SHAPE(r->in[0].shape.n > 1 ? r->in[0].shape.d[1] : 1);

        b->running_mean[i] = test_buffer_new(b->cx, channels, 0);
        b->running_var[i] = test_buffer_new(b->cx, channels, 1);
    }
}

static void bench_free(bench *b)
{
    for (int i = 0; i < b->n_inputs; i++)
        free((void *)b->arrays[i].p);
    for (int i = 0; i < 2; i++) {
        test_buffer_free(b->running_mean[i]);
        test_buffer_free(b->running_var[i]);
    }
    free(b->host_factors);
    b->cx->device_ops->free(b->cx->device, b->factors);
    tutti_ctx_free(b->cx);
}

/* The family to compare with the reference: the device's kernels, or on the CPU oneDNN's. False: this build has none. */
static bool other_family(family *f)
{
    tutti_ctx *cx;
    bool has;

    *f = (family){.kernels = TUTTI_KERNELS_ONEDNN};
    f->device = test_family(&f->kernels);
    has = tutti_ctx_new(&cx, f->device, &(tutti_ctx_opts){.kernels = f->kernels}) == TUTTI_OK;
    if (has)
        tutti_ctx_free(cx);
    return has;
}

/* Runs a check on the other family, and if the device is the CPU also on the reference. */
static void check_each(const row *r, void (*check)(const row *r, family f))
{
    family f;

    if (test_device().kind == TUTTI_CPU)
        check(r, reference_family);
    if (other_family(&f))
        check(r, f);
}

/* ---- A scalar of any result: the sum of r[i] * y[i], r fixed, minus its first value ---------------------- */

static const float *factors_of(bench *b, int64_t count)
{
    const size_t bytes = (size_t)count * sizeof(float);

    if (b->factors)
        return b->host_factors;
    b->host_factors = tutti__alloc(bytes);
    b->factors = b->cx->device_ops->alloc(b->cx->device, bytes, true);
    for (int64_t i = 0; i < count; i++) {
        float u = uniform(50, (uint32_t)i);

        b->host_factors[i] = count == 1 ? 10 : u + (u > 0 ? 0.5f : -0.5f);
    }
    test_put(b->cx, b->factors, b->host_factors, bytes);
    return b->host_factors;
}

static tutti_status sum_shape(const tutti_op_args *p, tutti_shape *shape, tutti_dtype *dtype)
{
    *shape = (tutti_shape){0};
    *dtype = p->sources[0]->dtype;
    return TUTTI_OK;
}

static tutti_status sum_forward(tutti__node *n)
{
    bench *b = *(bench **)n->attributes;
    int64_t count = tutti_shape_count(n->src[0]->shape);
    const float *factors = factors_of(b, count);
    float *y = tutti__alloc((size_t)count * sizeof *y), result;
    double sum = 0;

    TUTTI_TRY(tutti_tensor_read(n->src[0], y));
    TUTTI_TRY(tutti__tensor_alloc(n->dst, NULL));
    for (int64_t i = 0; i < count; i++)
        sum += (double)y[i] * (double)factors[i];
    free(y);
    if (!b->has_base)
        b->base = sum; /* so that the difference keeps its precision in F32 */
    b->has_base = true;
    result = (float)(sum - b->base);
    return tutti__copy_in(b->cx->stream, n->dst->data, &result, sizeof result);
}

/* Returns the factors themselves, borrowed: takes no time in measurements. */
static tutti_status sum_backward(tutti__node *n)
{
    bench *b = *(bench **)n->attributes;
    tutti_tensor *dx;

    TUTTI_TRY(tutti__grad_of(n, 0, &dx));
    dx->data = b->factors;
    dx->shared = true;
    return TUTTI_OK;
}

static tutti_tensor *weighted_sum(tutti_tensor *y, bench *b)
{
    static const tutti__op op = {.plain = {.name = "weighted_sum", .shape = sum_shape},
                                 .forward = sum_forward,
                                 .backward = sum_backward};

    return tutti__op_run(&op, &y, 1, &b, sizeof b);
}

/* The row's result as F32. One without a gradient, as of comparisons, gets that of its sources times 0. */
static tutti_tensor *result_of(const row *r, tutti_tensor *const *in, bench *b)
{
    tutti_tensor *y = r->build(r, in, b);

    if (!y || y->poison != TUTTI_OK || y->needs_grad)
        return y;
    y = tutti_cast(y, TUTTI_F32);
    for (int i = 0; i < MAX_INPUTS && b->cx->recording; i++)
        if (in[i] && in[i]->dtype != TUTTI_I64)
            y = tutti_add(y, tutti_scale(tutti_mean(in[i]), 0));
    return y;
}

static tutti_tensor *build_loss(tutti_tensor *const *inputs, void *arg)
{
    tutti_tensor *in[MAX_INPUTS] = {0};
    bench *b = arg;

    memcpy(in, inputs, (size_t)b->n_inputs * sizeof *in);
    return weighted_sum(result_of(b->row, in, b), b);
}

/* ---- Gradients against differences -------------------------------------------------------------------- */

static void check_gradient(const row *r, family f)
{
    bench b;
    double error;
    double tolerance = r->gradient > 0 ? r->gradient : 2e-3;

    bench_init(&b, r, f);
    assert_int_equal(tutti_gradient_check(
                         b.cx, build_loss, &b, b.arrays, b.n_inputs,
                         &(tutti_gradient_check_opts){.eps = 4e-3, .max_elements = 100}, &error),
                     TUTTI_OK);
    if (!(error <= tolerance))
        fail_msg("%s, %s: gradient differs from differences by %g, tolerance %g", r->name,
                 tutti_ctx_kernels_name(b.cx), error, tolerance);
    bench_free(&b);
}

static void gradient_matches_differences(void **state)
{
    check_each(*state, check_gradient);
}

/* ---- Agreement of families ------------------------------------------------------------------------------ */

/* All results of a row's training step: y, the inputs' gradients, running statistics, y of an eval step. */
typedef struct results {
    int n;
    float *values[MAX_INPUTS + 4];
    size_t counts[MAX_INPUTS + 4];
} results;

static void keep(results *out, const void *p, int64_t count)
{
    float *copy = tutti__alloc((size_t)count * sizeof(float));

    memcpy(copy, p, (size_t)count * sizeof(float));
    out->values[out->n] = copy;
    out->counts[out->n++] = (size_t)count;
}

static void results_free(results *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->values[i]);
}

static void keep_read(results *out, tutti_tensor *t,
                      tutti_status (*read)(tutti_tensor *t, void *dst))
{
    int64_t count = tutti_shape_count(tutti_tensor_shape(t));
    float *p = tutti__alloc((size_t)count * sizeof(float));

    if (read(t, p) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    keep(out, p, count);
    free(p);
}

/* One training step with leaves (parameters NULL) or with weights as parameters. */
static void train_step(bench *b, test_parameter *parameters, results *out)
{
    tutti_tensor *in[MAX_INPUTS] = {0}, *y;

    tutti_ctx_set_step(b->cx, 0); /* the same masks in every step */
    tutti_step_begin(b->cx, NULL);
    for (int i = 0; i < b->n_inputs; i++) {
        if (parameters && b->row->in[i].weight)
            in[i] = parameters[i].t;
        else if (b->arrays[i].dtype == TUTTI_F32)
            in[i] = tutti_input_with_grad(b->cx, b->arrays[i]);
        else
            in[i] = tutti_input(b->cx, b->arrays[i]);
    }
    y = result_of(b->row, in, b);
    if (tutti_backward(weighted_sum(y, b)) != TUTTI_OK)
        fail_msg("%s: %s", b->row->name, tutti_last_error());
    if (out) {
        keep_read(out, y, tutti_tensor_read);
        for (int i = 0; i < b->n_inputs; i++)
            if (b->arrays[i].dtype == TUTTI_F32)
                keep_read(out, in[i], tutti_tensor_grad_read);
        keep_read(out, b->running_mean[0], tutti_tensor_read);
        keep_read(out, b->running_var[0], tutti_tensor_read);
    }
    tutti_step_end(b->cx);
}

static void eval_step(bench *b, results *out)
{
    tutti_tensor *in[MAX_INPUTS] = {0};

    tutti_step_begin(b->cx, &(tutti_step_opts){.eval = true});
    for (int i = 0; i < b->n_inputs; i++)
        in[i] = tutti_input(b->cx, b->arrays[i]);
    keep_read(out, tutti_cast(b->row->build(b->row, in, b), TUTTI_F32), tutti_tensor_read);
    tutti_step_end(b->cx);
}

static double relative_error(const float *a, const float *b, size_t n)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)a[i] * (double)a[i];
    }
    return sqrt(difference) / fmax(sqrt(norm), 1e-3 * sqrt((double)n));
}

static void assert_agree(const row *r, const char *what, const results *a, const results *b)
{
    double tolerance = r->agree > 0 ? r->agree : 1e-5;

    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        double error = relative_error(a->values[i], b->values[i], a->counts[i]);

        if (!(error <= tolerance))
            fail_msg(
                "%s: %s: result %d (0: y, then the inputs' gradients) is off by %g, tolerance %g",
                r->name, what, i, error, tolerance);
    }
}

static results run_family(const row *r, family f)
{
    bench b;
    results out = {0}, again = {0};
    uint64_t allocations;

    bench_init(&b, r, f);
    train_step(&b, NULL, &out);
    for (int i = 0; i < 2; i++)
        train_step(&b, NULL, NULL);
    allocations = tutti_ctx_memory_stats(b.cx).allocations;
    for (int i = 0; i < 2; i++)
        train_step(&b, NULL, NULL);
    if (tutti_ctx_memory_stats(b.cx).allocations != allocations)
        fail_msg("%s, %s: a step allocates after warm-up", r->name, tutti_ctx_kernels_name(b.cx));
    eval_step(&b, &out);
    bench_free(&b);
    bench_init(&b, r, f);
    train_step(&b, NULL, &again);
    for (int i = 0; i < again.n; i++)
        assert_memory_equal(out.values[i], again.values[i], out.counts[i] * sizeof(float));
    results_free(&again);
    bench_free(&b);
    return out;
}

static void families_agree(void **state)
{
    const row *r = *state;
    results reference = run_family(r, reference_family);
    family f;

    if (other_family(&f)) {
        results other = run_family(r, f);

        assert_agree(r, f.device.kind == TUTTI_CPU ? "onednn" : "the device", &reference, &other);
        results_free(&other);
    }
    results_free(&reference);
}

/* Weights as parameters: the same gradients as for leaves, first overwritten, then added, then overwritten again. */
static void check_parameters(const row *r, family f)
{
    test_parameter parameters[MAX_INPUTS];
    bench b;
    results leaves = {0}, first = {0}, second = {0}, third = {0};

    bench_init(&b, r, f);
    train_step(&b, NULL, &leaves);
    bench_free(&b);
    bench_init(&b, r, f);
    for (int i = 0; i < b.n_inputs; i++)
        if (r->in[i].weight)
            test_parameter_init(&parameters[i], b.cx, "weight", b.arrays[i].shape, b.arrays[i].p);
    train_step(&b, parameters, &first);
    train_step(&b, parameters, &second);
    for (int i = 0; i < b.n_inputs; i++)
        if (r->in[i].weight)
            parameters[i].round++;
    train_step(&b, parameters, &third);
    for (int i = 0; i < b.n_inputs; i++) {
        for (size_t k = 0; r->in[i].weight && k < second.counts[i + 1]; k++)
            second.values[i + 1][k] /= 2;
        if (r->in[i].weight)
            test_parameter_free(&parameters[i]);
    }
    /* not the running statistics, which change */
    leaves.n = first.n = second.n = third.n = b.n_inputs + 1;
    assert_agree(r, "parameters, first step", &leaves, &first);
    assert_agree(r, "parameters, added", &leaves, &second);
    assert_agree(r, "parameters, after zero_grad", &leaves, &third);
    leaves.n = first.n = second.n = third.n = b.n_inputs + 3;
    results_free(&leaves);
    results_free(&first);
    results_free(&second);
    results_free(&third);
    bench_free(&b);
}

static void weights_as_parameters_accumulate(void **state)
{
    check_each(*state, check_parameters);
}

/* ---- Times ------------------------------------------------------------------------------------------------- */

typedef struct times {
    double forward_ms, backward_ms;
} times;

static times time_row(const row *r, family f, double budget_ms)
{
    bench b;
    times best = {1e9, 1e9};
    double start = tutti__now_ms();

    bench_init(&b, r, f);
    for (int i = 0; i < 3 || (i < 100 && tutti__now_ms() - start < budget_ms); i++) {
        tutti_tensor *in[MAX_INPUTS] = {0}, *y, *loss;
        double t0, t1, t2, t3;

        tutti_step_begin(b.cx, NULL);
        for (int k = 0; k < b.n_inputs; k++)
            in[k] = b.arrays[k].dtype == TUTTI_F32 ? tutti_input_with_grad(b.cx, b.arrays[k])
                                                   : tutti_input(b.cx, b.arrays[k]);
        t0 = tutti__now_ms();
        y = result_of(r, in, &b);
        t1 = tutti__now_ms();
        loss = weighted_sum(y, &b);
        t2 = tutti__now_ms();
        if (tutti_backward(loss) != TUTTI_OK)
            fail_msg("%s", tutti_last_error());
        t3 = tutti__now_ms();
        best.forward_ms = fmin(best.forward_ms, t1 - t0);
        best.backward_ms = fmin(best.backward_ms, t3 - t2);
        tutti_step_end(b.cx);
    }
    bench_free(&b);
    return best;
}

static void print_times_head(void)
{
    family f;

    printf("%-44s %12s %12s", "one thread, best of runs, ms", "reference", "backward");
    if (other_family(&f))
        printf(" %12s %12s", f.device.kind == TUTTI_CPU ? "onednn" : "device", "backward");
    printf("\n");
}

static void print_times(const row *r)
{
    times t = time_row(r, reference_family, 500);
    family f;

    printf("%-44s %12.3f %12.3f", r->name, t.forward_ms, t.backward_ms);
    if (other_family(&f)) {
        t = time_row(r, f, 500);
        printf(" %12.3f %12.3f", t.forward_ms, t.backward_ms);
    }
    printf("\n");
    fflush(stdout);
}

/* ---- Tests ------------------------------------------------------------------------------------------- */

static struct CMUnitTest test_of(const row *r, const char *mode, CMUnitTestFunction function)
{
    char *name = malloc(strlen(r->name) + strlen(mode) + 3);

    sprintf(name, "%s: %s", r->name, mode);
    return (struct CMUnitTest){name, function, NULL, NULL, (void *)r};
}

/* ---- Errors ---------------------------------------------------------------------------------------------- */

static inline void bad_sources_are_named(void **state)
{
    const row *r = *state;
    tutti_tensor *in[MAX_INPUTS] = {0}, *y;
    bench b;

    bench_init(&b, r, (family){.device = test_device()});
    tutti_step_begin(b.cx, NULL);
    for (int i = 0; i < b.n_inputs; i++)
        in[i] = tutti_input(b.cx, b.arrays[i]);
    y = r->build(r, in, &b);
    assert_int_equal(tutti_tensor_status(y), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), r->error))
        fail_msg("%s: the message is \"%s\", expected \"%s\" in it", r->name, tutti_last_error(),
                 r->error);
    assert_int_equal(tutti_tensor_status(tutti_relu(y)), TUTTI_ERR_ARG);
    tutti_step_end(b.cx);
    bench_free(&b);
}

/* ---- A table -------------------------------------------------------------------------------------------- */

/* A test program over a table; --time prints the times of the rows that are large. */
static inline int run_rows(const row *rows, size_t n_rows, int argc, char **argv)
{
    struct CMUnitTest *tests = calloc(3 * n_rows, sizeof *tests);
    size_t n = 0;
    int failed;

    if (argc == 2 && strcmp(argv[1], "--time") == 0) {
        print_times_head();
        for (size_t i = 0; i < n_rows; i++)
            if (rows[i].large)
                print_times(&rows[i]);
        free(tests);
        return 0;
    }
    for (size_t i = 0; i < n_rows; i++) {
        const row *r = &rows[i];
        bool weights = false;

        if (r->large)
            continue;
        if (r->error) {
            tests[n++] = test_of(r, "is an error", bad_sources_are_named);
            continue;
        }
        for (int k = 0; k < MAX_INPUTS; k++)
            weights |= r->in[k].weight;
        if (r->gradient >= 0)
            tests[n++] = test_of(r, "gradient", gradient_matches_differences);
        tests[n++] = test_of(r, "agreement", families_agree);
        if (weights)
            tests[n++] = test_of(r, "parameters", weights_as_parameters_accumulate);
    }
    failed = _cmocka_run_group_tests("operations", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        free((char *)tests[i].name);
    free(tests);
    return failed;
}

#endif
