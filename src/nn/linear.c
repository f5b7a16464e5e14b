/* linear.c -- the fully connected layer, nn.Linear.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#include <math.h>

void tutti_linear_init(tutti_linear *m, tutti_module *parent, const char *name, int64_t in,
                       int64_t out)
{
    float bound = in > 0 ? (float)(1 / sqrt((double)in)) : 0;

    *m = (tutti_linear){0};
    tutti_module_init_child(&m->base, parent, name);
    if (in < 1 || out < 1) {
        tutti__module_fail(&m->base, TUTTI_ERR_ARG,
                           "%s: linear from %lld to %lld features, expected at least 1",
                           tutti__module_path(&m->base), (long long)in, (long long)out);
        return;
    }
    m->weight =
        tutti_parameter_new(&m->base, "weight", TUTTI_SHAPE(out, in), TUTTI_INIT_UNIFORM, bound);
    m->bias = tutti_parameter_new(&m->base, "bias", TUTTI_SHAPE(out), TUTTI_INIT_UNIFORM, bound);
}

tutti_tensor *tutti_linear_forward(tutti_linear *m, tutti_tensor *x)
{
    tutti_tensor *bad;

    if (tutti__module_refuses(m ? &m->base : NULL, x, &bad))
        return bad;
    return tutti_functional_linear(x, m->weight, m->bias);
}
