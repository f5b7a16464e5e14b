/* shm_small.c -- small operations: each rank publishes its data with its call, and takes what it needs from the others'
 * calls. They take one barrier, at the beginning and none at the end: calls alternate between two slots, and no rank reaches
 * the call after the next before all have finished this one.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/shm_algorithms.h"
#include "comm/core/reduce.h"

#include <string.h>

enum { REDUCED_BYTES = 2 << 10 }; /* of a rank at most; other operations: TUTTI__SHM_SMALL */

typedef struct small {
    tutti__shm *shm;
    const tutti__operation *op;
    const tutti__op_traits *traits;
    size_t piece; /* bytes */
    int rank, size, root;
} small;

/* Depends only on what is equal on all ranks. */
bool tutti__shm_is_small(const tutti__shm *shm, const tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    size_t pieces = traits->scatters ? (size_t)shm->comm->size : 1,
           most = traits->reduces ? REDUCED_BYTES : TUTTI__SHM_SMALL;

    return tutti__op_is_empty(op) || (!traits->uneven && (size_t)op->signature.count <= most &&
                                      tutti__signature_bytes(&op->signature) * pieces <= most);
}

static bool takes(const small *s, int rank)
{
    return !s->traits->to_root || rank == s->root;
}

/* The offset of the piece for `to` in a rank's data. */
static size_t place(const small *s, int to)
{
    return s->traits->scatters ? (size_t)to * s->piece : 0;
}

/* Publishes what others take. */
static void give(const small *s)
{
    char *pieces = tutti__shm_call_of(s->shm, s->rank)->small;

    if (s->traits->from_root && s->rank != s->root)
        return;
    for (int to = 0; to < s->size; to++)
        if (to != s->rank && takes(s, to)) {
            memcpy(pieces + place(s, to), (const char *)s->op->src + place(s, to), s->piece);
            if (!s->traits->scatters)
                return; /* all take the same */
        }
}

/* What `from` gives to this rank; its own is read from src. */
static const char *given(const small *s, int from)
{
    const char *all = from == s->rank ? s->op->src : tutti__shm_call_of(s->shm, from)->small;

    return all + place(s, s->rank);
}

static void reduce(const small *s)
{
    const void **src = (const void **)s->shm->pointers;
    void *dst = s->op->dst;

    for (int r = 0; r < s->size; r++)
        src[r] = given(s, r);
    tutti__reduce((tutti_dtype)s->op->signature.dtype, (tutti_redop)s->op->signature.redop, &dst, 1,
                  src, (size_t)s->size, (size_t)s->op->signature.count);
}

static void move(const small *s)
{
    int first = s->traits->from_root ? s->root : 0,
        last = s->traits->from_root ? s->root + 1 : s->size;
    char *dst = s->op->dst;

    for (int from = first; from < last; from++, dst += s->traits->gathers ? s->piece : 0)
        if (dst != given(s, from))
            memcpy(dst, given(s, from), s->piece);
}

static small small_of(tutti__shm *shm, const tutti__operation *op)
{
    return (small){.shm = shm,
                   .op = op,
                   .traits = tutti__op_traits_of(op),
                   .piece = tutti__signature_bytes(&op->signature),
                   .rank = shm->comm->rank,
                   .size = shm->comm->size,
                   .root = (int)op->signature.root};
}

void tutti__shm_small_publish(tutti__shm *shm, const tutti__operation *op)
{
    const small s = small_of(shm, op);

    tutti__shm_publish(shm, op);
    for (int r = 0; r < s.size && !shm->fan; r++)
        if (r != s.rank) /* starts the transfer of calls that are already published */
            __builtin_prefetch(tutti__shm_call_of(shm, r));
    if (!tutti__op_is_empty(op))
        give(&s);
    tutti__shm_arrive(shm);
}

tutti_status tutti__shm_small(tutti__shm *shm, const tutti__operation *op)
{
    const small s = small_of(shm, op);

    TUTTI_TRY(tutti__shm_enter(shm, op));
    if (tutti__op_is_empty(op) || !takes(&s, s.rank))
        return TUTTI_OK;
    if (s.traits->reduces)
        reduce(&s);
    else
        move(&s);
    return TUTTI_OK;
}
