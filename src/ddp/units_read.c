/* units_read.c -- ZeRO-3 with logical shards: a rank reads the shares of others when it needs them, without their doing.
 * SPDX-License-Identifier: MIT
 *
 *     all ranks    | all parameters: a group is formed, its first step | update | shares, and what was read | update | ...
 *     version                           0                                  ->  1                            ->  2
 *
 * Ranks compute different numbers of shards, and take over those of slower ranks, so they cannot gather together. They need not: nobody
 * writes parameters between two updates, and no rank begins an update before all have the means, when nobody reads any more. A rank
 * that is ahead names the version that it wants, and an owner answers when its own update is done.
 * While a group is formed every rank has memory for all parameters, as for the optimizer's state: they are sent like that, and may be
 * all that is left when ranks die. */
#include "ddp/zero.h"

#include "comm/comm.h"

#include <stdlib.h>

static size_t size_of(const tutti_zero *zero)
{
    return (size_t)zero->sharding.peers.size;
}

/* ---- A bucket ---- */

tutti_status tutti__units_await(tutti_zero *zero, size_t i)
{
    tutti_work **works = zero->reads + i * size_of(zero);
    tutti_status status = TUTTI_OK;

    for (size_t r = 0; r < size_of(zero); r++) {
        tutti_work *work = works[r];

        works[r] = NULL;
        if (work && status == TUTTI_OK)
            status = tutti_work_wait(work);
        else if (work)
            (void)!tutti_work_wait(work); /* only the first failure is reported */
    }
    return status;
}

tutti_status tutti__units_read(tutti_zero *zero, size_t i)
{
    const tutti__zero_bucket *b = &zero->buckets[i];
    const size_t share = tutti__zero_share(zero, b), begin = tutti__zero_begin(zero, b);
    const tutti__zero_kept kept = tutti__zero_kept_of(zero, b);
    float *p = zero->root->flat_parameters;
    tutti_status status = TUTTI_OK;

    for (size_t r = 0; r < size_of(zero) && share > 0 && status == TUTTI_OK; r++) {
        const size_t at = begin + r * share;

        if ((at >= kept.begin && at < kept.end) || at >= kept.tail)
            continue;
        status = tutti__group_read(zero->group, tutti__units_window(zero), zero->version, (int)r,
                                   at * sizeof *p, p + at, share * sizeof *p,
                                   &zero->reads[i * size_of(zero) + r]);
    }
    if (status != TUTTI_OK)
        (void)!tutti__units_await(zero, i);
    return status;
}

/* ---- Groups that change ---- */

/* Memory for all of each bucket; what is in it is not known where it was not there. */
static tutti_status back_all(tutti_zero *zero)
{
    for (size_t i = 0; i < zero->n_noted; i++)
        if (zero->buckets[i].p && zero->buckets[i].state == TUTTI__ABSENT)
            TUTTI_TRY(tutti__units_back(zero, i));
    return TUTTI_OK;
}

void tutti__units_leave(tutti_zero *zero)
{
    if (!tutti__zero_reads(zero) || !zero->reads)
        return;
    (void)!tutti__units_settle(zero); /* fails with the group */
    tutti__units_conceal(zero);
    free(zero->reads);
    zero->reads = NULL;
    tutti__units_whole(zero);
    if (back_all(zero) != TUTTI_OK) /* again when a group is entered, which reports it */
        tutti_log(TUTTI_LOG_DEBUG, "zero", "%s", tutti_last_error());
}

tutti_status tutti__units_enter(tutti_zero *zero)
{
    const size_t bytes = zero->root->n_flat * sizeof(float);

    if (!tutti__zero_reads(zero) || zero->n_noted == 0)
        return TUTTI_OK;
    zero->reads = tutti__alloc((zero->n_noted * size_of(zero) + 1) * sizeof(tutti_work *));
    if (!zero->reads)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(back_all(zero));
    for (size_t i = 0; i < zero->n_noted; i++)
        if (zero->buckets[i].p)
            tutti__units_part(zero, &zero->buckets[i]);
    zero->held = bytes;
    zero->most_held = bytes > zero->most_held ? bytes : zero->most_held;
    return tutti__group_expose(zero->group, tutti__units_window(zero), zero->root->flat_parameters,
                               bytes, 0);
}

void tutti__units_conceal(const tutti_zero *zero)
{
    if (tutti__zero_reads(zero) && zero->group && zero->reads)
        (void)!tutti__group_expose(zero->group, tutti__units_window(zero), NULL, 0, zero->version);
}

tutti_status tutti__units_renew(tutti_zero *zero)
{
    TUTTI_TRY(tutti__units_drop(zero));
    zero->sharding.whole_parameters = false;
    return tutti__group_expose(zero->group, tutti__units_window(zero), zero->root->flat_parameters,
                               zero->root->n_flat * sizeof(float), ++zero->version);
}

tutti_status tutti__units_begin_write(tutti_zero *zero)
{
    TUTTI_TRY(tutti__units_discard(zero));
    if (!tutti__zero_reads(zero))
        return TUTTI_OK;
    TUTTI_TRY(tutti_barrier(zero->group, NULL)); /* until then others compute with these */
    tutti__units_conceal(zero);
    return TUTTI_OK;
}

tutti_status tutti__units_end_write(tutti_zero *zero)
{
    return tutti__zero_reads(zero) ? tutti__units_renew(zero) : TUTTI_OK;
}

tutti_status tutti__units_gather(tutti_zero *zero)
{
    float *p = zero->root->flat_parameters;

    if (!tutti__zero_reads(zero) || zero->version == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__units_settle(zero));
    TUTTI_TRY(tutti__group_agree(zero->group, back_all(zero)));
    for (size_t i = 0; i < zero->n_noted; i++) {
        const tutti__zero_bucket *b = &zero->buckets[i];
        const size_t share = b->p ? tutti__zero_share(zero, b) : 0;

        if (share > 0)
            TUTTI_TRY(
                tutti_all_gather(zero->group,
                                 (tutti_const_buf){p + tutti__zero_own(zero, b), share, TUTTI_F32,
                                                   tutti__zero_stream(zero)},
                                 (tutti_buf){p + tutti__zero_begin(zero, b), share * size_of(zero),
                                             TUTTI_F32, tutti__zero_stream(zero)},
                                 NULL));
    }
    return TUTTI_OK;
}
