/* share_state.c -- which rank has which step, and copying the state from rank 0 to those that lack it.   SPDX-License-Identifier: MIT
 *
 * Members of a generation are at the same step, or at most one behind (docs/design/elasticity.md), or have no state; those that
 * lack something receive everything from rank 0, which has the highest step. If all are at the same step, only small ranges are
 * sent: among them are the ones that a failed try may have changed on some ranks, such as a reducer's ranges. */
#include "elastic/elastic_internal.h"

#include "comm/comm.h"
#include "elastic/transfer.h"

#include <stdlib.h>

typedef struct header {
    int64_t step; /* committed; -1: no state */
    /* the step from which this rank could begin in a fresh group; -1: it could not */
    int64_t begin;
    int64_t ends_at;
} header;
_Static_assert(sizeof(header) == 3 * sizeof(int64_t), "a header is three integers");

/* All workers with the state have died, and what is left here was half overwritten. Such workers must be replaced by new ones,
 * which can at least start from the beginning. */
static tutti_status fail_torn(tutti_elastic *e)
{
    static const char why[] = "all workers that had the state have died, and the state of the "
                              "others is half overwritten; to continue from a checkpoint, read it "
                              "in a part's regroup, and call tutti_elastic_set_step";

    tutti__group_give_up(e->group, why);
    (void)tutti__fail(TUTTI_ERR_PEER, "%s", why);
    return tutti__elastic_fail(e, TUTTI_ERR_PEER);
}

/* The source: rank 0; in a fresh group the first rank whose state is complete. */
static tutti_status choose(tutti_elastic *e, const header *all, int n, tutti__transfer *t)
{
    *t = (tutti__transfer){.group = e->group, .all = e->fresh};
    if (e->fresh) {
        while (t->from < n && all[t->from].begin < 0)
            t->from++;
        return t->from < n ? TUTTI_OK : fail_torn(e);
    }
    for (int r = 1; r < n; r++) {
        if (all[r].step > all[0].step)
            return tutti__fail(TUTTI_ERR_INTERNAL,
                               "rank %d has committed %lld steps, but rank 0, which sends the "
                               "state to the others, %lld",
                               r, (long long)all[r].step, (long long)all[0].step);
        t->all = t->all || all[r].step < all[0].step;
    }
    return TUTTI_OK;
}

static tutti_status move_parts(tutti_elastic *e, tutti__transfer *t)
{
    TUTTI__EACH_PART(e, state, (part->calls.self, tutti__transfer_move, t));
    return tutti__transfer_end(t);
}

static tutti_status take_state(tutti_elastic *e, const header *all, tutti__transfer *t)
{
    const int rank = tutti_group_rank(e->group);
    const int64_t step = e->fresh ? all[t->from].begin : all[0].step;

    /* A rank with a state keeps it until the newer one has arrived completely, because the source may die meanwhile. A rank
     * without one receives in place, and is torn until the end. */
    t->whole = !e->fresh && e->has_state;
    if (rank != t->from && !t->whole) {
        e->has_state = false;
        e->torn = true;
    }
    TUTTI_TRY(move_parts(e, t));
    if (rank != t->from)
        TUTTI__EACH_PART(e, loaded, (part->calls.self));
    e->step = (uint64_t)step;
    e->has_state = true;
    e->torn = e->forgot = false;
    return TUTTI_OK;
}

tutti_status tutti__elastic_share_state(tutti_elastic *e)
{
    const int n = tutti_group_size(e->group);
    const header mine = {.step = e->has_state ? (int64_t)e->step : -1,
                         .begin = e->can_begin ? (int64_t)e->step : -1,
                         .ends_at = e->ends_at};
    header *all = tutti__alloc((size_t)n * sizeof *all);
    tutti__transfer t = {0};
    tutti_status status;

    if (!all)
        return TUTTI_ERR_MEMORY;
    status = tutti_all_gather(e->group, TUTTI_CONST_BUF(&mine, 3, TUTTI_I64),
                              TUTTI_BUF(all, 3 * (size_t)n, TUTTI_I64), NULL);
    if (status == TUTTI_OK)
        status = choose(e, all, n, &t);
    if (status == TUTTI_OK)
        status = take_state(e, all, &t);
    for (int r = 0; r < n && status == TUTTI_OK; r++)
        if (all[r].ends_at == (int64_t)e->step + 1)
            e->ends_at = all[r].ends_at;
    tutti__transfer_destroy(&t);
    free(all);
    return status;
}
