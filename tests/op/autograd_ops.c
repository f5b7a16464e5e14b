/* Operations beyond their rows of tensor/op/ops.def: options, edge cases, errors, and chains of them; with --time the times of
 * MiniResNet's. Each row gets gradients against finite differences, and agreement of every kernel family with the reference
 * (results, gradients, running statistics; as leaves and as parameters that accumulate; the same bits twice; no allocation
 * after warm-up).
 * SPDX-License-Identifier: MIT
 * timeout: 300   devices: strict cuda */
#include "op/rows.h"

/* ---- The table --------------------------------------------------------------------------------------- */

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
BUILD(transposed,
      tutti_functional_conv_transpose2d(in[0], in[1], in[2],
                                        (tutti_conv_transpose_opts){.padding = r->padding}))
BUILD(linear, tutti_functional_linear(in[0], in[1], in[2]))
BUILD(batch_norm, normalise(b, 0, in, r->relu, in[3]))
BUILD(relu, tutti_relu(in[0]))
BUILD(gelu_tanh, tutti_gelu(in[0], TUTTI_GELU_TANH))
BUILD(gelu_wrong, tutti_gelu(in[0], (tutti_gelu_form)2))
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

/* A residual block as in MiniResNet and its successors: the kernels' own layouts combined with each other and with row-major ones.
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
    /* Winograd's rounding, over the differences' step: 0.002 to 0.0055, by compiler and optimisation; agreement is checked closely. */
    {"conv2d 16 channels", conv2d, .in = {X(2, 16, 8, 8), W(16, 16, 3, 3)}, .padding = 1, .gradient = 1e-2},
    {"conv2d 32 to 64 channels", conv2d, .in = {X(2, 32, 9, 9), W(64, 32, 3, 3)}, .stride = 2, .padding = 1,
     .gradient = 5e-3},
    {"conv_transpose2d 16 channels", transposed, .in = {X(1, 16, 8, 8), W(16, 16, 3, 3), W(16)}, .padding = 1,
     .gradient = 1e-2},

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
    {"relu of a scalar", relu, .in = {SCALAR}},
    {"gelu by tanh", gelu_tanh, .in = {X(2, 3, 4, 5)}},
    {"gelu by tanh of a row", gelu_tanh, .in = {X(37)}},
    {"scale of a scalar", scale, .in = {SCALAR}, .f = 65536},
    {"add", add, .in = {X(3, 5), X(3, 5)}},
    {"flatten of a matrix", flatten, .in = {X(2, 3)}},
    {"reshape of a row", reshape, .in = {X(24)}},

    {"max_pool2d 3 stride 2 padding 1", max_pool, .in = {FAR(2, 5, 7, 6)}, .kernel = 3, .stride = 2, .padding = 1},
    {"max_pool2d 3 stride 1", max_pool, .in = {FAR(1, 17, 4, 5)}, .kernel = 3, .stride = 1},
    {"max_pool2d 1", max_pool, .in = {FAR(1, 1, 2, 2)}, .kernel = 1},
    {"avg_pool2d 3 stride 2 padding 1", avg_pool, .in = {X(2, 5, 7, 6)}, .kernel = 3, .stride = 2, .padding = 1},
    {"avg_pool2d 3 stride 1", avg_pool, .in = {X(1, 17, 4, 5)}, .kernel = 3, .stride = 1},
    {"global_avg_pool2d of one pixel", global_pool, .in = {X(3, 17, 1, 1)}},

    {"dropout 0.1 of an image", dropout, .in = {X(2, 3, 3, 3)}, .f = 0.1f},
    {"dropout 0", dropout, .in = {X(3)}, .f = 0},
    {"dropout 1", dropout, .in = {X(5)}, .f = 1},
    {"softmax of a vector", softmax, .in = {X(5)}},
    {"softmax of four dimensions", softmax, .in = {X(2, 3, 2, 5)}},
    {"softmax of one class", softmax, .in = {X(3, 1)}},
    {"log_softmax of three dimensions", log_softmax, .in = {X(2, 3, 17)}},

    {"cross_entropy of one row", cross_entropy, .in = {X(1, 3), Y(1)}},
    {"cross_entropy with label smoothing", cross_entropy, .in = {X(4, 5), Y(4)}, .f = 0.1f},
    {"cross_entropy all smoothing", cross_entropy, .in = {X(4, 5), Y(4)}, .f = 1},
    {"cross_entropy with ignored rows", cross_entropy, .in = {X(7, 5), Y(7)}, .ignored = 3},
    {"cross_entropy smoothing and ignored rows", cross_entropy, .in = {X(7, 17), Y(7)}, .f = 0.2f, .ignored = 2},
    {"mse_loss of a scalar", mse_loss, .in = {SCALAR, SCALAR}},

    {"embedding of a matrix of indices", embedding, .in = {W(4, 4), {LABELS, S(2, 3), false}}},
    {"embedding of one number", embedding, .in = {W(1, 1), Y(1)}},

    {"block of 5 channels", block, .in = {FAR(2, 5, 4, 4), W(5, 5, 3, 3), P(5), {SIGNED, S(5), true},
     W(5, 5, 3, 3), P(5), {SIGNED, S(5), true}, W(3, 5)}, .gradient = -1, .agree = 1e-4},
    {"block of 16 channels", block, .in = {FAR(2, 16, 6, 6), W(16, 16, 3, 3), P(16), {SIGNED, S(16), true},
     W(16, 16, 3, 3), P(16), {SIGNED, S(16), true}, W(10, 16)}, .gradient = -1, .agree = 1e-4},

    /* errors */
    {"x of three dimensions", conv2d, .in = {X(3, 4, 4), W(2, 3, 3, 3)}, .error = "conv2d: x is [3,4,4], expected [N,C,H,W]"},
    {"weight of two", conv2d, .in = {X(1, 3, 4, 4), W(2, 3)}, .error = "conv2d: weight is [2,3], expected [M,C/groups,kh,kw]"},
    {"channels differ", conv2d, .in = {X(1, 3, 4, 4), W(2, 4, 3, 3)}, .error = "x is [1,3,4,4] but weight is [2,4,3,3]"},
    {"bias differs", conv2d, .in = {X(1, 3, 4, 4), W(2, 3, 3, 3), W(3)}, .error = "weight is [2,3,3,3] but bias is [3]"},
    {"kernel too large", conv2d, .in = {X(1, 1, 2, 9), W(1, 1, 3, 3)}, .error = "smaller than weight [1,1,3,3]"},
    {"negative stride", conv2d, .in = {X(1, 1, 4, 4), W(1, 1, 3, 3)}, .stride = -1, .error = "stride -1"},
    {"negative padding", conv2d, .in = {X(1, 1, 4, 4), W(1, 1, 3, 3)}, .padding = -1, .error = "padding -1"},
    {"images without pixels", conv2d, .in = {X(2, 3, 0, 4), W(2, 3, 3, 3)}, .error = "[2,3,0,4]; every dimension must be at least 1"},
    {"features differ", linear, .in = {X(64, 783), W(256, 784), W(256)}, .error = "linear: x is [64,783] but weight is [256,784]"},
    {"images", linear, .in = {X(64, 1, 28, 28), W(256, 784), W(256)}, .error = "but weight is [256,784]; tutti_flatten(x) would fit"},
    {"x a scalar", linear, .in = {SCALAR, W(4, 1)}, .error = "x is [] but weight is [4,1]"},
    {"weight NULL", linear, .in = {X(2, 3)}, .error = "linear: weight is NULL"},
    {"statistics of one value", batch_norm, .in = {X(1, 3, 1, 1), P(3), W(3)}, .error = "more than 1 value per channel"},
    {"weight of another size", batch_norm, .in = {X(2, 3, 2, 2), P(4), W(3)}, .error = "weight is F32 [4], expected F32 [3]"},
    {"residual differs", batch_norm, .in = {X(2, 3, 2, 2), P(3), W(3), X(2, 3, 2, 1)}, .error = "residual is F32 [2,3,2,1]"},
    {"form 2", gelu_wrong, .in = {X(3)}, .error = "gelu: form is 2, expected TUTTI_GELU_EXACT or TUTTI_GELU_TANH"},
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
    {"logits of one dimension", cross_entropy, .in = {X(3), Y(3)}, .error = "logits is [3] but labels is [3], expected []"},
    {"labels F32", cross_entropy, .in = {X(3, 2), X(3)}, .error = "labels, which are F32 and so probabilities, [3]"},
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

int main(int argc, char **argv)
{
    return run_rows(rows, TUTTI__COUNT_OF(rows), argc, argv);
}
