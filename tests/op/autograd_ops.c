/* Every operation, declared once as a row of a table, gets: gradients against finite differences, agreement of every kernel
 * family with the reference (results, gradients, running statistics; as leaves and as parameters that accumulate; the same
 * bits twice; no allocation after warm-up), its errors, and with --time a table of times.
 * SPDX-License-Identifier: MIT
 * timeout: 300   devices: strict cuda */
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

/* ---- The table --------------------------------------------------------------------------------------- */

typedef enum fill {
    NONE,
    UNIFORM,  /* in (-1, 1) */
    POSITIVE, /* in (0.5, 1.5) */
    APART, /* distinct, at least 0.05 from each other and 0.025 from 0: no kink within reach of a difference */
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
    float f;                /* p, label smoothing */
    bool relu;              /* of batch norm */
    int ignored;            /* every ignored-th label is -100; 0: none */
    double agree, gradient; /* tolerances; 0: the defaults */
    const char *error;      /* the row must fail with this in its message */
    bool large;             /* for --time only */
} row;

/* Kernels on a device. */
typedef struct family {
    tutti_device device;
    tutti_kernels kernels;
} family;

static const family reference_family = {{TUTTI_CPU, 0}, TUTTI_KERNELS_REFERENCE};

/* A row in a context. */
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
#define POOL ((tutti_pool_opts){.kernel = r->kernel, .stride = r->stride, .padding = r->padding})

static tutti_tensor *normalise(bench *b, int which, tutti_tensor *const *in, bool relu,
                               tutti_tensor *residual)
{
    return tutti_functional_batch_norm2d(
        in[0], &(tutti_batch_norm2d_args){.weight = in[1],
                                          .bias = in[2],
                                          .running_mean = b->running_mean[which],
                                          .running_var = b->running_var[which],
                                          .relu = relu,
                                          .residual = residual});
}

BUILD(conv2d,
      tutti_functional_conv2d(in[0], in[1], in[2],
                              (tutti_conv2d_opts){.stride = r->stride, .padding = r->padding}))
BUILD(linear, tutti_functional_linear(in[0], in[1], in[2]))
BUILD(batch_norm, normalise(b, 0, in, r->relu, in[3]))
BUILD(relu, tutti_relu(in[0]))
BUILD(add, tutti_add(in[0], in[1]))
BUILD(scale, tutti_scale(in[0], r->f))
BUILD(flatten, tutti_flatten(in[0]))
BUILD(reshape, tutti_reshape(in[0], TUTTI_SHAPE(4, -1, 3)))
BUILD(reshape_wrong, tutti_reshape(in[0], TUTTI_SHAPE(4, 2)))
BUILD(reshape_twice, tutti_reshape(in[0], TUTTI_SHAPE(-1, -1)))
BUILD(max_pool, tutti_max_pool2d(in[0], POOL))
BUILD(avg_pool, tutti_avg_pool2d(in[0], POOL))
BUILD(global_pool, tutti_global_avg_pool2d(in[0]))
BUILD(dropout, tutti_dropout(in[0], r->f))
BUILD(softmax, tutti_softmax(in[0]))
BUILD(log_softmax, tutti_log_softmax(in[0]))
BUILD(cross_entropy,
      tutti_cross_entropy_with(in[0], in[1], &(tutti_cross_entropy_opts){.label_smoothing = r->f}))
BUILD(mse_loss, tutti_mse_loss(in[0], in[1]))
BUILD(embedding, tutti_functional_embedding(in[0], in[1]))

/* A residual block as in MiniResNet and what follows it: kernels' own layouts meet each other and the row-major world.
 * in: x, w1, bn1 weight and bias, w2, bn2 weight and bias, fc weight */
static tutti_tensor *block(const row *r, tutti_tensor *const *in, bench *b)
{
    tutti_conv2d_opts opts = {.stride = 1, .padding = 1};
    tutti_tensor *h = tutti_functional_conv2d(in[0], in[1], NULL, opts);

    (void)r;
    h = normalise(b, 0, (tutti_tensor *[]){h, in[2], in[3]}, true, NULL);
    h = tutti_functional_conv2d(h, in[4], NULL, opts);
    h = normalise(b, 1, (tutti_tensor *[]){h, in[5], in[6]}, true, in[0]);
    h = tutti_max_pool2d(tutti_add(h, in[0]), (tutti_pool_opts){.kernel = 2});
    return tutti_functional_linear(tutti_flatten(tutti_global_avg_pool2d(h)), in[7], NULL);
}

