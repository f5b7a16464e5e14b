/* peers.c -- the tutti_peers of a group.   SPDX-License-Identifier: MIT */
#include "ddp/ddp.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- Sums in a binary tree ------------------------------------------------------------------------------------- */

enum { BLOCK = 1 << 18 }; /* floats that are exchanged at once */

/* all [size][n], of which the first row becomes ((r0 + r1) + (r2 + r3)) + ...; size is a power of two. */
static void add_rows(float *all, size_t n, int size)
{
    for (int step = 1; step < size; step *= 2)
        for (int r = 0; r < size; r += 2 * step) {
            float *to = all + (size_t)r * n;
            const float *from = all + (size_t)(r + step) * n;

            for (size_t i = 0; i < n; i++)
                to[i] += from[i];
        }
}

static tutti_status check_tree(tutti_group *group, const tutti_stream *stream)
{
    const int size = tutti_group_size(group);

    if (stream && !tutti__on_host(stream))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED, "peers of parts: values are on a device; their "
                                                  "sums are made in host memory only");
    return (size & (size - 1)) == 0
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_ARG,
                             "peers of parts: a group of %d ranks; expected a power of two", size);
}

/* own = values number rank of the sum: each rank adds up its own. all: room for (size x n) */
static tutti_status scatter_in_tree(tutti_group *group, const float *values, size_t n, float *all)
{
    const int size = tutti_group_size(group);

    TUTTI_TRY(tutti_all_to_all(group, TUTTI_CONST_BUF(values, n * (size_t)size, TUTTI_F32),
                               TUTTI_BUF(all, n * (size_t)size, TUTTI_F32), NULL));
    add_rows(all, n, size);
    return TUTTI_OK;
}

/* In host memory only, as divided layers of parts are. */
static tutti_status reduce_scatter_in_tree(void *self, tutti_stream *stream, float *values,
                                           size_t n, float *own)
{
    tutti_group *group = self;
    float *all;
    tutti_status status;

    if (tutti_group_size(group) <= 2) /* one addition has one order */
        return reduce_scatter(self, stream, values, n, own);
    TUTTI_TRY(check_tree(group, stream));
    all = tutti__alloc((n * (size_t)tutti_group_size(group) + 1) * sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    status = scatter_in_tree(group, values, n, all);
    if (status == TUTTI_OK)
        memcpy(own, all, n * sizeof *own);
    free(all);
    return status;
}

/* room: 2 * BLOCK floats */
static tutti_status sum_block(tutti_group *group, float *values, size_t n, float *room)
{
    const size_t size = (size_t)tutti_group_size(group), each = (n + size - 1) / size;
    float *from = n == each * size ? values : room + BLOCK;

    if (from != values) {
        memcpy(from, values, n * sizeof *from);
        memset(from + n, 0, (each * size - n) * sizeof *from);
    }
    TUTTI_TRY(scatter_in_tree(group, from, each, room));
    TUTTI_TRY(tutti_all_gather(group, TUTTI_CONST_BUF(room, each, TUTTI_F32),
                               TUTTI_BUF(from, each * size, TUTTI_F32), NULL));
    if (from != values)
        memcpy(values, from, n * sizeof *values);
    return TUTTI_OK;
}

static tutti_status sum_in_tree(void *self, tutti_stream *stream, float *values, size_t n)
{
    tutti_group *group = self;
    tutti_status status = TUTTI_OK;
    float *room;

    if (tutti_group_size(group) <= 2)
        return sum(self, stream, values, n);
    TUTTI_TRY(check_tree(group, stream));
    room = tutti__alloc(2 * BLOCK * sizeof *room);
    if (!room)
        return TUTTI_ERR_MEMORY;
    for (size_t at = 0; status == TUTTI_OK && at < n; at += BLOCK)
        status = sum_block(group, values + at, n - at < BLOCK ? n - at : BLOCK, room);
    free(room);
    return status;
}

tutti_peers tutti_group_peers_of_parts(tutti_group *group, int parts)
{
    tutti_peers peers = tutti_group_peers(group);

    if (!group)
        return peers;
    peers.parts = parts;
    peers.sum = sum_in_tree;
    peers.reduce_scatter = reduce_scatter_in_tree;
    return peers;
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
