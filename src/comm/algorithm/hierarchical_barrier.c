/* hierarchical_barrier.c -- no rank leaves before all have arrived: on each host, between the leaders, on each host.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/hierarchy.h"

tutti_status tutti__hierarchical_barrier(tutti__hierarchy_op *o)
{
    TUTTI_TRY(tutti__hierarchy_enter(o));
    TUTTI_TRY(tutti__hierarchy_compare_leaders(o));
    tutti__hierarchy_next_stage(o);
    return tutti__shm_barrier(o->h->shm, o->op);
}
