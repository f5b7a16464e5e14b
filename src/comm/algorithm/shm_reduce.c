/* exchange.c -- reducing data in memory that all ranks see.   SPDX-License-Identifier: MIT
 *
 * If peers can read all contributions where they lie, one round does it: each rank reduces its share over everybody's
 * memory (and writes it to who takes it), nothing is copied. Otherwise the data goes in chunks through
 * staging buffers, three a rank, so that in each round, between two meetings,
 *
 *     chunk k-1 is copied out     chunk k is reduced     chunk k+1 is copied in
 *
 * in three different buffers. Where it is no more work that each rank reduces everything for itself, it does, and nothing
 * is copied out: one meeting fewer. Chunks are numbered through all operations of the group: the last chunk of one operation
 * may still be read while the first of the next is copied in. */
#include "comm/algorithm/shm.h"
#include "comm/core/reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
    FEW = 16,               /* ranks without an allocation */
    WHOLE_BYTES = 64 << 10, /* of all ranks: so little that each reduces all */
    OF_STAGE =
        2, /* where each reduces all, the part of a staging buffer that is used: it stays in the cache */
    AHEAD = 2048, /* bytes that a copy fetches ahead */
};

typedef struct move {
    tutti__shm *shm;
    const tutti__op *op;
    tutti_dtype dtype;
    tutti_redop redop;
    size_t element, count,
        chunk; /* bytes of one; elements a rank contributes (reduce_scatter: to each) */
    size_t n_chunks;
    bool whole; /* each rank stages all that it gives, and who takes the result reduces all of it */
    char **at;  /* of each rank's contribution; NULL: staged */
    const void **src;
    void **dst;
} move;

/* By loads and stores: memcpy stores this much past the cache from which a peer is about to read it. Prefetchers stop at the
 * end of a page; what this fetches goes on. */
TUTTI__CLONES static void copy(void *restrict to, const void *restrict from, size_t bytes)
{
    typedef uint64_t lines __attribute__((vector_size(256), aligned(1), may_alias));
    const char *x = from;
    char *y = to;
    size_t at = 0;

    for (; bytes - at >= sizeof(lines); at += sizeof(lines)) {
        for (size_t line = 0; line < sizeof(lines); line += 64)
            __builtin_prefetch((const void *)((uintptr_t)(x + at) + AHEAD + line));
        *(lines *)(void *)(y + at) = *(const lines *)(const void *)(x + at);
        __asm__ volatile("" ::: "memory"); /* or the compiler makes it a memcpy */
    }
    memcpy(y + at, x + at, bytes - at);
}

static char *stage(const move *m, int rank, size_t k)
{
    return tutti__shm_stage(m->shm, rank, k);
}

static size_t chunk_count(const move *m, size_t k)
{
    size_t begin = k * m->chunk;

    return m->count - begin < m->chunk ? m->count - begin : m->chunk;
}

/* Chunk k of rank's contribution; reduce_scatter: the piece of it for `to`. */
static const char *contribution(const move *m, int rank, size_t k, int to)
{
    bool scatter = m->op->signature.op == TUTTI__OP_REDUCE_SCATTER;

    if (m->at[rank])
        return m->at[rank] + (k * m->chunk + (scatter ? (size_t)to * m->count : 0)) * m->element;
    return stage(m, rank, k) + (scatter ? (size_t)to * m->chunk : 0) * m->element;
}

static bool takes(const move *m)
{
    return !tutti__op_traits_of(m->op)->to_root ||
           m->op->signature.root == (uint32_t)m->shm->comm->rank;
}

/* The part of n elements that a rank reduces, cut at pages: prefetchers do not stop at the end of a share, but they do at
 * the end of a page, and would pull at lines that a neighbour is just writing. (Chunks that tests make small: at lines.) */
static size_t share(const move *m, size_t n, int rank, size_t *length_p)
{
    size_t page = m->shm->block->chunk_bytes / 64, grain = (page > 64 ? page : 64) / m->element;
    tutti__piece part = tutti__part(n, (size_t)m->shm->comm->size, (size_t)rank, grain);

    *length_p = part.count;
    return part.at;
}

