/* conv2d.c -- convolution layers, nn.Conv2d, nn.Conv1d and nn.ConvTranspose2d.   SPDX-License-Identifier: MIT */
#include "nn/nn.h"

#include <math.h>

static tutti_tensor *forward2d(tutti_module *module, tutti_tensor *x)
{
    const tutti_conv2d *m = (tutti_conv2d *)module;

    return tutti_functional_conv2d(x, m->weight, m->bias, m->opts);
}

static tutti_tensor *forward1d(tutti_module *module, tutti_tensor *x)
{
    const tutti_conv2d *m = (tutti_conv2d *)module;

    return tutti_functional_conv1d(x, m->weight, m->bias, m->opts);
}

static tutti_tensor *forward_transpose(tutti_module *module, tutti_tensor *x)
{
    const tutti_conv_transpose2d *m = (tutti_conv_transpose2d *)module;

    return tutti_functional_conv_transpose2d(x, m->weight, m->bias, m->opts);
}

/* False with the module's error set. */
static bool check(tutti_module *m, const tutti_conv2d_layer_opts *opts, const char *what)
{
    const int groups = opts->groups ? opts->groups : 1;

    if (TUTTI__CHECK_RESERVED(tutti_conv2d_layer_opts, opts) != TUTTI_OK) {
        tutti__module_fail(m, TUTTI_ERR_ARG, "%s: %s", tutti__module_path(m), tutti_last_error());
        return false;
    }
    if (opts->in < 1 || opts->out < 1 || opts->kernel < 1 || opts->kernel > 1024 ||
        opts->kernel_w < 0 || opts->kernel_w > 1024 || opts->stride < 0 || opts->padding < 0) {
        tutti__module_fail(
            m, TUTTI_ERR_ARG,
            "%s: %s from %lld to %lld channels, kernel %d, stride %d, padding %d; expected "
            "channels "
            "of at least 1, a kernel from 1 to 1024, and a stride and padding of at least 0",
            tutti__module_path(m), what, (long long)opts->in, (long long)opts->out, opts->kernel,
            opts->stride, opts->padding);
        return false;
    }
    if (opts->dirac && (groups != 1 || opts->normal_std > 0)) {
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "%s: dirac with %d groups and normal_std %g, expected 1 group and 0",
                           tutti__module_path(m), groups, (double)opts->normal_std);
        return false;
    }
    if (groups < 1 || opts->in % groups != 0 || opts->out % groups != 0) {
        tutti__module_fail(
            m, TUTTI_ERR_ARG,
            "%s: %s from %lld to %lld channels in %d groups, which do not divide both",
            tutti__module_path(m), what, (long long)opts->in, (long long)opts->out, groups);
        return false;
    }
    return true;
}

/* Weight of this shape, whose product of the last dimensions is the fan in; and bias. */
static void make(tutti_module *m, const tutti_conv2d_layer_opts *opts, tutti_shape shape,
                 tutti_tensor **weight_p, tutti_tensor **bias_p)
{
    const bool normal = opts->normal_std > 0;
    const float bound = (float)(1 / sqrt((double)(tutti_shape_count(shape) / shape.d[0])));

    *weight_p = tutti_parameter_new(m, "weight", shape,
                                    normal        ? TUTTI_INIT_NORMAL
                                    : opts->dirac ? TUTTI_INIT_DIRAC
                                                  : TUTTI_INIT_UNIFORM,
                                    normal ? opts->normal_std : bound);
    if (!opts->no_bias)
        *bias_p = tutti_parameter_new(m, "bias", TUTTI_SHAPE(opts->out),
                                      normal ? TUTTI_INIT_ZEROS : TUTTI_INIT_UNIFORM, bound);
}

static const tutti_conv2d_layer_opts none; /* without channels: refused */

static void init(tutti_conv2d *m, tutti_module *parent, const char *name,
                 const tutti_conv2d_layer_opts *opts, bool images)
{
    *m = (tutti_conv2d){.opts = {.stride = opts->stride,
                                 .padding = opts->padding,
                                 .groups = opts->groups,
                                 .dilation = opts->dilation,
                                 .stride_w = opts->stride_w,
                                 .padding_w = opts->padding_w}};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = images ? forward2d : forward1d;
    if (check(&m->base, opts, images ? "conv2d" : "conv1d")) {
        const int64_t in = opts->in / (opts->groups ? opts->groups : 1), k = opts->kernel;

        make(&m->base, opts,
             images ? TUTTI_SHAPE(opts->out, in, k, opts->kernel_w ? opts->kernel_w : k)
                    : TUTTI_SHAPE(opts->out, in, k),
             &m->weight, &m->bias);
    }
}

void tutti_conv2d_init(tutti_conv2d *m, tutti_module *parent, const char *name,
                       const tutti_conv2d_layer_opts *opts)
{
    init(m, parent, name, opts ? opts : &none, true);
}

void tutti_conv1d_init(tutti_conv2d *m, tutti_module *parent, const char *name,
                       const tutti_conv2d_layer_opts *opts)
{
    init(m, parent, name, opts ? opts : &none, false);
}

tutti_tensor *tutti_conv2d_forward(tutti_conv2d *m, tutti_tensor *x)
{
    return tutti__module_run(m ? &m->base : NULL, x, forward2d);
}

tutti_tensor *tutti_conv1d_forward(tutti_conv2d *m, tutti_tensor *x)
{
    return tutti__module_run(m ? &m->base : NULL, x, forward1d);
}

void tutti_conv_transpose2d_init(tutti_conv_transpose2d *m, tutti_module *parent, const char *name,
                                 const tutti_conv2d_layer_opts *given, int output_padding)
{
    const tutti_conv2d_layer_opts *opts = given ? given : &none;

    *m = (tutti_conv_transpose2d){.opts = {.stride = opts->stride,
                                           .padding = opts->padding,
                                           .output_padding = output_padding,
                                           .groups = opts->groups,
                                           .dilation = opts->dilation,
                                           .stride_w = opts->stride_w,
                                           .padding_w = opts->padding_w}};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = forward_transpose;
    if (check(&m->base, opts, "conv_transpose2d")) {
        const int64_t out = opts->out / (opts->groups ? opts->groups : 1), k = opts->kernel;

        make(&m->base, opts, TUTTI_SHAPE(opts->in, out, k, opts->kernel_w ? opts->kernel_w : k),
             &m->weight, &m->bias);
    }
}

tutti_tensor *tutti_conv_transpose2d_forward(tutti_conv_transpose2d *m, tutti_tensor *x)
{
    return tutti__module_run(m ? &m->base : NULL, x, forward_transpose);
}
