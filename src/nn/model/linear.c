/* linear.c -- one linear layer over the flattened input.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

typedef struct linear {
    tutti_model model;
    tutti_linear fc;
} linear;

static void init(tutti_model *model, const tutti_model_opts *opts)
{
    linear *m = (linear *)model;

    tutti_linear_init(&m->fc, &model->base, "fc", opts->channels * opts->height * opts->width,
                      opts->classes);
}

static tutti_tensor *forward(tutti_model *model, tutti_tensor *x)
{
    linear *m = (linear *)model;

    return tutti_linear_forward(&m->fc, tutti__model_dropout(model, tutti_flatten(x)));
}

const tutti__model_kind tutti__model_linear = {"linear", sizeof(linear), init, forward};
