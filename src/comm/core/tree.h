/* tree.h -- a tree over ranks 0 to size - 1, by arithmetic alone.   SPDX-License-Identifier: MIT
 *
 * A rank's parent is the rank with its lowest digit that is not 0 set to 0, in base 8. So a rank and all below it are consecutive,
 * [rank, rank + subtree): hosts whose ranks are consecutive have few edges to others, and a table by rank goes up in slices. 1,000
 * ranks are four levels deep; rank 0 has 22 children, most ranks have none. */
#ifndef TUTTI_COMM_CORE_TREE_H
#define TUTTI_COMM_CORE_TREE_H

#include <stdbool.h>

enum {
    TUTTI__TREE_BASE = 8,
    TUTTI__TREE_CHILDREN = 7 * 11, /* at most, of any rank */
    /* Up to this many ranks each has all others for neighbours. */
    TUTTI__ALL_NEAR = 16,
    TUTTI__NEIGHBOURS = TUTTI__TREE_CHILDREN + 3 /* at most: the tree's, and two beside */
};

/* Not of rank 0. */
static inline int tutti__tree_parent(int rank)
{
    int unit = 1;

    while (rank / unit % TUTTI__TREE_BASE == 0)
        unit *= TUTTI__TREE_BASE;
    return rank - rank / unit % TUTTI__TREE_BASE * unit;
}

/* The next child of the rank after `child`, which is `rank` for the first one; children ascend. -1: no more. */
static inline int tutti__tree_next_child(int rank, int child, int size)
{
    long long unit = 1, next;

    if (child != rank)
        while ((child - rank) / unit % TUTTI__TREE_BASE == 0)
            unit *= TUTTI__TREE_BASE;
    next = child + unit;
    if ((next - rank) / unit % TUTTI__TREE_BASE == 0 && child != rank)
        unit *= TUTTI__TREE_BASE;
    /* It is a child if all of its digits below the one that differs are 0, and the rank has 0 there. */
    return next < size && rank % (unit * TUTTI__TREE_BASE) == 0 ? (int)next : -1;
}

/* How many ranks are in its subtree, itself included. */
static inline int tutti__tree_subtree(int rank, int size)
{
    long long unit = 1;

    while (rank % (unit * TUTTI__TREE_BASE) == 0 && rank + unit < size)
        unit *= TUTTI__TREE_BASE;
    return rank + unit < size ? (int)unit : size - rank;
}

/* How many edges lie between it and rank 0. */
static inline int tutti__tree_depth(int rank)
{
    int depth = 0;

    for (; rank > 0; rank /= TUTTI__TREE_BASE)
        depth += rank % TUTTI__TREE_BASE != 0;
    return depth;
}

/* ---- Neighbours: who watches whom -----------------------------------------------------------------------------------
 * All in a small group; in others those of the tree, and of a ring, so that the end of any one rank leaves the rest connected. A
 * part that several ends cut off borders on one of them, and sees it. */

static inline bool tutti__tree_near(int a, int b, int size)
{
    int low = a < b ? a : b, high = a < b ? b : a;

    return low != high && (size <= TUTTI__ALL_NEAR || high - low == 1 || high - low == size - 1 ||
                           tutti__tree_parent(high) == low);
}

/* Adds `rank` unless it is there. Returns how many there are then. */
static inline int tutti__tree_note(int *ranks, int n, int rank)
{
    int i = 0;

    while (i < n && ranks[i] != rank)
        i++;
    ranks[i] = rank;
    return i == n ? n + 1 : n;
}

/* The neighbours, in no order: room for TUTTI__NEIGHBOURS. Returns how many. */
static inline int tutti__tree_neighbours(int rank, int size, int *ranks)
{
    int n = 0;

    if (size <= TUTTI__ALL_NEAR) {
        for (int r = 0; r < size; r++)
            if (r != rank)
                ranks[n++] = r;
        return n;
    }
    if (rank > 0)
        ranks[n++] = tutti__tree_parent(rank);
    for (int c = rank; (c = tutti__tree_next_child(rank, c, size)) >= 0;)
        ranks[n++] = c;
    n = tutti__tree_note(ranks, n, (rank + 1) % size);
    return tutti__tree_note(ranks, n, (rank + size - 1) % size);
}

#endif
