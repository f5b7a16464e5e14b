/* module_save.c -- a module's weights into a file, by PyTorch's names.   SPDX-License-Identifier: MIT */
#include "checkpoint/pytorch.h"
#include "tensor/tensor.h"
#include <tutti/checkpoint.h>

#include <stdlib.h>

static tutti_status write(const char *path, const tutti__safetensors_source *sources, size_t n)
{
    static const tutti__safetensors_pair format = {"format", "pt"};

    if (tutti__ends_in(path, ".pt") || tutti__ends_in(path, ".pth"))
        return tutti__pytorch_write(path, sources, n);
    return tutti__safetensors_write(path, sources, n, &format, 1);
}

tutti_status tutti_module_save(const tutti_module *m, const char *path)
{
    size_t n = tutti_module_n_state(m), bytes = 0;
    tutti__safetensors_source *sources;
    char *snapshot;
    tutti_status status = TUTTI_OK;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(TUTTI__NOT_NULL(path));
    for (size_t i = 0; i < n; i++)
        bytes += (tutti__tensor_bytes(tutti_module_state(m, i)) + 63) / 64 * 64;
    sources = tutti__alloc((n + 1) * sizeof *sources);
    snapshot = tutti__alloc(bytes);
    if (!sources || !snapshot)
        status = TUTTI_ERR_MEMORY;
    bytes = 0;
    for (size_t i = 0; i < n && status == TUTTI_OK; i++) {
        tutti_tensor *t = tutti_module_state(m, i);

        sources[i].name = tutti_tensor_name(t);
        sources[i].array =
            (tutti_array){snapshot + bytes, tutti_tensor_shape(t), tutti_tensor_dtype(t)};
        status = tutti_tensor_read(t, snapshot + bytes);
        bytes += (tutti__tensor_bytes(t) + 63) / 64 * 64;
    }
    if (status == TUTTI_OK)
        status = write(path, sources, n);
    free(snapshot);
    free(sources);
    return status;
}
