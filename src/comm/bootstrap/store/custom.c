/* custom.c -- a store by the program's callbacks.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What all handles share. */
typedef struct supplied {
    tutti_store_callbacks callbacks;
    void *user;
    _Atomic int handles;
} supplied;

typedef struct custom_store {
    tutti_store store; /* first: a tutti_store * is a custom_store * */
    supplied *supplied;
} custom_store;

static tutti_status refuse_absent(const tutti_store *store, const char *callback)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "%s has no callback \"%s\"", store->where, callback);
}

static tutti_status delete_key(tutti_store *store, const supplied *s, const char *key,
                               tutti__reply *reply)
{
    bool existed = false;

    if (!s->callbacks.remove)
        return refuse_absent(store, "remove");
    TUTTI_TRY(s->callbacks.remove(s->user, key, &existed));
    reply->number = existed;
    return TUTTI_OK;
}

static tutti_status compare_set(tutti_store *store, const supplied *s,
                                const tutti__request *request, tutti__reply *reply)
{
    if (!s->callbacks.compare_set)
        return refuse_absent(store, "compare_set");
    return s->callbacks.compare_set(s->user, request->key, request->expected,
                                    request->expected_bytes, request->value, request->value_bytes,
                                    reply->value, &reply->bytes);
}

static tutti_status custom_ask(tutti_store *store, const tutti__request *request,
                               tutti__reply *reply)
{
    const supplied *s = ((custom_store *)store)->supplied;
    const tutti_store_callbacks *c = &s->callbacks;
    const int ms = request->number < INT32_MAX ? (int)request->number : INT32_MAX;

    switch (request->op) {
    case TUTTI__SET:
        return c->set(s->user, request->key, request->value, request->value_bytes);
    case TUTTI__GET:
        return c->get(s->user, request->key, reply->value, &reply->bytes, ms);
    case TUTTI__WAIT:
        return c->wait(s->user, request->key, ms);
    case TUTTI__ADD:
        return c->add(s->user, request->key, request->number, &reply->number);
    case TUTTI__COMPARE_SET:
        return compare_set(store, s, request, reply);
    case TUTTI__DELETE:
        return delete_key(store, s, request->key, reply);
    default:
        return refuse_absent(store, "num_keys");
    }
}

static tutti_status custom_clone(tutti_store *store, tutti_store **clone_p)
{
    custom_store *new = tutti__alloc(sizeof *new);

    if (!new)
        return TUTTI_ERR_MEMORY;
    *new = *(custom_store *)store;
    atomic_fetch_add(&new->supplied->handles, 1);
    *clone_p = &new->store;
    return TUTTI_OK;
}

static void custom_free(tutti_store *store)
{
    supplied *s = ((custom_store *)store)->supplied;

    free(store);
    if (atomic_fetch_sub(&s->handles, 1) > 1)
        return;
    if (s->callbacks.release)
        s->callbacks.release(s->user);
    free(s);
}

static const tutti__store_ops CUSTOM_OPS = {
    .ask = custom_ask, .clone = custom_clone, .free = custom_free};

static tutti_status check(const tutti_store_callbacks *c)
{
    const char *absent = !c->set ? "set" : !c->get ? "get" : !c->wait ? "wait" : "add";

    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_store_callbacks, c));
    if (c->set && c->get && c->wait && c->add)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "store_custom_new: the callback \"%s\" is NULL; set, get, wait and add are "
                       "required",
                       absent);
}

tutti_status tutti_store_custom_new(tutti_store **store_p, const tutti_store_callbacks *callbacks,
                                    void *user)
{
    custom_store *new;
    supplied *s;
    tutti__address address = {0};

    *store_p = NULL;
    if (!callbacks)
        return tutti__fail(TUTTI_ERR_ARG, "store_custom_new: no callbacks given");
    TUTTI_TRY(check(callbacks));
    if (callbacks->reaches)
        TUTTI_TRY(tutti__host_address(&address, callbacks->reaches));
    new = tutti__alloc(sizeof *new);
    s = new ? tutti__alloc(sizeof *s) : NULL;
    if (!s) {
        free(new);
        return TUTTI_ERR_MEMORY;
    }
    s->callbacks = *callbacks;
    s->callbacks.name = s->callbacks.reaches = NULL; /* borrowed only until this call returns */
    s->user = user;
    atomic_init(&s->handles, 1);
    new->store = (tutti_store){.ops = &CUSTOM_OPS, .custom = true, .address = address};
    snprintf(new->store.where, sizeof new->store.where, "%s",
             callbacks->name ? callbacks->name : "the program's store");
    new->supplied = s;
    *store_p = &new->store;
    return TUTTI_OK;
}
