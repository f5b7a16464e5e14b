/* shm_reduce.c -- all_reduce, reduce and reduce_scatter in shared memory: chooses the algorithm.
 * SPDX-License-Identifier: MIT */
#include "comm/algorithm/shm_reduce.h"

#include "comm/algorithm/shm_algorithms.h"

static tutti_status run(tutti__shm_reduction *r)
{
    bool all_direct = true;

    if (tutti__shm_call_of(r->shm, r->shm->comm->rank)->segment != TUTTI__SHM_STAGED)
        r->at[r->shm->comm->rank] = (char *)(uintptr_t)r->op->src;
    tutti__shm_reduce_stage(r);
    TUTTI_TRY(tutti__shm_enter_access(r->shm, r->op));
    TUTTI_TRY(tutti__shm_find_contributions(r->shm, 0, r->shm->comm->size, r->at));
    for (int i = 0; i < r->shm->comm->size; i++)
        all_direct = all_direct && tutti__shm_reaches(r->shm, i);
    if (all_direct)
        return tutti__shm_reduce_direct(r);
    tutti__shm_access_end(r->shm);
    return tutti__shm_reduce_staged(r);
}

tutti_status tutti__shm_reduce(tutti__shm *shm, tutti__operation *op)
{
    const tutti__signature *signature = &op->signature;
    size_t size = (size_t)shm->comm->size;
    tutti__shm_reduction r = {.shm = shm,
                              .op = op,
                              .dtype = (tutti_dtype)signature->dtype,
                              .redop = (tutti_redop)signature->redop,
                              .element = tutti_dtype_size((tutti_dtype)signature->dtype),
                              .count = (size_t)signature->count,
                              .scatters = tutti__op_traits_of(op)->scatters};
    void **pointers = tutti__shm_pointers(shm);

    r.at = (char **)pointers;
    r.src = (const void **)pointers + size;
    r.dst = pointers + 2 * size;
    return run(&r);
}
