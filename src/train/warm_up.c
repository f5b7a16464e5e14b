/* warm_up.c -- a batch of zeros forward and back, before a process joins others.   SPDX-License-Identifier: MIT
 *
 * Kernels are made when they are first used, which takes longer than a step does. A process that takes the place of a dead one
 * makes them while it waits to be called, instead of in its first step, for which all wait. It leaves no trace: buffers and the
 * context's step are put back, and gradients begin anew with the first shard. */
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/amp.h"
#include "train/members.h"

#include <stdlib.h>
#include <string.h>

static size_t buffers_bytes(const tutti_module *m)
{
    size_t bytes = 0;

    for (size_t i = 0; i < tutti_module_n_buffers(m); i++)
        bytes += tutti__tensor_bytes(tutti_module_buffer(m, i));
    return bytes;
}

/* Into `to`, or (back) out of it. */
static tutti_status copy_buffers(const tutti_module *m, char *to, bool back)
{
    for (size_t i = 0; i < tutti_module_n_buffers(m); i++) {
        tutti_tensor *t = tutti_module_buffer(m, i);

        TUTTI_TRY(back ? tutti_tensor_write(t, to) : tutti_tensor_read(t, to));
        to += tutti__tensor_bytes(t);
    }
    return TUTTI_OK;
}

static tutti_status compute(tutti__run *run, float *x, int64_t *labels, int64_t n)
{
    const tutti_dataset_info info = tutti_dataset_describe(run->train_data);
    const int channels = tutti__model_find(run->config->model)->channels;
    const tutti_array images = {
        x, TUTTI_SHAPE(n, channels ? channels : info.channels, info.height, info.width), TUTTI_F32};
    tutti_tensor *loss;
    tutti_status status;

    tutti_step_begin(run->cx, &(tutti_step_opts){.autocast = tutti__amp_dtype(run)});
    loss =
        tutti_cross_entropy(tutti_model_forward(run->model, tutti_input(run->cx, images)),
                            tutti_input(run->cx, (tutti_array){labels, TUTTI_SHAPE(n), TUTTI_I64}));
    status = tutti_backward(loss);
    tutti_step_end(run->cx);
    return status;
}

tutti_status tutti__warm_up(tutti__run *run)
{
    const tutti_dataset_info info = tutti_dataset_describe(run->train_data);
    const size_t batch = (size_t)run->config->batch_size,
                 n = batch < info.count ? batch : info.count;
    const size_t each =
        (size_t)(info.channels > 3 ? info.channels : 3) * (size_t)info.height * (size_t)info.width;
    const uint64_t step = tutti_ctx_step(run->cx);
    float *x = tutti__alloc(n * each * sizeof *x);
    int64_t *labels = tutti__alloc(n * sizeof *labels);
    char *buffers = tutti__alloc(buffers_bytes(run->module) + 1);
    tutti_status status = x && labels && buffers ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK)
        status = copy_buffers(run->module, buffers, false);
    if (status == TUTTI_OK)
        status = compute(run, x, labels, (int64_t)n);
    if (status == TUTTI_OK)
        status = copy_buffers(run->module, buffers, true);
    tutti_ctx_set_step(run->cx, step);
    free(x);
    free(labels);
    free(buffers);
    return status;
}
