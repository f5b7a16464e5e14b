/* pairs.c -- messages between two simulated ranks.   SPDX-License-Identifier: MIT */
#include "simulate/pairs.h"

#include "simulate/chance.h"

#include <stdlib.h>

tutti_status tutti__sim_pairs_new(tutti__sim_pairs *p)
{
    *p = (tutti__sim_pairs){.capacity = 1024, .free_message = -1, .free_receive = -1};
    p->table = tutti__alloc(p->capacity * sizeof *p->table);
    return p->table ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tutti__sim_pairs_free(tutti__sim_pairs *p)
{
    for (int i = 0; i < p->n_messages; i++)
        tutti__sim_bytes_free(p->messages[i].bytes);
    free(p->table);
    free(p->messages);
    free(p->receives);
    *p = (tutti__sim_pairs){0};
}

static size_t home(const tutti__sim_pairs *p, uint64_t key)
{
    return (size_t)tutti__chance_mix(key) & (p->capacity - 1);
}

static bool grow(tutti__sim_pairs *p)
{
    tutti__sim_pair *old = p->table;
    const size_t n = p->capacity;

    p->table = tutti__alloc(2 * n * sizeof *p->table);
    if (!p->table) {
        p->table = old;
        return false;
    }
    p->capacity = 2 * n;
    for (size_t i = 0; i < n; i++)
        if (old[i].key) {
            size_t at = home(p, old[i].key);

            while (p->table[at].key)
                at = (at + 1) & (p->capacity - 1);
            p->table[at] = old[i];
        }
    free(old);
    return true;
}

tutti__sim_pair *tutti__sim_pair_of(tutti__sim_pairs *p, int from, int to)
{
    const uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) + 1;
    size_t at;

    if (2 * p->n >= p->capacity && !grow(p))
        return NULL;
    for (at = home(p, key); p->table[at].key; at = (at + 1) & (p->capacity - 1))
        if (p->table[at].key == key)
            return &p->table[at];
    p->n++;
    p->table[at] = (tutti__sim_pair){
        .key = key, .early = -1, .first = -1, .last = -1, .first_wait = -1, .last_wait = -1};
    return &p->table[at];
}

void tutti__sim_pair_done(tutti__sim_pairs *p, tutti__sim_pair *pair)
{
    size_t hole = (size_t)(pair - p->table);

    if (pair->sent != pair->delivered || pair->first >= 0 || pair->first_wait >= 0)
        return;
    p->n--;
    for (size_t at = (hole + 1) & (p->capacity - 1); p->table[at].key;
         at = (at + 1) & (p->capacity - 1)) {
        const size_t first = home(p, p->table[at].key);

        if (((at - first) & (p->capacity - 1)) < ((at - hole) & (p->capacity - 1)))
            continue; /* it may stay: it is not reached over the hole */
        p->table[hole] = p->table[at];
        hole = at;
    }
    p->table[hole].key = 0;
}

int tutti__sim_new_message(tutti__sim_pairs *p)
{
    int i = p->free_message;

    if (i >= 0) {
        p->free_message = p->messages[i].next;
        p->messages[i].bytes = NULL;
        return i;
    }
    if ((p->n_messages & (p->n_messages - 1)) == 0) { /* it is full at powers of two */
        const size_t n = p->n_messages ? 2 * (size_t)p->n_messages : 1;
        tutti__sim_message *list = realloc(p->messages, n * sizeof *list);

        if (!list) {
            (void)tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu simulated messages", n);
            return -1;
        }
        p->messages = list;
    }
    i = p->n_messages++;
    p->messages[i].bytes = NULL;
    return i;
}

int tutti__sim_new_receive(tutti__sim_pairs *p)
{
    int i = p->free_receive;

    if (i >= 0) {
        p->free_receive = p->receives[i].next;
        return i;
    }
    if ((p->n_receives & (p->n_receives - 1)) == 0) {
        const size_t n = p->n_receives ? 2 * (size_t)p->n_receives : 1;
        tutti__sim_receive *list = realloc(p->receives, n * sizeof *list);

        if (!list) {
            (void)tutti__fail(TUTTI_ERR_MEMORY, "no memory for %zu simulated receives", n);
            return -1;
        }
        p->receives = list;
    }
    return p->n_receives++;
}

void tutti__sim_drop_message(tutti__sim_pairs *p, int message)
{
    p->messages[message].bytes = NULL;
    p->messages[message].next = p->free_message;
    p->free_message = message;
}

void tutti__sim_drop_receive(tutti__sim_pairs *p, int receive)
{
    p->receives[receive].next = p->free_receive;
    p->free_receive = receive;
}
