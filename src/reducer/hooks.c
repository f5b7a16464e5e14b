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

/* ---- Setting one ---- */

tutti_status tutti__check_hook(const char *call, const tutti_comm_hook *place,
                               const tutti_comm_hook *hook)
{
    if (!hook || !hook->name || !hook->run)
        return tutti__fail(TUTTI_ERR_ARG, "%s: a hook needs a name and a function (run)", call);
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_comm_hook, hook));
    if (place->run)
        return tutti__fail(TUTTI_ERR_STATE,
                           "a communication hook, \"%s\", is set already; \"%s\" cannot be "
                           "another: set one, which may wrap another",
                           place->name, hook->name);
    return TUTTI_OK;
}

tutti_status tutti__settle_hook(tutti_comm_hook *place, const tutti_comm_hook *hook,
                                tutti_status status)
{
    if (status == TUTTI_OK)
        *place = *hook;
    else if (hook && hook->free)
        hook->free(hook->self);
    return status;
}

tutti_status tutti_reducer_set_hook(tutti_reducer *r, const tutti_comm_hook *hook)
{
    tutti_status status = TUTTI__NOT_NULL(r);

    if (status == TUTTI_OK)
        status = tutti__check_hook("tutti_reducer_set_hook", &r->hook, hook);
    if (status == TUTTI_OK && r->exact)
        status = tutti__fail(TUTTI_ERR_UNSUPPORTED,
                             "communication hook \"%s\" breaks the promise of logical shards, the "
                             "same bits for any number of ranks; use one of the two",
                             hook->name);
    if (status == TUTTI_OK && r->in_step)
        status = tutti__fail(TUTTI_ERR_STATE,
                             "tutti_reducer_set_hook in step %llu; set it between steps",
                             (unsigned long long)r->step);
    return tutti__settle_hook(r ? &r->hook : NULL, hook, status);
}
