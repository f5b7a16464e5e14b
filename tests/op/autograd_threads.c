/* autograd_threads.c -- the bits of an operation do not depend on the number of threads.   SPDX-License-Identifier: MIT
 *
 * Every operation with arithmetic, forward and backward, of both kernel families, in F32 and in 16 bit, over shapes that
 * fill and do not fill blocks, tiles and parts: results of 1, 2, 3 and 7 threads are compared as memory.
 * timeout: 100   breadth: 100
 * ALL: of the reference kernels, too; else of these 1 and 3 threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op/shaped.h"

#include <tutti/autograd.h>

#define MAX_RESULTS 12
#define STEPS       2 /* the second step adds its gradients to the first's */

static tutti_tensor *batch_norm(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)r;
    return tutti_functional_batch_norm2d(x, &(tutti_batch_norm2d_args){.weight = p[0],
                                                                       .bias = p[1],
                                                                       .running_mean = p[2],
                                                                       .running_var = p[3],
                                                                       .relu = true,
                                                                       .residual = x});
}

static tutti_tensor *max_pool(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)p;
    return tutti_max_pool2d(
        x, (tutti_pool_opts){.kernel = 3, .stride = r->stride, .padding = r->padding});
}

static tutti_tensor *average_pool(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)p;
    return tutti_avg_pool2d(
        x, (tutti_pool_opts){.kernel = 3, .stride = r->stride, .padding = r->padding});
}

static tutti_tensor *small(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)r;
    (void)p;
    x = tutti_add(tutti_relu(x), tutti_scale(x, 0.7f));
    return tutti_dropout(tutti_flatten(tutti_global_avg_pool2d(x)), 0.3f);
}

/* r->stride heads, which share r->padding of keys and values */
static tutti_tensor *attention(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    const tutti_attention_opts opts = {
        .kv_heads = r->padding, .is_causal = true, .dropout_p = 0.1f};

    (void)p;
    return tutti_multi_head_attention(x, NULL, NULL, r->stride, &opts);
}

