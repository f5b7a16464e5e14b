/* checks.c -- tests of the program, on request: whether members have the same state, and whether a shard has the same gradients
 * whichever rank computes it.   SPDX-License-Identifier: MIT */
#include "elastic/elastic_internal.h"

#include "device/device.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>

tutti_status tutti__checks_init(tutti_elastic *e)
{
    TUTTI_TRY(tutti__env_int(TUTTI__ENV_CHECK_REPLICAS, 0, INT_MAX, &e->check_replicas));
    return tutti__env_int(TUTTI__ENV_CHECK_SHARDS, 0, INT_MAX, &e->check_shards);
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
    const size_t bytes = buf.count * tutti_dtype_size(buf.dtype);
    tutti_status status = TUTTI_OK;
    uint64_t *digest = arg;
    void *copy = NULL;

    if (!tutti__on_host(buf.stream)) {
        copy = tutti__alloc_unset(bytes + 1);
        status = copy ? tutti__read(buf.stream, copy, buf.p, bytes) : TUTTI_ERR_MEMORY;
    }
    if (status == TUTTI_OK)
        *digest = *digest * 31 + tutti__hash64(copy ? copy : buf.p, bytes);
    free(copy);
    return status;
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

/* ---- A shard, computed twice ---- */

/* Parts that take shards must be able to drop them. */
static bool can_try(tutti_elastic *e)
{
    for (const tutti__elastic_part *part = e->first; part; part = part->next) {
        if ((!part->calls.begin && !part->calls.begin_shard) || part->calls.compare)
            continue;
        if (!e->said_incomparable && tutti_group_rank(e->group) == 0)
            tutti_log(TUTTI_LOG_WARN, "elastic",
                      "TUTTI_CHECK_SHARDS: no shard is compared, because part \"%s\" takes shards "
                      "and has no `compare` to drop them",
                      part->name);
        e->said_incomparable = true;
        return false;
    }
    return true;
}

/* Which one, and by whom: others with each check. */
static uint64_t turn(const tutti_elastic *e)
{
    return e->step / (uint64_t)e->check_shards;
}

static int first_rank(const tutti_elastic *e)
{
    return (int)(turn(e) % (uint64_t)e->size);
}

static int second_rank(const tutti_elastic *e)
{
    return (first_rank(e) + 1) % e->size;
}

bool tutti__trial_is_due(tutti_elastic *e)
{
    return is_due(e, e->check_shards) && e->compared != e->step + 1 && can_try(e);
}

int tutti__trial_shard(const tutti_elastic *e)
{
    const int rank = tutti_group_rank(e->group);

    return rank == first_rank(e) || rank == second_rank(e)
               ? (int)(turn(e) % (uint64_t)e->opts.shards)
               : -1;
}

tutti_status tutti__trial_end(tutti_elastic *e)
{
    const int a = first_rank(e), b = second_rank(e);
    uint64_t mine = 0, *all = NULL;
    tutti_status status;

    for (const tutti__elastic_part *part = e->first; part; part = part->next) {
        uint64_t digest = 0;

        if (part->calls.compare)
            TUTTI_TRY(part->calls.compare(part->calls.self, &digest));
        mine = mine * 31 + digest;
    }
    e->compared = e->step + 1;
    status = exchange(e, &mine, 1, &all);
    if (status == TUTTI_OK && all[a] != all[b])
        status = tutti__fail(
            TUTTI_ERR_MISMATCH,
            "step %llu: shard %d has other gradients on rank %d (digest %016" PRIx64
            ") than on rank %d (%016" PRIx64
            "): its data or random numbers were chosen by rank or by a count of this process's "
            "own; they must be a function of (seed, step, shard)",
            (unsigned long long)e->step, (int)(turn(e) % (uint64_t)e->opts.shards), a, all[a], b,
            all[b]);
    free(all);
    return status;
}
