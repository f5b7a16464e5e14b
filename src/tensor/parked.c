/* parked.c -- several open steps of one context, of which it computes one at a time.   SPDX-License-Identifier: MIT
 *
 * Each has memory, a tape and numbers of its own; parameters, kernels and threads are the context's. Uses of parameters are counted
 * anew for a tape that comes back, because another one has counted its own in the same place. */
#include "tensor/op.h"

void tutti__parked_init(tutti_ctx *cx, tutti__parked *parked)
{
    *parked = (tutti__parked){.serial = ++cx->serials};
    parked->arena.get = cx->arena.get;
    parked->arena.put = cx->arena.put;
    parked->arena.self = cx->arena.self;
    parked->memory.get = parked->small.get = cx->memory.get;
    parked->memory.put = parked->small.put = cx->memory.put;
    parked->memory.self = parked->small.self = cx->memory.self;
}

static void count_uses(tutti_ctx *cx)
{
    cx->n_parameters = 0;
    for (const tutti__node *n = cx->first_node; n; n = n->next)
        for (int i = 0; i < n->n_src; i++)
            if (tutti__counts_use(n, i))
                n->src[i]->parameter->uses = 0;
    for (const tutti__node *n = cx->first_node; n; n = n->next)
        for (int i = 0; i < n->n_src; i++)
            if (tutti__counts_use(n, i)) {
                n->src[i]->parameter->uses_step = cx->round;
                cx->n_parameters += n->src[i]->parameter->uses++ == 0;
            }
}

#define SWAP(field)                                                                                \
    do {                                                                                           \
        __typeof__(cx->field) other = parked->field;                                               \
                                                                                                   \
        parked->field = cx->field;                                                                 \
        cx->field = other;                                                                         \
    } while (0)

void tutti__parked_swap(tutti_ctx *cx, tutti__parked *parked)
{
    SWAP(arena);
    SWAP(memory);
    SWAP(small);
    SWAP(in_step);
    cx->n_parked += parked->in_step - cx->in_step;
    SWAP(eval);
    SWAP(recording);
    SWAP(backward_done);
    SWAP(step);
    SWAP(round);
    SWAP(serial);
    SWAP(dropout_calls);
    SWAP(autocast);
    SWAP(first_node);
    SWAP(last_node);
    SWAP(n_nodes);
    SWAP(n_parameters);
    SWAP(spare);
    SWAP(host_spare);
    SWAP(spare_activations);
    SWAP(spare_entries);
    SWAP(step_status);
    SWAP(step_text);
    if (cx->recording && !cx->backward_done)
        count_uses(cx);
}

void tutti__parked_destroy(tutti__parked *parked)
{
    tutti__arena_destroy(&parked->arena);
    tutti__arena_destroy(&parked->memory);
    tutti__arena_destroy(&parked->small);
}
