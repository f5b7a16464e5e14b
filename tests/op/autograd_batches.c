/* autograd_batches.c -- the bits of a sample do not depend on how many others are in its batch, which, and on how many threads.
 * SPDX-License-Identifier: MIT
 *
 * What models compute forward, with each instruction set of this CPU, in F32 and in 16 bit (autograd_batches_all: all of them): a large
 * batch, and batches of some of its samples. Kernels choose blocks, algorithms and code by shapes, and some of those choices change the order of a sum.
 * timeout: 60 */
#include "op/shaped.h"
#include "op/settings.h"

#include <tutti/autograd.h>

/* The weight is [in,out], as GPT-2's. */
static tutti_tensor *product(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)r;
    return tutti_matmul(x, p[0]);
}

static tutti_tensor *norms(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)r;
    return tutti_functional_batch_norm2d(x, &(tutti_batch_norm2d_args){.weight = p[1],
                                                                       .bias = p[1],
                                                                       .running_mean = p[1],
                                                                       .running_var = p[2],
                                                                       .relu = true,
                                                                       .residual = x});
}

static tutti_tensor *pools(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    const tutti_pool_opts opts = {.kernel = 3, .stride = r->stride, .padding = r->padding};

    (void)p;
    return tutti_add(tutti_max_pool2d(x, opts), tutti_avg_pool2d(x, opts));
}

static tutti_tensor *small(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    (void)r;
    (void)p;
    x = tutti_add(tutti_gelu(x, TUTTI_GELU_TANH), tutti_scale(x, 0.7f));
    return tutti_flatten(tutti_global_avg_pool2d(x));
}

/* r->stride heads, which share r->padding of keys and values */
static tutti_tensor *attention(const row *r, tutti_tensor *x, tutti_tensor **p)
{
    const tutti_attention_opts opts = {.kv_heads = r->padding, .is_causal = true};

    (void)p;
    return tutti_multi_head_attention(x, NULL, NULL, r->stride, &opts);
}

/* x[0] is the large batch. */
static const row rows[] = {
    {"first layer", convolution, {40, 3, 32, 32}, {64, 3, 3, 3}, 1, 1},
    {"first layer, large", convolution, {40, 3, 40, 40}, {64, 3, 7, 7}, 2, 3},
    {"patches", convolution, {40, 3, 32, 32}, {48, 3, 4, 4}, 4, 0},
    {"one channel", convolution, {40, 1, 8, 8}, {16, 1, 3, 3}, 1, 1},
    {"strided", convolution, {40, 64, 16, 16}, {128, 64, 3, 3}, 2, 1},
    {"strided, few pixels", convolution, {40, 128, 4, 4}, {256, 128, 3, 3}, 2, 1},
    {"one by one", convolution, {40, 64, 8, 8}, {128, 64, 1, 1}, 1, 0},
    {"one by one, deep", convolution, {40, 1024, 4, 4}, {256, 1024, 1, 1}, 1, 0},
    {"one by one, wide", convolution, {40, 128, 4, 4}, {1024, 128, 1, 1}, 1, 0},
    {"one by one, strided", convolution, {40, 256, 8, 8}, {512, 256, 1, 1}, 2, 0},
    {"one by one, odd", convolution, {40, 24, 7, 7}, {144, 24, 1, 1}, 1, 0},
    {"Winograd", convolution, {40, 64, 16, 16}, {64, 64, 3, 3}, 1, 1},
    {"Winograd, few tiles", convolution, {40, 256, 4, 4}, {256, 256, 3, 3}, 1, 1},
    {"Winograd, odd", convolution, {40, 48, 15, 13}, {32, 48, 3, 3}, 1, 1},
    {"few pixels", convolution, {40, 128, 2, 2}, {128, 128, 3, 3}, 1, 1},
    {"no whole block", convolution, {40, 10, 9, 9}, {20, 10, 3, 3}, 1, 1},
    {"dilated", convolution, {40, 32, 12, 12}, {32, 32, 5, 5}, 1, 2},
    {"depthwise", convolution, {40, 48, 14, 14}, {48, 1, 3, 3}, 1, 1},
    {"depthwise, strided", convolution, {40, 144, 7, 7}, {144, 1, 3, 3}, 2, 1},
    {"depthwise, no whole block", convolution, {40, 20, 17, 14}, {20, 1, 5, 5}, 2, 2},
    {"groups", convolution, {40, 64, 14, 14}, {64, 16, 3, 3}, 1, 1},
    {"groups of 3 channels", convolution, {40, 24, 14, 14}, {48, 3, 3, 3}, 1, 1},
    {"transposed", transposed, {40, 32, 8, 8}, {32, 32, 2, 2}, 2, 0},
    {"transposed, 4x4", transposed, {40, 32, 7, 7}, {32, 32, 4, 4}, 2, 1},
    {"transposed, 3x3", transposed, {40, 32, 8, 8}, {32, 32, 3, 3}, 1, 1},
    {"linear", linear, {400, 64}, {10, 64}, 0, 0},
    {"linear, deep", linear, {400, 1536}, {96, 1536}, 0, 0},
    {"linear, few outputs", linear, {400, 700}, {10, 700}, 0, 0},
    {"linear, one output", linear, {400, 300}, {1, 300}, 0, 0},
    {"linear, odd", linear, {400, 1031}, {77, 1031}, 0, 0},
    {"linear, wide", linear, {400, 300}, {1200, 300}, 0, 0},
    {"linear, of tokens", linear, {40, 9, 320}, {200, 320}, 0, 0},
    {"product", product, {400, 64}, {64, 10}, 0, 0},
    {"product, deep", product, {400, 1536}, {1536, 96}, 0, 0},
    {"product, odd", product, {400, 1031}, {1031, 77}, 0, 0},
    {"product, wide", product, {400, 300}, {300, 1200}, 0, 0},
    {"product, one output", product, {400, 700}, {700, 1}, 0, 0},
    {"product, of tokens", product, {40, 9, 320}, {320, 200}, 0, 0},
    {"norms", norms, {40, 19, 7, 5}, {19}, 0, 0},
    {"pools", pools, {40, 20, 13, 13}, {0}, 2, 1},
    {"small ones", small, {40, 24, 9, 9}, {0}, 0, 0},
    {"rows", softmaxes, {400, 101}, {0}, 0, 0},
    {"attention", attention, {40, 70, 96}, {0}, 2, 2},
    {"attention, grouped", attention, {40, 30, 80}, {0}, 6, 2},
};

