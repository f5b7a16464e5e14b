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

static tutti_tensor *first(tutti_module *module, tutti_tensor *x, int i)
{
    (void)i;
    return tutti_relu(tutti_linear_forward(&((mlp *)module)->fc1, tutti_flatten(x)));
}

static tutti_tensor *second(tutti_module *module, tutti_tensor *x, int i)
{
    mlp *m = (mlp *)module;

    (void)i;
    return tutti_linear_forward(&m->fc2, tutti__model_dropout(m->dropout, x));
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    return second(module, first(module, x, 0), 1);
}

static bool block(const tutti_model_opts *opts, int i, tutti_model_block *block_p)
{
    static const tutti_model_block blocks[] = {{.name = "fc1", .state = "fc1", .forward = first},
                                               {.name = "fc2", .state = "fc2", .forward = second}};

    (void)opts;
    if (i < (int)TUTTI__COUNT_OF(blocks))
        *block_p = blocks[i];
    return i < (int)TUTTI__COUNT_OF(blocks);
}

const tutti_model_kind tutti__model_mlp = {
    .name = "mlp",
    .bytes = sizeof(mlp),
    .init = init,
    .forward = forward,
    .block = block,
};
