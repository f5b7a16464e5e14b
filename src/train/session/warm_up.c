/* warm_up.c -- a batch of zeros forward and backward, before a process joins a group.   SPDX-License-Identifier: MIT
 *
 * Kernels are created when first used, which takes longer than a step. A process that replaces a dead one creates them while it
 * waits to join, instead of in its first step, for which all ranks wait. It leaves no trace: buffers and the context's step are
 * restored, and the first shard zeroes the gradients. */
#include "data/dataset.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/session/amp.h"
#include "train/session/warm_up.h"

#include <stdlib.h>
#include <string.h>

static size_t buffers_bytes(const tutti_module *m)
{
    size_t bytes = 0;

    for (size_t i = 0; i < tutti_module_n_buffers(m); i++)
        bytes += tutti__tensor_bytes(tutti_module_buffer(m, i));
    return bytes;
}

/* Copies buffers to `to`, or (back) from it. */
static tutti_status copy_buffers(const tutti_module *m, char *to, bool back)
{
    for (size_t i = 0; i < tutti_module_n_buffers(m); i++) {
        tutti_tensor *t = tutti_module_buffer(m, i);

        TUTTI_TRY(back ? tutti_tensor_write(t, to) : tutti_tensor_read(t, to));
        to += tutti__tensor_bytes(t);
    }
    return TUTTI_OK;
}

static tutti_status compute(tutti__session *s, tutti_array x, tutti_array y)
{
    tutti_tensor *output, *loss = NULL;
    tutti_status status;

    tutti_step_begin(s->cx, &(tutti_step_opts){.autocast = tutti__amp_dtype(s)});
    status = tutti__session_forward(s, x, &output);
    if (status == TUTTI_OK)
        status = tutti__session_loss(s, output, y, &loss);
    if (status == TUTTI_OK)
        status = tutti_backward(loss);
    tutti_step_end(s->cx);
    return status;
}

tutti_status tutti__warm_up(tutti__session *s)
{
    const tutti_dataset *data = s->data.train;
    const tutti_dataset_info info = tutti_dataset_describe(data);
    const size_t batch = (size_t)s->config->batch_size;
    const int64_t n = (int64_t)(batch < info.count ? batch : info.count);
    const uint64_t step = tutti_ctx_step(s->cx);
    tutti_array x = tutti__dataset_array(
                    data, 0, n, tutti__dataset_has_images(data) ? s->parts->model->channels : 0),
                y = tutti__dataset_array(data, 1, n, 0);
    void *x_zeros = tutti__alloc((size_t)tutti_shape_count(x.shape) * tutti_dtype_size(x.dtype)),
         *y_zeros = tutti__alloc((size_t)tutti_shape_count(y.shape) * tutti_dtype_size(y.dtype));
    char *buffers = tutti__alloc(buffers_bytes(s->module) + 1);
    tutti_status status = x_zeros && y_zeros && buffers ? TUTTI_OK : TUTTI_ERR_MEMORY;

    x.p = x_zeros;
    y.p = y_zeros;
    if (status == TUTTI_OK)
        status = copy_buffers(s->module, buffers, false);
    if (status == TUTTI_OK)
        status = compute(s, x, y);
    if (status == TUTTI_OK)
        status = copy_buffers(s->module, buffers, true);
    tutti_ctx_set_step(s->cx, step);
    free(x_zeros);
    free(y_zeros);
    free(buffers);
    return status;
}
