/* mpi_collective.c -- the data of a collective, chunk by chunk.   SPDX-License-Identifier: MIT
 *
 * Every piece is cut into chunks; one MPI request carries the same chunk of all pieces. A request never names a buffer of
 * the caller. Broadcasts and reductions in memory of tutti_group_alloc name the engine's own mapping of it. All others go
 * through slots of staging memory: data are copied in before the request begins, and copied out when it is done. Some
 * slots are in flight at a time, so that copies and transfers overlap, and all slots fit the cache. After a failure the
 * running requests are abandoned together with their slots; memory that the engine has mapped too is replaced for the
 * program by private memory. */
#include "comm/backend/mpi/mpi_engine.h"
#include "comm/transport/take_back.h"

#include <string.h>

enum {
    SMALLEST_PIECE = 16 << 10
    /* bytes: shares of a chunk are no smaller, however many ranks there are */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t chunk_bytes(const tutti__mpi_engine *e)
{
    const tutti__tuning *tuning = &e->base.comm->tuning;

    return larger(tuning->chunk_bytes ? tuning->chunk_bytes : e->mpi->chunk_bytes, sizeof(int64_t));
}

/* Bytes of a piece's chunk, if a slot holds one for each rank. */
static size_t share_bytes(const tutti__mpi_engine *e)
{
    size_t chunk = chunk_bytes(e), share = chunk / (size_t)e->base.comm->size;

    return larger(larger(share, smaller(chunk, SMALLEST_PIECE)), sizeof(int64_t));
}

size_t tutti__mpi_slot_bytes(const tutti__mpi_engine *e)
{
    size_t bytes = larger(chunk_bytes(e), share_bytes(e) * (size_t)e->base.comm->size);

    return (2 * bytes + 63) & ~(size_t)63; /* for sent and received data */
}

/* A running operation. Counts and offsets are in elements. */
typedef struct move {
    tutti__mpi_engine *e;
    const tutti__operation *op;
    const tutti__op_traits *traits;
    size_t element; /* bytes */
    size_t count;   /* of the largest piece between any two ranks */
    size_t chunk;
    int n_out, n_in; /* pieces of this rank */
    tutti__piece *out, *in;
    int kept;   /* the piece that need not move, as its src is its dst; -1: none */
    char *view; /* the engine's mapping of all data; NULL: they go through the slots */
} move;

/* The memory of a request's data: room for each piece, `n` elements apart. */
typedef struct slot {
    char *out, *in;
    size_t at, n;
    int *counts;
} slot;

static bool divides(const tutti__operation *op)
{
    return tutti__op_traits_of(op)->reduces && op->signature.redop == TUTTI_AVG;
}

static move move_of(tutti__mpi_engine *e, size_t count)
{
    const tutti__operation *op = e->op;
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    int rank = e->base.comm->rank, size = e->base.comm->size, root = (int)op->signature.root;
    size_t element = tutti_dtype_size((tutti_dtype)op->signature.dtype);
    bool shares = traits->scatters || traits->gathers;
    move m = {.e = e,
              .op = op,
              .traits = traits,
              .element = element,
              .count = count,
              .chunk = (shares ? share_bytes(e) : chunk_bytes(e)) / element,
              .n_out = traits->scatters ? size : 1,
              .n_in = traits->gathers ? size : 1,
              .out = e->pieces,
              .in = e->pieces + size,
              .kept = -1};
    int mine_out = traits->scatters ? rank : 0, mine_in = traits->gathers ? rank : 0;

    for (int r = 0; r < m.n_out; r++)
        m.out[r] = tutti__piece_out(op, rank, traits->scatters ? r : traits->to_root ? root : rank);
    for (int r = 0; r < m.n_in; r++)
        m.in[r] = tutti__piece_in(rank, op, traits->gathers ? r : traits->from_root ? root : rank);
    if (!traits->reduces && m.out[mine_out].count > 0 && m.in[mine_in].count > 0 &&
        (const char *)op->src + m.out[mine_out].at * element ==
            (const char *)op->dst + m.in[mine_in].at * element)
        m.kept = mine_in;
    if (!shares && op->src == op->dst)
        m.view = tutti__mpi_view_of(e, op->dst, count * element);
    if (m.view && !divides(op))
        m.kept = 0;
    return m;
}

/* The slot of request i. If MPI can work in place, its sent data are a part of its received data, or the other way round. */
static slot slot_of(const move *m, size_t i)
{
    size_t index = i % TUTTI__MPI_WINDOW, rank = (size_t)m->e->base.comm->rank,
           size = (size_t)m->e->base.comm->size, at = i * m->chunk,
           n = smaller(m->count - at, m->chunk);
    char *memory = m->e->staging + index * m->e->slot_bytes;
    size_t mine = rank * n * m->element;
    slot s = {memory, memory, at, n, m->e->slot_counts + index * 4 * size};

    if (m->view)
        s.out = s.in = m->view + at * m->element;
    if (m->traits->scatters && (m->traits->gathers || m->traits->reduces))
        s.in += m->e->slot_bytes / 2;
    else if (m->traits->scatters)
        s.in += mine;
    else if (m->traits->gathers)
        s.out += mine;
    return s;
}

/* Elements of the piece in the request. */
static size_t count_in(const slot *s, tutti__piece piece)
{
    return piece.count > s->at ? smaller(piece.count - s->at, s->n) : 0;
}

static void copy_in(const move *m, const slot *s)
{
    for (int r = 0; r < m->n_out; r++) {
        size_t n = count_in(s, m->out[r]);

        if (n > 0)
            memcpy(s->out + (size_t)r * s->n * m->element,
                   (const char *)m->op->src + (m->out[r].at + s->at) * m->element, n * m->element);
    }
}

static void copy_out(const move *m, const slot *s)
{
    for (int r = 0; r < m->n_in; r++) {
        const void *src = s->in + (size_t)r * s->n * m->element;
        size_t n = count_in(s, m->in[r]);
        char *dst = m->op->dst;

        if (n == 0 || r == m->kept)
            continue;
        dst += (m->in[r].at + s->at) * m->element;
        if (divides(m->op))
            tutti__average((tutti_dtype)m->op->signature.dtype, (size_t)m->e->base.comm->size, dst,
                           &src, 1, n);
        else
            memcpy(dst, src, n * m->element);
    }
}

/* MPI reads the counts until the request is done. */
static void set_counts(const move *m, const slot *s, tutti__mpi_call *call)
{
    int size = m->e->base.comm->size, *counts = s->counts;

    for (int r = 0; r < size; r++) {
        counts[r] = (int)count_in(s, m->out[r < m->n_out ? r : 0]);
        counts[2 * size + r] = (int)count_in(s, m->in[r]);
        counts[size + r] = counts[3 * size + r] = r * (int)s->n;
    }
    call->src_counts = counts;
    call->src_at = counts + size;
    call->dst_counts = counts + 2 * size;
    call->dst_at = counts + 3 * size;
}

static tutti_status begin(const move *m, size_t i, tutti__mpi_request *request)
{
    const tutti__signature *signature = &m->op->signature;
    slot s = slot_of(m, i);
    tutti__mpi_call call = {.kind = (tutti__op_kind)signature->op,
                            .comm = m->e->comm,
                            .src = s.out,
                            .dst = s.in,
                            .count = s.n,
                            .dtype = (tutti_dtype)signature->dtype,
                            .redop = (tutti_redop)signature->redop,
                            .root = (int)signature->root};
    int error;

    if (!m->view)
        copy_in(m, &s);
    if (m->traits->uneven)
        set_counts(m, &s, &call);
    error = m->e->mpi->begin(&call, request);
    return error ? tutti__mpi_fail(m->e, m->traits->name, error) : TUTTI_OK;
}

static tutti_status move_chunks(const move *m)
{
    size_t n = (m->count + m->chunk - 1) / m->chunk, begun = 0;
    tutti__mpi_request requests[TUTTI__MPI_WINDOW];

    for (size_t done = 0; done < n; done++) {
        slot s = slot_of(m, done);

        for (; begun < n && begun - done < TUTTI__MPI_WINDOW; begun++)
            TUTTI_TRY(begin(m, begun, &requests[begun % TUTTI__MPI_WINDOW]));
        TUTTI_TRY(tutti__mpi_wait(m->e, &requests[done % TUTTI__MPI_WINDOW]));
        copy_out(m, &s);
    }
    return TUTTI_OK;
}

tutti_status tutti__mpi_move(tutti__mpi_engine *e)
{
    size_t count = (size_t)e->op->signature.count;
    tutti_status status;
    move m;

    if (tutti__op_traits_of(e->op)->uneven)
        TUTTI_TRY(tutti__mpi_agree_on_counts(e, &count));
    m = move_of(e, count);
    status = move_chunks(&m);
    if (status != TUTTI_OK && m.view)
        tutti__take_back(e->base.comm, e->op->dst, count * m.element);
    return status;
}
