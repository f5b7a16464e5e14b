/* split.c -- groups of some of a group's ranks.   SPDX-License-Identifier: MIT */
#include "comm/control/control.h"
#include "comm/group_join.h"

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

/* A rank's arguments of a split, or why it cannot take part. */
typedef struct wish {
    int32_t status, colour, key; /* colour: below 0 for no group; in a split by lists: 0 */
    uint32_t zero;
    uint64_t digest; /* of all that must be equal on every rank */
    char text[152];  /* the call, for messages */
} wish;

/* Exchanges the wishes: every rank learns of any rank's error, and who is in its group. The caller frees *all_p. */
static tutti_status agree(tutti_group *group, wish *mine, tutti_status status, wish **all_p)
{
    size_t n = (size_t)group->comm.size;
    wish *all = *all_p = tutti__alloc(n * sizeof *all);
    int failed = 0;

    if (!all) {
        tutti_group_abort(group, "no memory for the requests of %zu ranks", n);
        return TUTTI_ERR_MEMORY;
    }
    mine->status = status;
    TUTTI_TRY(tutti_all_gather(group, TUTTI_CONST_BUF(mine, sizeof *mine, TUTTI_U8),
                               TUTTI_BUF(all, n * sizeof *all, TUTTI_U8), NULL));
    while (failed < group->comm.size && all[failed].status == TUTTI_OK)
        failed++;
    if (failed < group->comm.size)
        return tutti__group_share_failure(group, status, failed);
    for (int r = 1; r < group->comm.size; r++)
        if (all[r].digest != all[0].digest) {
            (void)tutti__comm_fail(&group->comm, TUTTI_ERR_MISMATCH, r,
                                   "rank %d called %.*s, but rank 0 called %.*s; all ranks must "
                                   "give the same",
                                   r, (int)sizeof all[r].text - 1, all[r].text,
                                   (int)sizeof all[0].text - 1, all[0].text);
            return tutti__comm_error(&group->comm, NULL);
        }
    return TUTTI_OK;
}

/* Keeps the sub-group's ranks as numbered in the first group of the family. */
static tutti_status note_global_ranks(tutti_group *sub, const tutti_group *group, const int *ranks)
{
    sub->global_ranks = tutti__alloc((size_t)sub->comm.size * sizeof *sub->global_ranks);
    if (!sub->global_ranks)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < sub->comm.size; r++)
        sub->global_ranks[r] = tutti_group_global_rank(group, ranks[r]);
    return TUTTI_OK;
}

/* `id`: of the new group, whose rank `place` this one is. */
static tutti_status make(tutti_group *group, const int *ranks, int n_ranks, int place,
                         const char *name, uint64_t id, tutti_group **sub_p)
{
    tutti__group_member member = {.rank = place,
                                  .size = n_ranks,
                                  .timeout_ms = group->comm.timeout_ms,
                                  .heartbeat_ms = group->boot.heartbeat_ms,
                                  .backend = group->backend,
                                  .tuning = group->comm.tuning,
                                  .world_rank = group->comm.peers[group->comm.rank].world_rank,
                                  .attempt = group->flight.attempt,
                                  .launched = group->flight.launched,
                                  .parent = n_ranks > 1 ? group : NULL,
                                  .ranks = ranks,
                                  .id = id};

    snprintf(member.name, sizeof member.name, "%s", name);
    snprintf(member.base, sizeof member.base, "sub-%016llx", (unsigned long long)id);
    TUTTI_TRY(tutti__join(sub_p, &member, group->boot.store));
    if (note_global_ranks(*sub_p, group, ranks) == TUTTI_OK)
        return TUTTI_OK;
    tutti_group_free(*sub_p);
    *sub_p = NULL;
    return TUTTI_ERR_MEMORY;
}

