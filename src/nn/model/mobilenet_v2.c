/* mobilenet_v2.c -- inverted residual blocks of depthwise convolutions, as torchvision's mobilenet_v2.   SPDX-License-Identifier: MIT
 * Sandler, Howard, Zhu, Zhmoginov, Chen: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018. Names, shapes and order of
 * the state are torchvision's.
 *
 *   features   conv 3x3-32/2, 17 blocks, conv 1x1-1280      classifier   mean, dropout, linear
 *   block      x -> [1x1 to t times the channels] 3x3 depthwise, 1x1 -> [+ x, if the shape is the same]
 *              a norm behind each convolution, and relu6 behind each norm but the last */
#include "nn/nn.h"

#include <math.h>

typedef struct conv_norm {
    tutti_module base;
    tutti_conv2d conv;
    tutti_batch_norm2d norm;
    tutti_activation relu6;
} conv_norm;

typedef struct inverted_residual {
    tutti_module base;
    tutti_module conv; /* its parts, one after the other */
    conv_norm expand, depthwise;
    tutti_conv2d project;
    tutti_batch_norm2d norm;
    bool adds;
} inverted_residual;

#define N_BLOCKS 17

typedef struct mobilenet_v2 {
    tutti_module base;
    tutti_module features;
    conv_norm first, last;
    inverted_residual blocks[N_BLOCKS];
    tutti_module classifier;
    tutti_dropout_layer dropout;
    tutti_linear fc;
} mobilenet_v2;

static tutti_conv2d_layer_opts conv_opts(int64_t in, int64_t out, int kernel, int stride,
                                         int64_t groups)
{
    /* He's normal distribution over the fan out */
    return (tutti_conv2d_layer_opts){.in = in,
                                     .out = out,
                                     .kernel = kernel,
                                     .stride = stride,
                                     .padding = kernel / 2,
                                     .groups = (int)groups,
                                     .normal_std =
                                         (float)sqrt(2 / (double)(out * kernel * kernel / groups)),
                                     .no_bias = true};
}

static void conv_norm_init(conv_norm *m, tutti_module *parent, int64_t in, int64_t out, int kernel,
                           int stride, int64_t groups)
{
    const tutti_conv2d_layer_opts opts = conv_opts(in, out, kernel, stride, groups);

    tutti_module_init_child(&m->base, parent, NULL);
    tutti_conv2d_init(&m->conv, &m->base, NULL, &opts);
    tutti_batch_norm2d_init(&m->norm, &m->base, NULL, out);
    tutti_activation_init(&m->relu6, &m->base, NULL, tutti_relu6);
}

static tutti_tensor *block_forward(tutti_module *module, tutti_tensor *x)
{
    inverted_residual *m = (inverted_residual *)module;
    tutti_tensor *y = tutti_module_forward(&m->conv, x);

    return m->adds ? tutti_add(x, y) : y;
}

static void block_init(inverted_residual *m, tutti_module *parent, int64_t in, int64_t out,
                       int stride, int times)
{
    const int64_t wide = in * times;
    const tutti_conv2d_layer_opts project = conv_opts(wide, out, 1, 1, 1);

    tutti_module_init_child(&m->base, parent, NULL);
    tutti_module_set_forward(&m->base, block_forward);
    tutti_module_init_child(&m->conv, &m->base, "conv");
    if (times != 1)
        conv_norm_init(&m->expand, &m->conv, in, wide, 1, 1, 1);
    conv_norm_init(&m->depthwise, &m->conv, wide, wide, 3, stride, wide);
    tutti_conv2d_init(&m->project, &m->conv, NULL, &project);
    tutti_batch_norm2d_init(&m->norm, &m->conv, NULL, out);
    m->adds = stride == 1 && in == out;
}

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    static const struct {
        int times, channels, n, stride;
    } rows[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    mobilenet_v2 *m = (mobilenet_v2 *)module;
    int64_t in = 32;
    int n = 0;

    tutti_module_init_child(&m->features, module, "features");
    conv_norm_init(&m->first, &m->features, opts->channels, in, 3, 2, 1);
    for (size_t i = 0; i < TUTTI__COUNT_OF(rows); i++)
        for (int k = 0; k < rows[i].n; k++) {
            block_init(&m->blocks[n], &m->features, in, rows[i].channels,
                       k == 0 ? rows[i].stride : 1, rows[i].times);
            tutti_module_set_recompute(&m->blocks[n++].base, opts->recompute);
            in = rows[i].channels;
        }
    conv_norm_init(&m->last, &m->features, in, 1280, 1, 1, 1);
    tutti_module_set_recompute(&m->first.base, opts->recompute);
    tutti_module_set_recompute(&m->last.base, opts->recompute);
    tutti_module_init_child(&m->classifier, module, "classifier");
    tutti_dropout_init(&m->dropout, &m->classifier, NULL, (float)opts->dropout);
    tutti_linear_init_with(
        &m->fc, &m->classifier, NULL,
        &(tutti_linear_layer_opts){.in = 1280, .out = opts->classes, .normal_std = 0.01f});
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    mobilenet_v2 *m = (mobilenet_v2 *)module;

    x = tutti_flatten(tutti_global_avg_pool2d(tutti_module_forward(&m->features, x)));
    return tutti_module_forward(&m->classifier, x);
}

const tutti_model_kind tutti__model_mobilenet_v2 = {.name = "mobilenet_v2",
                                                    .bytes = sizeof(mobilenet_v2),
                                                    .init = init,
                                                    .forward = forward,
                                                    .channels = 3,
                                                    .sizes = TUTTI_MODEL_RECOMPUTE};
