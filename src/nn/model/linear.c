/* linear.c -- one linear layer over the flattened input.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

typedef struct linear {
    tutti_module base;
    tutti_linear fc;
    float dropout;
} linear;

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    linear *m = (linear *)module;

    m->dropout = (float)opts->dropout;
    tutti_linear_init(&m->fc, module, "fc", opts->channels * opts->height * opts->width,
                      opts->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    linear *m = (linear *)module;

    return tutti_linear_forward(&m->fc, tutti__model_dropout(m->dropout, tutti_flatten(x)));
}

const tutti_model_kind tutti__model_linear = {
    .name = "linear",
    .bytes = sizeof(linear),
    .init = init,
    .forward = forward,
};
