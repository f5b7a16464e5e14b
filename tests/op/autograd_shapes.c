/* autograd_shapes.c -- fast convolutions and pools, oneDNN's or a GPU's, on many random shapes against the reference.
 * SPDX-License-Identifier: MIT
 *
 * Windows larger than the image, padding that nothing of the image fills, strides that leave rows unused, channels that do
 * and do not fill a block, batches around Winograd's threshold; more shapes than the cache of primitives keeps.
 * timeout: 180
 * devices: cuda */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/device.h"
#include "tensor/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/autograd.h>

#define N_CASES   600
#define TOLERANCE 1e-4

typedef enum operation { CONVOLUTION, MAX_POOL, AVG_POOL, GLOBAL_AVG_POOL, N_OPERATIONS } operation;

typedef struct shapes {
    operation operation;
    tutti_shape x, w;
    int kernel, stride, padding;
} shapes;

/* y and the gradients of x, w and b of a mean of squares */
typedef struct result {
    tutti_status status;
    float *part[4];
    int64_t n[4];
} result;

static uint64_t state = 1;

static int64_t below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

static float *noise(int64_t n)
{
    float *p = malloc((size_t)n * sizeof *p);

    for (int64_t i = 0; i < n; i++)
        p[i] = (float)below(2000001) / 1e6f - 1.0f;
    return p;
}

static shapes shapes_next(void)
{
    shapes s = {.operation = (operation)below(N_OPERATIONS)};
    int64_t in = 1 + below(24), out = 1 + below(40);

    if (below(3) == 0) {
        in = 16 * (1 + below(3));
        out = 16 * (1 + below(4));
    }
    s.kernel = (int)(1 + below(below(2) ? 3 : 7));
    s.stride = (int)(1 + below(3));
    s.padding = (int)below(4);
    if (s.operation == CONVOLUTION && below(2)) {
        s.kernel = 3;
        s.stride = (int)(1 + below(2));
    }
    if (s.operation != CONVOLUTION && s.padding > s.kernel / 2)
        s.padding = s.kernel / 2;
    s.x = TUTTI_SHAPE(1 + below(5), in, 1 + below(18), 1 + below(18));
    s.w = TUTTI_SHAPE(out, in, s.kernel, s.kernel);
    return s;
}

static tutti_tensor *run_operation(const shapes *s, tutti_tensor *x, tutti_tensor *w,
                                   tutti_tensor *b)
{
    const tutti_pool_opts window = {
        .kernel = s->kernel, .stride = s->stride, .padding = s->padding};

    switch (s->operation) {
    case CONVOLUTION:
        return tutti_functional_conv2d(
            x, w, b, (tutti_conv2d_opts){.stride = s->stride, .padding = s->padding});
    case MAX_POOL:
        return tutti_max_pool2d(x, window);
    case AVG_POOL:
        return tutti_avg_pool2d(x, window);
    default:
        return tutti_global_avg_pool2d(x);
    }
}

/* t's elements, or those of its gradient. */
static void keep(result *r, int i, tutti_tensor *t, bool gradient)
{
    r->n[i] = tutti_shape_count(tutti_tensor_shape(t));
    r->part[i] = malloc((size_t)r->n[i] * sizeof(float));
    assert_int_equal(gradient ? tutti_tensor_grad_read(t, r->part[i])
                              : tutti_tensor_read(t, r->part[i]),
                     TUTTI_OK);
}

static result run(tutti_ctx *cx, const shapes *s, const float *const data[4])
{
    const tutti_shape b_shape = TUTTI_SHAPE(s->w.d[0]);
    result r = {.status = TUTTI_OK};
    tutti_tensor *x, *w, *b, *y;

    tutti_step_begin(cx, NULL);
    x = tutti_input_with_grad(cx, (tutti_array){data[0], s->x, TUTTI_F32});
    w = tutti_input_with_grad(cx, (tutti_array){data[1], s->w, TUTTI_F32});
    b = tutti_input_with_grad(cx, (tutti_array){data[2], b_shape, TUTTI_F32});
    y = run_operation(s, x, w, b);
    r.status = tutti_tensor_status(y);
    if (r.status == TUTTI_OK) {
        keep(&r, 0, y, false);
        r.status = tutti_backward(tutti_mse_loss(
            y, tutti_input(cx, (tutti_array){data[3], tutti_tensor_shape(y), TUTTI_F32})));
    }
    if (r.status == TUTTI_OK) {
        keep(&r, 1, x, true);
        if (s->operation == CONVOLUTION) {
            keep(&r, 2, w, true);
            keep(&r, 3, b, true);
        }
    }
    tutti_step_end(cx);
    return r;
}

static void compare(const shapes *s, const result *got, const result *expected)
{
    char what[200];

    snprintf(what, sizeof what, "operation %d, x %s, w %s, stride %d, padding %d",
             (int)s->operation, tutti__shape_text(s->x), tutti__shape_text(s->w), s->stride,
             s->padding);
    if (got->status != expected->status)
        fail_msg("%s: status %d, the reference has %d", what, (int)got->status,
                 (int)expected->status);
    for (int i = 0; i < 4; i++) {
        double error = 0, norm = 1e-30;

        for (int64_t k = 0; k < expected->n[i]; k++) {
            error = fmax(error, fabs((double)(got->part[i][k] - expected->part[i][k])));
            norm = fmax(norm, fabs((double)expected->part[i][k]));
        }
        if (!(error <= TOLERANCE * norm))
            fail_msg("%s: part %d: largest difference %g, largest value %g", what, i, error, norm);
    }
}

static void test_shapes(void **unused)
{
    tutti_kernels kernels = TUTTI_KERNELS_ONEDNN;
    const tutti_device device = test_family(&kernels);
    tutti_ctx *fast, *plain;
    int compared = 0;

    (void)unused;
    if (tutti_ctx_new(&fast, device, &(tutti_ctx_opts){.threads = 1, .kernels = kernels}) ==
        TUTTI_ERR_UNSUPPORTED)
        skip();
    assert_non_null(fast);
    assert_int_equal(tutti_ctx_new(&plain, (tutti_device){TUTTI_CPU, 0},
                                   &(tutti_ctx_opts){.kernels = TUTTI_KERNELS_REFERENCE}),
                     TUTTI_OK);
    for (int i = 0; i < N_CASES; i++) {
        const shapes s = shapes_next();
        const int64_t channels = s.x.d[1] > s.w.d[0] ? s.x.d[1] : s.w.d[0];
        float *data[4] = {noise(tutti_shape_count(s.x)), noise(tutti_shape_count(s.w)),
                          noise(s.w.d[0]),
                          noise(s.x.d[0] * channels * (s.x.d[2] + 8) * (s.x.d[3] + 8))};
        result got = run(fast, &s, (const float *const *)data);
        result expected = run(plain, &s, (const float *const *)data);

        compare(&s, &got, &expected);
        compared += expected.status == TUTTI_OK;
        for (int k = 0; k < 4; k++) {
            free(data[k]);
            free(got.part[k]);
            free(expected.part[k]);
        }
    }
    assert_true(compared > N_CASES / 2);
    tutti_ctx_free(fast);
    tutti_ctx_free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
