/* atomics.c -- a shared integer of each rank, by which ranks divide work among them.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

#include <stdlib.h>

enum { AT_ONCE = 16 };

_Atomic uint64_t *tutti__group_atomic(tutti_group *group, int rank)
{
    return tutti__p2p_atomic(group->p2p, rank);
}

static tutti_status exchange(tutti_group *group, tutti__compare_and_swap *exchanges, int n)
{
    tutti__p2p_request requests[AT_ONCE];
    tutti_status status = TUTTI_OK;

    for (int i = 0; i < n; i++)
        tutti__p2p_start(group->p2p, &requests[i],
                         &(tutti__signature){.op = TUTTI__OP_COMPARE_AND_SWAP,
                                             .root = (uint32_t)exchanges[i].rank},
                         &exchanges[i], tutti__queue_timeout(group->queue), false);
    for (int i = 0; i < n; i++) {
        (void)tutti__p2p_wait(&requests[i], 0);
        if (status == TUTTI_OK && requests[i].status != TUTTI_OK) {
            tutti__comm_report(&group->comm); /* the program may exit when it sees the failure */
            status = tutti__fail_again(requests[i].status,
                                       requests[i].message ? requests[i].message : "");
        }
        free(requests[i].message);
    }
    return status;
}

tutti_status tutti__group_compare_and_swap(tutti_group *group, tutti__compare_and_swap *exchanges,
                                           int n)
{
    for (int i = 0; i < n; i += AT_ONCE)
        TUTTI_TRY(exchange(group, exchanges + i, n - i < AT_ONCE ? n - i : AT_ONCE));
    return TUTTI_OK;
}
