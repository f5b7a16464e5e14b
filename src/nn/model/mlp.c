/* mlp.c -- two linear layers with a relu between them, over the flattened input.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#define HIDDEN 256

typedef struct mlp {
    tutti_module base;
    tutti_linear fc1, fc2;
    float dropout;
} mlp;

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    mlp *m = (mlp *)module;

    m->dropout = (float)opts->dropout;
    tutti_linear_init(&m->fc1, module, "fc1", opts->channels * opts->height * opts->width, HIDDEN);
    tutti_linear_init(&m->fc2, module, "fc2", HIDDEN, opts->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    mlp *m = (mlp *)module;

    x = tutti_relu(tutti_linear_forward(&m->fc1, tutti_flatten(x)));
    return tutti_linear_forward(&m->fc2, tutti__model_dropout(m->dropout, x));
}

const tutti_model_kind tutti__model_mlp = {
    .name = "mlp",
    .bytes = sizeof(mlp),
    .init = init,
    .forward = forward,
};
