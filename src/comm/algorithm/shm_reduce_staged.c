/* shm_reduce_staged.c -- reductions of data that peers cannot read directly, in chunks through six staging buffers a rank
 * (shm_algorithms.h).
 *
 * If ranks reduce shares of a chunk, each round works on three buffers between two barriers:
 *
 *     chunk k-1 is copied out     chunk k is reduced     chunk k+1 is copied in
 *
 * In an all_reduce by cross-memory attach (copy_method.h), each rank copies in what others reduce, reduces its share directly to
 * its place in dst, and then fetches the others' shares, each by one system call: for 1 to 8 MiB that is faster than
 * copying results in and out, or whole contributions.
 *
 * If each rank reduces by itself all that it takes (small data, two ranks, reduce_scatter), nothing is copied out, root of
 * a reduce copies nothing in, and no rank waits for a result: in round k chunk k is reduced, chunk k+2 copied in, and a
 * rank may be two rounds ahead of another. Contributions that can be read directly are not copied in; by cross-memory
 * attach a rank reads the part that it reduces into a staging buffer of its own that is free at that time. Chunks are
 * numbered through all operations of the group: the last chunks of one operation may still be read while the first of the
 * next are copied in.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/shm_reduce.h"
#include "comm/core/copy.h"
#include "comm/transport/shared_memory/cma.h"
#include "comm/transport/shared_memory/copy_method.h"

#include <string.h>

enum {
    /* of all ranks together: up to this size each rank reduces everything */
    WHOLE_BYTES = 64 << 10,
    /* If each rank reduces everything, it uses half of a staging buffer; for large data a quarter, so that all stay in cache. */
    OF_STAGE = 2,
    MUCH_CHUNKS = 64, /* staging chunks: from this size on, data are large */
};

static char *stage(const tutti__shm_reduction *r, int rank, size_t k)
{
    return tutti__shm_stage(r->shm, rank, k);
}

/* Each rank gives every other rank only the piece that that rank reduces. */
static bool in_pieces(const tutti__shm_reduction *r)
{
    return r->plan == TUTTI__REDUCE_PIECES || r->plan == TUTTI__REDUCE_FETCH;
}

/* The part of each rank's contribution that `to` reduces. */
static tutti__piece piece_of(const tutti__shm_reduction *r, int to)
{
    if (r->scatters)
        return (tutti__piece){(size_t)to * r->count, r->count};
    return r->plan == TUTTI__REDUCE_FETCH ? tutti__shm_share(r, r->count, to)
                                          : (tutti__piece){0, r->count};
}

/* The part of that in chunk k. */
static tutti__piece chunk_of(const tutti__shm_reduction *r, int to, size_t k)
{
    tutti__piece piece = piece_of(r, to);
    size_t begin = k * r->chunk, left = piece.count > begin ? piece.count - begin : 0;

    return (tutti__piece){piece.at + begin, left < r->chunk ? left : r->chunk};
}

static char *stage_for(const tutti__shm_reduction *r, int from, int to, size_t k)
{
    size_t place = in_pieces(r) ? (size_t)(to - (to > from)) : 0; /* none for itself */

    return stage(r, from, k) + place * r->chunk * r->element;
}

static bool is_of_kernel(const tutti__shm_reduction *r, int from)
{
    return tutti__shm_call_of(r->shm, from)->segment == TUTTI__CMA;
}

/* Whether its contribution is read directly. */
static bool is_direct(const tutti__shm_reduction *r, int from)
{
    return r->at[from] && !(r->plan == TUTTI__REDUCE_FETCH && is_of_kernel(r, from));
}

/* What `from` contributes to chunk k of the part that this rank reduces. */
static const char *contribution(const tutti__shm_reduction *r, int from, size_t k)
{
    int rank = r->shm->comm->rank;

    if (from != rank && !is_direct(r, from))
        return stage_for(r, from, rank, k);
    return (from == rank ? (const char *)r->op->src : r->at[from]) +
           chunk_of(r, rank, k).at * r->element;
}

