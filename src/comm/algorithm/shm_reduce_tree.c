/* shm_reduce_tree.c -- reductions among many ranks, of not too many bytes: the last rank to arrive reduces what all have
 * given, in rank order, and leaves the result for all. That takes one barrier, and no rank but one looks at the others.
 * SPDX-License-Identifier: MIT
 *
 * A rank gives its data with its call, or in its own memory if that can be read, else in staging. There is one place for
 * results: the next is written when all have arrived at the next call, so all have taken this one. */
#include "comm/algorithm/shm_algorithms.h"
#include "comm/core/reduce.h"

#include <string.h>

enum {
    WITH_CALL = 2 << 10, /* of a rank's data, at most */
    /* Of the result, if ranks share cores; else of what all give, since their cores could each reduce a share. */
    MOST_BYTES = 32 << 10,
    TOGETHER = 64 << 10,
};

typedef struct by_last {
    tutti__shm *shm;
    const tutti__operation *op;
    size_t given, taken; /* bytes */
    int rank, root;
    bool with_call, to_root, scatters;
} by_last;

static by_last by_last_of(tutti__shm *shm, const tutti__operation *op)
{
    const tutti__op_traits *traits = tutti__op_traits_of(op);
    size_t piece = tutti__signature_bytes(&op->signature),
           given = piece * (traits->scatters ? (size_t)shm->comm->size : 1);

    return (by_last){.shm = shm,
                     .op = op,
                     .given = given,
                     .taken = piece,
                     .rank = shm->comm->rank,
                     .root = (int)op->signature.root,
                     .with_call = given <= WITH_CALL,
                     .to_root = traits->to_root,
                     .scatters = traits->scatters};
}

/* Depends only on what is equal on all ranks. */
bool tutti__shm_reduces_by_tree(const tutti__shm *shm, const tutti__operation *op)
{
    size_t n = (size_t)shm->comm->size, pieces = tutti__op_traits_of(op)->scatters ? n : 1,
           most = shm->crowded ? MOST_BYTES : TOGETHER / n;

    if (most > shm->block->chunk_bytes)
        most = shm->block->chunk_bytes;
    return tutti__op_traits_of(op)->reduces && !tutti__op_is_empty(op) &&
           op->signature.count <= most && tutti__signature_bytes(&op->signature) * pieces <= most;
}

/* What each rank gives, in s->shm->pointers. */
static tutti_status find(const by_last *s)
{
    const void **src = (const void **)tutti__shm_pointers(s->shm);

    if (!s->with_call)
        TUTTI_TRY(tutti__shm_find_contributions(s->shm, 0, s->shm->comm->size,
                                                (char **)s->shm->pointers));
    for (int r = 0; r < s->shm->comm->size; r++) {
        if (r == s->rank)
            src[r] = s->op->src;
        else if (s->with_call)
            src[r] = tutti__shm_call_of(s->shm, r)->small;
        else if (!src[r])
            src[r] = tutti__shm_stage(s->shm, r, 0);
    }
    return TUTTI_OK;
}

/* On the last rank to arrive. */
static tutti_status reduce(void *self)
{
    const by_last *s = self;
    const tutti__signature *signature = &s->op->signature;
    void *dst = s->shm->result;

    TUTTI_TRY(tutti__shm_access_begin(s->shm));
    TUTTI_TRY(find(s));
    tutti__reduce((tutti_dtype)signature->dtype, (tutti_redop)signature->redop, &dst, 1,
                  (const void **)s->shm->pointers, (size_t)s->shm->comm->size,
                  s->given / tutti__element(signature->dtype));
    tutti__shm_access_end(s->shm);
    return TUTTI_OK;
}

static void give(const by_last *s)
{
    if (s->with_call)
        memcpy(tutti__shm_publish(s->shm, s->op)->small, s->op->src, s->given);
    else if (!tutti__shm_declare(s->shm, s->op, s->op->src, s->given))
        memcpy(tutti__shm_stage(s->shm, s->rank, 0), s->op->src, s->given);
}

tutti_status tutti__shm_reduce_by_tree(tutti__shm *shm, const tutti__operation *op)
{
    by_last s = by_last_of(shm, op);

    give(&s);
    TUTTI_TRY(tutti__shm_enter_last(shm, op, (tutti__shm_last){reduce, &s}));
    if (!s.with_call)
        shm->tick++;
    if (!s.to_root || s.rank == s.root)
        memcpy(op->dst, shm->result + (s.scatters ? (size_t)s.rank * s.taken : 0), s.taken);
    return TUTTI_OK;
}
