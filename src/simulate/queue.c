/* queue.c -- events in the order of their times: a heap.   SPDX-License-Identifier: MIT */
#include "simulate/queue.h"

#include <stdlib.h>

enum { ARITY = 4 };

static bool before(const tutti__sim_event *a, const tutti__sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

tutti_status tutti__sim_add(tutti__sim_queue *q, double at_us, int what, int index, int other)
{
    const tutti__sim_event e = {at_us, q->added++, what, index, other};
    size_t i;

    if (q->n == q->capacity) {
        const size_t capacity = q->capacity ? 2 * q->capacity : 4096;
        tutti__sim_event *heap = realloc(q->heap, capacity * sizeof *heap);

        if (!heap)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu simulated events", capacity);
        q->heap = heap;
        q->capacity = capacity;
    }
    for (i = q->n++; i > 0 && before(&e, &q->heap[(i - 1) / ARITY]); i = (i - 1) / ARITY)
        q->heap[i] = q->heap[(i - 1) / ARITY];
    q->heap[i] = e;
    return TUTTI_OK;
}

bool tutti__sim_next(tutti__sim_queue *q, tutti__sim_event *event)
{
    tutti__sim_event last;
    size_t i = 0;

    if (q->n == 0)
        return false;
    *event = q->heap[0];
    last = q->heap[--q->n];
    for (;;) {
        size_t least = 0;

        for (size_t k = ARITY * i + 1; k <= ARITY * i + ARITY && k < q->n; k++)
            if (least == 0 || before(&q->heap[k], &q->heap[least]))
                least = k;
        if (least == 0 || !before(&q->heap[least], &last))
            break;
        q->heap[i] = q->heap[least];
        i = least;
    }
    q->heap[i] = last;
    return true;
}

void tutti__sim_queue_free(tutti__sim_queue *q)
{
    free(q->heap);
    *q = (tutti__sim_queue){0};
}
