/* event.c -- a ring of spans, written by any thread of a rank.   SPDX-License-Identifier: MIT
 *
 * A writer takes the next slot with one atomic add; a slot's sequence number, stored last, is that of its event, so
 * that a reader skips a slot that is being overwritten. Events are copied by atomic words: on x86-64 these are plain
 * moves, and a concurrent reader is no data race. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = sizeof(tutti__time_span) / sizeof(uint64_t) };
_Static_assert(sizeof(tutti__time_span) % sizeof(uint64_t) == 0, "an event is whole words");

typedef struct slot {
    _Atomic uint64_t sequence; /* 1 + number of the event; 0: empty or being written */
    _Atomic uint64_t words[WORDS];
} slot;

struct tutti__recorder {
    _Atomic uint64_t next;
    size_t capacity, mask; /* a power of two, so that no division is needed */
    slot slots[];
};

tutti__recorder *tutti__recorder_new(size_t capacity)
{
    size_t n = 1;
    tutti__recorder *recorder;

    while (n < capacity)
        n *= 2;
    recorder = tutti__alloc(sizeof *recorder + n * sizeof(slot));
    if (!recorder)
        return NULL;
    recorder->capacity = capacity;
    recorder->mask = n - 1;
    return recorder;
}

void tutti__recorder_free(tutti__recorder *recorder)
{
    free(recorder);
}

uint64_t tutti__record_open(tutti__recorder *recorder, const tutti__time_span *event)
{
    typedef uint64_t __attribute__((may_alias)) word;
    /* a wider load could not be forwarded from the stores of the fields */
    const word *words = (const word *)event;
    uint64_t number;
    slot *s;

    if (!recorder)
        return 0;
    number = atomic_fetch_add_explicit(&recorder->next, 1, memory_order_relaxed);
    s = &recorder->slots[number & recorder->mask];
    atomic_store_explicit(&s->sequence, 0, memory_order_relaxed);
    for (size_t i = 0; i < WORDS; i++) /* release: none becomes visible before the zero */
        atomic_store_explicit(&s->words[i], words[i], memory_order_release);
    atomic_store_explicit(&s->sequence, number + 1, memory_order_release);
    return number + 1;
}

void tutti__record_close(tutti__recorder *recorder, uint64_t ticket, uint64_t end_ns)
{
    slot *s;

    if (!recorder || ticket == 0)
        return;
    s = &recorder->slots[(ticket - 1) & recorder->mask];
    if (atomic_load_explicit(&s->sequence, memory_order_relaxed) == ticket)
        atomic_store_explicit(&s->words[offsetof(tutti__time_span, end_ns) / sizeof(uint64_t)],
                              end_ns, memory_order_release);
}

void tutti__record(tutti__recorder *recorder, const char *category, const char *name, int64_t arg,
                   int thread, uint64_t begin_ns, uint64_t end_ns)
{
    const tutti__time_span event = {.name = name,
                                    .category = category,
                                    .begin_ns = begin_ns,
                                    .end_ns = end_ns,
                                    .arg = arg,
                                    .thread = thread};

    if (recorder)
        (void)tutti__record_open(recorder, &event);
}

size_t tutti__recorder_read(tutti__recorder *recorder, tutti__time_span *events, size_t n)
{
    uint64_t end = atomic_load(&recorder->next),
             span = n < recorder->capacity ? n : recorder->capacity;
    size_t count = 0;

    for (uint64_t number = end > span ? end - span : 0; number < end; number++) {
        slot *s = &recorder->slots[number & recorder->mask];
        uint64_t words[WORDS];

        if (atomic_load_explicit(&s->sequence, memory_order_acquire) != number + 1)
            continue;
        for (size_t i = 0; i < WORDS; i++)
            words[i] = atomic_load_explicit(&s->words[i], memory_order_acquire);
        if (atomic_load_explicit(&s->sequence, memory_order_relaxed) == number + 1)
            memcpy(&events[count++], words, sizeof words);
    }
    return count;
}
