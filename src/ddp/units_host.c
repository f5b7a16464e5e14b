/* units_host.c -- ZeRO-3 with this rank's shares in host memory.   SPDX-License-Identifier: MIT
 *
 *     host       | share of bucket 0 | of bucket 1 | ...        pinned; where optimizers update them (optim/offload.c)
 *     device     | . . . . | share 0 | share 1 | share 2 | . .  a bucket that an operation reads: this share copied, the others gathered
 */
#include "ddp/zero.h"

static size_t shares_bytes(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    return tutti__zero_share(zero, b) * (size_t)zero->sharding.peers.size * sizeof(float);
}

tutti_status tutti__units_host_new(tutti_zero *zero)
{
    const tutti_ctx *cx = zero->root->module->cx;
    size_t n = 0;

    if (!zero->sharding.offloads)
        return TUTTI_OK;
    for (size_t i = 0; i < zero->n_noted; i++)
        n += zero->buckets[i].p ? tutti__zero_share(zero, &zero->buckets[i]) : 0;
    zero->host = cx->device_ops->host_alloc(cx->device, (n + 1) * sizeof *zero->host);
    if (!zero->host)
        return TUTTI_ERR_MEMORY;
    n = 0;
    for (size_t i = 0; i < zero->n_noted; i++) {
        tutti__zero_bucket *b = &zero->buckets[i];

        if (!b->p || tutti__zero_share(zero, b) == 0)
            continue;
        b->host = zero->host + n;
        n += tutti__zero_share(zero, b);
    }
    return TUTTI_OK;
}

void tutti__units_host_free(tutti_zero *zero)
{
    const tutti_ctx *cx = zero->root->module->cx;

    if (!zero->host)
        return;
    (void)!tutti_stream_wait(cx->stream); /* copies may be in flight */
    cx->device_ops->host_free(cx->device, zero->host);
    zero->host = NULL;
}

tutti_status tutti__units_host_back(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    const tutti_ctx *cx = zero->root->module->cx;
    float *p = zero->root->flat_parameters;

    TUTTI_TRY(cx->device_ops->back(cx->device, p + tutti__zero_begin(zero, b),
                                   shares_bytes(zero, b), false));
    return tutti__copy_in(cx->stream, p + tutti__zero_own(zero, b), b->host,
                          tutti__zero_share(zero, b) * sizeof *p);
}

void tutti__units_host_give_back(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    const tutti_ctx *cx = zero->root->module->cx;

    cx->device_ops->give_back(cx->device, zero->root->flat_parameters + tutti__zero_begin(zero, b),
                              shares_bytes(zero, b));
}

tutti_status tutti__units_host_take(const tutti_zero *zero, const tutti__zero_bucket *b)
{
    const tutti_ctx *cx = zero->root->module->cx;

    if (!b->host)
        return TUTTI_OK;
    return tutti__read(cx->stream, b->host, zero->root->flat_parameters + tutti__zero_own(zero, b),
                       tutti__zero_share(zero, b) * sizeof *b->host);
}