/* Of the group with these ranks and this name, the one that comes `times` after the first. Not 0. */
static uint64_t id_of(const tutti_group *group, const char *kind, uint64_t times, const int *ranks,
                      int n_ranks, const char *name)
{
    const uint64_t all[] = {group->comm.id, tutti__hash64(kind, strlen(kind)), times,
                            tutti__hash64(ranks, (size_t)n_ranks * sizeof *ranks),
                            tutti__hash64(name, strlen(name))};

    return tutti__hash64(all, sizeof all) | 1;
}

/* After all ranks have agreed; this one is ranks[place], or in none of the new groups (place -1). */
static tutti_status make_agreed(tutti_group *group, const int *ranks, int n_ranks, int place,
                                const char *name, tutti_group **sub_p)
{
    uint64_t times = (uint64_t)group->n_splits++;

    if (place < 0)
        return TUTTI_OK;
    return make(group, ranks, n_ranks, place, name,
                id_of(group, "split", times, ranks, n_ranks, name), sub_p);
}

static tutti_status check_name(const char *name, size_t suffix)
{
    const size_t most = sizeof((tutti__group_member *)NULL)->name - 1;

    if (!*name || strlen(name) + suffix > most)
        return tutti__fail(TUTTI_ERR_ARG,
                           "group name \"%.40s\" has %zu characters, expected 1 to %zu", name,
                           strlen(name), most - suffix);
    return TUTTI_OK;
}

static uint64_t hash_name(const char *name)
{
    return tutti__hash64(name, strlen(name));
}

/* "ranks 0, 2, 4, name "even"", truncated to fit. */
static void describe_list(wish *mine, const int *ranks, int n_ranks, const char *name)
{
    char list[64] = "";
    size_t n = 0;

    for (int i = 0; i < n_ranks && n + 16 < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", i ? ", " : "", ranks[i]);
    snprintf(mine->text, sizeof mine->text,
             "tutti_group_split with %d ranks (%s%s) and name \"%.24s\"", n_ranks, list,
             n + 16 < sizeof list ? "" : ", ...", name);
}

tutti_status tutti_group_split(tutti_group *group, const int *ranks, int n_ranks, const char *name,
                               tutti_group **sub_p)
{
    wish mine = {0}, *all;
    int place;
    tutti_status status;

    *sub_p = NULL;
    TUTTI_TRY(tutti__check_group("split", group));
    name = name ? name : "sub";
    status = check_list(group, ranks, n_ranks, &place);
    if (status == TUTTI_OK)
        status = check_name(name, 0);
    if (status == TUTTI_OK) {
        mine.digest = tutti__hash64(ranks, (size_t)n_ranks * sizeof *ranks) ^ hash_name(name);
        describe_list(&mine, ranks, n_ranks, name);
    }
    status = agree(group, &mine, status, &all);
    free(all);
    return status == TUTTI_OK ? make_agreed(group, ranks, n_ranks, place, name, sub_p) : status;
}

/* ---- By the members alone ------------------------------------------------------------------------------------- */

/* How many such groups this rank has made from the group so far. */
static tutti_status count_made(tutti_group *group, uint64_t digest, uint64_t *times_p)
{
    tutti__made *made = group->made;

    while (made && made->digest != digest)
        made = made->next;
    if (!made) {
        made = tutti__alloc(sizeof *made);
        if (!made)
            return TUTTI_ERR_MEMORY;
        *made = (tutti__made){.next = group->made, .digest = digest};
        group->made = made;
    }
    *times_p = made->times++;
    return TUTTI_OK;
}

tutti_status tutti_group_split_members(tutti_group *group, const int *ranks, int n_ranks,
                                       const char *name, tutti_group **sub_p)
{
    uint64_t times, id;
    int place;

    *sub_p = NULL;
    TUTTI_TRY(tutti__check_group("split_members", group));
    name = name ? name : "sub";
    TUTTI_TRY(check_list(group, ranks, n_ranks, &place));
    TUTTI_TRY(check_name(name, 0));
    if (place < 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "split of group \"%s\": rank %d is not in the list of %d ranks, and only "
            "its members make the group (tutti_group_split is for all ranks)",
            group->comm.name, group->comm.rank, n_ranks);
    TUTTI_TRY(count_made(group, id_of(group, "members", 0, ranks, n_ranks, name), &times));
    id = id_of(group, "members", times, ranks, n_ranks, name);
    if (tutti__comm_failed(&group->comm)) { /* the others may have begun before it did */
        tutti__control_refuse(group->control, id, ranks, n_ranks, &group->comm.cause);
        return tutti__comm_error(&group->comm, NULL);
    }
    return make(group, ranks, n_ranks, place, name, id, sub_p);
}

/* ---- By colour ----------------------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
    const wish *x = *(const wish *const *)a, *y = *(const wish *const *)b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x < y ? -1 : x > y; /* by their ranks in the parent */
}

