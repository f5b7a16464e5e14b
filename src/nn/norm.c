/* norm.c -- nn.LayerNorm, nn.RMSNorm, nn.GroupNorm and nn.InstanceNorm.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

static tutti_tensor *layer_norm(const tutti_norm *m, tutti_tensor *x, tutti_tensor *weight,
                                tutti_tensor *bias)
{
    return tutti_functional_layer_norm(x, m->shape, weight, bias, m->eps);
}

static tutti_tensor *rms_norm(const tutti_norm *m, tutti_tensor *x, tutti_tensor *weight,
                              tutti_tensor *bias)
{
    (void)bias;
    return tutti_functional_rms_norm(x, m->shape, weight, m->eps);
}

static tutti_tensor *layer_forward(tutti_module *module, tutti_tensor *x)
{
    return tutti__parallel_norm((tutti_norm *)module, x, layer_norm);
}

static tutti_tensor *rms_forward(tutti_module *module, tutti_tensor *x)
{
    return tutti__parallel_norm((tutti_norm *)module, x, rms_norm);
}

static tutti_tensor *group_forward(tutti_module *module, tutti_tensor *x)
{
    const tutti_norm *m = (tutti_norm *)module;

    return tutti_functional_group_norm(x, m->groups, m->weight, m->bias, m->eps);
}

static tutti_tensor *instance_forward(tutti_module *module, tutti_tensor *x)
{
    const tutti_norm *m = (tutti_norm *)module;

    return tutti_functional_instance_norm(x, m->weight, m->bias, m->eps);
}

static void init(tutti_norm *m, tutti_module *parent, const char *name, tutti_shape shape,
                 tutti_tensor *(*forward)(tutti_module *m, tutti_tensor *x))
{
    *m = (tutti_norm){.shape = shape};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = forward;
}

static void weights(tutti_norm *m, bool bias)
{
    m->weight = tutti_parameter_new(&m->base, "weight", m->shape, TUTTI_INIT_ONES, 0);
    if (bias)
        m->bias = tutti_parameter_new(&m->base, "bias", m->shape, TUTTI_INIT_ZEROS, 0);
}

void tutti_layer_norm_init(tutti_norm *m, tutti_module *parent, const char *name, tutti_shape shape)
{
    init(m, parent, name, shape, layer_forward);
    weights(m, true);
}

void tutti_rms_norm_init(tutti_norm *m, tutti_module *parent, const char *name, tutti_shape shape)
{
    init(m, parent, name, shape, rms_forward);
    weights(m, false);
}

void tutti_group_norm_init(tutti_norm *m, tutti_module *parent, const char *name, int groups,
                           int64_t channels)
{
    init(m, parent, name, TUTTI_SHAPE(channels), group_forward);
    m->groups = groups;
    if (groups < 1 || channels < 1 || channels % groups != 0)
        tutti__module_fail(&m->base, TUTTI_ERR_ARG,
                           "%s: group_norm of %lld channels in %d groups, expected groups that "
                           "divide the channels",
                           tutti__module_path(&m->base), (long long)channels, groups);
    weights(m, true);
}

void tutti_instance_norm_init(tutti_norm *m, tutti_module *parent, const char *name,
                              int64_t channels, bool affine)
{
    init(m, parent, name, TUTTI_SHAPE(channels), instance_forward);
    if (affine)
        weights(m, true);
}

tutti_tensor *tutti_norm_forward(tutti_norm *m, tutti_tensor *x)
{
    return tutti_module_forward(m ? &m->base : NULL, x);
}
