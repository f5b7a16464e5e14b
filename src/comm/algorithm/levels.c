/* levels.c -- which ranks of a call are near each other.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/levels.h"

#include <stdlib.h>

/* What ranks of one block of a level have in common; 0: not known. */
static uint64_t id_of(const tutti__places *p, int rank, int level)
{
    return level == 0 ? p->hosts[rank] : p->switches ? p->switches[rank].id[level - 1] : 0;
}

/* The length of the blocks of a level; n: there is one, or none is known, or they are unequal; 0: one of them is in two places, both named. */
static int block_of(const tutti__places *p, const int *ranks, int n, int level, int *first_p,
                    int *other_p)
{
    int length = 0;
    bool equal = true;

    if (id_of(p, ranks[0], level) == 0)
        return n;
    for (int i = 1, begin = 0; i <= n; i++) {
        if (i < n && id_of(p, ranks[i], level) == id_of(p, ranks[begin], level))
            continue;
        length = begin == 0 ? i : length;
        equal = equal && i - begin == length;
        for (int earlier = 0; earlier < i && i < n; earlier++)
            if (id_of(p, ranks[earlier], level) == id_of(p, ranks[i], level)) {
                *first_p = ranks[earlier];
                *other_p = ranks[i];
                return 0;
            }
        begin = i;
    }
    return equal ? length : n;
}

static bool has_several(const tutti__places *p, const int *ranks, int n, int level)
{
    for (int i = 1; i < n; i++)
        if (id_of(p, ranks[i], level) != id_of(p, ranks[0], level))
            return true;
    return false;
}

bool tutti__shape_of(const tutti__places *places, const int *ranks, int n, tutti__shape *shape,
                     char *why, size_t capacity)
{
    bool follows = true;

    *shape = (tutti__shape){.size = n, .share = 1};
    for (int level = 0; level < TUTTI__COLL_LEVELS && has_several(places, ranks, n, level);
         level++) {
        int first = 0, other = 0;

        shape->farthest = level + 1;
        if (!follows || (level > 0 && !tutti__shape_has(shape, level - 1)))
            continue;
        shape->block[level] = block_of(places, ranks, n, level, &first, &other);
        if (shape->block[level] > 0)
            continue;
        follows = false;
        snprintf(why, capacity, "those of %s of rank %d and of rank %d are not consecutive",
                 level == 0 ? "the host" : "the switch", first, other);
    }
    if (!follows)
        memset(shape->block, 0, sizeof shape->block);
    else if (tutti__shape_has(shape, 0))
        shape->share = shape->block[0];
    return follows;
}

/* ---- Hosts, switch by switch -------------------------------------------------------------------------------------------- */

/* first[i]: the first host that is below the same switch, from the top level down. */
typedef struct host {
    int number, first[TUTTI__SWITCHES];
} host;

static int by_switch(const void *a, const void *b)
{
    const host *x = a, *y = b;

    for (int i = 0; i < TUTTI__SWITCHES; i++)
        if (x->first[i] != y->first[i])
            return x->first[i] < y->first[i] ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

tutti_status tutti__order_hosts(const tutti__places *places, const int *first_rank, int n,
                                int *order)
{
    host *hosts = tutti__alloc((size_t)n * sizeof *hosts);

    if (!hosts)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        hosts[i].number = i;
        for (int level = TUTTI__SWITCHES; level > 0; level--) {
            const uint64_t id = id_of(places, first_rank[i], level);
            int first = 0;

            while (id_of(places, first_rank[first], level) != id)
                first++;
            hosts[i].first[TUTTI__SWITCHES - level] = first;
        }
    }
    qsort(hosts, (size_t)n, sizeof *hosts, by_switch);
    for (int i = 0; i < n; i++)
        order[i] = hosts[i].number;
    free(hosts);
    return TUTTI_OK;
}