/* clang-format off */
#define S(...)    {sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}}
#define X(...)    {UNIFORM, S(__VA_ARGS__), false}
#define W(...)    {UNIFORM, S(__VA_ARGS__), true}
#define P(...)    {POSITIVE, S(__VA_ARGS__), true}
#define FAR(...)  {APART, S(__VA_ARGS__), false}
#define SIGN(...) {SIGNED, S(__VA_ARGS__), false}
#define Y(n)      {LABELS, S(n), false}
#define SCALAR    {UNIFORM, {0, {0}}, false}
#define NOTHING   {NONE, {0, {0}}, false}

static const row rows[] = {
    {"conv2d 3x3 padding 1", conv2d, .in = {X(2, 3, 6, 5), W(5, 3, 3, 3)}, .padding = 1},
    {"conv2d 3x3 bias", conv2d, .in = {X(2, 3, 6, 5), W(4, 3, 3, 3), W(4)}},
    {"conv2d 3x3 stride 2", conv2d, .in = {X(2, 5, 7, 8), W(3, 5, 3, 3), W(3)}, .stride = 2, .padding = 1},
    {"conv2d 3x3 stride 3, columns left over", conv2d, .in = {X(1, 2, 9, 8), W(2, 2, 3, 3)}, .stride = 3},
    {"conv2d 1x1", conv2d, .in = {X(2, 17, 3, 4), W(5, 17, 1, 1)}},
    {"conv2d 1x1 stride 2", conv2d, .in = {X(2, 16, 4, 4), W(17, 16, 1, 1)}, .stride = 2},
    {"conv2d 5x3 padding 2", conv2d, .in = {X(1, 1, 4, 6), W(2, 1, 5, 3), W(2)}, .padding = 2},
    {"conv2d image of one pixel", conv2d, .in = {X(1, 1, 1, 1), W(1, 1, 1, 1), W(1)}},
    {"conv2d kernel as large as the image", conv2d, .in = {X(3, 2, 4, 4), W(3, 2, 4, 4)}},
    {"conv2d padding wider than the kernel", conv2d, .in = {X(1, 2, 3, 3), W(2, 2, 2, 2)}, .padding = 3},
    {"conv2d 16 channels", conv2d, .in = {X(2, 16, 8, 8), W(16, 16, 3, 3)}, .padding = 1, .gradient = 5e-3},
    {"conv2d 32 to 64 channels", conv2d, .in = {X(2, 32, 9, 9), W(64, 32, 3, 3)}, .stride = 2, .padding = 1,
     .gradient = 5e-3},

    {"linear", linear, .in = {X(4, 7), W(5, 7), W(5)}},
    {"linear without bias", linear, .in = {X(3, 17), W(3, 17)}},
    {"linear of one row", linear, .in = {X(1, 10), W(1, 10), W(1)}},
    {"linear of one feature", linear, .in = {X(5, 1), W(3, 1), W(3)}},
    {"linear of a vector", linear, .in = {X(6), W(4, 6), W(4)}},
    {"linear of three dimensions", linear, .in = {X(2, 3, 8), W(4, 8), W(4)}},
    {"linear 64 to 32", linear, .in = {X(16, 64), W(32, 64), W(32)}},

    {"batch_norm2d", batch_norm, .in = {X(3, 5, 2, 3), P(5), W(5)}},
    {"batch_norm2d of one pixel", batch_norm, .in = {X(5, 3, 1, 1), P(3), W(3)}},
    {"batch_norm2d of batch 1", batch_norm, .in = {X(1, 17, 3, 2), P(17), W(17)}},
    {"batch_norm2d with residual", batch_norm, .in = {X(2, 3, 2, 2), P(3), W(3), X(2, 3, 2, 2)}},
    {"batch_norm2d with relu", batch_norm, .in = {X(2, 16, 2, 2), P(16), {SIGNED, S(16), true}}, .relu = true},
    {"batch_norm2d with residual and relu", batch_norm, .in = {X(2, 5, 2, 2), P(5), W(5), SIGN(2, 5, 2, 2)}, .relu = true},
    {"batch_norm2d 16 channels, residual and relu", batch_norm, .in = {X(2, 16, 2, 2), P(16), W(16), SIGN(2, 16, 2, 2)},
     .relu = true},

    {"relu", relu, .in = {FAR(3, 5)}},
    {"relu of an image", relu, .in = {FAR(2, 3, 4, 5)}},
    {"relu of a scalar", relu, .in = {SCALAR}},
    {"scale", scale, .in = {X(2, 3, 4, 5)}, .f = -2.5f},
    {"scale of a scalar", scale, .in = {SCALAR}, .f = 65536},
    {"add", add, .in = {X(3, 5), X(3, 5)}},
    {"add of images", add, .in = {X(2, 17, 3, 1), X(2, 17, 3, 1)}},
    {"flatten", flatten, .in = {X(2, 3, 4, 5)}},
    {"flatten of a matrix", flatten, .in = {X(2, 3)}},
    {"reshape", reshape, .in = {X(2, 3, 4, 5)}},
    {"reshape of a row", reshape, .in = {X(24)}},

    {"max_pool2d 2", max_pool, .in = {FAR(2, 3, 6, 5)}, .kernel = 2},
    {"max_pool2d 3 stride 2 padding 1", max_pool, .in = {FAR(2, 5, 7, 6)}, .kernel = 3, .stride = 2, .padding = 1},
    {"max_pool2d 3 stride 1", max_pool, .in = {FAR(1, 17, 4, 5)}, .kernel = 3, .stride = 1},
    {"max_pool2d 1", max_pool, .in = {FAR(1, 1, 2, 2)}, .kernel = 1},
    {"avg_pool2d 2", avg_pool, .in = {X(2, 3, 6, 5)}, .kernel = 2},
    {"avg_pool2d 3 stride 2 padding 1", avg_pool, .in = {X(2, 5, 7, 6)}, .kernel = 3, .stride = 2, .padding = 1},
    {"avg_pool2d 3 stride 1", avg_pool, .in = {X(1, 17, 4, 5)}, .kernel = 3, .stride = 1},
    {"global_avg_pool2d", global_pool, .in = {X(2, 5, 3, 4)}},
    {"global_avg_pool2d of one pixel", global_pool, .in = {X(3, 17, 1, 1)}},

    {"dropout 0.5", dropout, .in = {X(5, 7)}, .f = 0.5f},
    {"dropout 0.1 of an image", dropout, .in = {X(2, 3, 3, 3)}, .f = 0.1f},
    {"dropout 0", dropout, .in = {X(3)}, .f = 0},
    {"dropout 1", dropout, .in = {X(5)}, .f = 1},
    {"softmax", softmax, .in = {X(3, 7)}},
    {"softmax of a vector", softmax, .in = {X(5)}},
    {"softmax of four dimensions", softmax, .in = {X(2, 3, 2, 5)}},
    {"softmax of one class", softmax, .in = {X(3, 1)}},
    {"log_softmax", log_softmax, .in = {X(3, 7)}},
    {"log_softmax of three dimensions", log_softmax, .in = {X(2, 3, 17)}},

    {"cross_entropy", cross_entropy, .in = {X(6, 10), Y(6)}},
    {"cross_entropy of one row", cross_entropy, .in = {X(1, 3), Y(1)}},
    {"cross_entropy with label smoothing", cross_entropy, .in = {X(4, 5), Y(4)}, .f = 0.1f},
    {"cross_entropy all smoothing", cross_entropy, .in = {X(4, 5), Y(4)}, .f = 1},
    {"cross_entropy with ignored rows", cross_entropy, .in = {X(7, 5), Y(7)}, .ignored = 3},
    {"cross_entropy smoothing and ignored rows", cross_entropy, .in = {X(7, 17), Y(7)}, .f = 0.2f, .ignored = 2},
    {"mse_loss", mse_loss, .in = {X(4, 3), X(4, 3)}},
    {"mse_loss of a scalar", mse_loss, .in = {SCALAR, SCALAR}},

    {"embedding", embedding, .in = {W(7, 3), Y(12)}},
    {"embedding of a matrix of indices", embedding, .in = {W(4, 4), {LABELS, S(2, 3), false}}},
    {"embedding of one number", embedding, .in = {W(1, 1), Y(1)}},

    {"block of 5 channels", block, .in = {FAR(2, 5, 4, 4), W(5, 5, 3, 3), P(5), {SIGNED, S(5), true},
     W(5, 5, 3, 3), P(5), {SIGNED, S(5), true}, W(3, 5)}, .gradient = -1, .agree = 1e-4},
    {"block of 16 channels", block, .in = {FAR(2, 16, 6, 6), W(16, 16, 3, 3), P(16), {SIGNED, S(16), true},
     W(16, 16, 3, 3), P(16), {SIGNED, S(16), true}, W(10, 16)}, .gradient = -1, .agree = 1e-4},

    /* errors */
    {"x of three dimensions", conv2d, .in = {X(3, 4, 4), W(2, 3, 3, 3)}, .error = "conv2d: x is [3,4,4], expected [N,C,H,W]"},
    {"weight of two", conv2d, .in = {X(1, 3, 4, 4), W(2, 3)}, .error = "conv2d: weight is [2,3], expected [M,C,kh,kw]"},
    {"channels differ", conv2d, .in = {X(1, 3, 4, 4), W(2, 4, 3, 3)}, .error = "x is [1,3,4,4] but weight is [2,4,3,3]"},
    {"bias differs", conv2d, .in = {X(1, 3, 4, 4), W(2, 3, 3, 3), W(3)}, .error = "weight is [2,3,3,3] but bias is [3]"},
    {"kernel too large", conv2d, .in = {X(1, 1, 2, 9), W(1, 1, 3, 3)}, .error = "smaller than weight [1,1,3,3]"},
    {"negative stride", conv2d, .in = {X(1, 1, 4, 4), W(1, 1, 3, 3)}, .stride = -1, .error = "stride -1"},
    {"negative padding", conv2d, .in = {X(1, 1, 4, 4), W(1, 1, 3, 3)}, .padding = -1, .error = "padding -1"},
    {"images without pixels", conv2d, .in = {X(2, 3, 0, 4), W(2, 3, 3, 3)}, .error = "[2,3,0,4]; every dimension must be at least 1"},
    {"features differ", linear, .in = {X(64, 783), W(256, 784), W(256)}, .error = "linear: x is [64,783] but weight is [256,784]"},
    {"x a scalar", linear, .in = {SCALAR, W(4, 1)}, .error = "x is [] but weight is [4,1]"},
    {"weight NULL", linear, .in = {X(2, 3)}, .error = "linear: weight is NULL"},
    {"statistics of one value", batch_norm, .in = {X(1, 3, 1, 1), P(3), W(3)}, .error = "more than 1 value per channel"},
    {"weight of another size", batch_norm, .in = {X(2, 3, 2, 2), P(4), W(3)}, .error = "weight is F32 [4], expected F32 [3]"},
    {"residual differs", batch_norm, .in = {X(2, 3, 2, 2), P(3), W(3), X(2, 3, 2, 1)}, .error = "residual is F32 [2,3,2,1]"},
    {"shapes differ", add, .in = {X(2, 3), X(3, 2)}, .error = "add: a is [2,3] but b is [3,2]"},
    {"b NULL", add, .in = {X(2, 3)}, .error = "add: b is NULL"},
    {"a vector", flatten, .in = {X(4)}, .error = "flatten: x is [4], expected at least two dimensions"},
    {"another count", reshape_wrong, .in = {X(2, 3)}, .error = "reshape: x is [2,3], and [4,2] is not a shape of as many elements"},
    {"not to be divided", reshape, .in = {X(5)}, .error = "reshape: x is [5], and [4,-1,3] is not"},
    {"two to be found", reshape_twice, .in = {X(4)}, .error = "[-1,-1] is not a shape"},
    {"window too large", max_pool, .in = {X(1, 1, 2, 2)}, .kernel = 3, .error = "smaller than the window of 3"},
    {"padding over half", max_pool, .in = {X(1, 1, 4, 4)}, .kernel = 2, .padding = 2, .error = "half of the kernel"},
    {"no kernel", avg_pool, .in = {X(1, 1, 4, 4)}, .error = "avg_pool2d: kernel 0"},
    {"p above 1", dropout, .in = {X(3)}, .f = 1.5f, .error = "dropout: p is 1.5"},
    {"p not a number", dropout, .in = {X(3)}, .f = NAN, .error = "dropout: p is"},
    {"a scalar", softmax, .in = {SCALAR}, .error = "softmax: x is a scalar"},
    {"logits of one dimension", cross_entropy, .in = {X(3), Y(3)}, .error = "logits is [3], expected [N,C]"},
    {"labels F32", cross_entropy, .in = {X(3, 2), X(3)}, .error = "labels is F32, expected I64"},
    {"logits I64", cross_entropy, .in = {Y(3), Y(3)}, .error = "logits is I64, expected F32"},
    {"rows differ", cross_entropy, .in = {X(3, 2), Y(4)}, .error = "logits is [3,2] but labels is [4]"},
    {"smoothing above 1", cross_entropy, .in = {X(3, 2), Y(3)}, .f = 1.1f, .error = "label_smoothing is 1.1"},
    {"index outside", embedding, .in = {X(2, 4), Y(6)}, .error = "embedding: index 2 of indices [6] is 2, but weight has 2 rows"},
    {"indices F32", embedding, .in = {X(3, 5), X(3)}, .error = "embedding: indices is F32, expected I64"},
    {"a vector of weights", embedding, .in = {X(3), Y(3)}, .error = "embedding: weight is [3], expected [V,D]"},
    {"targets differ", mse_loss, .in = {X(3, 1), X(3)}, .error = "x is [3,1] but target is [3]"},

    /* MiniResNet, batch 32 */
    {"conv2d 64 32x32", conv2d, .in = {X(32, 64, 32, 32), W(64, 64, 3, 3)}, .padding = 1, .large = true},
    {"conv2d 64-128 stride 2", conv2d, .in = {X(32, 64, 32, 32), W(128, 64, 3, 3)}, .stride = 2, .padding = 1, .large = true},
    {"conv2d 128 16x16", conv2d, .in = {X(32, 128, 16, 16), W(128, 128, 3, 3)}, .padding = 1, .large = true},
    {"conv2d 256 8x8", conv2d, .in = {X(32, 256, 8, 8), W(256, 256, 3, 3)}, .padding = 1, .large = true},
    {"conv2d 1x1 64-128 stride 2", conv2d, .in = {X(32, 64, 32, 32), W(128, 64, 1, 1)}, .stride = 2, .large = true},
    {"batch_norm2d 64 32x32 relu", batch_norm, .in = {X(32, 64, 32, 32), P(64), W(64)}, .relu = true, .large = true},
    {"batch_norm2d 256 8x8 add relu", batch_norm, .in = {X(32, 256, 8, 8), P(256), W(256), X(32, 256, 8, 8)}, .relu = true,
     .large = true},
    {"relu 64 32x32", relu, .in = {X(32, 64, 32, 32)}, .large = true},
    {"add 64 32x32", add, .in = {X(32, 64, 32, 32), X(32, 64, 32, 32)}, .large = true},
    {"max_pool2d 64 32x32", max_pool, .in = {X(32, 64, 32, 32)}, .kernel = 2, .large = true},
    {"avg_pool2d 64 32x32", avg_pool, .in = {X(32, 64, 32, 32)}, .kernel = 2, .large = true},
    {"global_avg_pool2d 256 8x8", global_pool, .in = {X(32, 256, 8, 8)}, .large = true},
    {"dropout 1M", dropout, .in = {X(32, 32768)}, .f = 0.5f, .large = true},
    {"linear 3072-256", linear, .in = {X(32, 3072), W(256, 3072), W(256)}, .large = true},
    {"log_softmax 128x1000", log_softmax, .in = {X(128, 1000)}, .large = true},
    {"cross_entropy 128x1000", cross_entropy, .in = {X(128, 1000), Y(128)}, .large = true},
    {"mse_loss 1M", mse_loss, .in = {X(32, 32768), X(32, 32768)}, .large = true},
};
/* clang-format on */

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
    assert_int_equal(
        tutti_ctx_new(&b->cx, f.device,
                      &(tutti_ctx_opts){.seed = 3, .threads = 1, .kernels = f.kernels}),
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

/* What is compared with the reference: the device's kernels, or on the CPU oneDNN's. False: this build has none. */
static bool other_family(family *f)
{
    tutti_ctx *cx;
    bool has;

    f->kernels = TUTTI_KERNELS_ONEDNN;
    f->device = test_family(&f->kernels);
    has = tutti_ctx_new(&cx, f->device, &(tutti_ctx_opts){.kernels = f->kernels}) == TUTTI_OK;
    if (has)
        tutti_ctx_free(cx);
    return has;
}

/* What is checked by itself: the other family, and where the device is the CPU the reference too. */
static void check_each(const row *r, void (*check)(const row *r, family f))
{
    family f;

    if (test_device().kind == TUTTI_CPU)
        check(r, reference_family);
    if (other_family(&f))
        check(r, f);
}

/* ---- A scalar of any result: the sum of r[i] * y[i], r fixed, less its first value ---------------------- */

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

static tutti_status sum_shape(const tutti__node *n, tutti_shape *shape, tutti_dtype *dtype)
{
    *shape = (tutti_shape){0};
    *dtype = n->src[0]->dtype;
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
        b->base = sum; /* so that the single-precision result keeps the difference's digits */
    b->has_base = true;
    result = (float)(sum - b->base);
    return tutti__copy_in(b->cx->stream, n->dst->data, &result, sizeof result);
}

/* The factors themselves, borrowed: takes no time beside what is timed. */
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
    static const tutti__op op = {.name = "weighted_sum",
                                 .shape = sum_shape,
                                 .forward = sum_forward,
                                 .backward = sum_backward};

    return tutti__op_run(&op, &y, 1, &b, sizeof b);
}