/* An operation's parameters, in a context. */
typedef struct bench {
    tutti_ctx *cx;
    const row *r;
    test_parameter w, b;
    tutti_tensor *ones;
} bench;

static void bench_init(bench *t, const row *r, tutti_kernels kernels, int threads)
{
    const tutti_shape w = shape_of(r->w);
    const int64_t out = w.n ? w.d[r->forward == product ? 1 : 0] : 0;

    *t = (bench){.r = r};
    test_must(tutti_ctx_new(&t->cx, (tutti_device){TUTTI_CPU, 0},
                            &(tutti_ctx_opts){.kernels = kernels, .threads = threads}));
    if (!w.n)
        return;
    test_parameter_init(&t->w, t->cx, "w", w, noise(tutti_shape_count(w), 7));
    test_parameter_init(&t->b, t->cx, "b", TUTTI_SHAPE(out), noise(out, 8));
    t->ones = test_buffer_new(t->cx, TUTTI_SHAPE(out), 1);
}

static void bench_free(bench *t)
{
    if (t->w.t) {
        test_parameter_free(&t->w);
        test_parameter_free(&t->b);
        test_buffer_free(t->ones);
    }
    tutti_ctx_free(t->cx);
}

/* The result for samples [first, first + n), which the caller frees; *each_p: numbers of one. */
static float *compute(const bench *t, const float *x, int64_t first, int64_t n,
                      tutti_dtype autocast, size_t *each_p)
{
    tutti_shape shape = shape_of(t->r->x);
    const int64_t each = tutti_shape_count(shape) / shape.d[0];
    tutti_tensor *p[3] = {t->w.t, t->b.t, t->ones}, *y;
    float *values;
    size_t count;

    shape.d[0] = n;
    tutti_step_begin(t->cx, &(tutti_step_opts){.autocast = autocast, .eval = true});
    y = tutti_cast(
        t->r->forward(t->r, tutti_input(t->cx, (tutti_array){x + first * each, shape, TUTTI_F32}),
                      p),
        TUTTI_F32);
    if (tutti_tensor_status(y) != TUTTI_OK)
        test_must((fprintf(stderr, "%s: ", t->r->name), tutti_tensor_status(y)));
    count = (size_t)tutti_shape_count(tutti_tensor_shape(y));
    values = malloc(count * sizeof *values);
    test_must(tutti_tensor_read(y, values));
    tutti_step_end(t->cx);
    *each_p = count / (size_t)n;
    return values;
}

/* Whether batches of n have the bits of the whole one. Several of them: results in 16 bit hide most differences of their sums. */
static bool is_same(const bench *t, const float *x, const float *whole, int64_t n,
                    tutti_dtype autocast)
{
    const int64_t all = t->r->x[0], most = autocast == TUTTI_F32 ? 3 : 24;
    bool same = true;

    for (int64_t first = all % n, i = 0; first < all && i < most && same; first += n, i++) {
        size_t each;
        float *some = compute(t, x, first, n, autocast, &each);

        same = memcmp(some, whole + (size_t)first * each, (size_t)n * each * sizeof *some) == 0;
        free(some);
    }
    if (!same)
        printf("%s: batches of %lld have other bits than one of %lld\n", t->r->name, (long long)n,
               (long long)all);
    return same;
}

static bool compare(const row *r, tutti_kernels kernels, tutti_dtype autocast, int threads)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 15, 17, 32, 65, 200, 300};
    const float *x = noise(tutti_shape_count(shape_of(r->x)), 5);
    bench one, many;
    size_t each;
    float *whole;
    bool same = true;

    bench_init(&one, r, kernels, 1);
    bench_init(&many, r, kernels, threads);
    whole = compute(&one, x, 0, r->x[0], autocast, &each);
    for (size_t i = 0; i < TUTTI__COUNT_OF(sizes) && sizes[i] < r->x[0]; i++)
        same &= is_same(i % 2 ? &one : &many, x, whole, sizes[i], autocast);
    free(whole);
    bench_free(&one);
    bench_free(&many);
    return same;
}

static bool check(const setting *s)
{
    bool same = true;

    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++)
        same &= compare(&rows[i], s->kernels, s->autocast, 2 + (int)(i % 3));
    return same;
}

int main(int argc, char **argv)
{
    return run_settings(argc, argv, check);
}
