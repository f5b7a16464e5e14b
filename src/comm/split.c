/* split.c -- groups of some of a group's ranks.   SPDX-License-Identifier: MIT */
#include "comm/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_status check_list(const tutti_group *group, const int *ranks, int n, int *place_p)
{
    *place_p = -1;
    if (!ranks)
        return tutti__fail(TUTTI_ERR_ARG, "split of group \"%s\": the list of ranks is NULL",
                           group->comm.name);
    if (n < 1 || n > group->comm.size)
        return tutti__fail(TUTTI_ERR_ARG, "split of group \"%s\": %d ranks, expected 1 to %d",
                           group->comm.name, n, group->comm.size);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->comm.size)
            return tutti__fail(TUTTI_ERR_ARG, "split of group \"%s\": rank %d, expected 0 to %d",
                               group->comm.name, ranks[i], group->comm.size - 1);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return tutti__fail(TUTTI_ERR_ARG, "split of group \"%s\": rank %d is listed twice",
                                   group->comm.name, ranks[i]);
        if (ranks[i] == group->comm.rank)
            *place_p = i;
    }
    return TUTTI_OK;
}

/* Every rank gave the same list and name. */
static tutti_status agree(tutti_group *group, const int *ranks, int n, const char *name)
{
    int64_t mine = (int64_t)(tutti__hash64(ranks, (size_t)n * sizeof *ranks) ^
                             tutti__hash64(name, strlen(name)));
    int64_t *all = malloc((size_t)group->comm.size * sizeof *all);
    tutti_status status;

    if (!all)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", group->comm.size);
    status = tutti_all_gather(group, (tutti_buf){&mine, 1, TUTTI_I64},
                              (tutti_buf){all, (size_t)group->comm.size, TUTTI_I64}, NULL);
    for (int r = 0; r < group->comm.size && status == TUTTI_OK; r++)
        if (all[r] != all[0]) {
            (void)tutti__comm_fail(&group->comm, TUTTI_ERR_MISMATCH, r,
                                   "rank %d called tutti_group_split with another list of ranks, "
                                   "or another name, than rank 0",
                                   r);
            status = tutti__comm_error(&group->comm, NULL);
        }
    free(all);
    return status;
}

/* The sub-group's ranks as the first group of the family counts them. */
static tutti_status note_global_ranks(tutti_group *sub, const tutti_group *group, const int *ranks)
{
    sub->global_ranks = tutti__alloc((size_t)sub->comm.size * sizeof *sub->global_ranks);
    if (!sub->global_ranks)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < sub->comm.size; r++)
        sub->global_ranks[r] = tutti_group_global_rank(group, ranks[r]);
    return TUTTI_OK;
}

static tutti_status split(tutti_group *group, const int *ranks, int n_ranks, const char *name,
                          tutti_group **sub_p)
{
    tutti__member member = {.size = n_ranks,
                            .timeout_ms = group->comm.timeout_ms,
                            .heartbeat_ms = group->boot.heartbeat_ms,
                            .transport =
                                group->boot.tcp ? TUTTI_TRANSPORT_TCP : TUTTI_TRANSPORT_AUTO,
                            .mpi = group->boot.mpi,
                            .tuning = group->comm.tuning,
                            .world_rank = group->comm.peers[group->comm.rank].world_rank,
                            .attempt = group->flight.attempt,
                            .launched = group->flight.launched,
                            .parent = group,
                            .ranks = ranks};
    char text[320];
    int n;

    TUTTI_TRY(check_list(group, ranks, n_ranks, &member.rank));
    name = name ? name : "sub";
    if (!*name || strlen(name) >= sizeof member.name)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group name \"%.40s\" has %zu characters, expected 1 to %zu", name,
                           strlen(name), sizeof member.name - 1);
    snprintf(member.name, sizeof member.name, "%s", name);
    TUTTI_TRY(agree(group, ranks, n_ranks, name));
    n = snprintf(text, sizeof text, "%s/split-%d", group->boot.prefix, group->n_splits++);
    if (member.rank < 0)
        return TUTTI_OK;
    snprintf(member.base, sizeof member.base, "sub-%016llx",
             (unsigned long long)tutti__hash64(text, (size_t)n));
    TUTTI_TRY(tutti__join(sub_p, &member, group->boot.store));
    if (note_global_ranks(*sub_p, group, ranks) == TUTTI_OK)
        return TUTTI_OK;
    tutti_group_free(*sub_p);
    *sub_p = NULL;
    return TUTTI_ERR_MEMORY;
}

tutti_status tutti_group_split(tutti_group *group, const int *ranks, int n_ranks, const char *name,
                               tutti_group **sub_p)
{
    *sub_p = NULL;
    TUTTI_TRY(tutti__check_group("split", group));
    return split(group, ranks, n_ranks, name, sub_p);
}

tutti_status tutti_group_split_parts(tutti_group *group, int part_size, const char *name,
                                     tutti_group **sub_p)
{
    int *ranks, parts;
    char part_name[128];
    tutti_status status = TUTTI_OK;

    *sub_p = NULL;
    TUTTI_TRY(tutti__check_group("split_parts", group));
    if (part_size < 1 || group->comm.size % part_size != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "split of group \"%s\" into parts of %d ranks: its size is %d, expected "
                           "a multiple of the parts'",
                           group->comm.name, part_size, group->comm.size);
    ranks = tutti__alloc((size_t)part_size * sizeof *ranks);
    if (!ranks)
        return TUTTI_ERR_MEMORY;
    parts = group->comm.size / part_size;
    for (int part = 0; part < parts && status == TUTTI_OK; part++) {
        tutti_group *sub = NULL;

        for (int i = 0; i < part_size; i++)
            ranks[i] = part * part_size + i;
        snprintf(part_name, sizeof part_name, "%.100s-%d", name ? name : "part", part);
        status = tutti_group_split(group, ranks, part_size, part_name, &sub);
        *sub_p = sub ? sub : *sub_p;
    }
    free(ranks);
    if (status != TUTTI_OK) {
        tutti_group_free(*sub_p);
        *sub_p = NULL;
    }
    return status;
}
