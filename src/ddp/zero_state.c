/* zero_state.c -- sharded optimizer state brought together: on one rank for a checkpoint, on all before their group changes.
 * SPDX-License-Identifier: MIT */
#include "ddp/zero.h"

#include "comm/comm.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum { ALL_RANKS = -1 };

/* Gathers one kind of state from all ranks into `whole` (NULL: not on this rank), through `all`, which has room for a bucket. */
static tutti_status gather(tutti_zero *zero, const float *state, float *whole, float *all)
{
    const size_t size = (size_t)zero->sharding.peers.size;
    tutti_stream *stream = tutti__zero_stream(zero);

    for (size_t i = 0; i < zero->sharding.n; i++) {
        const tutti__range *range = &zero->ranges[i];
        const size_t n = tutti__range_state(range);
        const tutti__zero_bucket *b =
            range->whole || range->copy ? NULL : &zero->buckets[zero->bucket_of[i]];
        const size_t at = b ? (size_t)(b->p - zero->root->flat_gradients) : range->begin;

        if (range->bare)
            continue;
        if (b)
            TUTTI_TRY(tutti_all_gather(zero->group, (tutti_const_buf){state, n, TUTTI_F32, stream},
                                       (tutti_buf){all, n * size, TUTTI_F32, stream}, NULL));
        if (whole)
            TUTTI_TRY(tutti__copy_out(stream, whole + at, b ? all : state,
                                      (b ? n * size : n) * sizeof *state));
        state += n;
    }
    return whole ? tutti_stream_wait(stream) : TUTTI_OK;
}

/* Memory for a bucket on the device; on `root`, or with ALL_RANKS on every rank, also for all of the state, on the host, since
 * a device may not have room for it. */
static tutti_status room_for_whole(const tutti_zero *zero, tutti_optim *optim, int root,
                                   float **all_p)
{
    const tutti_ctx *cx = optim->cx;
    size_t largest = 0;

    for (size_t i = 0; i < zero->n_buckets; i++)
        if (tutti__zero_share(zero, &zero->buckets[i]) > largest)
            largest = tutti__zero_share(zero, &zero->buckets[i]);
    *all_p = cx->device_ops->alloc(
        cx->device, (largest * (size_t)zero->sharding.peers.size + 1) * sizeof **all_p, false);
    if (!*all_p)
        return TUTTI_ERR_MEMORY;
    if (root != ALL_RANKS && tutti_group_rank(zero->group) != root)
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
    float *all = NULL;
    tutti_status status;

    TUTTI_TRY(tutti__zero_prepare(zero));
    tutti__optim_free_whole(optim);
    status = tutti__group_agree(zero->group, room_for_whole(zero, optim, root, &all));
    for (size_t k = 0; tutti_optim_state_name(optim, k) && status == TUTTI_OK; k++)
        status = gather(zero, optim->state[k], optim->whole[k], all);
    optim->cx->device_ops->free(optim->cx->device, all);
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
    if (zero->group && (root < 0 || root >= tutti_group_size(zero->group)))
        return tutti__fail(TUTTI_ERR_ARG,
                           "tutti_zero_consolidate: root is %d, expected a rank from 0 to %d", root,
                           tutti_group_size(zero->group) - 1);
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

    for (; optim; optim = tutti__zero_next(zero, optim->entry.next)) {
        TUTTI_TRY(bring_together(zero, optim, ALL_RANKS));
        TUTTI_TRY(tutti__optim_take_whole(optim));
    }
    return TUTTI_OK;
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

void tutti__zero_leave_optims(const tutti_zero *zero)
{
    static const tutti__sharding gone; /* no ranges: what they have fits no layout any more */
    tutti_optim *optim = tutti__zero_next(zero, zero->root->optims);

    for (; optim; optim = tutti__zero_next(zero, optim->entry.next))
        optim->sharding = &gone;
}
