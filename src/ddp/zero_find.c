/* zero_find.c -- whether the members of a new group have all shares of the optimizer's state.   SPDX-License-Identifier: MIT */
#include "ddp/zero_copies.h"

#include <stdio.h>

bool tutti__zero_holds(const tutti__zero_holder *all, int rank)
{
    const tutti__zero_tag *wanted = &all[0].tag, *has = &all[rank].tag;

    return all[rank].form == TUTTI__HAS_SHARES && has->generation == wanted->generation &&
           (has->updates == wanted->updates ||
            (all[rank].ready && has->updates + 1 == wanted->updates));
}

/* The share's owner if it is here, else the rank after it, which has the copy. */
static int source_of(const tutti__zero_holder *all, int n, int64_t share)
{
    const int64_t size = all[0].tag.size;
    int found = -1;

    for (int r = 0; r < n; r++) {
        if (!tutti__zero_holds(all, r))
            continue;
        if (all[r].tag.rank == share)
            return r;
        if (all[r].tag.rank == (share + 1) % size)
            found = r;
    }
    return found;
}

tutti__zero_find tutti__zero_find_shares(const tutti__zero_holder *all, int n, int *source)
{
    tutti__zero_find find = TUTTI__SHARES_FOUND;
    int whole = -1;

    if (all[0].form != TUTTI__HAS_SHARES)
        return TUTTI__SHARES_UNUSED;
    for (int r = n - 1; r > 0; r--)
        if (all[r].form == TUTTI__HAS_ALL && all[r].step == all[0].step)
            whole = r;
    for (int64_t j = 0; j < all[0].tag.size; j++) {
        source[j] = whole >= 0 ? whole : source_of(all, n, j);
        if (source[j] < 0)
            find = TUTTI__SHARES_LOST;
    }
    return find;
}

void tutti__zero_name_missing(const tutti__zero_holder *all, int n, char *text, size_t bytes)
{
    size_t at = 0;

    *text = '\0';
    for (int64_t j = 0; j < all[0].tag.size; j++) {
        bool here = false;

        for (int r = 0; r < n && !here; r++)
            here = tutti__zero_holds(all, r) && all[r].tag.rank == j;
        if (!here && at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%lld", at ? ", " : "", (long long)j);
    }
}
