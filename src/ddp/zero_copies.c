/* zero_copies.c -- shares of the optimizer's state that also live with a second rank, so that a death loses none.
 * SPDX-License-Identifier: MIT
 *
 * With logical shards every rank has all of the mean gradient and of the parameters, so rank r computes the update of rank r - 1's
 * share too, without communication. When a group dies, shares stay, and the next group brings them together from those that live.
 * All must be of one moment; docs/design/zero.md tells why they are, or can be made so. */
#include "ddp/zero_copies.h"

#include "comm/comm.h"
#include "tensor/tensor.h"

#include <stdlib.h>

enum { HOLDER = sizeof(tutti__zero_holder) / sizeof(int64_t) };
_Static_assert(sizeof(tutti__zero_holder) == HOLDER * sizeof(int64_t), "a holder is integers");

/* ---- An update ---- */

tutti_status tutti__zero_begin_copies(tutti_zero *zero, const tutti_optim *optim)
{
    tutti_status status;

    if (zero->root->optims->next)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "%s: with shard_copies 2 a module has one optimizer; use groups of it, or "
            "shard_copies 1",
            optim->rule->name);
    if (optim->rule->update_whole)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s: it needs other ranks in the middle of an update, which with "
                           "shard_copies 2 each must "
                           "be able to end alone; use an optimizer that is elementwise (sgd, adam, "
                           "adamw, rmsprop, adagrad), or shard_copies 1",
                           optim->rule->name);
    status = tutti__agree_on_optim(zero->group, optim);
    /* Some ranks may have agreed, and update. They know that all have the means, and this one can follow. */
    zero->ready = status != TUTTI_OK && tutti_group_status(zero->group) != TUTTI_OK;
    return status;
}

tutti_status tutti__zero_finish_copies(void *self)
{
    tutti_zero *zero = self;
    const tutti_status status = tutti__zero_finish(zero);

    tutti__zero_updated(zero);
    if (status == TUTTI_OK && !zero->incomplete)
        return TUTTI_OK;
    zero->incomplete = true;
    return tutti_group_status(zero->group) == TUTTI_OK ? status : TUTTI_OK;
}

bool tutti__zero_is_unchanged(const tutti_ddp *ddp)
{
    const tutti_zero *zero = ddp->zero;

    return zero && zero->begun && !zero->updating && zero->tag.updates == zero->before;
}

bool tutti__zero_is_incomplete(const tutti_ddp *ddp)
{
    return ddp->zero && ddp->zero->incomplete;
}

void tutti__zero_keep(const tutti_ddp *ddp)
{
    if (ddp->zero)
        ddp->zero->keeps = ddp->zero->copies;
}

/* ---- After a death ---- */

typedef struct gathering {
    tutti_zero *zero;
    tutti_optim *optim;
    tutti_group *group; /* the new one */
    const int *source;
    size_t size; /* of the old one */
    bool takes;  /* this rank needs all, or sends */
    float *room; /* for a share */
} gathering;

void tutti__zero_drop(const tutti_ddp *ddp)
{
    tutti_zero *zero = ddp->zero;
    tutti_optim *optim = zero ? tutti__zero_next(zero, zero->root->optims) : NULL;

    if (!zero)
        return;
    for (; optim; optim = tutti__zero_next(zero, optim->entry.next))
        (void)tutti__optim_drop_share(optim);
    zero->updating = zero->ready = zero->incomplete = false;
}

/* What this rank has of the state, at the places of all of it. */
static tutti_status fill(const gathering *g)
{
    const tutti_zero *zero = g->zero;
    tutti_stream *stream = tutti__optim_stream(g->optim);

    for (size_t k = 0; tutti_optim_state_name(g->optim, k); k++) {
        size_t at = 0;

        g->optim->whole[k] = tutti__alloc((zero->root->n_flat + 1) * sizeof(float));
        if (!g->optim->whole[k])
            return TUTTI_ERR_MEMORY;
        if (!g->optim->state[k])
            continue;
        if (!g->optim->sharding)
            TUTTI_TRY(tutti__copy_out(stream, g->optim->whole[k], g->optim->state[k],
                                      zero->root->n_flat * sizeof(float)));
        for (size_t i = 0; g->optim->sharding && i < zero->sharding.n; i++) {
            const tutti__range *range = &zero->ranges[i];

            TUTTI_TRY(tutti__copy_out(stream, g->optim->whole[k] + range->begin,
                                      g->optim->state[k] + at,
                                      (range->end - range->begin) * sizeof(float)));
            at += range->end - range->begin;
        }
    }
    return tutti_stream_wait(stream);
}

