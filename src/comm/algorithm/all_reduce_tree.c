/* all_reduce_tree.c -- two binary trees, each for half of the data: chunk by chunk up to its root, and down again. For middle and large sizes and many
 * ranks: some 4 log2 n steps, and each rank sends about twice the data.   SPDX-License-Identifier: MIT
 *
 * Node v of a tree has the children 2v+1 and 2v+2; rank r is node r of one tree and node n-1-r of the other, so a rank that has children in one has none in the
 * other, or nearly. With D the depth of the tree, chunk k
 *
 *     goes up from depth d in round 2 (D-d) + 1 + k, is added there in the round after it has come, and goes down from depth d in round 2 D + 1 + d + k.
 *
 * A sum is a node's own part, then that of its first child, then that of its second. */
#include "comm/algorithm/rounds.h"

/* SLOTS: one chunk is received while another is added and a third is sent. */
enum { SLOTS = 3, CHILDREN = 2, TREES = 2 };

typedef struct tree_node {
    const tutti__coll *call;
    int tree, number;
    size_t depth, deepest;
    tutti__piece half;
} tree_node;

static tutti__piece half_of(const tutti__coll *call, int tree)
{
    size_t first = (call->count + 1) / 2;

    return tree == 0 ? (tutti__piece){0, first} : (tutti__piece){first, call->count - first};
}

static size_t depth_of(int number)
{
    return tutti__coll_log_down((size_t)number + 1);
}

static tree_node node_of(const tutti__coll *call, int rank, int tree)
{
    int number = tree == 0 ? rank : call->size - 1 - rank;

    return (tree_node){
        call, tree, number, depth_of(number), depth_of(call->size - 1), half_of(call, tree)};
}

static int rank_of(const tree_node *v, int number)
{
    return v->tree == 0 ? number : v->call->size - 1 - number;
}

/* A child, or -1. */
static int child_of(const tree_node *v, int i)
{
    int child = 2 * v->number + 1 + i;

    return child < v->call->size ? child : -1;
}

static size_t n_rounds(const tutti__coll *call)
{
    return 3 * depth_of(call->size - 1) + (half_of(call, 0).count + call->chunk - 1) / call->chunk;
}

static size_t most_actions(const tutti__coll *call)
{
    (void)call;
    return TREES * (3 * CHILDREN + 6);
}

static size_t slot_elements(const tutti__coll *call)
{
    size_t half = half_of(call, 0).count;

    return half < call->chunk ? half : call->chunk;
}

static size_t work(const tutti__coll *call, int rank)
{
    (void)rank;
    return TREES * CHILDREN * SLOTS * slot_elements(call);
}

static tutti__coll_at slot(const tree_node *v, int child, size_t k)
{
    size_t index = ((size_t)v->tree * CHILDREN + (size_t)child) * SLOTS + k % SLOTS;

    return tutti__coll_work(index * slot_elements(v->call));
}

/* The chunk of a round, of something that begins with chunk 0 in round `begin`; empty before that. */
static tutti__piece chunk_at(const tree_node *v, size_t round, size_t begin, size_t *k)
{
    *k = round - begin;
    return round < begin ? (tutti__piece){0, 0} : tutti__coll_chunk(v->call, v->half, *k);
}

/* A leaf's part needs no sum, but a wide one a copy. */
static bool sends_src(const tree_node *v)
{
    return child_of(v, 0) < 0 && !tutti__coll_is_wide(v->call);
}

static void go_up(const tree_node *v, size_t round, tutti__coll_round *out)
{
    size_t k, sends = 2 * (v->deepest - v->depth) + 1;
    tutti__piece part = chunk_at(v, round, sends, &k);

    if (v->depth > 0)
        tutti__coll_send(out, rank_of(v, (v->number - 1) / 2),
                         sends_src(v) ? tutti__coll_src(part.at) : slot(v, 0, k), part.count);
    if (child_of(v, 0) < 0)
        return;
    part = chunk_at(v, round, sends - 2, &k);
    for (int i = 0; i < CHILDREN; i++)
        if (child_of(v, i) >= 0)
            tutti__coll_recv(out, rank_of(v, child_of(v, i)), slot(v, i, k), part.count);
}

/* Of the chunk that has come in the round before. */
static void add(const tree_node *v, size_t round, tutti__coll_round *out)
{
    size_t k, sends = 2 * (v->deepest - v->depth) + 1;
    tutti__piece part = chunk_at(v, round, sends - 1, &k);

    if (child_of(v, 0) < 0 && !sends_src(v))
        tutti__coll_local(out, TUTTI__COLL_COPY, slot(v, 0, k), tutti__coll_src(part.at),
                          part.count);
    if (child_of(v, 0) < 0)
        return;
    tutti__coll_local(out, TUTTI__COLL_REDUCE_LEFT, slot(v, 0, k), tutti__coll_src(part.at),
                      part.count);
    if (child_of(v, 1) >= 0)
        tutti__coll_local(out, TUTTI__COLL_REDUCE, slot(v, 0, k), slot(v, 1, k), part.count);
    if (v->depth == 0)
        tutti__coll_local(out, TUTTI__COLL_FINISH, tutti__coll_dst(part.at), slot(v, 0, k),
                          part.count);
}

static void go_down(const tree_node *v, size_t round, tutti__coll_round *out)
{
    size_t k, sends = 2 * v->deepest + 1 + v->depth;
    tutti__piece part = chunk_at(v, round, sends, &k);

    for (int i = 0; i < CHILDREN; i++)
        if (child_of(v, i) >= 0)
            tutti__coll_send(out, rank_of(v, child_of(v, i)), tutti__coll_dst(part.at), part.count);
    part = chunk_at(v, round, sends - 1, &k);
    if (v->depth > 0)
        tutti__coll_recv(out, rank_of(v, (v->number - 1) / 2), tutti__coll_dst(part.at),
                         part.count);
}

static void round_of(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out)
{
    for (int tree = 0; tree < TREES; tree++) {
        tree_node v = node_of(call, rank, tree);

        go_up(&v, round, out);
        add(&v, round, out);
        go_down(&v, round, out);
    }
}

const tutti__coll_algorithm tutti__coll_all_reduce_tree = {.op = TUTTI__OP_ALL_REDUCE,
                                                           .name = "tree",
                                                           .n_rounds = n_rounds,
                                                           .most_actions = most_actions,
                                                           .work = work,
                                                           .round = round_of};
