/* mlp.c -- two linear layers with a relu between them, over the flattened input.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#define HIDDEN 256

typedef struct mlp {
    tutti_model model;
    tutti_linear fc1, fc2;
} mlp;

static void init(tutti_model *model, const tutti_model_opts *opts)
{
    mlp *m = (mlp *)model;

    tutti_linear_init(&m->fc1, &model->base, "fc1", opts->channels * opts->height * opts->width,
                      HIDDEN);
    tutti_linear_init(&m->fc2, &model->base, "fc2", HIDDEN, opts->classes);
}

static tutti_tensor *forward(tutti_model *model, tutti_tensor *x)
{
    mlp *m = (mlp *)model;

    x = tutti_relu(tutti_linear_forward(&m->fc1, tutti_flatten(x)));
    return tutti_linear_forward(&m->fc2, tutti__model_dropout(model, x));
}

const tutti__model_kind tutti__model_mlp = {"mlp", sizeof(mlp), init, forward};
