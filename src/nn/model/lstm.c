/* lstm.c -- a recurrent classifier: the rows of an image, or the steps of a signal, one after the other.   SPDX-License-Identifier: MIT
 *   x [N,C,H,W] -> H steps of C W features -> lstm -> h after the last step -> dropout -> fc */
#include "nn/nn.h"

typedef struct lstm {
    tutti_module base;
    tutti_recurrent lstm;
    tutti_linear fc;
    float dropout;
} lstm;

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    lstm *m = (lstm *)module;
    const int64_t hidden = opts->hidden ? opts->hidden : 128;

    m->dropout = (float)opts->dropout;
    tutti_lstm_init(&m->lstm, module, "lstm",
                    &(tutti_recurrent_layer_opts){.in = opts->channels * opts->width,
                                                  .hidden = hidden,
                                                  .layers = opts->layers,
                                                  .batch_first = true,
                                                  .dropout = opts->layers > 1 ? m->dropout : 0});
    tutti_linear_init(&m->fc, module, "fc", hidden, opts->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    lstm *m = (lstm *)module;
    const tutti_shape shape = tutti_tensor_shape(x);

    x = tutti_reshape(tutti_permute(x, TUTTI_DIMS(0, 2, 1, 3)),
                      TUTTI_SHAPE(shape.d[0], shape.d[2], shape.d[1] * shape.d[3]));
    x = tutti_select(tutti_recurrent_forward(&m->lstm, x, NULL, NULL), 1, -1);
    return tutti_linear_forward(&m->fc, tutti__model_dropout(m->dropout, x));
}

const tutti_model_kind tutti__model_lstm = {.name = "lstm",
                                            .bytes = sizeof(lstm),
                                            .init = init,
                                            .forward = forward,
                                            .sizes = TUTTI_MODEL_LAYERS | TUTTI_MODEL_HIDDEN};