/* The strided first layers of networks, their 3x3 (Winograd's where there are channels and tiles), their 1x1. */
static const row rows[] = {
    {"first layer", convolution, {8, 3, 16, 16}, {16, 3, 3, 3}, 1, 1},
    {"first layer, batch 32", convolution, {32, 3, 32, 32}, {64, 3, 3, 3}, 1, 1},
    {"first layer, one image", convolution, {1, 3, 32, 32}, {64, 3, 3, 3}, 1, 1},
    {"strided", convolution, {5, 64, 16, 16}, {128, 64, 3, 3}, 2, 1},
    {"strided, batch 32", convolution, {32, 64, 16, 16}, {128, 64, 3, 3}, 2, 1},
    {"one by one", convolution, {8, 64, 8, 8}, {128, 64, 1, 1}, 1, 0},
    {"one by one, strided", convolution, {32, 64, 16, 16}, {128, 64, 1, 1}, 2, 0},
    {"Winograd", convolution, {8, 32, 16, 16}, {64, 32, 3, 3}, 1, 1},
    {"Winograd, odd", convolution, {5, 48, 15, 13}, {32, 48, 3, 3}, 1, 1},
    {"large kernel", convolution, {3, 3, 19, 19}, {16, 3, 5, 5}, 2, 2},
    {"no whole block", convolution, {7, 10, 9, 9}, {20, 10, 3, 3}, 1, 1},
    {"one channel", convolution, {33, 1, 8, 8}, {3, 1, 3, 3}, 1, 1},
    {"many channels", convolution, {2, 256, 4, 4}, {512, 256, 3, 3}, 1, 1},
    {"depthwise", convolution, {9, 48, 28, 28}, {48, 1, 3, 3}, 1, 1},
    {"depthwise, no whole block", convolution, {9, 20, 17, 28}, {20, 1, 5, 5}, 2, 2},
    {"groups", convolution, {7, 64, 28, 28}, {64, 16, 3, 3}, 1, 1},
    {"groups of 3 channels", convolution, {8, 24, 28, 28}, {48, 3, 3, 3}, 1, 1},
    {"transposed", transposed, {8, 32, 14, 14}, {32, 32, 4, 4}, 2, 1},
    {"transposed, Winograd", transposed, {8, 32, 16, 16}, {32, 32, 3, 3}, 1, 1},
    {"transposed, groups", transposed, {8, 20, 14, 15}, {20, 1, 3, 3}, 2, 1},
    {"linear", linear, {32, 64}, {10, 64}, 0, 0},
    {"linear, wide", linear, {32, 784}, {256, 784}, 0, 0},
    {"linear, long sums", linear, {2048, 40}, {24, 40}, 0, 0},
    {"linear, one row", linear, {1, 512}, {512, 512}, 0, 0},
    {"linear, odd", linear, {5, 1031}, {77, 1031}, 0, 0},
    {"linear, deep", linear, {8, 4096}, {10, 4096}, 0, 0},
    {"linear, large", linear, {300, 500}, {700, 500}, 0, 0},
    {"batch norm", batch_norm, {9, 32, 7, 7}, {32}, 0, 0},
    {"batch norm, odd", batch_norm, {5, 19, 11, 3}, {19}, 0, 0},
    {"max pool", max_pool, {5, 20, 13, 13}, {0}, 2, 1},
    {"max pool, overlapping", max_pool, {5, 16, 13, 13}, {0}, 1, 1},
    {"average pool", average_pool, {5, 20, 13, 13}, {0}, 2, 1},
    {"small ones", small, {33, 24, 17, 17}, {0}, 0, 0},
    {"softmax", softmaxes, {65, 101}, {0}, 0, 0},
    {"attention", attention, {3, 300, 96}, {0}, 2, 2},
    {"attention, grouped", attention, {2, 90, 80}, {0}, 6, 2},
};

typedef struct results {
    const char *name[MAX_RESULTS];
    void *p[MAX_RESULTS];
    size_t bytes[MAX_RESULTS];
    int n;
} results;

static void keep(results *out, const char *name, const void *p, size_t bytes)
{
    assert_non_null(p);
    assert_true(out->n < MAX_RESULTS);
    out->name[out->n] = name;
    out->p[out->n] = malloc(bytes);
    out->bytes[out->n] = bytes;
    memcpy(out->p[out->n++], p, bytes);
}

static void results_free(results *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->p[i]);
}

/* One step of the operation, with a loss that gives every element of y a different gradient. */
static void step(tutti_ctx *cx, const row *r, test_parameter *parameters, tutti_tensor **running,
                 tutti_dtype autocast, results *out)
{
    tutti_tensor *p[4] = {parameters[0].t, parameters[1].t, running[0], running[1]}, *x, *y, *loss;
    float *y_values;
    size_t y_bytes;

    tutti_step_begin(cx, &(tutti_step_opts){.autocast = autocast});
    x = tutti_input_with_grad(
        cx, (tutti_array){noise(tutti_shape_count(shape_of(r->x)), 5), shape_of(r->x), TUTTI_F32});
    y = tutti_cast(r->forward(r, x, p), TUTTI_F32);
    y_bytes = (size_t)tutti_shape_count(tutti_tensor_shape(y)) * sizeof(float);
    loss = tutti_mse_loss(y, tutti_input(cx, (tutti_array){noise((int64_t)(y_bytes / 4), 6),
                                                           tutti_tensor_shape(y), TUTTI_F32}));
    if (tutti_backward(loss) != TUTTI_OK)
        fail_msg("%s: %s", r->name, tutti_last_error());
    y_values = test_keep(y_bytes);
    assert_int_equal(tutti_tensor_read(y, y_values), TUTTI_OK);
    keep(out, "y", y_values, y_bytes);
    keep(out, "dx", tutti_tensor_grad(x), tutti__tensor_bytes(x));
    for (int i = 0; i < 2 && p[i]; i++)
        keep(out, i ? "db" : "dw", parameters[i].p.grad, tutti__tensor_bytes(p[i]));
    for (int i = 2; i < 4 && p[i]; i++)
        keep(out, i == 2 ? "running mean" : "running variance", p[i]->data,
             tutti__tensor_bytes(p[i]));
    tutti_step_end(cx);
}

