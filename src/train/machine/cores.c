/* cores.c -- compares the cores that ranks may use.   SPDX-License-Identifier: MIT */
#include "train/machine/cores.h"
#include "base/base.h"
#include "train/config/agreement.h"

#include <stdlib.h>
#include <string.h>

tutti__core_share tutti__core_share_of(const tutti__core_set *sets, size_t n_ranks, size_t rank)
{
    tutti__core_share share = {0, 0};

    for (size_t i = 0; i < n_ranks; i++) {
        cpu_set_t both;

        CPU_AND(&both, &sets[i].cpus, &sets[rank].cpus);
        if (i != rank && (sets[i].machine != sets[rank].machine || CPU_COUNT(&both) == 0))
            continue;
        share.n++;
        share.index += i < rank;
    }
    return share;
}

tutti_status tutti__core_share_find(tutti_group *group, tutti__core_share *share)
{
    size_t n = (size_t)tutti_group_size(group), rank = (size_t)tutti_group_rank(group);
    tutti__core_set mine = {.machine = tutti__boot_id()}, *all = tutti__alloc(n * sizeof *all);
    tutti_status status = all ? TUTTI_OK : TUTTI_ERR_MEMORY;

    /* Fails on machines with more than 1,024 CPUs; then all of their ranks count as sharing. */
    if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) != 0)
        memset(&mine.cpus, 0xff, sizeof mine.cpus);
    status = tutti__fail_together(group, status);
    if (status == TUTTI_OK)
        status = tutti_all_gather(group, TUTTI_CONST_BUF(&mine, sizeof mine, TUTTI_U8),
                                  TUTTI_BUF(all, n * sizeof *all, TUTTI_U8), NULL);
    if (status == TUTTI_OK)
        *share = tutti__core_share_of(all, n, rank);
    free(all);
    return status;
}
