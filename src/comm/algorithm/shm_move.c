/* shm_move.c -- moving data unchanged through shared memory: broadcast, gather, all_to_all and the like.
 * SPDX-License-Identifier: MIT
 *
 * The receiver of a piece reads it directly, if it can, by loads or by cross-memory attach (cma.c); in a broadcast or
 * gather in group memory the sender writes part of it at the same time. Otherwise it goes in chunks through the sender's
 * staging buffers: in round k chunk k is copied out and chunk k+2 copied in, and a rank may be two rounds ahead of
 * another. If receivers give nothing (broadcast, gather) it is one round, because they only wait for the first chunks. A
 * sender whose pieces differ for each receiver divides its buffer among them. Chunks are numbered through all operations,
 * as in shm_reduce_staged.c. */
#include "comm/algorithm/shm_algorithms.h"
#include "comm/core/copy.h"
#include "comm/transport/shared_memory/cma.h"
#include "comm/transport/shared_memory/copy_method.h"

#include <string.h>

enum {
    OF_STAGE = 2, /* the part of a staging buffer that is used, so that all stay in the cache */
    /* staging chunks: from this size on results are stored non-temporally, as they exceed the cache */
    PAST_CHUNKS = 64,
    PAGE = 4096,
};

typedef struct move {
    tutti__shm *shm;
    const tutti__operation *op;
    const tutti__op_traits *traits;
    size_t element, lot, n_chunks; /* lot: elements of one piece that a chunk holds */
    size_t ahead;                  /* chunks that are copied in before the first is copied out */
    int first, last;               /* ranks that give: [first, last) */
    bool direct;                   /* all pieces are read directly */
    bool past;                     /* results are larger than a cache */
    char **at;                     /* what each rank has declared; NULL: nothing, or staged */
} move;

/* The piece that `from` gives to `to`, in elements. */
static tutti__piece piece_of(const move *m, int from, int to)
{
    const uint64_t *counts = tutti__shm_counts_of(m->shm, m->op->signature.sequence, from);
    tutti__piece piece = {0, 0};

    if (!m->traits->uneven)
        return tutti__piece_out(m->op, from, to);
    for (int r = 0; m->traits->scatters && r < to; r++)
        piece.at += counts[r];
    piece.count = counts[to];
    return piece;
}

/* Root of a gather gives only to itself. */
static bool gives_to_others(const move *m, int rank)
{
    return !m->traits->to_root || rank != (int)m->op->signature.root;
}

/* The part of a piece in chunk k: its bytes, and *begin_p, its offset. */
static size_t chunk_of(const move *m, tutti__piece piece, size_t k, size_t *begin_p)
{
    size_t begin = m->direct ? 0 : k * m->lot, left = piece.count > begin ? piece.count - begin : 0;

    *begin_p = (piece.at + begin) * m->element;
    return (m->direct || left < m->lot ? left : m->lot) * m->element;
}

static char *stage_for(const move *m, int from, int to, size_t k)
{
    size_t place = m->traits->scatters ? (size_t)(to - (to > from)) : 0; /* none for itself */

    return tutti__shm_stage(m->shm, from, k) + place * m->lot * m->element;
}

static void copy_in(const move *m, size_t k)
{
    int rank = m->shm->comm->rank, size = m->shm->comm->size;
    size_t begin, bytes;

    if (m->at[rank])
        return;
    for (int to = 0; to < size; to++) {
        bytes = chunk_of(m, tutti__piece_out(m->op, rank, to), k, &begin);
        if (bytes == 0 || (to == rank && (m->traits->scatters || m->traits->to_root)))
            continue;
        tutti__copy_by_method(m->shm, stage_for(m, rank, to, k), (const char *)m->op->src + begin,
                              bytes);
        if (!m->traits->scatters)
            return; /* all receive the same */
    }
}

/* Whether whole pieces go between root and ranks that only give or only take: broadcast, gather. */
static bool is_one_way(const tutti__op_traits *traits)
{
    return (traits->from_root || traits->to_root) && !traits->scatters;
}

/* In a broadcast or gather one side would wait while the other copies: so both copy, if each can access what the other has
 * declared. Root of a scatter copies its own piece meanwhile. */
static bool both_copy(const move *m, int peer)
{
    return m->direct && is_one_way(m->traits) && tutti__shm_reaches(m->shm, peer) &&
           tutti__shm_reaches(m->shm, m->shm->comm->rank);
}