static tutti_tensor *build_loss(tutti_tensor *const *inputs, void *arg)
{
    tutti_tensor *in[MAX_INPUTS] = {0};
    bench *b = arg;

    memcpy(in, inputs, (size_t)b->n_inputs * sizeof *in);
    return weighted_sum(b->row->build(b->row, in, b), b);
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

/* All that a training step of a row makes: y, the inputs' gradients, running statistics, y of an eval step. */
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

static void keep_gradient(results *out, tutti_tensor *t)
{
    int64_t count = tutti_shape_count(tutti_tensor_shape(t));
    float *p = tutti__alloc((size_t)count * sizeof(float));

    if (tutti_tensor_grad_read(t, p) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    keep(out, p, count);
    free(p);
}

static void keep_tensor(results *out, tutti_tensor *t)
{
    int64_t count = tutti_shape_count(tutti_tensor_shape(t));
    float *p = tutti__alloc((size_t)count * sizeof(float));

    if (tutti_tensor_read(t, p) != TUTTI_OK)
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
    y = b->row->build(b->row, in, b);
    if (tutti_backward(weighted_sum(y, b)) != TUTTI_OK)
        fail_msg("%s: %s", b->row->name, tutti_last_error());
    if (out) {
        keep_tensor(out, y);
        for (int i = 0; i < b->n_inputs; i++)
            if (b->arrays[i].dtype == TUTTI_F32)
                keep_gradient(out, in[i]);
        keep_tensor(out, b->running_mean[0]);
        keep_tensor(out, b->running_var[0]);
    }
    tutti_step_end(b->cx);
}

static void eval_step(bench *b, results *out)
{
    tutti_tensor *in[MAX_INPUTS] = {0};

    tutti_step_begin(b->cx, &(tutti_step_opts){.eval = true});
    for (int i = 0; i < b->n_inputs; i++)
        in[i] = tutti_input(b->cx, b->arrays[i]);
    keep_tensor(out, b->row->build(b->row, in, b));
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

/* Weights as parameters: the same gradients as leaves', written first, then added, then written again. */
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
    leaves.n = first.n = second.n = third.n = b.n_inputs + 1; /* running statistics move on */
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

/* ---- Errors ---------------------------------------------------------------------------------------------- */

static void bad_sources_are_named(void **state)
{
    const row *r = *state;
    tutti_tensor *in[MAX_INPUTS] = {0}, *y;
    bench b;

    bench_init(&b, r, (family){test_device(), TUTTI_KERNELS_AUTO});
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
        y = r->build(r, in, &b);
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

static int print_times(void)
{
    family f;
    bool other = other_family(&f);

    printf("%-44s %12s %12s", "one thread, best of runs, ms", "reference", "backward");
    if (other)
        printf(" %12s %12s", f.device.kind == TUTTI_CPU ? "onednn" : "device", "backward");
    printf("\n");
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
        times t;

        if (!rows[i].large)
            continue;
        t = time_row(&rows[i], reference_family, 500);
        printf("%-44s %12.3f %12.3f", rows[i].name, t.forward_ms, t.backward_ms);
        if (other) {
            t = time_row(&rows[i], f, 500);
            printf(" %12.3f %12.3f", t.forward_ms, t.backward_ms);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}

/* ---- All of it ----------------------------------------------------------------------------------------------- */

static struct CMUnitTest test_of(const row *r, const char *mode, CMUnitTestFunction function)
{
    char *name = malloc(strlen(r->name) + strlen(mode) + 3);

    sprintf(name, "%s: %s", r->name, mode);
    return (struct CMUnitTest){name, function, NULL, NULL, (void *)r};
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[TUTTI__COUNT_OF(rows) * 3];
    size_t n = 0;
    int failed;

    if (argc == 2 && strcmp(argv[1], "--time") == 0)
        return print_times();
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++) {
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
    return failed;
}
