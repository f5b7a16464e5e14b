/* device.c -- names of devices and element types.   SPDX-License-Identifier: MIT */
#include "device/planned/planned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t tutti_dtype_size(tutti_dtype dtype)
{
    switch (dtype) {
#define X(name, value, bytes, text)                                                                \
    case TUTTI_##name:                                                                             \
        return bytes;
        TUTTI_DTYPE_TABLE(X)
#undef X
    }
    return 0;
}

const char *tutti_dtype_name(tutti_dtype dtype)
{
    switch (dtype) {
#define X(name, value, bytes, text)                                                                \
    case TUTTI_##name:                                                                             \
        return text;
        TUTTI_DTYPE_TABLE(X)
#undef X
    }
    return "?";
}

tutti_status tutti__device_ops_of(tutti_device_kind kind, const tutti__device_ops **ops_p)
{
    if (kind == TUTTI__PLANNED) {
        *ops_p = &tutti__planned_ops;
        return TUTTI_OK;
    }
    switch (kind) {
    case TUTTI_CPU:
        *ops_p = &tutti__cpu_ops;
        return TUTTI_OK;
    case TUTTI_CUDA:
        return tutti__cuda_ops(ops_p);
    case TUTTI_STRICT:
        *ops_p = &tutti__strict_ops;
        return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_ARG, "device kind %d is unknown", (int)kind);
}

/* Falls back to the CPU without a warning, because many programs need no GPU. `tutti train` warns of an idle one. */
static tutti_device choose_device(int local_rank)
{
    const tutti__device_ops *ops;
    tutti_status status = tutti__cuda_ops(&ops);

    if (status == TUTTI_OK)
        status = ops->why();
    if (status == TUTTI_OK)
        return (tutti_device){TUTTI_CUDA, local_rank % ops->count()};
    tutti_log(TUTTI_LOG_DEBUG, "device", "auto: the CPU, because: %s", tutti_last_error());
    return (tutti_device){TUTTI_CPU, 0};
}

tutti_status tutti_device_parse(tutti_device *device_p, const char *text, int local_rank)
{
    const tutti__device_ops *ops;
    int64_t index = 0;

    TUTTI_TRY(TUTTI__NOT_NULL(text));
    if (strcmp(text, "cpu") == 0 || strcmp(text, "strict") == 0) {
        *device_p = (tutti_device){*text == 'c' ? TUTTI_CPU : TUTTI_STRICT, 0};
        return TUTTI_OK;
    }
    if (strcmp(text, "auto") == 0) {
        *device_p = choose_device(local_rank);
        return TUTTI_OK;
    }
    if (strncmp(text, "cuda", 4) != 0 ||
        (text[4] != '\0' && (text[4] != ':' || !tutti__parse_int64(text + 5, &index) || index < 0)))
        return tutti__fail(TUTTI_ERR_ARG,
                           "device \"%s\" is unknown, expected auto, cpu, cuda or cuda:N", text);
    TUTTI_TRY(tutti__cuda_ops(&ops));
    TUTTI_TRY(ops->why());
    if (!text[4]) /* more ranks than devices share them */
        index = local_rank % ops->count();
    if (index >= ops->count())
        return tutti__fail(
            TUTTI_ERR_ARG, "device %s: there %s %d CUDA device%s, the last is cuda:%d%s", text,
            ops->count() == 1 ? "is" : "are", ops->count(), ops->count() == 1 ? "" : "s",
            ops->count() - 1,
            getenv("CUDA_VISIBLE_DEVICES") ? " (numbers count the devices of CUDA_VISIBLE_DEVICES)"
                                           : "");
    *device_p = (tutti_device){TUTTI_CUDA, (int)index};
    return TUTTI_OK;
}

tutti_status tutti__device_describe(tutti_device device, tutti__device_info *info_p)
{
    const tutti__device_ops *ops;

    *info_p = (tutti__device_info){0};
    TUTTI_TRY(tutti__device_ops_of(device.kind, &ops));
    if (ops->describe)
        return ops->describe(device, info_p);
    snprintf(info_p->name, sizeof info_p->name, "%s", ops->is_host ? "CPU" : ops->name);
    return TUTTI_OK;
}

/* ---- Streams ------------------------------------------------------------------------------------------ */

static tutti_status stream_make(tutti_stream **stream_p, tutti_device device, void *native)
{
    const tutti__device_ops *ops;

    *stream_p = NULL;
    TUTTI_TRY(tutti__device_ops_of(device.kind, &ops));
    TUTTI_TRY(ops->why());
    if (device.index < 0 || device.index >= ops->count())
        return tutti__fail(TUTTI_ERR_ARG, "device %s:%d: this machine has %d", ops->name,
                           device.index, ops->count());
    return ops->stream_new(stream_p, device, native);
}

tutti_status tutti_stream_new(tutti_stream **stream_p, tutti_device device)
{
    return stream_make(stream_p, device, NULL);
}

tutti_status tutti_stream_wrap(tutti_stream **stream_p, tutti_device device, void *native)
{
    *stream_p = NULL;
    if (!native && device.kind == TUTTI_CUDA)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "tutti_stream_wrap: NULL, CUDA's default stream, cannot be distinguished from no "
            "stream: pass cudaStreamLegacy, which is the same");
    return stream_make(stream_p, device, native);
}

tutti_status tutti_stream_wait(tutti_stream *stream)
{
    TUTTI_TRY(TUTTI__NOT_NULL(stream));
    return stream->ops->stream_wait(stream);
}

tutti_device tutti_stream_device(const tutti_stream *stream)
{
    return stream ? stream->device : (tutti_device){TUTTI_CPU, 0};
}

void tutti_stream_free(tutti_stream *stream)
{
    if (stream)
        stream->ops->stream_free(stream);
}

tutti_status tutti__read(tutti_stream *stream, void *host_dst, const void *src, size_t bytes)
{
    TUTTI_TRY(tutti__copy_out(stream, host_dst, src, bytes));
    return stream->ops->stream_wait(stream);
}

tutti_status tutti__read_parts(tutti_stream *stream, const void *src, size_t bytes,
                               void (*take)(void *arg, const void *part, size_t bytes), void *arg)
{
    const size_t most = bytes < TUTTI__READ_PART ? bytes : TUTTI__READ_PART;
    tutti_status status = TUTTI_OK;
    void *part;

    if (tutti__on_host(stream)) {
        take(arg, src, bytes);
        return TUTTI_OK;
    }
    part = tutti__alloc_unset(most + 1);
    if (!part)
        return TUTTI_ERR_MEMORY;
    for (size_t at = 0, n; at < bytes && status == TUTTI_OK; at += n) {
        n = bytes - at < most ? bytes - at : most;
        status = tutti__read(stream, part, (const char *)src + at, n);
        if (status == TUTTI_OK)
            take(arg, part, n);
    }
    free(part);
    return status;
}

static void add_to_hash(void *hash, const void *part, size_t bytes)
{
    tutti__hash64_add(hash, part, bytes);
}

tutti_status tutti__hash_memory(tutti_stream *stream, const void *src, size_t bytes,
                                uint64_t *hash_p)
{
    tutti__hash64_state *hash;
    tutti_status status;

    *hash_p = 0;
    if (tutti__on_host(stream)) {
        *hash_p = tutti__hash64(src, bytes);
        return TUTTI_OK;
    }
    hash = tutti__hash64_new();
    if (!hash)
        return TUTTI_ERR_MEMORY;
    status = tutti__read_parts(stream, src, bytes, add_to_hash, hash);
    *hash_p = tutti__hash64_end(hash);
    return status;
}
