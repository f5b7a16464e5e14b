/* memory.c -- a store for ranks that are threads: a dictionary, a lock, a bell.   SPDX-License-Identifier: MIT */
#include "comm/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int users;
    tutti__dictionary dictionary;
} shared;

typedef struct memory_store {
    tutti_store store; /* first: a tutti_store * is a memory_store * */
    shared *shared;
} memory_store;

static tutti_status wait_for(shared *s, const char *key, int64_t ms, const tutti__entry **entry_p)
{
    uint64_t end = tutti__now_ns() + (uint64_t)ms * 1000000u;
    struct timespec until = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};

    while ((*entry_p = tutti__dictionary_find(&s->dictionary, key)) == NULL)
        if (pthread_cond_timedwait(&s->changed, &s->lock, &until) == ETIMEDOUT) {
            *entry_p = tutti__dictionary_find(&s->dictionary, key);
            return *entry_p ? TUTTI_OK : TUTTI_ERR_TIMEOUT;
        }
    return TUTTI_OK;
}

static void put(tutti__reply *reply, const void *value, size_t bytes)
{
    if (reply->value && bytes && bytes <= reply->bytes)
        memcpy(reply->value, value, bytes);
    reply->bytes = bytes;
}

static tutti_status ask_locked(shared *s, const tutti__request *request, tutti__reply *reply)
{
    const tutti__entry *entry;
    const void *value;
    size_t bytes;

    switch (request->op) {
    case TUTTI__SET:
        return tutti__dictionary_set(&s->dictionary, request->key, request->value,
                                     request->value_bytes);
    case TUTTI__GET:
    case TUTTI__WAIT:
        TUTTI_TRY(wait_for(s, request->key, request->number, &entry));
        put(reply, entry->value, entry->bytes);
        return TUTTI_OK;
    case TUTTI__ADD:
        return tutti__dictionary_add(&s->dictionary, request->key, request->number, &reply->number);
    case TUTTI__COMPARE_SET:
        TUTTI_TRY(tutti__dictionary_compare_set(&s->dictionary, request->key, request->expected,
                                                request->expected_bytes, request->value,
                                                request->value_bytes, &value, &bytes));
        put(reply, value, bytes);
        return TUTTI_OK;
    case TUTTI__DELETE:
        reply->number = tutti__dictionary_delete(&s->dictionary, request->key);
        return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_INTERNAL, "store operation %d is unknown", (int)request->op);
}

static tutti_status memory_ask(tutti_store *store, const tutti__request *request,
                               tutti__reply *reply)
{
    shared *s = ((memory_store *)store)->shared;
    tutti_status status;

    pthread_mutex_lock(&s->lock);
    status = ask_locked(s, request, reply);
    if (request->op != TUTTI__GET && request->op != TUTTI__WAIT)
        pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static tutti_status memory_clone(tutti_store *store, tutti_store **clone_p)
{
    memory_store *old = (memory_store *)store, *new = tutti__alloc(sizeof *new);

    if (!new)
        return TUTTI_ERR_MEMORY;
    *new = *old;
    pthread_mutex_lock(&old->shared->lock);
    old->shared->users++;
    pthread_mutex_unlock(&old->shared->lock);
    *clone_p = &new->store;
    return TUTTI_OK;
}

static void memory_free(tutti_store *store)
{
    memory_store *m = (memory_store *)store;
    shared *s = m->shared;
    int users;

    pthread_mutex_lock(&s->lock);
    users = --s->users;
    pthread_mutex_unlock(&s->lock);
    free(m);
    if (users > 0)
        return;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    tutti__dictionary_destroy(&s->dictionary);
    free(s);
}

static const tutti__store_ops MEMORY_OPS = {memory_ask, memory_clone, memory_free};

tutti_status tutti_store_memory_new(tutti_store **store_p)
{
    memory_store *m = tutti__alloc(sizeof *m);
    shared *s = m ? tutti__alloc(sizeof *s) : NULL;
    pthread_condattr_t attributes;

    *store_p = NULL;
    if (!s) {
        free(m);
        return TUTTI_ERR_MEMORY;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    s->users = 1;
    m->shared = s;
    m->store =
        (tutti_store){.ops = &MEMORY_OPS, .in_process = true, .where = "the store in memory"};
    *store_p = &m->store;
    return TUTTI_OK;
}