static bool is_read(const tutti__shm_reduction *r, int from)
{
    return from != r->shm->comm->rank && is_of_kernel(r, from) && is_direct(r, from);
}

/* Elements of each rank that are read at once: all fit into the buffer in which chunk k + 1 will be staged. */
static size_t read_count(const tutti__shm_reduction *r, size_t n)
{
    size_t room = r->shm->block->chunk_bytes / (size_t)r->shm->comm->size / 64 * 64 / r->element;

    for (int i = 0; i < r->shm->comm->size; i++)
        if (is_read(r, i))
            return room < n ? room : n;
    return n;
}

/* Sets r->src: n elements of all contributions to chunk k, from `begin` on. */
static tutti_status find_sources(const tutti__shm_reduction *r, size_t k, size_t begin, size_t n)
{
    char *room = stage(r, r->shm->comm->rank, k + 1);

    for (int i = 0; i < r->shm->comm->size; i++) {
        r->src[i] = contribution(r, i, k) + begin * r->element;
        if (!is_read(r, i))
            continue;
        TUTTI_TRY(tutti__cma_read(r->shm, i, room, r->src[i], n * r->element));
        r->src[i] = room;
        room += (n * r->element + 63) / 64 * 64;
    }
    return TUTTI_OK;
}

/* Copies in one piece of the chunk for each other rank. */
static void copy_in_pieces(const tutti__shm_reduction *r, size_t k)
{
    int rank = r->shm->comm->rank;

    for (int to = 0; to < r->shm->comm->size; to++) {
        tutti__piece piece = chunk_of(r, to, k);

        if (to != rank)
            tutti__copy_by_method(r->shm, stage_for(r, rank, to, k),
                                  (const char *)r->op->src + piece.at * r->element,
                                  piece.count * r->element);
    }
}

/* Copies in the chunk without this rank's own share, which it reads from src. */
static void copy_in_shares(const tutti__shm_reduction *r, size_t k)
{
    int rank = r->shm->comm->rank;
    size_t n = chunk_of(r, rank, k).count;
    tutti__piece own = tutti__shm_share(r, n, rank);
    size_t begin = own.at * r->element, end = begin + own.count * r->element;
    const char *src = (const char *)r->op->src + k * r->chunk * r->element;

    tutti__copy_by_method(r->shm, stage(r, rank, k), src, begin);
    tutti__copy_by_method(r->shm, stage(r, rank, k) + end, src + end, n * r->element - end);
}

/* In a reduce that root does alone, no rank needs root's contribution. */
static bool nobody_takes(const tutti__shm_reduction *r)
{
    return r->plan == TUTTI__REDUCE_WHOLE && tutti__op_traits_of(r->op)->to_root &&
           tutti__shm_takes(r);
}

static void copy_in(const tutti__shm_reduction *r, size_t k)
{
    int rank = r->shm->comm->rank;

    if (is_direct(r, rank) || nobody_takes(r))
        return;
    if (r->plan == TUTTI__REDUCE_WHOLE)
        tutti__copy_by_method(r->shm, stage(r, rank, k),
                              (const char *)r->op->src + k * r->chunk * r->element,
                              chunk_of(r, rank, k).count * r->element);
    else if (in_pieces(r))
        copy_in_pieces(r, k);
    else
        copy_in_shares(r, k);
}

/* Sets the destinations of chunk k's reduction, from `begin` on: for all_reduce its place in dst, and staging if others
 * copy it out from there; for reduce root's dst, or staging. */