/* The part of a piece between this rank and another that this rank copies: in total root copies as much as each other rank. */
static tutti__piece own_part(const move *m, int peer, size_t bytes)
{
    tutti__piece of_root = tutti__part(bytes, (size_t)m->shm->comm->size, 0, PAGE);

    if (!both_copy(m, peer))
        return (tutti__piece){0, bytes};
    return m->shm->comm->rank == (int)m->op->signature.root
               ? of_root
               : (tutti__piece){of_root.count, bytes - of_root.count};
}

static void copy_direct(const move *m, char *to, const char *from, size_t bytes)
{
    if (to == from)
        return;
    if (m->past)
        tutti__copy_past(to, from, bytes);
    else
        memcpy(to, from, bytes);
}

static void copy_staged(const move *m, char *to, const char *from, size_t bytes)
{
    if (m->past)
        tutti__copy_past(to, from, bytes);
    else
        tutti__copy_by_method(m->shm, to, from, bytes);
}

static tutti_status copy_out(const move *m, size_t k)
{
    int rank = m->shm->comm->rank, size = m->shm->comm->size;

    for (int i = 0; i < size; i++) {
        int r = (rank + i) % size; /* spreads the readers over the ranks */
        size_t begin, to, bytes = chunk_of(m, tutti__piece_in(rank, m->op, r), k, &to);
        tutti__piece part = own_part(m, r, bytes);
        char *dst;

        if (bytes == 0)
            continue;
        dst = (char *)m->op->dst + to;
        (void)chunk_of(m, piece_of(m, r, rank), k, &begin);
        if (r == rank)
            copy_direct(m, dst, (const char *)m->op->src + begin, bytes);
        else if (!m->at[r])
            copy_staged(m, dst, stage_for(m, r, rank, k), bytes);
        else if (tutti__shm_call_of(m->shm, r)->segment == TUTTI__CMA)
            TUTTI_TRY(tutti__cma_read(m->shm, r, dst, m->at[r] + begin, bytes));
        else
            copy_direct(m, dst + part.at, m->at[r] + begin + part.at, part.count);
    }
    return TUTTI_OK;
}

/* Copies its part of what it gives directly into the receivers' memory. */
static void push(const move *m)
{
    int rank = m->shm->comm->rank, size = m->shm->comm->size;

    for (int i = 1; i < size; i++) {
        int r = (rank + i) % size;
        tutti__piece out = tutti__piece_out(m->op, rank, r);
        tutti__piece part = own_part(m, r, out.count * m->element);

        if (out.count > 0 && both_copy(m, r))
            copy_direct(m, m->at[r] + tutti__piece_in(r, m->op, rank).at * m->element + part.at,
                        (const char *)m->op->src + out.at * m->element + part.at, part.count);
    }
}

/* Elements of the largest piece that `from` gives. */
static size_t most_of(const move *m, int from)
{
    const uint64_t *counts = tutti__shm_counts_of(m->shm, m->op->signature.sequence, from);

    return m->traits->uneven ? (size_t)counts[2 * m->shm->comm->size]
                             : (size_t)m->op->signature.count;
}

/* Bytes of the larger of src and dst. */
static size_t whole_bytes(const move *m)
{
    size_t size = (size_t)m->shm->comm->size, count = (size_t)m->op->signature.count;

    if (m->traits->uneven)
        count = tutti__op_taken(m->shm->comm->rank, (int)size, m->op);
    else if (m->traits->scatters || m->traits->gathers)
        count *= size;
    return count * m->element;
}

static void publish_counts(const move *m)
{
    uint64_t *counts = tutti__shm_counts_of(m->shm, m->op->signature.sequence, m->shm->comm->rank),
             most = 0;
    int size = m->shm->comm->size;

    for (int r = 0; r < size; r++) {
        counts[r] = tutti__piece_out(m->op, m->shm->comm->rank, r).count;
        counts[size + r] = tutti__piece_in(m->shm->comm->rank, m->op, r).count;
        most = counts[r] > most ? counts[r] : most;
    }
    counts[2 * size] = most;
}

static tutti_status check_sent(const move *m, int from)
{
    int size = m->shm->comm->size;
    uint64_t sequence = m->op->signature.sequence;

    for (int to = 0; to < size; to++)
        TUTTI_TRY(tutti__comm_check_sent(
            m->shm->comm, &m->op->signature, from, to,
            (size_t)tutti__shm_counts_of(m->shm, sequence, from)[to],
            (size_t)tutti__shm_counts_of(m->shm, sequence, to)[size + from]));
    return TUTTI_OK;
}

/* Every rank checks all pairs, so that all report the same mismatch; of many ranks each checks its own, and waits for the
 * others. */
