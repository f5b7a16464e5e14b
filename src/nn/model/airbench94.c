/* airbench94.c -- the network that reaches 94 % on CIFAR-10 in 200 steps, with the names of its script's state dict.
 * SPDX-License-Identifier: MIT
 * Jordan: "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024 (arXiv 2404.00498), as of airbench94_muon.py, 2025.
 *
 *   whiten   conv 2x2 to all whitened patches and their negatives, with fixed weights (--whiten), and a bias
 *   layers   gelu, groups of 64, 256, 256 channels, max-pool 3
 *   group    conv 3x3, max-pool 2, norm, gelu, conv 3x3, norm, gelu          norms: the weights stay 1
 *   head     linear without bias, divided by the number of its inputs
 *
 * Convolutions of groups begin by passing their input's channels on. The head begins uniform with deviation 1, where the script divides
 * what it has drawn by the deviation of just that. */
#include "nn/nn.h"

#include <math.h>

#define N_GROUPS 3

typedef struct group {
    tutti_module base;
    tutti_conv2d conv1, conv2;
    tutti_batch_norm2d norm1, norm2;
    tutti_activation pool, activ;
} group;

typedef struct airbench94 {
    tutti_module base;
    tutti_conv2d whiten;
    tutti_module layers;
    tutti_activation activ, pool;
    group groups[N_GROUPS];
    tutti_linear head;
    float head_factor, dropout;
} airbench94;

static tutti_tensor *gelu(tutti_tensor *x)
{
    return tutti_gelu(x, TUTTI_GELU_EXACT);
}

static tutti_tensor *max_of_2(tutti_tensor *x)
{
    return tutti_max_pool2d(x, (tutti_pool_opts){.kernel = 2});
}

static tutti_tensor *max_of_3(tutti_tensor *x)
{
    return tutti_max_pool2d(x, (tutti_pool_opts){.kernel = 3});
}

static void fix(tutti_tensor *parameter)
{
    if (parameter) /* else it could not be made, or is another stage's */
        tutti_parameter_set_requires_grad(parameter, false);
}

static void norm_init(tutti_batch_norm2d *m, tutti_module *parent, const char *name,
                      int64_t channels)
{
    tutti_batch_norm2d_init(m, parent, name, channels);
    m->momentum = 0.4f;
    m->eps = 1e-12f;
    fix(m->weight);
}

static void conv_init(tutti_conv2d *m, tutti_module *parent, const char *name, int64_t in,
                      int64_t out)
{
    tutti_conv2d_init(
        m, parent, name,
        &(tutti_conv2d_layer_opts){
            .in = in, .out = out, .kernel = 3, .padding = 1, .no_bias = true, .dirac = true});
}

static tutti_tensor *group_forward(tutti_module *module, tutti_tensor *x)
{
    group *m = (group *)module;

    x = tutti_module_forward(&m->pool.base, tutti_conv2d_forward(&m->conv1, x));
    x = tutti_module_forward(&m->activ.base, tutti_batch_norm2d_forward(&m->norm1, x));
    x = tutti_batch_norm2d_forward(&m->norm2, tutti_conv2d_forward(&m->conv2, x));
    return tutti_module_forward(&m->activ.base, x);
}

static void group_init(group *m, tutti_module *parent, int64_t in, int64_t out)
{
    tutti_module_init_child(&m->base, parent, NULL);
    tutti_module_set_forward(&m->base, group_forward);
    conv_init(&m->conv1, &m->base, "conv1", in, out);
    tutti_activation_init(&m->pool, &m->base, "pool", max_of_2);
    norm_init(&m->norm1, &m->base, "norm1", out);
    conv_init(&m->conv2, &m->base, "conv2", out, out);
    norm_init(&m->norm2, &m->base, "norm2", out);
    tutti_activation_init(&m->activ, &m->base, "activ", gelu);
}

/* Pixels of a side of n after the layers. */
static int64_t side_of(int64_t n)
{
    return (n - 1) / 2 / 2 / 2 / 3;
}

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    static const int64_t channels[N_GROUPS] = {64, 256, 256};
    airbench94 *m = (airbench94 *)module;
    const int64_t patches = 2 * opts->channels * 2 * 2;
    const int64_t features = channels[2] * side_of(opts->height) * side_of(opts->width);
    int64_t in = patches;

    if (features == 0) {
        tutti__module_fail(module, TUTTI_ERR_ARG,
                           "model airbench94: the images are %lld x %lld, expected at least 25 x "
                           "25, of which its pools leave a pixel",
                           (long long)opts->height, (long long)opts->width);
        return;
    }
    tutti_conv2d_init(
        &m->whiten, module, "whiten",
        &(tutti_conv2d_layer_opts){.in = opts->channels, .out = patches, .kernel = 2});
    fix(m->whiten.weight);
    tutti_module_init_child(&m->layers, module, "layers");
    tutti_activation_init(&m->activ, &m->layers, NULL, gelu);
    for (int i = 0; i < N_GROUPS; i++) {
        group_init(&m->groups[i], &m->layers, in, channels[i]);
        tutti_module_set_recompute(&m->groups[i].base, opts->recompute);
        in = channels[i];
    }
    tutti_activation_init(&m->pool, &m->layers, NULL, max_of_3);
    tutti_linear_init_with(
        &m->head, module, "head",
        &(tutti_linear_layer_opts){
            .in = features, .out = opts->classes, .no_bias = true, .uniform_bound = sqrtf(3)});
    m->head_factor = 1 / (float)features;
    m->dropout = (float)opts->dropout;
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    airbench94 *m = (airbench94 *)module;

    x = tutti_module_forward(&m->layers, tutti_conv2d_forward(&m->whiten, x));
    x = tutti__model_dropout(m->dropout, tutti_flatten(x));
    return tutti_scale(tutti_linear_forward(&m->head, x), m->head_factor);
}

const tutti_model_kind tutti__model_airbench94 = {.name = "airbench94",
                                                  .bytes = sizeof(airbench94),
                                                  .init = init,
                                                  .forward = forward,
                                                  .channels = 3,
                                                  .sizes = TUTTI_MODEL_RECOMPUTE};
