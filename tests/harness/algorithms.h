/* algorithms.h -- any collective of the table of algorithms, by its kind.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TESTS_ALGORITHMS_H
#define TUTTI_TESTS_ALGORITHMS_H

#include "comm/algorithm/tuner.h"
#include "comm/engine/engine.h"
#include "comm/group.h"
#include "harness/ranks.h"

/* Makes all further calls of its operation use it, on the ranks that call this. */
static inline tutti_status test_force(tutti_group *group, const tutti__coll_algorithm *algorithm)
{
    return tutti__tuner_force(group->engine->ops->tuner(group->engine), algorithm->op,
                              algorithm->name);
}

/* A call with pieces of `count` elements. src and dst have room for a piece of each rank; in place, if the operation can be, what this rank
 * gives is in dst, at its place. */
typedef struct test_call {
    tutti__op_kind op;
    tutti_dtype dtype;
    tutti_redop redop;
    int root;
    size_t count;
    char *src, *dst;
    bool in_place;
} test_call;

static inline tutti_status test_collective(tutti_group *group, const test_call *c)
{
    const size_t n = (size_t)tutti_group_size(group), all = n * c->count,
                 at = (size_t)tutti_group_rank(group) * c->count * tutti_dtype_size(c->dtype);
    const bool root = tutti_group_rank(group) == c->root;
    const tutti_buf none = {0}, piece = {c->dst, c->count, c->dtype, NULL},
                    pieces = {c->dst, all, c->dtype, NULL};
    const tutti_const_buf no = {0},
                          one = {c->in_place ? c->dst + at : c->src, c->count, c->dtype, NULL},
                          each = {c->src, all, c->dtype, NULL},
                          own = {c->src, c->count, c->dtype, NULL};

    switch (c->op) {
    case TUTTI__OP_ALL_REDUCE:
        return c->in_place ? tutti_all_reduce(group, piece, c->redop, NULL)
                           : tutti_all_reduce_from(group, own, piece, c->redop, NULL);
    case TUTTI__OP_REDUCE:
        return c->in_place
                   ? tutti_reduce(group, piece, c->redop, c->root, NULL)
                   : tutti_reduce_from(group, own, root ? piece : none, c->redop, c->root, NULL);
    case TUTTI__OP_REDUCE_SCATTER:
        return tutti_reduce_scatter(group, each, piece, c->redop, NULL);
    case TUTTI__OP_BROADCAST:
        return tutti_broadcast(group, piece, c->root, NULL);
    case TUTTI__OP_SCATTER:
        return tutti_scatter(group, root ? each : no, piece, c->root, NULL);
    case TUTTI__OP_GATHER:
        return tutti_gather(group, one, root ? pieces : none, c->root, NULL);
    case TUTTI__OP_ALL_GATHER:
        return tutti_all_gather(group, one, pieces, NULL);
    case TUTTI__OP_ALL_TO_ALL:
        return tutti_all_to_all(group, each, pieces, NULL);
    default:
        return tutti_barrier(group, NULL);
    }
}

#endif
