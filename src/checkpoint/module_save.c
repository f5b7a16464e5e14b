/* module_save.c -- saves a module's weights to a file, by PyTorch's names.   SPDX-License-Identifier: MIT */
#include "checkpoint/pytorch.h"
#include "checkpoint/snapshot.h"
#include "nn/nn.h"
#include <tutti/checkpoint.h>

static tutti_status write(const char *path, const tutti__snapshot *s)
{
    if (tutti__ends_in(path, ".pt") || tutti__ends_in(path, ".pth"))
        return tutti__pytorch_write(path, s->sources, s->n, s->notes.pairs + 1, s->notes.n_tied,
                                    NULL);
    return tutti__safetensors_write(path, s->sources, s->n, s->notes.pairs, s->notes.n);
}

tutti_status tutti_module_save(const tutti_module *m, const char *path)
{
    tutti__snapshot snapshot = {.n = 0};
    tutti_status status;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(TUTTI__NOT_NULL(path));
    status = tutti__snapshot_new(&snapshot, m);
    if (status == TUTTI_OK)
        status = tutti__snapshot_take(&snapshot, m, true, m->cx->stream);
    if (status == TUTTI_OK)
        status = tutti__snapshot_take(&snapshot, m, false, m->cx->stream);
    if (status == TUTTI_OK)
        status = tutti_stream_wait(m->cx->stream);
    if (status == TUTTI_OK)
        status = write(path, &snapshot);
    tutti__snapshot_free(&snapshot);
    return status;
}