static void copy_in(const move *m, size_t k)
{
    int rank = m->shm->comm->rank;
    size_t n = chunk_count(m, k) * m->element;
    const char *src = m->op->src;

    if (m->at[rank])
        return;
    if (m->whole) {
        copy(stage(m, rank, k), src + k * m->chunk * m->element, n);
        return;
    }
    if (m->op->signature.op !=
        TUTTI__OP_REDUCE_SCATTER) { /* its own share it reduces from where it lies */
        size_t length, begin = share(m, chunk_count(m, k), rank, &length) * m->element;
        size_t end = begin + length * m->element;

        src += k * m->chunk * m->element;
        copy(stage(m, rank, k), src, begin);
        copy(stage(m, rank, k) + end, src + end, n - end);
        return;
    }
    for (int to = 0; to < m->shm->comm->size; to++)
        copy(stage(m, rank, k) + (size_t)to * m->chunk * m->element,
             src + ((size_t)to * m->count + k * m->chunk) * m->element, n);
}

/* Where the reduction of this rank's share goes: all_reduce to everybody, reduce to root; at once, or by its staging. */
static size_t find_destinations(const move *m, size_t k, size_t begin, bool all_direct)
{
    int rank = m->shm->comm->rank, size = m->shm->comm->size, root = (int)m->op->signature.root;
    bool to_root = m->op->signature.op == TUTTI__OP_REDUCE;
    char *own = (char *)m->op->dst + (k * m->chunk + begin) * m->element,
         *staged = stage(m, rank, k) + begin * m->element;

    if (m->whole) {
        m->dst[0] = own;
        return 1;
    }
    if (to_root && all_direct) {
        m->dst[0] = m->at[root] + begin * m->element;
        return 1;
    }
    if (to_root) {
        m->dst[0] = rank == root ? own : staged;
        return 1;
    }
    for (int i = 0; all_direct && i < size; i++) /* its own first */
        m->dst[i] = m->at[(rank + i) % size] + begin * m->element;
    if (all_direct)
        return (size_t)size;
    m->dst[0] = own;
    m->dst[1] = staged;
    return 2;
}

/* Chunk k, once all contributions to it are there. */
static void work(const move *m, size_t k, bool all_direct)
{
    int rank = m->shm->comm->rank, size = m->shm->comm->size;
    size_t n = chunk_count(m, k), begin, length, n_dst;

    if (m->op->signature.op == TUTTI__OP_REDUCE_SCATTER) {
        for (int r = 0; r < size; r++)
            m->src[r] = contribution(m, r, k, rank);
        m->dst[0] = (char *)m->op->dst + k * m->chunk * m->element;
        tutti__reduce(m->dtype, m->redop, m->dst, 1, m->src, (size_t)size, n);
        return;
    }
    begin = share(m, n, rank, &length);
    if (m->whole) {
        begin = 0;
        length = takes(m) ? n : 0;
    }
    for (int r = 0; r < size; r++)
        m->src[r] = r == rank ? (const char *)m->op->src + (k * m->chunk + begin) * m->element
                              : contribution(m, r, k, 0) + begin * m->element;
    n_dst = find_destinations(m, k, begin, all_direct);
    tutti__reduce(m->dtype, m->redop, m->dst, n_dst, m->src, (size_t)size, length);
}

/* The reduced chunk k lies in shares, in everybody's staging; its own is where it belongs already. */
static void copy_out(const move *m, size_t k)
{
    size_t n = chunk_count(m, k), begin, length;
    char *dst = (char *)m->op->dst + k * m->chunk * m->element;

    if (!takes(m))
        return;
    for (int r = 0; r < m->shm->comm->size; r++) {
        begin = share(m, n, r, &length);
        if (r != m->shm->comm->rank)
            copy(dst + begin * m->element, stage(m, r, k) + begin * m->element,
                 length * m->element);
    }
}