static tutti_status check_counts(const move *m)
{
    if (m->shm->fan > 0) {
        tutti__shm_access_end(m->shm);
        TUTTI_TRY(check_sent(m, m->shm->comm->rank));
        TUTTI_TRY(tutti__shm_barrier(m->shm, m->op));
        return tutti__shm_access_begin(m->shm);
    }
    for (int from = 0; from < m->shm->comm->size; from++)
        TUTTI_TRY(check_sent(m, from));
    return TUTTI_OK;
}

/* After the operation is entered: the number of rounds, and whether anything is read directly. */
static tutti_status plan(move *m, bool *any_direct_p)
{
    size_t most = 0;

    if (m->traits->uneven)
        TUTTI_TRY(check_counts(m));
    TUTTI_TRY(tutti__shm_find_contributions(m->shm, 0, m->shm->comm->size, m->at));
    m->direct = true;
    for (int from = m->first; from < m->last; from++) {
        size_t count = gives_to_others(m, from) ? most_of(m, from) : 0;

        most = count > most ? count : most;
        m->direct = m->direct && (m->at[from] || count == 0);
        *any_direct_p = *any_direct_p || (m->at[from] && count > 0);
    }
    if (m->traits->uneven)
        m->shm->uneven_bytes[m->op->signature.op] =
            most * m->element * (m->traits->scatters ? (size_t)m->shm->comm->size : 1);
    m->n_chunks = m->direct ? most > 0 : (most + m->lot - 1) / m->lot;
    return TUTTI_OK;
}

/* Staged at least in part: a rank is up to `ahead` chunks ahead of the others. */
static tutti_status run_rounds(const move *m, bool any_direct)
{
    for (size_t k = 0; k < m->n_chunks; k++) {
        copy_in(m, k + m->ahead);
        if (m->n_chunks > m->ahead)
            TUTTI_TRY(tutti__shm_barrier_behind(m->shm, m->op, m->ahead));
        TUTTI_TRY(any_direct ? tutti__shm_access_begin(m->shm) : TUTTI_OK);
        TUTTI_TRY(copy_out(m, k));
        if (any_direct)
            tutti__shm_access_end(m->shm);
    }
    m->shm->tick += m->n_chunks;
    return TUTTI_OK;
}

/* Whether a contribution is not in group memory. All ranks agree on that, as they see the same declarations. */
static bool is_timed(const move *m)
{
    for (int from = m->first; from < m->last; from++)
        if (gives_to_others(m, from) && !tutti__shm_reaches(m->shm, from))
            return true;
    return false;
}

static tutti_status run(move *m)
{
    bool any_direct = false, timed;

    if (!m->at[m->shm->comm->rank]) {
        tutti__copy_method_stage_begin(m->shm);
        /* whether the others can be read directly too is known only after the barrier */
        for (size_t k = 0; k < m->ahead; k++)
            copy_in(m, k);
        tutti__copy_method_stage_end(m->shm);
    }
    TUTTI_TRY(tutti__shm_enter_access(m->shm, m->op));
    TUTTI_TRY(plan(m, &any_direct));
    if (!m->direct || m->n_chunks == 0)
        tutti__shm_access_end(m->shm);
    timed = is_timed(m);
    if (timed)
        tutti__copy_method_begin(m->shm);
    if (!m->direct) {
        TUTTI_TRY(run_rounds(m, any_direct));
    } else if (m->n_chunks > 0) {
        TUTTI_TRY(copy_out(m, 0));
        push(m);
    }
    if (timed)
        tutti__copy_method_end(m->shm, m->op);
    tutti__shm_access_end(m->shm);
    /* Peers may read this rank's memory until then. */
    return any_direct ? tutti__shm_barrier(m->shm, m->op) : TUTTI_OK;
}

tutti_status tutti__shm_move(tutti__shm *shm, tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    int root = (int)op->signature.root;
    move m = {.shm = shm,
              .op = op,
              .traits = traits,
              .element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
              .ahead = is_one_way(traits) ? 1 : TUTTI__SHM_AHEAD,
              .first = traits->from_root ? root : 0,
              .last = traits->from_root ? root + 1 : shm->comm->size};
    size_t lots = traits->scatters ? (size_t)shm->comm->size : 1;

    m.past = whole_bytes(&m) >= PAST_CHUNKS * shm->block->chunk_bytes;
    m.at = (char **)tutti__shm_pointers(shm);
    m.lot = shm->block->chunk_bytes / OF_STAGE / lots / 64 * 64 / m.element;
    if (m.lot == 0)
        m.lot = 64 / m.element; /* for the small chunks of tests */
    if (traits->uneven)
        publish_counts(&m);
    if (tutti__shm_call_of(shm, shm->comm->rank)->segment != TUTTI__SHM_STAGED)
        m.at[shm->comm->rank] = (char *)(uintptr_t)op->src; /* nothing to copy in */
    return run(&m);
}
