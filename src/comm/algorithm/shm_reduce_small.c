/* shm_reduce_small.c -- every contribution lies in its rank's call, and each rank reduces all of it.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/shm_reduce.h"

#include <string.h>

tutti_status tutti__shm_reduce_small(const tutti__shm_reduction *r)
{
    int rank = r->shm->comm->rank, size = r->shm->comm->size;
    size_t piece = r->count * r->element;

    memcpy(tutti__shm_call_of(r->shm, rank)->small, r->op->src,
           piece * (r->scatters ? (size_t)size : 1));
    TUTTI_TRY(tutti__shm_enter(r->shm, r->op));
    if (!tutti__shm_takes(r))
        return TUTTI_OK;
    for (int i = 0; i < size; i++)
        r->src[i] = tutti__shm_call_of(r->shm, i)->small + (r->scatters ? (size_t)rank * piece : 0);
    r->dst[0] = r->op->dst;
    tutti__reduce(r->dtype, r->redop, r->dst, 1, r->src, (size_t)size, r->count);
    return TUTTI_OK;
}
