/* shm_reduce_staged.c -- data that peers cannot read where it lies goes in chunks through staging buffers, six a rank (shm.h).
 *
 * Where ranks take shares of a chunk, they meet once a round, between two barriers, in three different buffers:
 *
 *     chunk k-1 is copied out     chunk k is reduced     chunk k+1 is copied in
 *
 * Where each rank reduces for itself all that it takes (few bytes, two ranks, reduce_scatter), nothing is copied out and nobody waits for a
 * result: in round k chunk k is reduced, k+2 copied in, and a rank may be two rounds ahead of another. What can be read where it lies is
 * not copied in. Chunks are numbered through all operations of the group: the last ones of one operation may still be read while
 * the first of the next are copied in.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/shm_reduce.h"
#include "comm/core/copy.h"
#include "comm/transport/shared_memory/way.h"

#include <string.h>

enum {
    WHOLE_BYTES = 64 << 10, /* of all ranks: so little that each reduces all */
    OF_STAGE =
        4, /* where each reduces all, the part of a staging buffer that is used: all stay in the cache */
};

static char *stage(const tutti__shm_reduction *r, int rank, size_t k)
{
    return tutti__shm_stage(r->shm, rank, k);
}

static size_t chunk_count(const tutti__shm_reduction *r, size_t k)
{
    size_t begin = k * r->chunk;

    return r->count - begin < r->chunk ? r->count - begin : r->chunk;
}

/* Chunk k of rank's contribution; reduce_scatter: the piece of it for `to`. */
static const char *contribution(const tutti__shm_reduction *r, int rank, size_t k, int to)
{
    if (r->at[rank])
        return r->at[rank] +
               (k * r->chunk + (r->scatters ? (size_t)to * r->count : 0)) * r->element;
    return stage(r, rank, k) + (r->scatters ? (size_t)to * r->chunk : 0) * r->element;
}

/* A piece of the chunk for each rank. */
static void copy_in_pieces(const tutti__shm_reduction *r, size_t k)
{
    size_t bytes = chunk_count(r, k) * r->element;

    for (int to = 0; to < r->shm->comm->size; to++)
        tutti__way_copy_in(
            r->shm, stage(r, r->shm->comm->rank, k) + (size_t)to * r->chunk * r->element,
            (const char *)r->op->src + ((size_t)to * r->count + k * r->chunk) * r->element, bytes);
}

/* All of the chunk but this rank's own share, which it reduces from where it lies. */
static void copy_in_shares(const tutti__shm_reduction *r, size_t k)
{
    int rank = r->shm->comm->rank;
    size_t n = chunk_count(r, k);
    tutti__piece own = tutti__shm_share(r, n, rank);
    size_t begin = own.at * r->element, end = begin + own.count * r->element;
    const char *src = (const char *)r->op->src + k * r->chunk * r->element;

    tutti__way_copy_in(r->shm, stage(r, rank, k), src, begin);
    tutti__way_copy_in(r->shm, stage(r, rank, k) + end, src + end, n * r->element - end);
}

static void copy_in(const tutti__shm_reduction *r, size_t k)
{
    int rank = r->shm->comm->rank;

    if (r->at[rank])
        return;
    if (r->whole)
        tutti__way_copy_in(r->shm, stage(r, rank, k),
                           (const char *)r->op->src + k * r->chunk * r->element,
                           chunk_count(r, k) * r->element);
    else if (r->scatters)
        copy_in_pieces(r, k);
    else
        copy_in_shares(r, k);
}

/* Where the reduction of this rank's part goes: all_reduce to everybody by its staging, reduce to root. */
static size_t find_destinations(const tutti__shm_reduction *r, size_t k, size_t begin)
{
    int rank = r->shm->comm->rank;
    char *own = (char *)r->op->dst + (k * r->chunk + begin) * r->element,
         *staged = stage(r, rank, k) + begin * r->element;

    if (r->whole || r->op->signature.op != TUTTI__OP_REDUCE) {
        r->dst[0] = own;
        r->dst[1] = staged;
        return r->whole ? 1 : 2;
    }
    r->dst[0] = rank == (int)r->op->signature.root ? own : staged;
    return 1;
}

