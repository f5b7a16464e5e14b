/* reducer.c -- a reducer as a part of what is kept.   SPDX-License-Identifier: MIT */
#include "elastic/internal.h"

static tutti_status regroup_reducer(void *self, tutti_group *group)
{
    return tutti_reducer_regroup(self, group);
}

static tutti_status move_ranges(void *self, tutti_status (*move)(void *arg, tutti_buf buf),
                                void *arg)
{
    size_t n = 0;

    while (tutti_reducer_name(self, n))
        n++;
    return move(arg, TUTTI_BUF(tutti_reducer_ranges(self), n, TUTTI_F32));
}

static tutti_status begin_reducer(void *self)
{
    return tutti_reducer_begin(self);
}

static tutti_status begin_reducer_shard(void *self, int shard, bool last)
{
    (void)shard;
    return tutti_reducer_begin_shard(self, last);
}

static tutti_status finish_reducer(void *self, bool *again_p)
{
    TUTTI_TRY(tutti_reducer_finish(self));
    *again_p = tutti_reducer_again(self);
    return TUTTI_OK;
}

tutti_status tutti_elastic_keep_reducer(tutti_elastic *e, tutti_reducer *reducer)
{
    TUTTI_TRY(TUTTI__NOT_NULL(e));
    TUTTI_TRY(TUTTI__NOT_NULL(reducer));
    return tutti_elastic_keep(e, &(tutti_elastic_part){.name = "reducer",
                                                       .regroup = regroup_reducer,
                                                       .state = move_ranges,
                                                       .begin = begin_reducer,
                                                       .begin_shard = begin_reducer_shard,
                                                       .finish = finish_reducer,
                                                       .self = reducer});
}
