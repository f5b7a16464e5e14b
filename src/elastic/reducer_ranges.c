/* reducer_ranges.c -- a reducer as a part of the state.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "elastic/reducer_ranges.h"
#include "elastic/settings.h"
#include "reducer/reducer.h"

#include <stdlib.h>
#include <string.h>

tutti_status tutti__ranges_init(tutti__kept_ranges *ranges, tutti_elastic *e,
                                tutti_reducer *reducer)
{
    *ranges = (tutti__kept_ranges){.e = e, .reducer = reducer};
    while (tutti_reducer_name(reducer, ranges->n))
        ranges->n++;
    tutti__reducer_tolerate_damage(reducer);
    ranges->saved = tutti__alloc((ranges->n + 1) * sizeof *ranges->saved);
    return ranges->saved ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tutti__ranges_destroy(tutti__kept_ranges *ranges)
{
    free(ranges->saved);
}

bool tutti__ranges_take_back(tutti__kept_ranges *ranges)
{
    const bool back = ranges->finished && ranges->step == tutti_elastic_step(ranges->e);

    if (back)
        memcpy(tutti_reducer_ranges(ranges->reducer), ranges->saved,
               ranges->n * sizeof *ranges->saved);
    ranges->finished = false;
    return back;
}

void tutti__ranges_begun(tutti__kept_ranges *ranges)
{
    memcpy(ranges->saved, tutti_reducer_ranges(ranges->reducer), ranges->n * sizeof *ranges->saved);
    ranges->finished = false;
}

void tutti__ranges_digest(tutti__kept_ranges *ranges)
{
    if (tutti__elastic_is_digested(ranges->e))
        tutti__reducer_digest_shard(ranges->reducer, &ranges->digest);
}

void tutti__ranges_finished(tutti__kept_ranges *ranges, bool again)
{
    bool own;
    const char *damaged = again ? NULL : tutti__reducer_damage(ranges->reducer, &own);

    if (damaged)
        tutti__elastic_damaged(ranges->e, damaged, own);
    ranges->finished = !again;
    ranges->step = tutti_elastic_step(ranges->e);
}

tutti_status tutti__ranges_move(const tutti__kept_ranges *ranges,
                                tutti_status (*move)(void *arg, tutti_buf buf), void *arg)
{
    return move(arg, TUTTI_BUF(tutti_reducer_ranges(ranges->reducer), ranges->n, TUTTI_F32));
}

/* ---- The part ---- */

static tutti_status regroup(void *self, tutti_group *group)
{
    tutti__kept_ranges *ranges = self;

    if (!group)
        (void)tutti__ranges_take_back(ranges);
    return tutti_reducer_regroup(ranges->reducer, group);
}

static tutti_status state(void *self, tutti_status (*move)(void *arg, tutti_buf buf), void *arg)
{
    return tutti__ranges_move(self, move, arg);
}

static tutti_status begin(void *self)
{
    tutti__kept_ranges *ranges = self;

    (void)tutti__ranges_take_back(ranges);
    TUTTI_TRY(tutti_reducer_begin(ranges->reducer));
    tutti__ranges_begun(ranges);
    return TUTTI_OK;
}

static tutti_status begin_shard(void *self, int shard, bool last)
{
    tutti__kept_ranges *ranges = self;

    (void)shard;
    TUTTI_TRY(tutti_reducer_begin_shard(ranges->reducer, last));
    tutti__ranges_digest(ranges);
    return TUTTI_OK;
}

static tutti_status finish(void *self, bool *again_p)
{
    tutti__kept_ranges *ranges = self;

    TUTTI_TRY(tutti_reducer_finish(ranges->reducer));
    *again_p = tutti_reducer_again(ranges->reducer);
    tutti__ranges_finished(ranges, *again_p);
    return TUTTI_OK;
}

static tutti_status compare(void *self, uint64_t *digest_p)
{
    *digest_p = ((const tutti__kept_ranges *)self)->digest;
    return TUTTI_OK;
}

static tutti_status drop(void *self)
{
    return tutti__reducer_drop(((const tutti__kept_ranges *)self)->reducer);
}

static void free_ranges(void *self)
{
    tutti__ranges_destroy(self);
    free(self);
}

tutti_status tutti_elastic_keep_reducer(tutti_elastic *e, tutti_reducer *reducer)
{
    tutti__kept_ranges *ranges;
    tutti_status status;

    TUTTI_TRY(TUTTI__NOT_NULL(e));
    TUTTI_TRY(TUTTI__NOT_NULL(reducer));
    if (!tutti_reducer_ranges(reducer))
        return tutti__fail(TUTTI_ERR_ARG, "elastic_keep_reducer: the reducer was made without "
                                          "tutti_reducer_opts.shards");
    ranges = tutti__alloc(sizeof *ranges);
    status = ranges ? tutti__ranges_init(ranges, e, reducer) : TUTTI_ERR_MEMORY;
    if (status != TUTTI_OK) {
        free(ranges);
        return status;
    }
    return tutti_elastic_keep(e, &(tutti_elastic_part){.name = "reducer",
                                                       .regroup = regroup,
                                                       .state = state,
                                                       .begin = begin,
                                                       .begin_shard = begin_shard,
                                                       .finish = finish,
                                                       .compare = compare,
                                                       .drop = drop,
                                                       .free = free_ranges,
                                                       .self = ranges});
}
