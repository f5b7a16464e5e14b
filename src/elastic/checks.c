/* checks.c -- whether members have the same state, on request.   SPDX-License-Identifier: MIT */
#include "elastic/elastic_internal.h"

#include "device/device.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

tutti_status tutti__checks_init(tutti_elastic *e)
{
    return tutti__env_int(TUTTI__ENV_CHECK_REPLICAS, 0, INT_MAX, &e->check_replicas);
}

static bool is_due(const tutti_elastic *e, int64_t every)
{
    return every > 0 && e->size > 1 && e->step % (uint64_t)every == 0;
}

/* The digests of all ranks, n of each; the caller frees them. */
static tutti_status exchange(const tutti_elastic *e, const uint64_t *mine, size_t n,
                             uint64_t **all_p)
{
    *all_p = tutti__alloc(n * (size_t)e->size * sizeof **all_p);
    if (!*all_p)
        return TUTTI_ERR_MEMORY;
    return tutti_all_gather(e->group, TUTTI_CONST_BUF(mine, n, TUTTI_I64),
                            TUTTI_BUF(*all_p, n * (size_t)e->size, TUTTI_I64), NULL);
}

/* ---- The state ---- */

/* Of each range of a part, after the digest of those before. */
static tutti_status hash_range(void *arg, tutti_buf buf)
{
    uint64_t *digest = arg, hash;

    TUTTI_TRY(
        tutti__hash_memory(buf.stream, buf.p, buf.count * tutti_dtype_size(buf.dtype), &hash));
    *digest = *digest * 31 + hash;
    return TUTTI_OK;
}

static tutti_status compare_parts(const tutti_elastic *e, const uint64_t *all, size_t n)
{
    const tutti__elastic_part *part = e->first;

    for (size_t i = 0; i < n; i++, part = part->next)
        for (size_t r = 1; r < (size_t)e->size; r++)
            if (all[r * n + i] != all[i])
                return tutti__fail(
                    TUTTI_ERR_MISMATCH,
                    "replicas differ at step %llu: part \"%s\" has digest %016" PRIx64
                    " on rank 0 and %016" PRIx64
                    " on rank %zu. It was changed on some ranks only, or by something that depends "
                    "on the rank: what is kept must be a function of (seed, step)",
                    (unsigned long long)e->step, part->name, all[i], all[r * n + i], r);
    return TUTTI_OK;
}

tutti_status tutti__check_parts(const tutti_elastic *e)
{
    uint64_t *mine, *all = NULL;
    size_t n = 0, i = 0;
    tutti_status status = TUTTI_OK;

    if (!is_due(e, e->check_replicas))
        return TUTTI_OK;
    for (const tutti__elastic_part *part = e->first; part; part = part->next)
        n++;
    mine = tutti__alloc((n + 1) * sizeof *mine);
    if (!mine)
        return TUTTI_ERR_MEMORY;
    for (const tutti__elastic_part *part = e->first; part && status == TUTTI_OK;
         part = part->next, i++)
        if (part->calls.state && !part->calls.differs)
            status = part->calls.state(part->calls.self, hash_range, &mine[i]);
    if (status == TUTTI_OK)
        status = exchange(e, mine, n, &all);
    if (status == TUTTI_OK)
        status = compare_parts(e, all, n);
    free(mine);
    free(all);
    return status;
}
