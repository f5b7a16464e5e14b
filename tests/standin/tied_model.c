/* tied_model.c -- a model of `tutti train` whose two layers have one weight, in a block that may be recomputed.   SPDX-License-Identifier: MIT */
#include <tutti/tutti.h>

typedef struct {
    tutti_module base, block;
    tutti_linear in, out, fc;
    float dropout;
} tied;

static tutti_tensor *block_forward(tutti_module *module, tutti_tensor *x)
{
    tied *m = (tied *)module->parent;

    x = tutti_dropout(tutti_relu(tutti_linear_forward(&m->in, x)), m->dropout);
    return tutti_relu(tutti_linear_forward(&m->out, x));
}

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    tied *m = (tied *)module;
    const int64_t width = opts->channels * opts->height * opts->width;

    m->dropout = (float)opts->dropout;
    tutti_module_init_child(&m->block, module, "block");
    tutti_module_set_forward(&m->block, block_forward);
    tutti_module_set_recompute(&m->block, opts->recompute);
    tutti_linear_init(&m->in, &m->block, "in", width, width);
    tutti_linear_init(&m->out, &m->block, "out", width, width);
    tutti_parameter_tie(&m->out.weight, m->in.weight);
    tutti_linear_init(&m->fc, module, "fc", width, opts->classes);
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    tied *m = (tied *)module;

    return tutti_linear_forward(&m->fc, tutti_module_forward(&m->block, tutti_flatten(x)));
}

static const tutti_model_kind kind = {.name = "tied",
                                      .bytes = sizeof(tied),
                                      .init = init,
                                      .forward = forward,
                                      .sizes = TUTTI_MODEL_RECOMPUTE};
TUTTI_SHARED_MODEL(kind);
