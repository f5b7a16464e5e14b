/* batch_norm2d.c -- batch normalisation, nn.BatchNorm2d and nn.BatchNorm1d.   SPDX-License-Identifier: MIT */
#include "device/flat.h"
#include "nn/nn.h"

static tutti_status count_batch(const tutti_tensor *counter)
{
    tutti_stream *stream = counter->cx->stream;

    return stream->ops->flat->count(stream, counter->data);
}

typedef tutti_tensor *normalise(tutti_tensor *x, const tutti_batch_norm2d_args *args);

static tutti_tensor *forward(tutti_batch_norm2d *m, tutti_tensor *x, normalise *function, bool relu,
                             tutti_tensor *residual)
{
    tutti_tensor *y;
    tutti_status status = TUTTI_OK;

    y = function(x, &(tutti_batch_norm2d_args){.weight = m->weight,
                                               .bias = m->bias,
                                               .running_mean = m->running_mean,
                                               .running_var = m->running_var,
                                               .momentum = m->momentum,
                                               .eps = m->eps,
                                               .relu = relu,
                                               .residual = residual,
                                               .peers = &m->base.peers});
    if (!y)
        return NULL;
    if (y->poison == TUTTI_OK && !m->base.cx->eval)
        status = count_batch(m->num_batches_tracked);
    return status == TUTTI_OK ? y : tutti__poisoned(m->base.cx, status);
}

static tutti_tensor *forward_of_images(tutti_module *m, tutti_tensor *x)
{
    return forward((tutti_batch_norm2d *)m, x, tutti_functional_batch_norm2d, false, NULL);
}

static tutti_tensor *forward_of_rows(tutti_module *m, tutti_tensor *x)
{
    return forward((tutti_batch_norm2d *)m, x, tutti_functional_batch_norm1d, false, NULL);
}

void tutti_batch_norm2d_init(tutti_batch_norm2d *m, tutti_module *parent, const char *name,
                             int64_t channels)
{
    tutti_shape shape = TUTTI_SHAPE(channels);

    *m = (tutti_batch_norm2d){0};
    tutti_module_init_child(&m->base, parent, name);
    m->base.forward = forward_of_images;
    m->weight = tutti_parameter_new(&m->base, "weight", shape, TUTTI_INIT_ONES, 0);
    m->bias = tutti_parameter_new(&m->base, "bias", shape, TUTTI_INIT_ZEROS, 0);
    m->running_mean =
        tutti_buffer_new(&m->base, "running_mean", shape, TUTTI_F32, TUTTI_INIT_ZEROS);
    m->running_var = tutti_buffer_new(&m->base, "running_var", shape, TUTTI_F32, TUTTI_INIT_ONES);
    m->num_batches_tracked = tutti_buffer_new(&m->base, "num_batches_tracked", (tutti_shape){0},
                                              TUTTI_I64, TUTTI_INIT_ZEROS);
}

void tutti_batch_norm1d_init(tutti_batch_norm2d *m, tutti_module *parent, const char *name,
                             int64_t channels)
{
    tutti_batch_norm2d_init(m, parent, name, channels);
    m->base.forward = forward_of_rows;
}

tutti_tensor *tutti_batch_norm2d_forward(tutti_batch_norm2d *m, tutti_tensor *x)
{
    return tutti__module_run(m ? &m->base : NULL, x, forward_of_images);
}

tutti_tensor *tutti_batch_norm2d_relu_forward(tutti_batch_norm2d *m, tutti_tensor *x,
                                              tutti_tensor *residual)
{
    tutti_tensor *bad;

    if (tutti__module_refuses(m ? &m->base : NULL, x, &bad))
        return bad;
    return tutti__module_done(&m->base, x,
                              forward(m, x, tutti_functional_batch_norm2d, true, residual),
                              residual ? "add+relu" : "relu");
}

tutti_tensor *tutti_batch_norm1d_forward(tutti_batch_norm2d *m, tutti_tensor *x)
{
    return tutti__module_run(m ? &m->base : NULL, x, forward_of_rows);
}