/* So little that everybody says it along with the call, and each reduces all of it. */
static tutti_status run_small(const move *m)
{
    const tutti__op_traits *traits = tutti__op_traits_of(m->op);
    int rank = m->shm->comm->rank, size = m->shm->comm->size;
    size_t piece = m->count * m->element, lots = traits->scatters ? (size_t)size : 1;

    memcpy(tutti__shm_call_of(m->shm, rank)->small, m->op->src, piece * lots);
    TUTTI_TRY(tutti__shm_enter(m->shm, m->op));
    if (!takes(m))
        return TUTTI_OK;
    for (int r = 0; r < size; r++)
        m->src[r] =
            tutti__shm_call_of(m->shm, r)->small + (traits->scatters ? (size_t)rank * piece : 0);
    m->dst[0] = m->op->dst;
    tutti__reduce(m->dtype, m->redop, m->dst, 1, m->src, (size_t)size, m->count);
    return TUTTI_OK;
}

static tutti_status run_rounds(move *m)
{
    bool all_direct = true, any_direct = false, out;

    copy_in(m, 0); /* its own reach is known; whether the others' is, shows the first meeting */
    TUTTI_TRY(tutti__shm_enter(m->shm, m->op));
    TUTTI_TRY(tutti__shm_find_contributions(m->shm, 0, m->shm->comm->size, m->at));
    for (int r = 0; r < m->shm->comm->size; r++) {
        all_direct = all_direct && m->at[r];
        any_direct = any_direct || m->at[r];
    }
    m->whole = m->whole && !any_direct;
    if (all_direct) {
        m->chunk = m->count;
        m->n_chunks = 1;
    }
    out = m->op->signature.op != TUTTI__OP_REDUCE_SCATTER && !all_direct && !m->whole;
    for (size_t k = 0; k < m->n_chunks; k++) {
        if (out && k > 0)
            copy_out(m, k - 1);
        work(m, k, all_direct);
        if (k + 1 < m->n_chunks)
            copy_in(m, k + 1);
        /* Peers may read this rank's own memory until the last meeting. */
        if (k + 1 < m->n_chunks || out || any_direct)
            TUTTI_TRY(tutti__shm_barrier(m->shm, m->op));
    }
    if (out)
        copy_out(m, m->n_chunks - 1);
    m->shm->tick += all_direct ? 0 : m->n_chunks;
    return TUTTI_OK;
}

tutti_status tutti__shm_reduce(tutti__shm *shm, tutti__op *op)
{
    const tutti__signature *signature = &op->signature;
    size_t size = (size_t)shm->comm->size, chunk_bytes = shm->block->chunk_bytes;
    move m = {.shm = shm,

              .op = op,
              .dtype = (tutti_dtype)signature->dtype,
              .redop = (tutti_redop)signature->redop,
              .element = tutti_dtype_size((tutti_dtype)signature->dtype),
              .count = (size_t)signature->count};
    void *few[3 * FEW] = {0}, **pointers = size <= FEW ? few : calloc(3 * size, sizeof *few);
    bool small =
        tutti__op_given(shm->comm->rank, shm->comm->size, op) * m.element <= TUTTI__SHM_SMALL;
    tutti_status status;

    if (!pointers)
        return tutti__comm_fail(shm->comm, TUTTI_ERR_MEMORY, shm->comm->rank,
                                "rank %d has no memory", shm->comm->rank);
    m.at = (char **)pointers;
    m.src = (const void **)pointers + size;
    m.dst = pointers + 2 * size;
    m.chunk = chunk_bytes / m.element / (signature->op == TUTTI__OP_REDUCE_SCATTER ? size : 1);
    /* Between two ranks it moves as many bytes; of few bytes a meeting costs more. */
    if (signature->op != TUTTI__OP_REDUCE_SCATTER &&
        (size == 2 || size * m.count * m.element <= WHOLE_BYTES)) {
        m.whole = true;
        m.chunk /= OF_STAGE;
    }
    m.n_chunks = (m.count + m.chunk - 1) / m.chunk;
    if (tutti__shm_call_of(shm, shm->comm->rank)->segment != TUTTI__SHM_STAGED)
        m.at[shm->comm->rank] = (char *)(uintptr_t)op->src; /* nothing to copy in */
    status = small ? run_small(&m) : run_rounds(&m);
    if (pointers != few)
        free(pointers);
    return status;
}