/* False: these kernels are not in this build, or do not have that dtype. */
static bool compute(const row *r, tutti_kernels kernels, int threads, tutti_dtype autocast,
                    results *out)
{
    const tutti_shape w = shape_of(r->w);
    test_parameter parameters[2] = {0};
    tutti_tensor *running[2] = {0};
    tutti_ctx *cx;
    bool can = tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0},
                             &(tutti_ctx_opts){.kernels = kernels, .threads = threads}) == TUTTI_OK;

    *out = (results){0};
    if (!can)
        return false;
    can = autocast == TUTTI_F32 || tutti_ctx_half_kernels_name(cx, autocast);
    if (can && w.n) {
        test_parameter_init(&parameters[0], cx, "w", w, noise(tutti_shape_count(w), 7));
        test_parameter_init(&parameters[1], cx, "b", TUTTI_SHAPE(w.d[0]), noise(w.d[0], 8));
        running[0] = test_buffer_new(cx, TUTTI_SHAPE(w.d[0]), 0);
        running[1] = test_buffer_new(cx, TUTTI_SHAPE(w.d[0]), 1);
    }
    for (int i = 0; can && i < STEPS; i++)
        step(cx, r, parameters, running, autocast, out);
    for (int i = 0; can && w.n && i < 2; i++) {
        test_parameter_free(&parameters[i]);
        test_buffer_free(running[i]);
    }
    tutti_ctx_free(cx);
    return can;
}

static int compare(const row *r, const results *one, const results *many, int threads)
{
    int differ = 0;

    assert_int_equal(one->n, many->n);
    for (int i = 0; i < one->n; i++)
        if (memcmp(one->p[i], many->p[i], one->bytes[i]) != 0) {
            print_message("%s: %s of step %d with %d threads is not that with one\n", r->name,
                          one->name[i], i / (one->n / STEPS), threads);
            differ++;
        }
    return differ;
}

static void check(tutti_kernels kernels, tutti_dtype autocast)
{
#ifdef TUTTI__SANITIZED /* which takes minutes for all of them */
    static const int threads[] = {3};
#else
    static const int threads[] = {3, 2, 7};
#endif
    const size_t n =
        kernels == TUTTI_KERNELS_REFERENCE && !getenv("ALL") ? 1 : TUTTI__COUNT_OF(threads);
    int compared = 0, differ = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        results one, many;

        if (!compute(&rows[i], kernels, 1, autocast, &one))
            continue;
        for (size_t k = 0; k < n; k++) {
            assert_true(compute(&rows[i], kernels, threads[k], autocast, &many));
            differ += compare(&rows[i], &one, &many, threads[k]);
            results_free(&many);
            compared++;
        }
        results_free(&one);
    }
    if (differ)
        fail_msg("%d results depend on the number of threads", differ);
    if (!compared)
        skip();
}

static void test_onednn(void **state)
{
    (void)state;
    check(TUTTI_KERNELS_ONEDNN, TUTTI_F32);
}

static void test_onednn_bf16(void **state)
{
    (void)state;
    check(TUTTI_KERNELS_ONEDNN, TUTTI_BF16);
}

static void test_reference(void **state)
{
    (void)state;
    check(TUTTI_KERNELS_REFERENCE, TUTTI_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onednn),
        cmocka_unit_test(test_onednn_bf16),
        cmocka_unit_test(test_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