/* Chunk k, once all contributions to it are there. */
static void reduce_chunk(const tutti__shm_reduction *r, size_t k)
{
    int rank = r->shm->comm->rank, size = r->shm->comm->size;
    size_t n = chunk_count(r, k), n_dst;
    tutti__piece part = {0, n};

    if (r->scatters) {
        for (int i = 0; i < size; i++)
            r->src[i] = contribution(r, i, k, rank);
        r->dst[0] = (char *)r->op->dst + k * r->chunk * r->element;
        tutti__reduce(r->dtype, r->redop, r->dst, 1, r->src, (size_t)size, n);
        return;
    }
    if (!r->whole)
        part = tutti__shm_share(r, n, rank);
    else if (!tutti__shm_takes(r))
        return;
    for (int i = 0; i < size; i++)
        r->src[i] = i == rank ? (const char *)r->op->src + (k * r->chunk + part.at) * r->element
                              : contribution(r, i, k, 0) + part.at * r->element;
    n_dst = find_destinations(r, k, part.at);
    tutti__reduce(r->dtype, r->redop, r->dst, n_dst, r->src, (size_t)size, part.count);
}

/* The reduced chunk k lies in shares, in everybody's staging; its own is where it belongs already. */
static void copy_out(const tutti__shm_reduction *r, size_t k)
{
    size_t n = chunk_count(r, k);
    char *dst = (char *)r->op->dst + k * r->chunk * r->element;

    if (!tutti__shm_takes(r))
        return;
    for (int i = 0; i < r->shm->comm->size; i++) {
        tutti__piece share = tutti__shm_share(r, n, i);

        if (i != r->shm->comm->rank)
            tutti__copy(dst + share.at * r->element, stage(r, i, k) + share.at * r->element,
                        share.count * r->element);
    }
}

void tutti__shm_reduce_stage(tutti__shm_reduction *r)
{
    size_t size = (size_t)r->shm->comm->size;

    r->chunk = r->shm->block->chunk_bytes / r->element / (r->scatters ? size : 1);
    /* Between two ranks it moves as many bytes; of few bytes a barrier costs more. */
    if (!r->scatters && (size == 2 || size * r->count * r->element <= WHOLE_BYTES)) {
        r->whole = true;
        r->chunk /= OF_STAGE;
    }
    r->n_chunks = (r->count + r->chunk - 1) / r->chunk;
    r->ahead = r->scatters || r->whole ? TUTTI__SHM_AHEAD : 1;
    tutti__way_choose(r->shm, r->op);
    for (size_t k = 0; k < r->ahead && k < r->n_chunks; k++)
        copy_in(r, k); /* whether peers can read each other's, shows the barrier */
}

/* Nobody waits for what is reduced: ranks are that far ahead of each other as chunks are. */
static tutti_status run_ahead(const tutti__shm_reduction *r)
{
    for (size_t k = 0; k < r->n_chunks; k++) {
        if (k + r->ahead < r->n_chunks)
            copy_in(r, k + r->ahead);
        if (r->n_chunks > r->ahead)
            TUTTI_TRY(tutti__shm_barrier_behind(r->shm, r->op, r->ahead));
        reduce_chunk(r, k);
    }
    return TUTTI_OK;
}

/* Some wait for what others reduce, or write into others' memory. */
static tutti_status run_in_step(const tutti__shm_reduction *r, bool out, bool any_direct)
{
    for (size_t k = 0; k < r->n_chunks; k++) {
        if (out && k > 0)
            copy_out(r, k - 1);
        TUTTI_TRY(any_direct ? tutti__shm_access_begin(r->shm) : TUTTI_OK);
        reduce_chunk(r, k);
        if (any_direct)
            tutti__shm_access_end(r->shm);
        if (k + r->ahead < r->n_chunks)
            copy_in(r, k + r->ahead);
        /* Peers may read this rank's own memory until the last barrier. */
        if (k + 1 < r->n_chunks || out || any_direct)
            TUTTI_TRY(tutti__shm_barrier(r->shm, r->op));
    }
    if (out)
        copy_out(r, r->n_chunks - 1);
    return TUTTI_OK;
}

tutti_status tutti__shm_reduce_staged(tutti__shm_reduction *r)
{
    bool any_direct = false, out;

    for (int i = 0; i < r->shm->comm->size; i++)
        any_direct = any_direct || r->at[i];
    r->whole = r->whole && !any_direct;
    out = !r->scatters && !r->whole;
    tutti__way_begin(r->shm, r->op);
    TUTTI_TRY(out || any_direct ? run_in_step(r, out, any_direct) : run_ahead(r));
    tutti__way_end(r->shm, r->op);
    r->shm->tick += r->n_chunks;
    return TUTTI_OK;
}
