/* resnet.c -- residual networks for images, as torchvision's resnet18, 34, 50 and 101.   SPDX-License-Identifier: MIT
 * He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition", 2015; with the stride of a bottleneck in its 3x3
 * convolution. Names, shapes and order of the state are torchvision's, so that its weights can be loaded.
 *
 *   conv1 7x7-64/2, bn1, relu, max pool 3x3/2      layer1..4: blocks of 64, 128/2, 256/2, 512/2 channels      mean, fc
 *
 *   basic        x -> conv1 3x3 bn1 relu conv2 3x3 bn2 + -> relu                      the sum and the relu are part of
 *   bottleneck   x -> conv1 1x1 bn1 relu conv2 3x3 bn2 relu conv3 1x1 bn3 + -> relu   the last norm's pass; channels
 *                 \_________________ downsample (or x) __________________/            of a bottleneck's result: times 4 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

#define N_LAYERS   4
#define MAX_BLOCKS 33 /* of all layers of resnet101 */
#define EXPANSION  4  /* of a bottleneck */

typedef struct resnet_block {
    tutti_module base;
    tutti_conv2d conv[3];
    tutti_batch_norm2d norm[3];
    int n; /* convolutions */
    bool has_downsample;
    tutti_module downsample;
    tutti_conv2d down_conv;
    tutti_batch_norm2d down_norm;
} resnet_block;

typedef struct resnet {
    tutti_module base;
    tutti_conv2d conv1;
    tutti_batch_norm2d bn1;
    tutti_module layer[N_LAYERS];
    resnet_block blocks[MAX_BLOCKS];
    tutti_linear fc;
    float dropout;
    bool recompute;
} resnet;

/* He's normal distribution over the fan out: the standard deviation keeps the size of gradients through relus. */
static void conv_init(tutti_conv2d *m, tutti_module *parent, const char *name, int64_t in,
                      int64_t out, int kernel, int stride)
{
    tutti_conv2d_init(
        m, parent, name,
        &(tutti_conv2d_layer_opts){.in = in,
                                   .out = out,
                                   .kernel = kernel,
                                   .stride = stride,
                                   .padding = kernel / 2,
                                   .normal_std = (float)sqrt(2 / (double)(out * kernel * kernel)),
                                   .no_bias = true});
}

static tutti_tensor *block_forward(tutti_module *module, tutti_tensor *x)
{
    resnet_block *m = (resnet_block *)module;
    tutti_tensor *y = x;

    for (int i = 0; i < m->n - 1; i++)
        y = tutti_batch_norm2d_relu_forward(&m->norm[i], tutti_conv2d_forward(&m->conv[i], y),
                                            NULL);
    y = tutti_conv2d_forward(&m->conv[m->n - 1], y);
    if (m->has_downsample)
        x = tutti_module_forward(&m->downsample, x);
    return tutti_batch_norm2d_relu_forward(&m->norm[m->n - 1], y, x);
}

static void block_init(resnet_block *m, tutti_module *parent, int index, int64_t in, int64_t width,
                       int stride, bool bottleneck)
{
    const int64_t out = bottleneck ? EXPANSION * width : width;
    char name[20];

    snprintf(name, sizeof name, "%d", index);
    tutti_module_init_child(&m->base, parent, name);
    tutti_module_set_forward(&m->base, block_forward);
    m->n = bottleneck ? 3 : 2;
    for (int i = 0; i < m->n; i++) {
        const bool strided = bottleneck ? i == 1 : i == 0;

        snprintf(name, sizeof name, "conv%d", i + 1);
        conv_init(&m->conv[i], &m->base, name, i == 0 ? in : width, i == 2 ? out : width,
                  bottleneck && i != 1 ? 1 : 3, strided ? stride : 1);
        snprintf(name, sizeof name, "bn%d", i + 1);
        tutti_batch_norm2d_init(&m->norm[i], &m->base, name, i == 2 ? out : width);
    }
    m->has_downsample = stride != 1 || in != out;
    if (!m->has_downsample)
        return;
    tutti_module_init_child(&m->downsample, &m->base, "downsample");
    conv_init(&m->down_conv, &m->downsample, "0", in, out, 1, stride);
    tutti_batch_norm2d_init(&m->down_norm, &m->downsample, "1", out);
}

