/* snapshot.c -- copies of a module's parameters and buffers.   SPDX-License-Identifier: MIT */
#include "checkpoint/snapshot.h"

#include "nn/nn.h"

#include <stdlib.h>

static size_t room_of(const tutti_tensor *t)
{
    return (tutti__tensor_bytes(t) + 63) / 64 * 64;
}

tutti_status tutti__snapshot_new(tutti__snapshot *s, const tutti_module *m)
{
    size_t bytes = 0;
    char *at;

    s->n = tutti_module_n_state(m);
    for (size_t i = 0; i < s->n; i++)
        bytes += room_of(tutti_module_state(m, i));
    s->sources = tutti__alloc((s->n + 1) * sizeof *s->sources);
    s->ops = m->cx->device_ops;
    s->device = m->cx->device;
    s->values = at = s->ops->host_alloc(s->device, bytes);
    if (!s->sources || !s->values)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < s->n; i++) {
        const tutti_tensor *t = tutti_module_state(m, i);

        s->sources[i] = (tutti__safetensors_source){
            tutti_tensor_name(t), {at, tutti_tensor_shape(t), tutti_tensor_dtype(t)}};
        at += room_of(t);
    }
    return TUTTI_OK;
}

void tutti__snapshot_free(tutti__snapshot *s)
{
    free(s->sources);
    if (s->values)
        s->ops->host_free(s->device, s->values);
    *s = (tutti__snapshot){.n = 0};
}

tutti_status tutti__snapshot_take(tutti__snapshot *s, const tutti_module *m, bool parameters,
                                  tutti_stream *stream)
{
    for (size_t i = 0; i < s->n; i++) {
        const tutti_tensor *t = tutti_module_state(m, i);

        if ((t->parameter != NULL) == parameters)
            TUTTI_TRY(tutti__copy_out(stream, (void *)(uintptr_t)s->sources[i].array.p, t->data,
                                      tutti__tensor_bytes(t)));
    }
    return TUTTI_OK;
}
