/* unet.c -- an encoder and a decoder with skip connections: a class for each pixel.   SPDX-License-Identifier: MIT
 * Ronneberger, Fischer, Brox: "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015. Names, shapes and order of the
 * state are those of milesial/Pytorch-UNet with transposed convolutions, whose convolutions are padded and followed by norms.
 *
 *   inc         two convs 3x3-W, each with norm and relu        x0
 *   down1..L    max pool 2, two convs with 2^i W channels       xi
 *   up1..L      conv_transpose 2x2/2 to half the channels, [skip, x], two convs
 *   outc        conv 1x1-classes */
#include "nn/nn.h"

#include <stdio.h>

#define MOST_LEVELS 8

typedef struct double_conv {
    tutti_module base, conv;
    tutti_conv2d conv1, conv2;
    tutti_batch_norm2d norm1, norm2;
} double_conv;

typedef struct unet_down {
    tutti_module base, maxpool_conv;
    double_conv conv;
} unet_down;

typedef struct unet_up {
    tutti_module base;
    tutti_conv_transpose2d up;
    double_conv conv;
} unet_up;

typedef struct unet {
    tutti_module base;
    double_conv inc;
    unet_down down[MOST_LEVELS];
    unet_up up[MOST_LEVELS];
    tutti_module outc;
    tutti_conv2d conv;
    int levels;
    float dropout;
} unet;

static tutti_tensor *double_conv_forward(tutti_module *module, tutti_tensor *x)
{
    double_conv *m = (double_conv *)module;

    x = tutti_batch_norm2d_relu_forward(&m->norm1, tutti_conv2d_forward(&m->conv1, x), NULL);
    return tutti_batch_norm2d_relu_forward(&m->norm2, tutti_conv2d_forward(&m->conv2, x), NULL);
}

static void double_conv_init(double_conv *m, tutti_module *parent, const char *name, int64_t in,
                             int64_t out)
{
    tutti_conv2d_layer_opts opts = {
        .in = in, .out = out, .kernel = 3, .padding = 1, .no_bias = true};

    tutti_module_init_child(&m->base, parent, name);
    tutti_module_set_forward(&m->base, double_conv_forward);
    tutti_module_init_child(&m->conv, &m->base, "double_conv");
    tutti_conv2d_init(&m->conv1, &m->conv, "0", &opts);
    tutti_batch_norm2d_init(&m->norm1, &m->conv, "1", out);
    opts.in = out;
    tutti_conv2d_init(&m->conv2, &m->conv, "3", &opts);
    tutti_batch_norm2d_init(&m->norm2, &m->conv, "4", out);
}

static tutti_tensor *down_forward(tutti_module *module, tutti_tensor *x)
{
    unet_down *m = (unet_down *)module;

    x = tutti_max_pool2d(x, (tutti_pool_opts){.kernel = 2});
    return tutti_module_forward(&m->conv.base, x);
}

static void down_init(unet_down *m, tutti_module *parent, int level, int64_t in)
{
    char name[16];

    snprintf(name, sizeof name, "down%d", level);
    tutti_module_init_child(&m->base, parent, name);
    tutti_module_set_forward(&m->base, down_forward);
    tutti_module_init_child(&m->maxpool_conv, &m->base, "maxpool_conv");
    double_conv_init(&m->conv, &m->maxpool_conv, "1", in, 2 * in);
}

static void up_init(unet_up *m, tutti_module *parent, int level, int64_t in)
{
    char name[16];

    snprintf(name, sizeof name, "up%d", level);
    tutti_module_init_child(&m->base, parent, name);
    tutti_conv_transpose2d_init(
        &m->up, &m->base, "up",
        &(tutti_conv2d_layer_opts){.in = in, .out = in / 2, .kernel = 2, .stride = 2}, 0);
    double_conv_init(&m->conv, &m->base, "conv", in, in / 2);
}

/* x of the level below and the skip connection; where the pool has dropped a row or column, x is padded. */
static tutti_tensor *up_forward(unet_up *m, tutti_tensor *x, tutti_tensor *skip)
{
    const tutti_shape wide = tutti_tensor_shape(skip);
    tutti_shape shape;
    int64_t rows, columns;

    x = tutti_conv_transpose2d_forward(&m->up, x);
    shape = tutti_tensor_shape(x);
    if (shape.n == 4 && wide.n == 4) { /* else a failed one */
        rows = wide.d[2] - shape.d[2];
        columns = wide.d[3] - shape.d[3];
        if (rows > 0 || columns > 0)
            x = tutti_pad(
                x, (const int64_t[]){columns / 2, columns - columns / 2, rows / 2, rows - rows / 2},
                4, TUTTI_PAD_CONSTANT, 0);
    }
    return tutti_module_forward(&m->conv.base, tutti_cat((tutti_tensor *[]){skip, x}, 2, 1));
}

/* 4, or as many as small images allow. */
static int default_levels(int64_t side)
{
    int levels = 4;

    while (levels > 1 && side >> levels < 1)
        levels--;
    return levels;
}

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    unet *m = (unet *)module;
    const int64_t side = opts->height < opts->width ? opts->height : opts->width;
    int64_t width = opts->hidden ? opts->hidden : 64;

    m->levels = opts->layers ? opts->layers : default_levels(side);
    m->dropout = (float)opts->dropout;
    if (m->levels > MOST_LEVELS || side >> m->levels < 1) {
        tutti__module_fail(module, TUTTI_ERR_ARG,
                           "unet: %d levels below images of %lld x %lld, each of half the size; "
                           "expected at most %d, and images of at least %d x %d",
                           m->levels, (long long)opts->height, (long long)opts->width, MOST_LEVELS,
                           1 << (m->levels > MOST_LEVELS ? MOST_LEVELS : m->levels),
                           1 << (m->levels > MOST_LEVELS ? MOST_LEVELS : m->levels));
        return;
    }
    double_conv_init(&m->inc, module, "inc", opts->channels, width);
    for (int i = 0; i < m->levels; i++, width *= 2)
        down_init(&m->down[i], module, i + 1, width);
    for (int i = 0; i < m->levels; i++, width /= 2)
        up_init(&m->up[i], module, i + 1, width);
    tutti_module_init_child(&m->outc, module, "outc");
    tutti_conv2d_init(&m->conv, &m->outc, "conv",
                      &(tutti_conv2d_layer_opts){.in = width, .out = opts->classes, .kernel = 1});
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    unet *m = (unet *)module;
    tutti_tensor *skips[MOST_LEVELS];

    x = tutti_module_forward(&m->inc.base, x);
    for (int i = 0; i < m->levels; i++) {
        skips[i] = x;
        x = tutti_module_forward(&m->down[i].base, x);
    }
    for (int i = 0; i < m->levels; i++)
        x = up_forward(&m->up[i], x, skips[m->levels - 1 - i]);
    return tutti_conv2d_forward(&m->conv, tutti__model_dropout(m->dropout, x));
}

const tutti_model_kind tutti__model_unet = {.name = "unet",
                                            .bytes = sizeof(unet),
                                            .init = init,
                                            .forward = forward,
                                            .sizes = TUTTI_MODEL_LAYERS | TUTTI_MODEL_HIDDEN};
