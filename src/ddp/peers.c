/* peers.c -- the tutti_peers of a group.   SPDX-License-Identifier: MIT */
#include "ddp/ddp.h"

#include "comm/comm.h"

static tutti_status all_gather(void *self, tutti_stream *stream, const float *values, size_t n,
                               float *all)
{
    tutti_group *group = self;

    return tutti_all_gather(
        group, (tutti_const_buf){values, n, TUTTI_F32, stream},
        (tutti_buf){all, n * (size_t)tutti_group_size(group), TUTTI_F32, stream}, NULL);
}

static tutti_status sum(void *self, tutti_stream *stream, float *values, size_t n)
{
    return tutti_all_reduce(self, (tutti_buf){values, n, TUTTI_F32, stream}, TUTTI_SUM, NULL);
}

static tutti_status reduce_scatter(void *self, tutti_stream *stream, float *values, size_t n,
                                   float *own)
{
    tutti_group *group = self;

    return tutti_reduce_scatter(
        group, (tutti_const_buf){values, n * (size_t)tutti_group_size(group), TUTTI_F32, stream},
        (tutti_buf){own, n, TUTTI_F32, stream}, TUTTI_SUM, NULL);
}

static void end(void *self, tutti_status status, const char *why)
{
    tutti__group_abort_with(self, status, why);
}

tutti_peers tutti_group_peers(tutti_group *group)
{
    if (!group)
        return (tutti_peers){0};
    return (tutti_peers){.self = group,
                         .rank = tutti_group_rank(group),
                         .size = tutti_group_size(group),
                         .all_gather = all_gather,
                         .sum = sum,
                         .reduce_scatter = reduce_scatter,
                         .abort = end};
}

void tutti_convert_sync_batch_norm(tutti_module *module, tutti_group *group)
{
    tutti_peers peers = tutti_group_peers(group);

    tutti_module_set_peers(module, group ? &peers : NULL);
}

tutti_status tutti_parallelize(tutti_module *root, tutti_group *group,
                               const tutti_parallel_rule *rules, size_t n)
{
    const tutti_peers peers = tutti_group_peers(group);

    TUTTI_TRY(TUTTI__NOT_NULL(group));
    return tutti_module_parallelize(root, &peers, rules, n);
}
