/* parameter_agreement.c -- checks that all ranks describe the same items.   SPDX-License-Identifier: MIT
 *
 * Ranks compare one hash. If it differs, they find out together, so that all have the same message: rank 0 and the first rank
 * that differs from it broadcast a hash of each item, all ranks find the first difference, and the two broadcast that item's
 * text. At most 8 bytes per item are sent. */
#include "comm/comm.h"
#include "reducer/reducer.h"

#include <stdlib.h>
#include <string.h>

typedef struct digest {
    int64_t status;
    uint64_t n, hash;
} digest;

static tutti_status broadcast_bytes(tutti_group *group, void *p, size_t bytes, int root)
{
    return tutti_broadcast(group, TUTTI_BUF(p, bytes, TUTTI_U8), root, NULL);
}

/* The first item whose hashes differ, or the length of the shorter list. hashes: room for 2 * max(n). */
static tutti_status first_difference(tutti_group *group, const tutti__item *items, size_t n_0,
                                     size_t n_other, int other, size_t *k_p)
{
    size_t n_min = n_0 < n_other ? n_0 : n_other, k = 0;
    uint64_t *hashes = tutti__alloc((2 * n_min + 1) * sizeof *hashes);
    tutti_status status = hashes ? TUTTI_OK : TUTTI_ERR_MEMORY;
    int rank = tutti_group_rank(group);

    for (int side = 0; side < 2 && status == TUTTI_OK; side++) {
        uint64_t *mine = hashes + (size_t)side * n_min;
        int root = side == 0 ? 0 : other;

        if (rank == root)
            for (size_t i = 0; i < n_min; i++)
                mine[i] = tutti__hash64(items[i].text, sizeof items[i].text);
        status = broadcast_bytes(group, mine, n_min * sizeof *mine, root);
    }
    while (status == TUTTI_OK && k < n_min && hashes[k] == hashes[n_min + k])
        k++;
    *k_p = k;
    free(hashes);
    return status;
}

static tutti_status explain(tutti_group *group, const char *what, const char *item,
                            const tutti__item *items, const digest *all, int other)
{
    size_t n_0 = (size_t)all[0].n, n_other = (size_t)all[other].n, k;
    tutti__item at[2] = {{{0}}, {{0}}};
    int rank = tutti_group_rank(group);

    TUTTI_TRY(first_difference(group, items, n_0, n_other, other, &k));
    if (rank == 0 && k < n_0)
        at[0] = items[k];
    if (rank == other && k < n_other)
        at[1] = items[k];
    TUTTI_TRY(broadcast_bytes(group, &at[0], sizeof at[0], 0));
    TUTTI_TRY(broadcast_bytes(group, &at[1], sizeof at[1], other));
    if (k < n_0 && k < n_other)
        return tutti__fail(TUTTI_ERR_MISMATCH,
                           "%s differ between ranks: %s %zu is %s on rank 0 but %s on rank %d",
                           what, item, k, at[0].text, at[1].text, other);
    return tutti__fail(
        TUTTI_ERR_MISMATCH,
        "%s differ between ranks: rank 0 has %zu %ss but rank %d has %zu; %s %zu, %s, is only "
        "on rank %d",
        what, n_0, item, other, n_other, item, k, at[n_0 > n_other ? 0 : 1].text,
        n_0 > n_other ? 0 : other);
}

tutti_status tutti__agree_after(tutti_group *group, tutti_status local, const char *what,
                                const char *item, const tutti__item *items, size_t n)
{
    int size = tutti_group_size(group), failed = 0, other = 1;
    digest mine = {local, n, tutti__hash64(items, n * sizeof *items)}, *all;
    tutti_status status;

    if (size == 1)
        return local;
    all = malloc((size_t)size * sizeof *all);
    if (!all) {
        tutti_group_abort(group, "no memory for what %d ranks describe", size);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for what %d ranks describe", size);
    }
    status = tutti_all_gather(group, TUTTI_CONST_BUF(&mine, sizeof mine, TUTTI_U8),
                              TUTTI_BUF(all, (size_t)size * sizeof *all, TUTTI_U8), NULL);
    while (status == TUTTI_OK && failed < size && all[failed].status == TUTTI_OK)
        failed++;
    while (other < size && memcmp(&all[other], &all[0], sizeof *all) == 0)
        other++;
    if (status == TUTTI_OK && failed < size)
        status = tutti__group_share_failure(group, local, failed);
    else if (status == TUTTI_OK && other < size)
        status = explain(group, what, item, items, all, other);
    free(all);
    return status;
}

tutti_status tutti__agree_number(tutti_group *group, uint64_t *number_p)
{
    *number_p = tutti_group_sequence(group);
    return broadcast_bytes(group, number_p, sizeof *number_p, 0);
}

tutti_status tutti__agree(tutti_group *group, const char *what, const char *item,
                          const tutti__item *items, size_t n)
{
    return tutti__agree_after(group, TUTTI_OK, what, item, items, n);
}
