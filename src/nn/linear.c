/* linear.c -- the fully connected layer, nn.Linear.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#include <math.h>

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    const tutti_linear *m = (tutti_linear *)module;

    if (tutti__has_vocabulary(m->weight))
        return tutti__parallel_logits(x, m->weight, m->bias);
    return tutti__add_adapter(tutti__parallel_product(x, m->weight, m->bias), x, m->weight);
}

void tutti_linear_init_with(tutti_linear *m, tutti_module *parent, const char *name,
                            const tutti_linear_layer_opts *options)
{
    static const tutti_linear_layer_opts none;
    const tutti_linear_layer_opts *opts = options ? options : &none; /* without features: refused */
    const float bound = opts->in > 0 ? (float)(1 / sqrt((double)opts->in)) : 0;
    const bool given_bound = opts->uniform_bound > 0, normal = opts->normal_std > 0;
    const tutti_init init = opts->zeros ? TUTTI_INIT_ZEROS
                            : normal    ? TUTTI_INIT_NORMAL
                                        : TUTTI_INIT_UNIFORM;

    *m = (tutti_linear){0};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = forward;
    if (TUTTI__CHECK_RESERVED(tutti_linear_layer_opts, opts) != TUTTI_OK) {
        tutti__module_fail(&m->base, TUTTI_ERR_ARG, "%s: %s", tutti__module_path(&m->base),
                           tutti_last_error());
        return;
    }
    if (opts->in < 1 || opts->out < 1) {
        tutti__module_fail(&m->base, TUTTI_ERR_ARG,
                           "%s: linear from %lld to %lld features, expected at least 1",
                           tutti__module_path(&m->base), (long long)opts->in, (long long)opts->out);
        return;
    }
    m->weight = tutti__parameter_make(&m->base, "weight", TUTTI_SHAPE(opts->out, opts->in), init,
                                      normal        ? opts->normal_std
                                      : given_bound ? opts->uniform_bound
                                                    : bound,
                                      TUTTI__OUT_IN, NULL);
    if (!opts->no_bias)
        m->bias = tutti_parameter_new(
            &m->base, "bias", TUTTI_SHAPE(opts->out),
            opts->zeros || normal || given_bound ? TUTTI_INIT_ZEROS : TUTTI_INIT_UNIFORM, bound);
}

void tutti_linear_init(tutti_linear *m, tutti_module *parent, const char *name, int64_t in,
                       int64_t out)
{
    tutti_linear_init_with(m, parent, name, &(tutti_linear_layer_opts){.in = in, .out = out});
}

tutti_tensor *tutti_linear_forward(tutti_linear *m, tutti_tensor *x)
{
    return tutti__module_run(m ? &m->base : NULL, x, forward);
}
