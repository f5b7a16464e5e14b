/* snapshot.c -- copies of a module's parameters and buffers.   SPDX-License-Identifier: MIT */
#include "checkpoint/snapshot.h"

#include "checkpoint/adapter.h"
#include "nn/nn.h"

#include <stdlib.h>
#include <string.h>

static size_t room_of(const tutti_tensor *t)
{
    return (tutti__tensor_bytes(t) + 63) / 64 * 64;
}

tutti_status tutti__file_pairs(tutti__file_notes *notes, const tutti_module *m)
{
    size_t n_tied;

    m = tutti__whole_of(m);
    n_tied = notes->n_tied = tutti_module_n_tied(m);
    TUTTI_TRY(tutti__adapters_text(m, &notes->adapters));
    notes->n = 1 + n_tied + (notes->adapters != NULL);
    notes->pairs = tutti__alloc(notes->n * sizeof *notes->pairs);
    if (!notes->pairs)
        return TUTTI_ERR_MEMORY;
    notes->pairs[0] = (tutti__safetensors_pair){"format", "pt"};
    if (notes->adapters)
        notes->pairs[1 + n_tied] = (tutti__safetensors_pair){TUTTI__ADAPTERS_KEY, notes->adapters};
    for (size_t i = 1; i <= n_tied; i++) {
        tutti_tensor *t = NULL;

        notes->pairs[i].key = tutti_module_tied(m, i - 1, &t);
        notes->pairs[i].value = tutti_tensor_name(t);
    }
    return TUTTI_OK;
}

void tutti__file_notes_free(tutti__file_notes *notes)
{
    free(notes->pairs);
    free(notes->adapters);
    *notes = (tutti__file_notes){.n = 0};
}

tutti_status tutti__snapshot_new(tutti__snapshot *s, const tutti_module *m)
{
    char *at;

    s->bytes = 0;
    s->n = tutti_module_n_state(m);
    for (size_t i = 0; i < s->n; i++)
        s->bytes += room_of(tutti_module_state(m, i));
    TUTTI_TRY(tutti__file_pairs(&s->notes, m));
    s->sources = tutti__alloc((s->n + 1) * sizeof *s->sources);
    s->ops = m->cx->device_ops;
    s->device = m->cx->device;
    s->values = at = s->ops->host_alloc(s->device, s->bytes);
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
    tutti__file_notes_free(&s->notes);
    if (s->values)
        s->ops->host_free(s->device, s->values);
    *s = (tutti__snapshot){.n = 0};
}

tutti_status tutti__snapshot_take(tutti__snapshot *s, const tutti_module *m, bool parameters,
                                  tutti_stream *stream)
{
    for (size_t i = 0; i < s->n; i++) {
        const tutti_tensor *t = tutti_module_state(m, i);

        if ((t->parameter != NULL) != parameters)
            continue;
        if (t->parameter && t->parameter->store)
            TUTTI_TRY(tutti_tensor_read(tutti_module_state(m, i),
                                        (void *)(uintptr_t)s->sources[i].array.p));
        else
            TUTTI_TRY(tutti__copy_out(stream, (void *)(uintptr_t)s->sources[i].array.p, t->data,
                                      tutti__tensor_bytes(t)));
    }
    return TUTTI_OK;
}

tutti_status tutti__snapshot_take_ema(tutti__snapshot *s, const tutti_ema *ema,
                                      tutti_stream *stream)
{
    for (size_t i = 0; i < s->n; i++) {
        const tutti_tensor *t = tutti_module_state(ema->module, i);

        if (t->parameter)
            TUTTI_TRY(tutti__copy_out(stream, (void *)(uintptr_t)s->sources[i].array.p,
                                      tutti__ema_at(ema, t->parameter->index),
                                      tutti__tensor_bytes(t)));
    }
    return TUTTI_OK;
}

void tutti__snapshot_take_buffers(tutti__snapshot *s, const tutti_module *m,
                                  const tutti__snapshot *model)
{
    for (size_t i = 0; i < s->n; i++) {
        const tutti_tensor *t = tutti_module_state(m, i);

        if (!t->parameter)
            memcpy((void *)(uintptr_t)s->sources[i].array.p, model->sources[i].array.p,
                   tutti__tensor_bytes(t));
    }
}

tutti_status tutti__snapshot_put_ema(const tutti__snapshot *s, tutti_ema *ema, uint64_t updates)
{
    for (size_t i = 0; i < s->n; i++) {
        const tutti_tensor *t = tutti_module_state(ema->module, i);

        if (t->parameter)
            TUTTI_TRY(tutti_ema_write(ema, t, s->sources[i].array.p));
    }
    TUTTI_TRY(tutti_stream_wait(ema->cx->stream)); /* the snapshot may be freed now */
    return tutti_ema_set_updates(ema, updates);
}

tutti_status tutti__snapshot_put(const tutti__snapshot *s, tutti_module *m)
{
    for (size_t i = 0; i < s->n; i++)
        TUTTI_TRY(tutti_tensor_write(tutti_module_state(m, i), s->sources[i].array.p));
    return TUTTI_OK;
}

tutti_status tutti__snapshot_digest(const tutti__snapshot *s, char digest[33])
{
    tutti__safetensors_source *sorted = tutti__alloc((s->n + 1) * sizeof *sorted);
    tutti__hash128_state *hash = sorted ? tutti__hash128_new() : NULL;

    for (size_t i = 0; i < s->n && hash; i++)
        sorted[i] = s->sources[i];
    if (hash)
        qsort(sorted, s->n, sizeof *sorted, tutti__by_name);
    for (size_t i = 0; i < s->n && hash; i++)
        tutti__hash128_add(hash, sorted[i].array.p,
                           (size_t)tutti_shape_count(sorted[i].array.shape) *
                               tutti_dtype_size(sorted[i].array.dtype));
    if (hash)
        tutti__hash128_end(hash, digest);
    free(sorted);
    return hash ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for a checkpoint's digest");
}