static size_t find_destinations(const tutti__shm_reduction *r, size_t k, size_t begin)
{
    int rank = r->shm->comm->rank;
    size_t at = r->scatters ? k * r->chunk : chunk_of(r, rank, k).at;
    char *own = (char *)r->op->dst + (at + begin) * r->element,
         *staged = stage(r, rank, k) + begin * r->element;

    r->dst[0] = own;
    r->dst[1] = staged;
    if (r->plan != TUTTI__REDUCE_SHARES)
        return 1;
    if (r->op->signature.op != TUTTI__OP_REDUCE)
        return 2;
    if (rank != (int)r->op->signature.root)
        r->dst[0] = staged;
    return 1;
}

/* Reduces chunk k, after all contributions to it are staged. */
static tutti_status reduce_chunk(const tutti__shm_reduction *r, size_t k)
{
    int rank = r->shm->comm->rank;
    size_t n = chunk_of(r, rank, k).count, size = (size_t)r->shm->comm->size, most, count, n_dst;
    tutti__piece part = {0, n};

    if (r->plan == TUTTI__REDUCE_SHARES)
        part = tutti__shm_share(r, n, rank);
    else if (!tutti__shm_takes(r))
        return TUTTI_OK;
    most = read_count(r, part.count);
    for (size_t done = 0; done < part.count; done += count) {
        count = part.count - done < most ? part.count - done : most;
        TUTTI_TRY(find_sources(r, k, part.at + done, count));
        n_dst = find_destinations(r, k, part.at + done);
        tutti__reduce(r->dtype, r->redop, r->dst, n_dst, r->src, size, count);
    }
    return TUTTI_OK;
}

