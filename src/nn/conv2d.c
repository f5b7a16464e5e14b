/* conv2d.c -- the convolution layer, nn.Conv2d.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#include <math.h>

void tutti_conv2d_init(tutti_conv2d *m, tutti_module *parent, const char *name,
                       const tutti_conv2d_layer_opts *given)
{
    static const tutti_conv2d_layer_opts none;
    const tutti_conv2d_layer_opts *opts = given ? given : &none; /* without channels: refused */
    int64_t k = opts->kernel;
    float bound;

    *m = (tutti_conv2d){.opts = {.stride = opts->stride, .padding = opts->padding}};
    tutti_module_init_child(&m->base, parent, name);
    if (TUTTI__CHECK_RESERVED(tutti_conv2d_layer_opts, opts) != TUTTI_OK) {
        tutti__module_fail(&m->base, TUTTI_ERR_ARG, "%s: %s", tutti__module_path(&m->base),
                           tutti_last_error());
        return;
    }
    if (opts->in < 1 || opts->out < 1 || k < 1 || k > 1024 || opts->stride < 0 ||
        opts->padding < 0) {
        tutti__module_fail(
            &m->base, TUTTI_ERR_ARG,
            "%s: conv2d from %lld to %lld channels, kernel %d, stride %d, padding %d; expected "
            "channels "
            "of at least 1, a kernel from 1 to 1024, and a stride and padding of at least 0",
            tutti__module_path(&m->base), (long long)opts->in, (long long)opts->out, opts->kernel,
            opts->stride, opts->padding);
        return;
    }
    bound = (float)(1 / sqrt((double)opts->in * (double)(k * k)));
    m->weight = tutti_parameter_new(&m->base, "weight", TUTTI_SHAPE(opts->out, opts->in, k, k),
                                    opts->normal_std > 0 ? TUTTI_INIT_NORMAL : TUTTI_INIT_UNIFORM,
                                    opts->normal_std > 0 ? (float)opts->normal_std : bound);
    if (opts->bias)
        m->bias = tutti_parameter_new(&m->base, "bias", TUTTI_SHAPE(opts->out), TUTTI_INIT_UNIFORM,
                                      bound);
}

tutti_tensor *tutti_conv2d_forward(tutti_conv2d *m, tutti_tensor *x)
{
    tutti_tensor *bad;

    if (tutti__module_refuses(m ? &m->base : NULL, x, &bad))
        return bad;
    return tutti_functional_conv2d(x, m->weight, m->bias, m->opts);
}
