/* memory.c -- a store for ranks that are threads: a dictionary, a lock, a condition variable.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"
#include "base/thread.h"

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

/* Waits until the key exists, or the time is over. */
static void wait_for(shared *s, const char *key, int64_t ms)
{
    double deadline = tutti__now_ms() + (double)ms;

    while (!tutti__dictionary_find(&s->dictionary, key))
        if (!tutti__cond_wait(&s->changed, &s->lock, deadline))
            return;
}

static tutti_status memory_ask(tutti_store *store, const tutti__request *request,
                               tutti__reply *reply)
{
    shared *s = ((memory_store *)store)->shared;
    bool waits = request->op == TUTTI__GET || request->op == TUTTI__WAIT;
    tutti_status status;

    pthread_mutex_lock(&s->lock);
    if (waits)
        wait_for(s, request->key, request->number);
    status = tutti__dictionary_ask(&s->dictionary, request, reply);
    if (!waits)
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

static const tutti__store_ops MEMORY_OPS = {
    .ask = memory_ask, .clone = memory_clone, .free = memory_free};

tutti_status tutti_store_memory_new(tutti_store **store_p)
{
    memory_store *m = tutti__alloc(sizeof *m);
    shared *s = m ? tutti__alloc(sizeof *s) : NULL;

    *store_p = NULL;
    if (!s) {
        free(m);
        return TUTTI_ERR_MEMORY;
    }
    pthread_mutex_init(&s->lock, NULL);
    tutti__cond_init(&s->changed);
    s->users = 1;
    m->shared = s;
    m->store =
        (tutti_store){.ops = &MEMORY_OPS, .in_process = true, .where = "the store in memory"};
    *store_p = &m->store;
    return TUTTI_OK;
}