/* Copies the other ranks' shares of reduced chunk k from their staging; its own share is already in place. */
static void copy_out(const tutti__shm_reduction *r, size_t k)
{
    size_t n = chunk_of(r, r->shm->comm->rank, k).count;
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

/* Declares what is read by cross-memory attach: the contribution, or the result that others fetch. */
static void offer(tutti__shm_reduction *r)
{
    size_t pieces = r->scatters ? (size_t)r->shm->comm->size : 1;
    bool fetch = r->plan == TUTTI__REDUCE_FETCH;

    tutti__cma_offer(r->shm, fetch ? r->op->dst : r->op->src, r->count * r->element * pieces);
    if (!fetch)
        r->at[r->shm->comm->rank] = (char *)(uintptr_t)r->op->src; /* nothing to copy in */
}

static tutti__shm_plan choose_plan(const tutti__shm_reduction *r)
{
    size_t size = (size_t)r->shm->comm->size;

    if (r->scatters)
        return TUTTI__REDUCE_PIECES;
    if (r->shm->copy_method == TUTTI__COPY_BY_KERNEL)
        return r->op->signature.op == TUTTI__OP_ALL_REDUCE ? TUTTI__REDUCE_FETCH
                                                           : TUTTI__REDUCE_SHARES;
    /* Two ranks would move as many bytes by shares; for small data a barrier costs more. */
    return size == 2 || size * r->count * r->element <= WHOLE_BYTES ? TUTTI__REDUCE_WHOLE
                                                                    : TUTTI__REDUCE_SHARES;
}

void tutti__shm_reduce_stage(tutti__shm_reduction *r)
{
    size_t size = (size_t)r->shm->comm->size, room = r->shm->block->chunk_bytes;
    int rank = r->shm->comm->rank;

    tutti__copy_method_choose(r->shm, r->op);
    r->plan = choose_plan(r);
    if (!r->at[rank] && r->shm->copy_method == TUTTI__COPY_BY_KERNEL)
        offer(r);
    r->chunk = (in_pieces(r) ? room / (size - 1) / 64 * 64 : room) / r->element;
    if (r->plan == TUTTI__REDUCE_WHOLE)
        r->chunk /= r->count >= MUCH_CHUNKS * r->chunk ? 2 * OF_STAGE : OF_STAGE;
    r->n_chunks = (piece_of(r, 0).count + r->chunk - 1) / r->chunk;
    r->ahead = r->plan == TUTTI__REDUCE_SHARES ? 1 : TUTTI__SHM_AHEAD;
    if (is_direct(r, rank))
        return;
    tutti__copy_method_stage_begin(r->shm);
    for (size_t k = 0; k < r->ahead && k < r->n_chunks; k++)
        copy_in(r, k); /* whether peers can read it directly is known only after the barrier */
    tutti__copy_method_stage_end(r->shm);
}

/* No rank waits for a result, so ranks may be `ahead` chunks ahead of each other. */
static tutti_status run_ahead(const tutti__shm_reduction *r)
{
    for (size_t k = 0; k < r->n_chunks; k++) {
        if (k + r->ahead < r->n_chunks)
            copy_in(r, k + r->ahead);
        if (r->n_chunks > r->ahead)
            TUTTI_TRY(tutti__shm_barrier_behind(r->shm, r->op, r->ahead));
        TUTTI_TRY(reduce_chunk(r, k));
    }
    return TUTTI_OK;
}

/* Ranks wait for results of others, or write into others' memory. */
static tutti_status run_in_step(const tutti__shm_reduction *r, bool out, bool any_direct)
{
    for (size_t k = 0; k < r->n_chunks; k++) {
        if (out && k > 0)
            copy_out(r, k - 1);
        TUTTI_TRY(any_direct ? tutti__shm_access_begin(r->shm) : TUTTI_OK);
        TUTTI_TRY(reduce_chunk(r, k));
        if (any_direct)
            tutti__shm_access_end(r->shm);
        if (k + r->ahead < r->n_chunks)
            copy_in(r, k + r->ahead);
        /* Peers may read this rank's memory until the last barrier. */
        if (k + 1 < r->n_chunks || out || any_direct)
            TUTTI_TRY(tutti__shm_barrier(r->shm, r->op));
    }
    if (out)
        copy_out(r, r->n_chunks - 1);
    return TUTTI_OK;
}

/* Fetches the shares of the result that others have reduced, after all are done. */
static tutti_status fetch(const tutti__shm_reduction *r, bool any_direct)
{
    int rank = r->shm->comm->rank, size = r->shm->comm->size;

    TUTTI_TRY(tutti__shm_barrier(r->shm, r->op));
    TUTTI_TRY(any_direct ? tutti__shm_access_begin(r->shm) : TUTTI_OK);
    for (int i = 1; i < size; i++) {
        int from = (rank + i) % size; /* spreads the readers over the ranks */
        tutti__piece share = piece_of(r, from);
        size_t at = share.at * r->element, bytes = share.count * r->element;

        if (is_of_kernel(r, from))
            TUTTI_TRY(
                tutti__cma_read(r->shm, from, (char *)r->op->dst + at, r->at[from] + at, bytes));
        else
            tutti__copy((char *)r->op->dst + at, r->at[from] + at, bytes);
    }
    if (any_direct)
        tutti__shm_access_end(r->shm);
    return tutti__shm_barrier(r->shm, r->op); /* others read this rank's result until then */
}

tutti_status tutti__shm_reduce_staged(tutti__shm_reduction *r)
{
    bool any_direct = false, out;

    for (int i = 0; i < r->shm->comm->size; i++)
        any_direct = any_direct || is_direct(r, i);
    /* In an all_reduce a rank would overwrite a contribution that others still read directly. */
    if (r->plan == TUTTI__REDUCE_WHOLE && any_direct && !tutti__op_traits_of(r->op)->to_root)
        r->plan = TUTTI__REDUCE_SHARES;
    out = r->plan == TUTTI__REDUCE_SHARES;
    tutti__copy_method_begin(r->shm);
    TUTTI_TRY(out || any_direct ? run_in_step(r, out, any_direct) : run_ahead(r));
    TUTTI_TRY(r->plan == TUTTI__REDUCE_FETCH ? fetch(r, any_direct) : TUTTI_OK);
    tutti__copy_method_end(r->shm, r->op);
    r->shm->tick += r->n_chunks;
    return TUTTI_OK;
}
