/* zero_state.c -- sharded optimizer state brought together: on one rank for a checkpoint, on all before their group changes.
 * SPDX-License-Identifier: MIT */
#include "ddp/zero.h"

#include "comm/comm.h"
#include "optim/ema.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

/* ---- Shares to wholes, in host memory, since a device may not have room for all ---------------------------------------- */

/* `mine`: what this rank has of range i, memory of `stream`; room: for it in host memory, if that is a device's. */
static tutti_status collect_range(const tutti_zero *zero, tutti_stream *stream, size_t i,
                                  const float *mine, float *whole, int root, float *room)
{
    const tutti__range *range = &zero->ranges[i];
    const size_t n = range->end - range->begin, size = (size_t)zero->sharding.peers.size;
    tutti_const_buf from = {mine, n, TUTTI_F32, NULL};
    tutti_buf to = {NULL, 0, TUTTI_F32, NULL};

    if (range->copy) /* its owner has it too */
        return TUTTI_OK;
    if (range->whole)
        return whole ? tutti__read(stream, whole + range->begin, mine, n * sizeof *mine) : TUTTI_OK;
    if (!tutti__on_host(stream)) {
        TUTTI_TRY(tutti__read(stream, room, mine, n * sizeof *mine));
        from.p = room;
    }
    if (whole) {
        to.p = whole + tutti__zero_begin(zero, &zero->buckets[zero->bucket_of[i]]);
        to.count = n * size;
    }
    return root == TUTTI__ALL_RANKS ? tutti_all_gather(zero->group, from, to, NULL)
                                    : tutti_gather(zero->group, from, to, root, NULL);
}

tutti_status tutti__zero_collect(const tutti_zero *zero, tutti_stream *stream, const float *from,
                                 tutti__zero_kind kind, float *whole, int root)
{
    const int sharers = zero->sharding.peers.size, rank = tutti_group_rank(zero->ddp->group);
    const bool host = tutti__on_host(stream);
    size_t largest = 0, at = 0;
    float *room = NULL;
    tutti_status status;

    for (size_t i = 0; i < zero->sharding.n; i++)
        if (!zero->ranges[i].whole && zero->ranges[i].end - zero->ranges[i].begin > largest)
            largest = zero->ranges[i].end - zero->ranges[i].begin;
    if (!host)
        room = tutti__alloc_unset((largest + 1) * sizeof *room);
    status = tutti__group_agree(zero->ddp->group, room || host ? TUTTI_OK : TUTTI_ERR_MEMORY);
    if (root != TUTTI__ALL_RANKS && rank / sharers != root / sharers) { /* a replica without it */
        free(room);
        return status;
    }
    for (size_t i = 0; i < zero->sharding.n && status == TUTTI_OK; i++) {
        const tutti__range *range = &zero->ranges[i];
        const bool in_place = kind == TUTTI__OF_PARAMETERS, in_host = in_place && range->host;
        const float *mine = in_host ? range->host : from + (in_place ? range->begin : at);

        if (kind != TUTTI__OF_STATE || !range->bare)
            status = collect_range(zero, in_host ? &tutti__cpu_stream : stream, i, mine, whole,
                                   root == TUTTI__ALL_RANKS ? root : root % sharers, room);
        at += kind == TUTTI__OF_STATE ? tutti__range_state(range) : range->end - range->begin;
    }
    free(room);
    return status;
}

/* Memory on `root`, or on every rank, for all of an optimizer's state. */
static tutti_status room_for_whole(const tutti_zero *zero, tutti_optim *optim, int root)
{
    if (root != TUTTI__ALL_RANKS && tutti_group_rank(zero->ddp->group) != root)
        return TUTTI_OK;
    for (size_t k = 0; tutti_optim_state_name(optim, k); k++) {
        optim->whole[k] = tutti__alloc((zero->root->n_flat + 1) * sizeof(float));
        if (!optim->whole[k])
            return TUTTI_ERR_MEMORY;
    }
    return TUTTI_OK;
}

/* Gathers the state of one optimizer whose state is sharded. */
static tutti_status bring_together(tutti_zero *zero, tutti_optim *optim, int root)
{
    tutti_status status;

    TUTTI_TRY(tutti__zero_prepare(zero));
    tutti__optim_free_whole(optim);
    status = tutti__group_agree(zero->ddp->group, room_for_whole(zero, optim, root));
    for (size_t k = 0; tutti_optim_state_name(optim, k) && status == TUTTI_OK; k++)
        status = tutti__zero_collect(zero, tutti__optim_stream(optim), optim->state[k],
                                     TUTTI__OF_STATE, optim->whole[k], root);
    if (status != TUTTI_OK)
        tutti__optim_free_whole(optim);
    return status;
}