static tutti_status make_ready(gathering *g)
{
    size_t largest = 0;

    for (size_t i = 0; i < g->zero->n_noted; i++)
        if (g->zero->buckets[i].count / g->size > largest)
            largest = g->zero->buckets[i].count / g->size;
    g->room = tutti__alloc_unset((largest + 1) * sizeof *g->room);
    if (!g->room)
        return TUTTI_ERR_MEMORY;
    return g->takes ? fill(g) : TUTTI_OK;
}

/* Parameters, and each state, of n elements from `at` of flat memory on. */
static tutti_status move_share(const gathering *g, size_t at, size_t n, int source)
{
    const bool sends = tutti_group_rank(g->group) == source;
    float *parameters = g->zero->root->flat_parameters + at;
    tutti_stream *stream = tutti__zero_stream(g->zero);

    if (sends) {
        TUTTI_TRY(tutti__copy_out(stream, g->room, parameters, n * sizeof(float)));
        TUTTI_TRY(tutti_stream_wait(stream));
    }
    TUTTI_TRY(tutti_broadcast(g->group, TUTTI_BUF(g->room, n, TUTTI_F32), source, NULL));
    if (g->takes && !sends) {
        TUTTI_TRY(tutti__copy_in(stream, parameters, g->room, n * sizeof(float)));
        TUTTI_TRY(tutti_stream_wait(stream));
    }
    for (size_t k = 0; tutti_optim_state_name(g->optim, k); k++) {
        float *p = g->takes ? g->optim->whole[k] + at : g->room;

        TUTTI_TRY(tutti_broadcast(g->group, TUTTI_BUF(p, n, TUTTI_F32), source, NULL));
    }
    return TUTTI_OK;
}

static tutti_status move_all(const gathering *g)
{
    for (size_t i = 0; i < g->zero->n_noted; i++) {
        const tutti__zero_bucket *b = &g->zero->buckets[i];
        const size_t share = b->count / g->size;

        for (size_t j = 0; b->p && share > 0 && j < g->size; j++)
            TUTTI_TRY(
                move_share(g, tutti__zero_begin(g->zero, b) + j * share, share, g->source[j]));
    }
    return TUTTI_OK;
}

/* Collective in the new group: all that hold shares get all of them; others (*forgets_p) get nothing. */
static tutti_status bring(gathering *g, const tutti__zero_holder *all, bool *forgets_p)
{
    const int rank = tutti_group_rank(g->group);
    const bool holds = tutti__zero_holds(all, rank), all_here = all[rank].form == TUTTI__HAS_ALL;
    const bool rolls = holds && all[rank].tag.updates != all[0].tag.updates;
    tutti_status status = TUTTI_OK;

    *forgets_p = rolls || (!holds && !all_here);
    g->takes = holds || (all_here && g->source[0] == rank);
    if (rolls) {
        tutti_log(TUTTI_LOG_DEBUG, "zero", "rank %d ends the update that others have ended", rank);
        status = tutti__optim_update_alone(g->optim);
    }
    if (status == TUTTI_OK && all_here)
        status = tutti__optim_prepare(g->optim, NULL);
    if (status == TUTTI_OK)
        status = tutti__flat_prepare(g->zero->root);
    if (status == TUTTI_OK)
        status = tutti__zero_list(g->zero);
    if (status == TUTTI_OK)
        status = make_ready(g);
    status = tutti__group_agree(g->group, status);
    if (status == TUTTI_OK)
        status = move_all(g);
    if (status == TUTTI_OK && holds && !rolls)
        status = tutti__optim_take_whole(g->optim);
    tutti__optim_free_whole(g->optim);
    free(g->room);
    if (status != TUTTI_OK && !rolls)
        *forgets_p = false; /* its shares are as they were */
    return status;
}

