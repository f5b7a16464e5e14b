/* recompute.c -- results of a block that are dropped after its forward, and computed again in backward.   SPDX-License-Identifier: MIT
 *
 *   forward    [block 1: a b c]  y1  [block 2: d e f]  y2        a to f dropped, their memory used by the next block
 *   backward                          d e f again, gradients of block 2, ...
 *
 * The function of a block runs once. What is repeated are its operations, with their sources and attributes of the first time,
 * so that the tape, the order in which gradients become final, and all bits are those without. */
#include "tensor/op.h"

/* Its result, and what that looks at, stay. */
static void keep(const tutti__recomputed *block, const tutti_tensor *t)
{
    while (t) {
        tutti__node *n = block->first;

        while (n && n->dst != t)
            n = n->block_next;
        if (n)
            n->kept = true;
        t = !n ? NULL : t->lazy ? t->lazy->x : t->shared ? n->src[0] : NULL;
    }
}

static void drop(const tutti__recomputed *block)
{
    for (tutti__node *n = block->first; n; n = n->block_next) {
        tutti_tensor *t = n->dst;

        if (n->kept)
            continue;
        tutti__activation_release(t);
        t->lazy = NULL;
        t->intermediate = t->released = true;
    }
}

tutti_tensor *tutti_recompute(tutti_tensor *(*fn)(tutti_tensor *const *inputs, void *arg),
                              void *arg, tutti_tensor *const *inputs, int n_inputs)
{
    tutti_ctx *cx = tutti__context_of("tutti_recompute", inputs, n_inputs);
    tutti_tensor *y;

    if (!cx)
        return NULL;
    if (TUTTI__NOT_NULL(fn) != TUTTI_OK)
        return tutti__poisoned(cx, TUTTI_ERR_ARG);
    if (!cx->recording || cx->block)
        return fn(inputs, arg);
    cx->block = tutti__step_alloc(cx, sizeof *cx->block);
    if (!cx->block)
        return &cx->out_of_memory;
    *cx->block = (tutti__recomputed){.first = NULL};
    y = fn(inputs, arg);
    if (y && y->poison == TUTTI_OK) {
        keep(cx->block, y);
        drop(cx->block);
    }
    cx->block = NULL;
    return y;
}

tutti_status tutti__recomputed_begin(tutti__recomputed *block)
{
    tutti_ctx *cx = block->first->cx;
    tutti_status status = TUTTI_OK;

    if (block->computed_again)
        return TUTTI_OK;
    block->computed_again = true;
    cx->recomputing = true;
    for (tutti__node *n = block->first; n && status == TUTTI_OK; n = n->block_next)
        if (!n->kept) {
            status = tutti__node_again(n);
            if (status != TUTTI_OK)
                status = tutti__name_operation(n, "recomputation of ", status);
        }
    cx->recomputing = false;
    return status;
}

void tutti__recomputed_end(const tutti__recomputed *block)
{
    for (tutti__node *n = block->first; n; n = n->block_next)
        if (!n->kept && !n->dst->held)
            tutti__activation_release(n->dst);
}
