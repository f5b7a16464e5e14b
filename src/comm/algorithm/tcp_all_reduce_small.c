/* tcp_all_reduce_small.c -- small all_reduce: each rank sends all its data to all others.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_direct.h"

enum { SMALL_BYTES = 32 << 10 };

static size_t bytes_of(const tutti__direct *d)
{
    return d->count * tutti_dtype_size((tutti_dtype)d->op->signature.dtype);
}

bool tutti__tcp_all_reduce_is_small(const tutti__direct *d)
{
    return bytes_of(d) * (size_t)(d->n - 1) <= SMALL_BYTES;
}

tutti_status tutti__tcp_all_reduce_small(tutti__direct *d)
{
    size_t bytes = bytes_of(d), slot_bytes = (bytes + 63) / 64 * 64;
    char *slots = tutti__tcp_scratch(d->tcp, (size_t)d->n * slot_bytes);

    if (!slots)
        return tutti__comm_status(d->tcp->comm);
    TUTTI_TRY(tutti__tcp_start(
        d->tcp, &(tutti__schedule){.op = d->op,
                                   .first = d->first,
                                   .bytes = tutti__signature_bytes(&d->op->signature),
                                   .ranks = d->ranks,
                                   .n_ranks = d->n,
                                   .n_messages = 1}));
    for (int i = 0; i < d->n; i++) {
        char *slot = slots + (size_t)i * slot_bytes;

        tutti__tcp_send(d->tcp, d->ranks[i], d->p, bytes);
        tutti__tcp_recv(d->tcp, d->ranks[i], slot, bytes);
        d->tcp->src[i] = i == d->me ? d->p : slot;
    }
    TUTTI_TRY(tutti__tcp_finish(d->tcp));
    tutti__direct_combine(d, d->p, d->count);
    return TUTTI_OK;
}
