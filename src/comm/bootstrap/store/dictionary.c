/* dictionary.c -- a hash table with chaining.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti__entry **place_of(const tutti__dictionary *d, const char *key, uint64_t hash)
{
    tutti__entry **place = &d->buckets[hash % d->n_buckets];

    while (*place && ((*place)->hash != hash || strcmp((*place)->key, key) != 0))
        place = &(*place)->next;
    return place;
}

tutti__entry *tutti__dictionary_find(const tutti__dictionary *d, const char *key)
{
    return d->count ? *place_of(d, key, tutti__hash64(key, strlen(key))) : NULL;
}

static tutti_status grow(tutti__dictionary *d)
{
    size_t n = d->n_buckets ? 2 * d->n_buckets : 64;
    tutti__entry **buckets = calloc(n, sizeof(tutti__entry *)), *next;

    if (!buckets)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a store of %zu keys", n);
    for (size_t i = 0; i < d->n_buckets; i++)
        for (tutti__entry *e = d->buckets[i]; e; e = next) {
            next = e->next;
            e->next = buckets[e->hash % n];
            buckets[e->hash % n] = e;
        }
    free(d->buckets);
    d->buckets = buckets;
    d->n_buckets = n;
    return TUTTI_OK;
}

tutti_status tutti__dictionary_set(tutti__dictionary *d, const char *key, const void *value,
                                   size_t bytes)
{
    size_t n = strlen(key);
    uint64_t hash = tutti__hash64(key, n);
    tutti__entry **place, *entry;
    void *copy;

    if (d->count >= d->n_buckets)
        TUTTI_TRY(grow(d));
    copy = malloc(bytes ? bytes : 1);
    place = place_of(d, key, hash);
    entry = *place;
    if (copy && !entry && (entry = malloc(sizeof *entry + n + 1)) != NULL) {
        *entry = (tutti__entry){.hash = hash};
        memcpy(entry->key, key, n + 1);
        *place = entry;
        d->count++;
    }
    if (!copy || !entry) {
        free(copy);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to store %zu bytes under \"%s\"", bytes,
                           key);
    }
    if (bytes)
        memcpy(copy, value, bytes);
    free(entry->value);
    entry->value = copy;
    entry->bytes = bytes;
    return TUTTI_OK;
}

bool tutti__dictionary_delete(tutti__dictionary *d, const char *key)
{
    tutti__entry **place, *entry;

    if (!tutti__dictionary_find(d, key))
        return false;
    place = place_of(d, key, tutti__hash64(key, strlen(key)));
    entry = *place;
    *place = entry->next;
    d->count--;
    free(entry->value);
    free(entry);
    return true;
}

tutti_status tutti__dictionary_add(tutti__dictionary *d, const char *key, int64_t amount,
                                   int64_t *sum_p)
{
    const tutti__entry *entry = tutti__dictionary_find(d, key);
    char text[32];
    int64_t old = 0;

    if (entry) {
        if (entry->bytes >= sizeof text)
            return TUTTI_ERR_FORMAT;
        memcpy(text, entry->value, entry->bytes);
        text[entry->bytes] = '\0';
        if (!tutti__parse_int64(text, &old))
            return TUTTI_ERR_FORMAT;
    }
    if (__builtin_add_overflow(old, amount, sum_p))
        return TUTTI_ERR_FORMAT;
    snprintf(text, sizeof text, "%lld", (long long)*sum_p);
    return tutti__dictionary_set(d, key, text, strlen(text));
}

tutti_status tutti__dictionary_compare_set(tutti__dictionary *d, const char *key,
                                           const void *expected, size_t expected_bytes,
                                           const void *desired, size_t desired_bytes,
                                           const void **value_p, size_t *bytes_p)
{
    const tutti__entry *entry = tutti__dictionary_find(d, key);
    bool equal =
        entry ? entry->bytes == expected_bytes &&
                    (expected_bytes == 0 || memcmp(entry->value, expected, expected_bytes) == 0)
              : expected_bytes == 0;

    if (equal)
        TUTTI_TRY(tutti__dictionary_set(d, key, desired, desired_bytes));
    *value_p = equal ? desired : entry ? entry->value : expected;
    *bytes_p = equal ? desired_bytes : entry ? entry->bytes : expected_bytes;
    return TUTTI_OK;
}

static void put(tutti__reply *reply, const void *value, size_t bytes)
{
    if (reply->value && bytes && bytes <= reply->bytes)
        memcpy(reply->value, value, bytes);
    reply->bytes = bytes;
}

tutti_status tutti__dictionary_ask(tutti__dictionary *d, const tutti__request *request,
                                   tutti__reply *reply)
{
    const tutti__entry *entry;
    const void *value;
    size_t bytes;

    switch (request->op) {
    case TUTTI__SET:
        return tutti__dictionary_set(d, request->key, request->value, request->value_bytes);
    case TUTTI__GET:
    case TUTTI__WAIT:
        entry = tutti__dictionary_find(d, request->key);
        if (!entry)
            return TUTTI_ERR_TIMEOUT;
        put(reply, entry->value, entry->bytes);
        return TUTTI_OK;
    case TUTTI__ADD:
        return tutti__dictionary_add(d, request->key, request->number, &reply->number);
    case TUTTI__COMPARE_SET:
        TUTTI_TRY(tutti__dictionary_compare_set(d, request->key, request->expected,
                                                request->expected_bytes, request->value,
                                                request->value_bytes, &value, &bytes));
        put(reply, value, bytes);
        return TUTTI_OK;
    case TUTTI__DELETE:
        reply->number = tutti__dictionary_delete(d, request->key);
        return TUTTI_OK;
    case TUTTI__COUNT:
        reply->number = (int64_t)d->count;
        return TUTTI_OK;
    case TUTTI__GET_ALL:
        break;
    }
    return tutti__fail(TUTTI_ERR_INTERNAL, "store operation %d is unknown", (int)request->op);
}

void tutti__dictionary_destroy(tutti__dictionary *d)
{
    for (size_t i = 0; i < d->n_buckets; i++)
        while (d->buckets[i]) {
            tutti__entry *entry = d->buckets[i];

            d->buckets[i] = entry->next;
            free(entry->value);
            free(entry);
        }
    free(d->buckets);
    *d = (tutti__dictionary){0};
}
