/* shm_move.c -- moving data unchanged through shared memory: broadcast, gather, all_to_all and their kin.
 * SPDX-License-Identifier: MIT
 *
 * Who takes a piece reads it where it lies, if it can, large ones through the kernel (cma.c); otherwise it goes in chunks
 * through the giver's staging buffers: in each round, between two barriers, chunk k is copied out while chunk k+1 is copied
 * in. A giver whose pieces differ from rank to rank divides its buffer among them. Chunks are numbered as in
 * shm_reduce_staged.c, through all operations. */
#include "comm/algorithm/shm.h"
#include "comm/transport/shared_memory/cma.h"

#include <stdlib.h>
#include <string.h>

typedef struct move {
    tutti__shm *shm;
    const tutti__op *op;
    const tutti__op_traits *traits;
    size_t element, lot, n_chunks; /* lot: elements of one piece that a chunk holds */
    int first, last;               /* ranks that give: [first, last) */
    bool direct;                   /* all that is given is read where it lies */
    char **at;                     /* of each rank's src; NULL: staged */
} move;

/* What `from` gives to `to`, in elements. */
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

/* The part of a piece that chunk k holds: bytes, and where it begins. */
static size_t chunk_of(const move *m, tutti__piece piece, size_t k, size_t *begin_p)
{
    size_t begin = m->direct ? 0 : k * m->lot, left = piece.count > begin ? piece.count - begin : 0;

    *begin_p = (piece.at + begin) * m->element;
    return (m->direct || left < m->lot ? left : m->lot) * m->element;
}

static char *stage_for(const move *m, int from, int to, size_t k)
{
    return tutti__shm_stage(m->shm, from, k) +
           (m->traits->scatters ? (size_t)to * m->lot * m->element : 0);
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
        memcpy(stage_for(m, rank, to, k), (const char *)m->op->src + begin, bytes);
        if (!m->traits->scatters)
            return; /* all take the same */
    }
}

static tutti_status copy_out(const move *m, size_t k)
{
    int rank = m->shm->comm->rank, size = m->shm->comm->size;

    for (int i = 0; i < size; i++) {
        int r = (rank + i) % size; /* not all read the same rank first */
        size_t begin, to,
            bytes = chunk_of(m, tutti__piece_in(m->shm->comm->rank, m->op, r), k, &to);
        const char *from;

        if (bytes == 0)
            continue;
        (void)chunk_of(m, piece_of(m, r, rank), k, &begin);
        from = r == rank  ? (const char *)m->op->src + begin
               : m->at[r] ? m->at[r] + begin
                          : stage_for(m, r, rank, k);
        if (r != rank && tutti__shm_call_of(m->shm, r)->segment == TUTTI__CMA)
            TUTTI_TRY(tutti__cma_read(m->shm, r, (char *)m->op->dst + to, from, bytes));
        else if (from != (char *)m->op->dst + to)
            memcpy((char *)m->op->dst + to, from, bytes);
    }
    return TUTTI_OK;
}

/* Elements of the largest piece that `from` gives. */
static size_t most_of(const move *m, int from)
{
    const uint64_t *counts = tutti__shm_counts_of(m->shm, m->op->signature.sequence, from);
    size_t most = (size_t)m->op->signature.count;

    for (int to = 0; m->traits->uneven && to < m->shm->comm->size; to++)
        most = counts[to] > most ? (size_t)counts[to] : most;
    return most;
}

static void publish_counts(const move *m)
{
    uint64_t *counts = tutti__shm_counts_of(m->shm, m->op->signature.sequence, m->shm->comm->rank);

    for (int r = 0; r < m->shm->comm->size; r++) {
        counts[r] = tutti__piece_out(m->op, m->shm->comm->rank, r).count;
        counts[m->shm->comm->size + r] = tutti__piece_in(m->shm->comm->rank, m->op, r).count;
    }
}

/* Every rank looks at all pairs, so that all hear of the same mismatch. */
static tutti_status check_counts(const move *m)
{
    int size = m->shm->comm->size;
    uint64_t sequence = m->op->signature.sequence;

    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            TUTTI_TRY(tutti__comm_check_sent(
                m->shm->comm, &m->op->signature, from, to,
                (size_t)tutti__shm_counts_of(m->shm, sequence, from)[to],
                (size_t)tutti__shm_counts_of(m->shm, sequence, to)[size + from]));
    return TUTTI_OK;
}

/* Once it is entered: in how many rounds, and is anything read where it lies? */
static tutti_status plan(move *m, bool *any_direct_p)
{
    size_t most = 0;

    if (m->traits->uneven)
        TUTTI_TRY(check_counts(m));
    TUTTI_TRY(tutti__shm_find_contributions(m->shm, m->first, m->last, m->at));
    m->direct = true;
    for (int from = m->first; from < m->last; from++) {
        size_t count = most_of(m, from);

        most = count > most ? count : most;
        m->direct = m->direct && (m->at[from] || count == 0);
        *any_direct_p = *any_direct_p || (m->at[from] && count > 0);
    }
    m->n_chunks = m->direct ? most > 0 : (most + m->lot - 1) / m->lot;
    return TUTTI_OK;
}

static tutti_status run_rounds(move *m)
{
    bool any_direct = false;

    copy_in(m, 0); /* its own reach is known; whether the others' is, shows the barrier */
    TUTTI_TRY(tutti__shm_enter_access(m->shm, m->op));
    TUTTI_TRY(plan(m, &any_direct));
    if (!m->direct || m->n_chunks == 0)
        tutti__shm_access_end(m->shm);
    for (size_t k = 0; k < m->n_chunks; k++) {
        if (k + 1 < m->n_chunks)
            copy_in(m, k + 1);
        TUTTI_TRY(any_direct && !m->direct ? tutti__shm_access_begin(m->shm) : TUTTI_OK);
        TUTTI_TRY(copy_out(m, k));
        if (any_direct)
            tutti__shm_access_end(m->shm);
        /* Peers may read this rank's own memory until the last barrier. */
        if (k + 1 < m->n_chunks || any_direct)
            TUTTI_TRY(tutti__shm_barrier(m->shm, m->op));
    }
    m->shm->tick += m->direct ? 0 : m->n_chunks;
    return TUTTI_OK;
}

tutti_status tutti__shm_move(tutti__shm *shm, tutti__op *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    int root = (int)op->signature.root;
    move m = {.shm = shm,
              .op = op,
              .traits = traits,
              .element = tutti_dtype_size((tutti_dtype)op->signature.dtype),
              .first = traits->from_root ? root : 0,
              .last = traits->from_root ? root + 1 : shm->comm->size};
    size_t lots = traits->scatters ? (size_t)shm->comm->size : 1;
    char *few[16] = {0};
    tutti_status status;

    m.at = shm->comm->size <= (int)TUTTI__COUNT_OF(few)
               ? few
               : calloc((size_t)shm->comm->size, sizeof *m.at);
    if (!m.at)
        return tutti__comm_fail(shm->comm, TUTTI_ERR_MEMORY, shm->comm->rank,
                                "rank %d has no memory", shm->comm->rank);
    m.lot = shm->block->chunk_bytes / lots / 64 * 64 / m.element;
    if (traits->uneven)
        publish_counts(&m);
    if (tutti__shm_call_of(shm, shm->comm->rank)->segment != TUTTI__SHM_STAGED)
        m.at[shm->comm->rank] = (char *)(uintptr_t)op->src; /* nothing to copy in */
    status = run_rounds(&m);
    if (m.at != few)
        free(m.at);
    return status;
}
