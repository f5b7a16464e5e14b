/* mini_resnet.c -- a residual network for small images.   SPDX-License-Identifier: MIT
 *
 *   stem      conv3x3-64, norm, relu
 *   layers    6 blocks: 64 64, 128/2 128, 256/2 256      (/2: stride 2, and a 1x1 convolution on the shortcut)
 *   fc        mean over the image, linear
 *
 *   block     x -> c1 b1 relu c2 b2 + -> relu            the sum and the relu are part of b2's pass
 *              \______ sc (or x) ___/ */
#include "nn/nn.h"

#include <stdio.h>

#define N_BLOCKS 6

typedef struct block {
    tutti_module base;
    tutti_conv2d c1, c2;
    tutti_batch_norm2d b1, b2;
    bool has_sc;
    tutti_module sc; /* the shortcut, if the shape changes */
    tutti_conv2d sc_conv;
    tutti_batch_norm2d sc_norm;
} block;

typedef struct mini_resnet {
    tutti_module base;
    tutti_module stem;
    tutti_conv2d stem_conv;
    tutti_batch_norm2d stem_norm;
    tutti_module layers;
    block blocks[N_BLOCKS];
    tutti_linear fc;
    float dropout;
} mini_resnet;

static void conv_init(tutti_conv2d *m, tutti_module *parent, const char *name, int64_t in,
                      int64_t out, int kernel, int stride)
{
    tutti_conv2d_init(m, parent, name,
                      &(tutti_conv2d_layer_opts){.in = in,
                                                 .out = out,
                                                 .kernel = kernel,
                                                 .stride = stride,
                                                 .padding = kernel / 2,
                                                 .no_bias = true});
}

static tutti_tensor *block_forward(tutti_module *module, tutti_tensor *x)
{
    block *m = (block *)module;
    tutti_tensor *y =
        tutti_batch_norm2d_relu_forward(&m->b1, tutti_conv2d_forward(&m->c1, x), NULL);
    tutti_tensor *shortcut = x;

    y = tutti_conv2d_forward(&m->c2, y);
    if (m->has_sc)
        shortcut = tutti_module_forward(&m->sc, x);
    return tutti_batch_norm2d_relu_forward(&m->b2, y, shortcut);
}

static void block_init(block *m, tutti_module *parent, const char *name, int64_t in, int64_t out,
                       int stride)
{
    tutti_module_init_child(&m->base, parent, name);
    tutti_module_set_forward(&m->base, block_forward);
    conv_init(&m->c1, &m->base, "c1", in, out, 3, stride);
    tutti_batch_norm2d_init(&m->b1, &m->base, "b1", out);
    conv_init(&m->c2, &m->base, "c2", out, out, 3, 1);
    tutti_batch_norm2d_init(&m->b2, &m->base, "b2", out);
    m->has_sc = stride != 1 || in != out;
    if (!m->has_sc)
        return;
    tutti_module_init_child(&m->sc, &m->base, "sc");
    conv_init(&m->sc_conv, &m->sc, "0", in, out, 1, stride);
    tutti_batch_norm2d_init(&m->sc_norm, &m->sc, "1", out);
}

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    static const int64_t channels[N_BLOCKS] = {64, 64, 128, 128, 256, 256};
    mini_resnet *m = (mini_resnet *)module;
    int64_t in = channels[0];

    m->dropout = (float)opts->dropout;
    tutti_module_init_child(&m->stem, module, "stem");
    conv_init(&m->stem_conv, &m->stem, "0", opts->channels, in, 3, 1);
    tutti_batch_norm2d_init(&m->stem_norm, &m->stem, "1", in);
    tutti_module_init_child(&m->layers, module, "layers");
    for (int i = 0; i < N_BLOCKS; i++) {
        char name[12];

        snprintf(name, sizeof name, "%d", i);
        block_init(&m->blocks[i], &m->layers, name, in, channels[i], in == channels[i] ? 1 : 2);
        tutti_module_set_recompute(&m->blocks[i].base, opts->recompute);
        in = channels[i];
    }
    tutti_linear_init(&m->fc, module, "fc", in, opts->classes);
}

static tutti_tensor *stem(tutti_module *module, tutti_tensor *x, int i)
{
    mini_resnet *m = (mini_resnet *)module;

    (void)i;
    return tutti_batch_norm2d_relu_forward(&m->stem_norm, tutti_conv2d_forward(&m->stem_conv, x),
                                           NULL);
}

static tutti_tensor *pool(tutti_tensor *x)
{
    return tutti_flatten(tutti_global_avg_pool2d(x));
}

/* The mean belongs to the last one: it reads the memory format of its norm, and is smaller to send. */
static tutti_tensor *run_block(tutti_module *module, tutti_tensor *x, int i)
{
    x = tutti_module_forward(&((mini_resnet *)module)->blocks[i - 1].base, x);
    return i == N_BLOCKS ? pool(x) : x;
}

static tutti_tensor *head(tutti_module *module, tutti_tensor *x, int i)
{
    mini_resnet *m = (mini_resnet *)module;

    (void)i;
    return tutti_linear_forward(&m->fc, tutti__model_dropout(m->dropout, x));
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    x = tutti_module_forward(&((mini_resnet *)module)->layers, stem(module, x, 0));
    return head(module, pool(x), 0);
}

static bool block_at(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    (void)opts;
    *block_p = i == 0 ? (tutti_model_block){.name = "stem", .state = "stem", .forward = stem}
                      : (tutti_model_block){.name = "fc", .state = "fc", .forward = head};
    if (i == 0 || i > N_BLOCKS)
        return i <= N_BLOCKS + 1;
    block_p->forward = run_block;
    snprintf(block_p->name, sizeof block_p->name, "layers.%d", i - 1);
    snprintf(block_p->state, sizeof block_p->state, "layers.%d", i - 1);
    return true;
}

const tutti_model_kind tutti__model_mini_resnet = {
    .name = "mini_resnet",
    .bytes = sizeof(mini_resnet),
    .init = init,
    .forward = forward,
    .block = block_at,
    .channels = 3,
    .sizes = TUTTI_MODEL_RECOMPUTE,
};