static void init_with(tutti_module *module, const tutti_model_opts *opts,
                      const int n_blocks[N_LAYERS], bool bottleneck)
{
    resnet *m = (resnet *)module;
    int64_t in = 64;
    int n = 0;

    m->dropout = (float)opts->dropout;
    m->recompute = opts->recompute;
    conv_init(&m->conv1, module, "conv1", opts->channels, in, 7, 2);
    tutti_batch_norm2d_init(&m->bn1, module, "bn1", in);
    for (int i = 0; i < N_LAYERS; i++) {
        const int64_t width = (int64_t)64 << i;
        char name[12];

        snprintf(name, sizeof name, "layer%d", i + 1);
        tutti_module_init_child(&m->layer[i], module, name);
        for (int k = 0; k < n_blocks[i]; k++) {
            block_init(&m->blocks[n], &m->layer[i], k, in, width, k == 0 && i > 0 ? 2 : 1,
                       bottleneck);
            tutti_module_set_recompute(&m->blocks[n++].base, opts->recompute);
            in = bottleneck ? EXPANSION * width : width;
        }
    }
    tutti_linear_init(&m->fc, module, "fc", in, opts->classes);
}

/* What comes before the layers. */
static tutti_tensor *stem(tutti_tensor *const *inputs, void *arg)
{
    resnet *m = arg;
    tutti_tensor *x = tutti_conv2d_forward(&m->conv1, inputs[0]);

    x = tutti_batch_norm2d_relu_forward(&m->bn1, x, NULL);
    return tutti_max_pool2d(x, (tutti_pool_opts){.kernel = 3, .stride = 2, .padding = 1});
}

static tutti_tensor *run_stem(tutti_module *module, tutti_tensor *x, int i)
{
    resnet *m = (resnet *)module;

    (void)i;
    return m->recompute ? tutti_recompute(stem, m, &x, 1) : stem(&x, m);
}

static tutti_tensor *run_block(tutti_module *module, tutti_tensor *x, int i)
{
    return tutti_module_forward(&((resnet *)module)->blocks[i - 1].base, x);
}

/* With the mean, which reads the memory format of its norm, and is smaller to send. */
static tutti_tensor *run_last(tutti_module *module, tutti_tensor *x, int i)
{
    return tutti_flatten(tutti_global_avg_pool2d(run_block(module, x, i)));
}

static tutti_tensor *head(tutti_module *module, tutti_tensor *x, int i)
{
    resnet *m = (resnet *)module;

    (void)i;
    return tutti_linear_forward(&m->fc, tutti__model_dropout(m->dropout, x));
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    resnet *m = (resnet *)module;

    x = run_stem(module, x, 0);
    for (int i = 0; i < N_LAYERS; i++)
        x = tutti_module_forward(&m->layer[i], x);
    return head(module, tutti_flatten(tutti_global_avg_pool2d(x)), 0);
}

static bool block_of(const int n_blocks[N_LAYERS], int i, tutti_model_block *block_p)
{
    int layer = 0, k = i - 1;

    *block_p = (tutti_model_block){.name = "stem", .state = "conv1,bn1", .forward = run_stem};
    if (i == 0)
        return true;
    while (layer < N_LAYERS && k >= n_blocks[layer])
        k -= n_blocks[layer++];
    *block_p = (tutti_model_block){.name = "fc", .state = "fc", .forward = head};
    if (layer == N_LAYERS)
        return k == 0;
    block_p->forward = layer == N_LAYERS - 1 && k == n_blocks[layer] - 1 ? run_last : run_block;
    snprintf(block_p->name, sizeof block_p->name, "layer%d.%d", layer + 1, k);
    snprintf(block_p->state, sizeof block_p->state, "layer%d.%d", layer + 1, k);
    return true;
}

#define RESNET(depth, bottleneck, ...)                                                             \
    static void init##depth(tutti_module *module, const tutti_model_opts *opts)                    \
    {                                                                                              \
        init_with(module, opts, (const int[N_LAYERS]){__VA_ARGS__}, bottleneck);                   \
    }                                                                                              \
    static bool block##depth(const tutti_model_opts *opts, int i, tutti_model_block *block_p)      \
    {                                                                                              \
        (void)opts;                                                                                \
        return block_of((const int[N_LAYERS]){__VA_ARGS__}, i, block_p);                           \
    }                                                                                              \
    const tutti_model_kind tutti__model_resnet##depth = {.name = "resnet" #depth,                  \
                                                         .bytes = sizeof(resnet),                  \
                                                         .init = init##depth,                      \
                                                         .forward = forward,                       \
                                                         .block = block##depth,                    \
                                                         .channels = 3,                            \
                                                         .sizes = TUTTI_MODEL_RECOMPUTE};

RESNET(18, false, 2, 2, 2, 2)
RESNET(34, false, 3, 4, 6, 3)
RESNET(50, true, 3, 4, 6, 3)
RESNET(101, true, 3, 4, 23, 3)