static tutti_status fail_lost(const tutti_zero *zero, tutti_group *group,
                              const tutti__zero_holder *all, int n)
{
    const char *what =
        zero->stage == 3 ? "the parameters and the optimizer's state" : "the optimizer's state";
    char missing[256];

    tutti__zero_name_missing(all, n, missing, sizeof missing);
    if (tutti_group_rank(group) == 0)
        tutti_log(TUTTI_LOG_WARN, "zero",
                  "ranks %s of the %lld of generation %lld are gone, and with them a share of %s "
                  "and its copy: training continues from the last checkpoint, or without one "
                  "from the beginning",
                  missing, (long long)all[0].tag.size, (long long)all[0].tag.generation, what);
    return tutti__fail(TUTTI_ERR_PEER,
                       "ranks %s of the last group are gone, and with them a share of %s and its "
                       "copy",
                       missing, what);
}

static tutti_status follow(tutti_zero *zero, tutti_group *group, const tutti__zero_holder *all,
                           int *source, bool *forgets_p)
{
    gathering g = {.zero = zero,
                   .optim = (tutti_optim *)(void *)zero->root->optims, /* its first member */
                   .group = group,
                   .source = source,
                   .size = (size_t)all[0].tag.size};
    const int n = tutti_group_size(group), rank = tutti_group_rank(group);
    const bool shares = all[rank].form == TUTTI__HAS_SHARES;

    switch (tutti__zero_find_shares(all, n, source)) {
    case TUTTI__SHARES_FOUND:
        if (rank == 0)
            tutti_log(TUTTI_LOG_DEBUG, "zero",
                      "shares of generation %lld, of %lld ranks, come from %d",
                      (long long)all[0].tag.generation, (long long)all[0].tag.size, n);
        TUTTI_TRY(bring(&g, all, forgets_p));
        return TUTTI_OK;
    case TUTTI__SHARES_LOST:
        *forgets_p = true;
        return fail_lost(zero, group, all, n);
    case TUTTI__SHARES_UNUSED:
        break;
    }
    *forgets_p = shares;
    return TUTTI_OK;
}

tutti_status tutti__zero_recover(const tutti_ddp *ddp, int64_t generation, int64_t step,
                                 bool *forgets_p)
{
    tutti_zero *zero = ddp->zero;
    tutti_group *group = ddp->group;
    const int n = tutti_group_size(group);
    const bool shares = zero && tutti__zero_next(zero, zero->root->optims) != NULL;
    tutti__zero_holder *all, mine;
    int *source;
    tutti_status status;

    *forgets_p = false;
    if (!zero || !zero->keeps)
        return TUTTI_OK;
    mine = (tutti__zero_holder){.form = shares      ? TUTTI__HAS_SHARES
                                        : step >= 0 ? TUTTI__HAS_ALL
                                                    : TUTTI__HAS_NOTHING,
                                .step = step,
                                .tag = zero->tag,
                                .ready = zero->ready};
    all = tutti__alloc((size_t)n * sizeof *all);
    source = tutti__alloc(4097 * sizeof *source); /* as many ranks as shards */
    status = all && source ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (status == TUTTI_OK)
        status = tutti_all_gather(group, TUTTI_CONST_BUF(&mine, HOLDER, TUTTI_I64),
                                  TUTTI_BUF(all, HOLDER * (size_t)n, TUTTI_I64), NULL);
    if (status == TUTTI_OK)
        status = follow(zero, group, all, source, forgets_p);
    free(all);
    free(source);
    if (*forgets_p)
        tutti__zero_drop(ddp);
    if (status != TUTTI_OK)
        return status;
    zero->ready = zero->incomplete = false;
    zero->tag =
        (tutti__zero_tag){.generation = generation, .size = n, .rank = tutti_group_rank(group)};
    return TUTTI_OK;
}
