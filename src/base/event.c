/* event.c -- a ring of finished spans, written by any thread of a rank.   SPDX-License-Identifier: MIT
 *
 * A writer takes the next slot with one atomic add; a slot's sequence number, stored last, says which event it holds, so
 * that a reader leaves out a slot that is being overwritten. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct slot {
    _Atomic uint64_t sequence; /* 1 + number of the event; 0: empty or being written */
    tutti__event event;
} slot;

struct tutti__recorder {
    _Atomic uint64_t next;
    size_t capacity;
    slot slots[];
};

tutti__recorder *tutti__recorder_new(size_t capacity)
{
    tutti__recorder *recorder = tutti__alloc(sizeof *recorder + capacity * sizeof(slot));

    if (recorder)
        recorder->capacity = capacity;
    return recorder;
}

void tutti__recorder_free(tutti__recorder *recorder)
{
    free(recorder);
}

void tutti__record(tutti__recorder *recorder, const char *category, const char *name, int64_t arg,
                   int thread, uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t number;
    slot *s;

    if (!recorder)
        return;
    number = atomic_fetch_add(&recorder->next, 1);
    s = &recorder->slots[number % recorder->capacity];
    atomic_store(&s->sequence, 0);
    s->event = (tutti__event){name, category, begin_ns, end_ns, arg, thread};
    atomic_store(&s->sequence, number + 1);
}

size_t tutti__recorder_read(tutti__recorder *recorder, tutti__event *events, size_t n)
{
    uint64_t end = atomic_load(&recorder->next),
             span = n < recorder->capacity ? n : recorder->capacity;
    size_t count = 0;

    for (uint64_t number = end > span ? end - span : 0; number < end; number++) {
        slot *s = &recorder->slots[number % recorder->capacity];

        if (atomic_load(&s->sequence) != number + 1)
            continue;
        events[count] = s->event;
        if (atomic_load(&s->sequence) == number + 1)
            count++;
    }
    return count;
}