/* The ranks of this one's colour, in order; returns how many. `others`: room for `size`. */
static int find_members(const wish *all, int size, int rank, const wish **others, int *ranks,
                        int *place_p)
{
    int n = 0;

    for (int r = 0; r < size; r++)
        if (all[r].colour == all[rank].colour)
            others[n++] = &all[r];
    qsort(others, (size_t)n, sizeof *others, by_key);
    for (int i = 0; i < n; i++) {
        ranks[i] = (int)(others[i] - all);
        *place_p = ranks[i] == rank ? i : *place_p;
    }
    return n;
}

/* `status`: the result of checking the arguments. */
static tutti_status split_by(tutti_group *group, tutti_status status, wish mine, const char *name,
                             tutti_group **sub_p)
{
    size_t size = (size_t)group->comm.size;
    const wish **others = calloc(size, sizeof *others);
    int *ranks = calloc(size, sizeof *ranks), place = -1, n;
    char full[128];
    wish *all = NULL;

    if (status == TUTTI_OK)
        status = check_name(name, sizeof "-2147483647" - 1);
    if (status == TUTTI_OK && (!others || !ranks))
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu ranks", size);
    mine.digest ^= hash_name(name);
    snprintf(mine.text + strlen(mine.text), sizeof mine.text - strlen(mine.text), "name \"%.60s\"",
             name);
    status = agree(group, &mine, status, &all);
    if (status == TUTTI_OK) {
        n = find_members(all, group->comm.size, group->comm.rank, others, ranks, &place);
        snprintf(full, sizeof full, "%.100s-%d", name, (int)mine.colour);
        status = make_agreed(group, ranks, n, mine.colour < 0 ? -1 : place, full, sub_p);
    }
    free(all);
    free(others);
    free(ranks);
    return status;
}

tutti_status tutti_group_split_by(tutti_group *group, int colour, int key, const char *name,
                                  tutti_group **sub_p)
{
    *sub_p = NULL;
    TUTTI_TRY(tutti__check_group("split_by", group));
    return split_by(group, TUTTI_OK,
                    (wish){.colour = colour, .key = key, .text = "tutti_group_split_by with "},
                    name ? name : "sub", sub_p);
}

tutti_status tutti_group_split_parts(tutti_group *group, int part_size, const char *name,
                                     tutti_group **sub_p)
{
    wish mine = {.digest = (uint64_t)part_size};
    tutti_status status = TUTTI_OK;

    *sub_p = NULL;
    TUTTI_TRY(tutti__check_group("split_parts", group));
    if (part_size < 1 || group->comm.size % part_size != 0)
        status = tutti__fail(TUTTI_ERR_ARG,
                             "split of group \"%s\" into parts of %d ranks: its size is %d, "
                             "expected a multiple of the parts'",
                             group->comm.name, part_size, group->comm.size);
    else
        mine.colour = group->comm.rank / part_size;
    if (status == TUTTI_OK && tutti__group_is_planned(group)) {
        const int here = tutti_group_local_size(group);

        return tutti__group_plan(sub_p, group->comm.rank % part_size, part_size,
                                 here < part_size ? here : part_size);
    }
    snprintf(mine.text, sizeof mine.text, "tutti_group_split_parts with parts of %d ranks and ",
             part_size);
    return split_by(group, status, mine, name ? name : "part", sub_p);
}
