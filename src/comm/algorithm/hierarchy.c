/* hierarchy.c -- begin and end of an operation on a host; blocks; addresses of buffers.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/hierarchy.h"

#include "comm/algorithm/tcp_algorithms.h"

#include <string.h>

enum { SMALL_BYTES = 8 << 10, LAG_MS = 500 };

/* ---- Addresses of buffers ----------------------------------------------------------------------------------------- */

static char *staging_of(const tutti__hierarchy_op *o, int local_rank, size_t piece)
{
    return o->h->staging + (size_t)local_rank * o->h->staging_stride + piece * o->most * o->element;
}

char *tutti__hierarchy_piece(const tutti__hierarchy_op *o, int local_rank, size_t piece)
{
    char *buffer = o->h->buffers[local_rank];

    return buffer ? buffer + (piece * o->count + o->first) * o->element
                  : staging_of(o, local_rank, piece);
}

/* Copies the block between this rank's own buffer and its staging. */
static void copy_staged(const tutti__hierarchy_op *o, bool in)
{
    for (size_t q = 0; q < o->n_pieces; q++) {
        char *own = o->buffer + (q * o->count + o->first) * o->element,
             *staged = staging_of(o, o->local_rank, q);

        memcpy(in ? staged : own, in ? own : staged, o->n * o->element);
    }
}

/* How many ranks a host share the work: small operations are faster by the leader alone. */
static int shards_of(const tutti__hierarchy_op *o)
{
    return o->count * o->element <= SMALL_BYTES ? 1 : o->h->n_shards;
}

bool tutti__hierarchy_moves_shard(const tutti__hierarchy_op *o)
{
    return o->local_rank < shards_of(o);
}

tutti__piece tutti__hierarchy_shard(const tutti__hierarchy_op *o)
{
    return tutti__part(o->n, (size_t)shards_of(o), (size_t)o->local_rank, 64 / o->element);
}

/* ---- Stages and blocks -------------------------------------------------------------------------------------------- */

void tutti__hierarchy_next_stage(const tutti__hierarchy_op *o)
{
    double lag = (double)o->op->timeout_ms / 16;

    o->op->deadline += lag < LAG_MS ? lag : LAG_MS;
}

tutti_status tutti__hierarchy_enter(tutti__hierarchy_op *o)
{
    (void)tutti__shm_declare(o->h->shm, o->op, NULL, 0);
    TUTTI_TRY(tutti__shm_enter(o->h->shm, o->op));
    tutti__hierarchy_next_stage(o);
    return TUTTI_OK;
}

static void choose_block(tutti__hierarchy_op *o)
{
    size_t left = o->count - o->first;

    o->n = left < o->most ? left : o->most;
}

tutti_status tutti__hierarchy_begin(tutti__hierarchy_op *o)
{
    tutti__hierarchy *h = o->h;

    o->most = h->block_bytes / o->element / o->n_pieces;
    o->most = o->most < o->count ? o->most : o->count;
    choose_block(o);
    o->staged = !tutti__shm_declare(h->shm, o->op, o->buffer, o->n_pieces * o->count * o->element);
    if (o->staged && o->in)
        copy_staged(o, true);
    TUTTI_TRY(tutti__shm_enter(h->shm, o->op));
    tutti__hierarchy_next_stage(o);
    TUTTI_TRY(tutti__shm_find_contributions(h->shm, 0, h->host->size, h->buffers));
    for (int r = 0; r < h->host->size; r++)
        o->any_staged = o->any_staged || !h->buffers[r];
    return TUTTI_OK;
}

tutti_status tutti__hierarchy_enter_block(tutti__hierarchy_op *o)
{
    choose_block(o);
    if (o->first > 0 && o->any_staged) {
        if (o->staged && o->in)
            copy_staged(o, true);
        TUTTI_TRY(tutti__shm_barrier(o->h->shm, o->op));
    }
    return tutti__shm_access_begin(o->h->shm);
}

tutti_status tutti__hierarchy_leave_block(tutti__hierarchy_op *o)
{
    tutti__shm_access_end(o->h->shm);
    if (o->first == 0)
        tutti__hierarchy_next_stage(o);
    if (o->any_staged || o->first + o->n == o->count)
        TUTTI_TRY(tutti__shm_barrier(o->h->shm, o->op));
    if (o->staged && o->out)
        copy_staged(o, false);
    o->first += o->n;
    return TUTTI_OK;
}

tutti_status tutti__hierarchy_compare_leaders(const tutti__hierarchy_op *o)
{
    const tutti__hierarchy *h = o->h;

    if (o->local_rank != 0)
        return TUTTI_OK;
    return tutti__tcp_barrier(h->tcp, &o->h->tuner, o->op, h->rail, h->n_hosts,
                              h->host_of[h->comm->rank]);
}

tutti__tcp_rounds tutti__hierarchy_rounds(const tutti__hierarchy_op *o, char *p, size_t count)
{
    tutti__hierarchy *h = o->h;
    tutti__tcp_rounds run = {.tcp = h->tcp,
                             .op = o->op,
                             .first = o->first == 0,
                             .call = tutti__coll_of(&o->op->signature, h->n_hosts),
                             .ranks = h->rail,
                             .me = h->host_of[h->comm->rank],
                             .src = p,
                             .dst = p,
                             .divisor = (size_t)h->comm->size};

    run.call.count = count;
    run.call.redop = tutti__hierarchy_redop(o);
    if (tutti__op_traits_of(o->op)->from_root)
        run.call.root = h->host_of[o->op->signature.root];
    run.algorithm = tutti__tuner_choose(&h->tuner, &run.call);
    return run;
}

/* ---- Arithmetic --------------------------------------------------------------------------------------------------- */

bool tutti__hierarchy_divides(const tutti__hierarchy_op *o)
{
    return o->op->signature.redop == TUTTI_AVG && o->element == 2;
}

tutti_redop tutti__hierarchy_redop(const tutti__hierarchy_op *o)
{
    return tutti__hierarchy_divides(o) ? TUTTI_SUM : (tutti_redop)o->op->signature.redop;
}

void tutti__hierarchy_sum(const tutti__hierarchy_op *o, size_t piece, tutti__piece part, void *dst)
{
    const tutti__hierarchy *h = o->h;
    tutti_redop redop = (tutti_redop)o->op->signature.redop;
    const void **src = h->tcp->src;

    for (int r = 0; r < h->host->size; r++)
        src[r] = tutti__hierarchy_piece(o, r, piece) + part.at * o->element;
    if (tutti__hierarchy_divides(o))
        tutti__average(o->dtype, (size_t)h->comm->size, dst, src, (size_t)h->host->size,
                       part.count);
    else
        tutti__reduce(o->dtype, redop == TUTTI_AVG ? TUTTI_SUM : redop, &dst, 1, src,
                      (size_t)h->host->size, part.count);
}

void tutti__hierarchy_copy(const tutti__hierarchy_op *o, size_t piece, tutti__piece part,
                           const char *from)
{
    int size = o->h->host->size;

    for (int i = 0; i < size; i++) {
        char *to =
            tutti__hierarchy_piece(o, (o->local_rank + i) % size, piece) + part.at * o->element;

        if (to != from)
            memcpy(to, from, part.count * o->element);
    }
}
