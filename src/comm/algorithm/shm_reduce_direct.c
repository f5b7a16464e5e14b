/* shm_reduce_direct.c -- each rank reduces its share directly from all ranks' memory, and writes the result to the ranks
 * that take it: no copies, and only two barriers.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/shm_reduce.h"

/* reduce_scatter: reduces all ranks' pieces for this rank. */
static void reduce_own_piece(const tutti__shm_reduction *r)
{
    int rank = r->shm->comm->rank, size = r->shm->comm->size;

    for (int i = 0; i < size; i++)
        r->src[i] = r->at[i] + (size_t)rank * r->count * r->element;
    r->dst[0] = r->op->dst;
    tutti__reduce(r->dtype, r->redop, r->dst, 1, r->src, (size_t)size, r->count);
}

/* all_reduce: writes to all ranks, to its own first; reduce: to root. */
static void reduce_share(const tutti__shm_reduction *r)
{
    int rank = r->shm->comm->rank, size = r->shm->comm->size;
    bool to_root = tutti__op_traits_of(r->op)->to_root;
    tutti__piece share = tutti__shm_share(r, r->count, rank);
    size_t begin = share.at * r->element;

    for (int i = 0; i < size; i++) {
        r->src[i] = r->at[i] + begin;
        r->dst[i] = r->at[(rank + i) % size] + begin;
    }
    if (to_root)
        r->dst[0] = r->at[r->op->signature.root] + begin;
    tutti__reduce(r->dtype, r->redop, r->dst, to_root ? 1 : (size_t)size, r->src, (size_t)size,
                  share.count);
}

tutti_status tutti__shm_reduce_direct(const tutti__shm_reduction *r)
{
    if (r->scatters)
        reduce_own_piece(r);
    else
        reduce_share(r);
    tutti__shm_access_end(r->shm);
    return tutti__shm_barrier(r->shm, r->op); /* peers access this rank's memory until then */
}
