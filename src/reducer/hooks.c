/* hooks.c -- sends gradients in 16 bits.   SPDX-License-Identifier: MIT
 *
 *     bucket    | f32 f32 f32 f32 f32 f32 f32 f32 |
 *     narrowed  | 16 16 16 16 16 16 16 16 | rest  |     in place: block by block, forwards; widened backwards
 *
 * The bucket is memory that peers read directly, so the narrowed values are reduced in place. */
#include "reducer/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct compressor {
    tutti_dtype dtype;
    tutti_comm_hook inner; /* run NULL: all_reduce */
} compressor;

static tutti_status compress(void *self, tutti_group *group, const tutti_bucket *bucket)
{
    const compressor *c = self;
    tutti_bucket narrow = *bucket;
    tutti_stream *stream = tutti__stream_or_cpu(bucket->buf.stream);
    bool narrows = bucket->buf.dtype == TUTTI_F32;
    tutti_status status;

    if (narrows) {
        TUTTI_TRY(stream->ops->flat->narrow(stream, bucket->buf.p, bucket->buf.count, c->dtype));
        narrow.buf.dtype = c->dtype;
    }
    if (c->inner.run)
        status = c->inner.run(c->inner.self, group, &narrow);
    else
        status = tutti_all_reduce(group, narrow.buf, TUTTI_AVG, NULL);
    if (narrows && status == TUTTI_OK)
        status = stream->ops->flat->widen(stream, bucket->buf.p, bucket->buf.count, c->dtype);
    return status;
}

static void compressor_free(void *self)
{
    compressor *c = self;

    if (c->inner.free)
        c->inner.free(c->inner.self);
    free(c);
}

static tutti_status new_compressor(tutti_comm_hook *hook_p, const char *name, tutti_dtype dtype,
                                   const tutti_comm_hook *inner)
{
    tutti_status status = TUTTI__CHECK_RESERVED(tutti_comm_hook, inner);
    compressor *c = status == TUTTI_OK ? tutti__alloc(sizeof *c) : NULL;

    *hook_p = (tutti_comm_hook){0};
    if (!c) {
        if (inner && inner->free)
            inner->free(inner->self);
        return status == TUTTI_OK ? TUTTI_ERR_MEMORY : status;
    }
    c->dtype = dtype;
    if (inner)
        c->inner = *inner;
    *hook_p = (tutti_comm_hook){.name = name, .run = compress, .free = compressor_free, .self = c};
    return TUTTI_OK;
}

tutti_status tutti_comm_hook_bf16(tutti_comm_hook *hook_p, const tutti_comm_hook *inner)
{
    return new_compressor(hook_p, "bf16", TUTTI_BF16, inner);
}

tutti_status tutti_comm_hook_fp16(tutti_comm_hook *hook_p, const tutti_comm_hook *inner)
{
    return new_compressor(hook_p, "fp16", TUTTI_F16, inner);
}