tutti_status tutti_zero_consolidate(tutti_zero *zero, tutti_optim *optim, int root)
{
    TUTTI_TRY(TUTTI__NOT_NULL(zero));
    TUTTI_TRY(TUTTI__NOT_NULL(optim));
    if (optim->module->root != zero->root)
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_zero_consolidate: the optimizer is of another module");
    if (zero->group && (root < 0 || root >= tutti_group_size(zero->ddp->group)))
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_zero_consolidate: root is %d, expected a rank from 0 to %d", root,
                           tutti_group_size(zero->ddp->group) - 1);
    if (zero->stage == 3)
        TUTTI_TRY(tutti__units_consolidate(zero, root));
    if (optim->sharding != &zero->sharding) /* before the first step: not sharded */
        return TUTTI_OK;
    return bring_together(zero, optim, root);
}

/* ---- Groups that change: with logical shards --------------------------------------------------------------------------- */

tutti_optim *tutti__zero_next(const tutti_zero *zero, tutti__optim_entry *entry)
{
    while (entry && ((tutti_optim *)(void *)entry)->sharding != &zero->sharding)
        entry = entry->next;
    return (tutti_optim *)(void *)entry; /* its first member */
}

tutti_status tutti__zero_gather(const tutti_ddp *ddp)
{
    tutti_zero *zero = ddp->zero;
    tutti_optim *optim = zero ? tutti__zero_next(zero, zero->root->optims) : NULL;

    if (zero)
        TUTTI_TRY(tutti__units_gather(zero));
    for (; optim; optim = tutti__zero_next(zero, optim->entry.next)) {
        TUTTI_TRY(bring_together(zero, optim, TUTTI__ALL_RANKS));
        TUTTI_TRY(tutti__optim_take_whole(optim));
    }
    if (zero)
        tutti__units_whole(zero);
    return TUTTI_OK;
}

tutti_status tutti__zero_gather_average(tutti_ema *ema)
{
    const tutti_zero *zero = ema->sharding ? ema->sharding->self : NULL;
    float *whole;
    tutti_status status;

    if (!zero)
        return TUTTI_OK;
    whole = tutti__alloc((zero->root->n_flat + 1) * sizeof *whole);
    status = tutti__group_agree(zero->group, whole ? TUTTI_OK : TUTTI_ERR_MEMORY);
    if (status == TUTTI_OK)
        status = tutti__zero_collect(zero, tutti__zero_stream(zero), ema->average,
                                     TUTTI__OF_AVERAGES, whole, TUTTI__ALL_RANKS);
    if (status == TUTTI_OK)
        status = tutti__ema_take_whole(ema, whole);
    free(whole);
    return status;
}

bool tutti__zero_regroup(const tutti_ddp *ddp, tutti_group *group)
{
    tutti_zero *zero = ddp->zero;
    tutti_optim *optim = zero ? tutti__zero_next(zero, zero->root->optims) : NULL;
    bool lost = false;

    if (!zero)
        return false;
    if (zero->works)
        (void)!tutti__zero_finish(zero); /* all_gathers fail with the group */
    if (zero->keeps && !zero->updating) /* until tutti__zero_recover, with the old group's ranges */
        optim = NULL;
    else
        lost = zero->version > 0; /* shares of parameters */
    tutti__units_leave(zero);
    zero->updating = false;
    for (; optim; optim = tutti__zero_next(zero, optim->entry.next))
        lost |= tutti__optim_drop_share(optim);
    zero->group = group;
    zero->begun = false;
    if (group)
        zero->sharding.peers = tutti_group_peers(group);
    zero->sharding.layouts = 0; /* ranges will change */
    return lost;
}

tutti_status tutti__zero_enter(const tutti_ddp *ddp)
{
    return ddp->zero ? tutti__units_enter(ddp->zero) : TUTTI_OK;
}

void tutti__zero_leave_optims(const tutti_zero *zero)
{
    static const tutti__sharding gone; /* no ranges: what they have fits no layout any more */
    tutti_optim *optim = tutti__zero_next(zero, zero->root->optims);

    for (; optim; optim = tutti__zero_next(zero, optim->entry.next))
        optim->sharding = &gone;
}
