/* tcp_direct.c -- the steps of the direct all-reduce.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tcp_direct.h"

enum { CHUNK_BYTES = 128 << 10, DEPTH = 2 };

tutti_status tutti__direct_start(tutti__direct *d)
{
    tutti_dtype dtype = (tutti_dtype)d->op->signature.dtype;
    size_t n = (size_t)d->n;

    d->slot_bytes = tutti__comm_chunk_bytes(d->tcp->comm, CHUNK_BYTES);
    d->element = tutti_dtype_size(dtype);
    d->chunk = d->slot_bytes / d->element * n;
    d->n_chunks = (d->count + d->chunk - 1) / d->chunk;
    d->depth = d->n_chunks < DEPTH ? d->n_chunks : DEPTH;
    d->sent = d->reduced = d->complete = 0;
    d->slots = tutti__tcp_scratch(d->tcp, d->depth * n * d->slot_bytes);
    if (!d->slots)
        return tutti__comm_status(d->tcp->comm);
    return tutti__tcp_start(d->tcp,
                            &(tutti__schedule){.op = d->op,
                                               .first = d->first,
                                               .bytes = tutti__signature_bytes(&d->op->signature),
                                               .ranks = d->ranks,
                                               .n_ranks = d->n,
                                               .n_messages = 2 * d->n_chunks});
}

tutti__piece tutti__direct_chunk(const tutti__direct *d, size_t k)
{
    size_t at = k * d->chunk, left = d->count - at;

    return (tutti__piece){at, left < d->chunk ? left : d->chunk};
}

/* The i-th rank's shard of chunk k. */
static struct iovec shard(const tutti__direct *d, size_t k, int i)
{
    tutti__piece chunk = tutti__direct_chunk(d, k),
                 part = tutti__part(chunk.count, (size_t)d->n, (size_t)i, 64 / d->element);

    return (struct iovec){d->p + (chunk.at + part.at) * d->element, part.count * d->element};
}

/* The buffer that receives the i-th rank's shard of chunk k. */
static char *slot(const tutti__direct *d, size_t k, int i)
{
    return d->slots + ((k % d->depth) * (size_t)d->n + (size_t)i) * d->slot_bytes;
}

/* Numbers in the row of messages. */
static size_t shard_message(const tutti__direct *d, size_t k)
{
    return k < d->depth ? k : 2 * k + 1 - d->depth;
}

static size_t result_message(const tutti__direct *d, size_t k)
{
    return k < d->n_chunks - d->depth ? 2 * k + d->depth : k + d->n_chunks;
}

bool tutti__direct_may_send(const tutti__direct *d)
{
    return d->sent < d->n_chunks && d->sent < d->reduced + d->depth; /* its slots are free */
}

void tutti__direct_send(tutti__direct *d)
{
    size_t k = d->sent++, bytes = shard(d, k, d->me).iov_len;

    for (int i = 0; i < d->n; i++) {
        struct iovec theirs = shard(d, k, i);

        tutti__tcp_send(d->tcp, d->ranks[i], theirs.iov_base, theirs.iov_len);
        tutti__tcp_recv(d->tcp, d->ranks[i], slot(d, k, i), bytes);
    }
}

bool tutti__direct_may_reduce(const tutti__direct *d)
{
    return d->reduced < d->sent && tutti__tcp_arrived(d->tcp, -1) > shard_message(d, d->reduced);
}

void tutti__direct_reduce(tutti__direct *d)
{
    size_t k = d->reduced++;
    struct iovec mine = shard(d, k, d->me);

    for (int i = 0; i < d->n; i++)
        d->tcp->src[i] = i == d->me ? mine.iov_base : slot(d, k, i);
    tutti__direct_combine(d, mine.iov_base, mine.iov_len / d->element);
    for (int i = 0; i < d->n; i++) {
        struct iovec theirs = shard(d, k, i);

        tutti__tcp_send(d->tcp, d->ranks[i], mine.iov_base, mine.iov_len);
        tutti__tcp_recv(d->tcp, d->ranks[i], theirs.iov_base, theirs.iov_len);
    }
}

bool tutti__direct_is_complete(const tutti__direct *d)
{
    return d->complete < d->reduced &&
           tutti__tcp_arrived(d->tcp, -1) > result_message(d, d->complete);
}

void tutti__direct_combine(const tutti__direct *d, void *dst, size_t n)
{
    tutti_dtype dtype = (tutti_dtype)d->op->signature.dtype;

    if (d->redop == TUTTI_AVG)
        tutti__average(dtype, d->divisor, dst, d->tcp->src, (size_t)d->n, n);
    else
        tutti__reduce(dtype, d->redop, &dst, 1, d->tcp->src, (size_t)d->n, n);
}
