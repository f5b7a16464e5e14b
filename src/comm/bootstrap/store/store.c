/* store.c -- the public calls of stores: they check arguments and make the messages.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/store/store.h"

#include <string.h>

static tutti_status ask(tutti_store *store, const tutti__request *request, tutti__reply *reply)
{
    tutti_status status;
    size_t key_bytes;

    if (!store)
        return tutti__fail(TUTTI_ERR_ARG, "no store given");
    key_bytes = request->key ? strlen(request->key) : 0;
    if (key_bytes == 0 || key_bytes > TUTTI__KEY_LIMIT)
        return tutti__fail(TUTTI_ERR_ARG,
                           "store key \"%.40s\" has %zu characters, expected 1 to %d",
                           request->key ? request->key : "", key_bytes, TUTTI__KEY_LIMIT);
    if ((!request->value && request->value_bytes > 0) ||
        (!request->expected && request->expected_bytes > 0))
        return tutti__fail(TUTTI_ERR_ARG, "store key \"%s\": a value is NULL with %zu bytes",
                           request->key,
                           request->value ? request->expected_bytes : request->value_bytes);
    if (request->value_bytes > TUTTI__VALUE_LIMIT || request->expected_bytes > TUTTI__VALUE_LIMIT)
        return tutti__fail(TUTTI_ERR_ARG, "store key \"%s\": a value of %zu bytes, the limit is %d",
                           request->key,
                           request->value_bytes > request->expected_bytes ? request->value_bytes
                                                                          : request->expected_bytes,
                           TUTTI__VALUE_LIMIT);
    if ((request->op == TUTTI__GET || request->op == TUTTI__WAIT) && request->number < 0)
        return tutti__fail(TUTTI_ERR_ARG, "store key \"%s\": timeout %lld ms, expected 0 or more",
                           request->key, (long long)request->number);
    status = store->ops->ask(store, request, reply);
    if (status == TUTTI_ERR_TIMEOUT)
        return tutti__fail(status,
                           "%s has no key \"%s\" after waiting %.3g s for another rank to set it",
                           store->where, request->key, (double)request->number / 1e3);
    if (status == TUTTI_ERR_FORMAT)
        return tutti__fail(status,
                           "%s: cannot add to key \"%s\": its value is not a decimal number, or "
                           "the sum is too large",
                           store->where, request->key);
    return status;
}

/* Returns the length; ARG if the value did not fit. */
static tutti_status deliver(const tutti_store *store, const char *key, const tutti__reply *reply,
                            size_t *bytes)
{
    size_t capacity = *bytes;

    *bytes = reply->bytes;
    if (reply->bytes > capacity)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: the value of key \"%s\" has %zu bytes, the buffer %zu",
                           store->where, key, reply->bytes, capacity);
    return TUTTI_OK;
}

tutti_status tutti_store_set(tutti_store *store, const char *key, const void *value, size_t bytes)
{
    tutti__reply reply = {0};

    return ask(
        store,
        &(tutti__request){.op = TUTTI__SET, .key = key, .value = value, .value_bytes = bytes},
        &reply);
}

tutti_status tutti_store_get(tutti_store *store, const char *key, void *value, size_t *bytes,
                             int timeout_ms)
{
    tutti__reply reply = {.value = value, .bytes = bytes ? *bytes : 0};

    if (!bytes)
        return tutti__fail(TUTTI_ERR_ARG, "store_get: bytes is NULL, expected the buffer's size");
    TUTTI_TRY(
        ask(store, &(tutti__request){.op = TUTTI__GET, .key = key, .number = timeout_ms}, &reply));
    return deliver(store, key, &reply, bytes);
}

tutti_status tutti_store_wait(tutti_store *store, const char *key, int timeout_ms)
{
    tutti__reply reply = {0};

    return ask(store, &(tutti__request){.op = TUTTI__WAIT, .key = key, .number = timeout_ms},
               &reply);
}

tutti_status tutti_store_add(tutti_store *store, const char *key, int64_t amount, int64_t *sum_p)
{
    tutti__reply reply = {0};

    TUTTI_TRY(
        ask(store, &(tutti__request){.op = TUTTI__ADD, .key = key, .number = amount}, &reply));
    if (sum_p)
        *sum_p = reply.number;
    return TUTTI_OK;
}

tutti_status tutti__store_exchange(tutti_store *store, const tutti__request *own,
                                   tutti__wanted *wanted, int n, tutti__wanted *until,
                                   int timeout_ms)
{
    const double deadline = tutti__now_ms() + timeout_ms;

    if (store->ops->exchange)
        return store->ops->exchange(store, own, wanted, n, until, timeout_ms);
    if (own)
        TUTTI_TRY(store->ops->ask(store, own, &(tutti__reply){0}));
    for (int i = 0; i < n; i++) {
        tutti__reply reply = {.value = wanted[i].value, .bytes = wanted[i].bytes};

        TUTTI_TRY(store->ops->ask(store,
                                  &(tutti__request){.op = TUTTI__GET,
                                                    .key = wanted[i].key,
                                                    .number = tutti__poll_ms(deadline)},
                                  &reply));
        wanted[i].bytes = reply.bytes;
    }
    return TUTTI_OK;
}

tutti_status tutti_store_compare_set(tutti_store *store, const char *key, const void *expected,
                                     size_t expected_bytes, const void *desired,
                                     size_t desired_bytes, void *value, size_t *bytes)
{
    tutti__reply reply = {.value = value, .bytes = bytes ? *bytes : 0};

    TUTTI_TRY(ask(store,
                  &(tutti__request){.op = TUTTI__COMPARE_SET,
                                    .key = key,
                                    .value = desired,
                                    .value_bytes = desired_bytes,
                                    .expected = expected,
                                    .expected_bytes = expected_bytes},
                  &reply));
    return bytes ? deliver(store, key, &reply, bytes) : TUTTI_OK;
}

tutti_status tutti_store_delete(tutti_store *store, const char *key, bool *existed_p)
{
    tutti__reply reply = {0};

    TUTTI_TRY(ask(store, &(tutti__request){.op = TUTTI__DELETE, .key = key}, &reply));
    if (existed_p)
        *existed_p = reply.number != 0;
    return TUTTI_OK;
}

tutti_status tutti_store_num_keys(tutti_store *store, int64_t *n_p)
{
    tutti__reply reply = {0};

    TUTTI_TRY(ask(store, &(tutti__request){.op = TUTTI__COUNT, .key = "*"}, &reply));
    *n_p = reply.number;
    return TUTTI_OK;
}

tutti_status tutti_store_clone(tutti_store **store_p, tutti_store *store)
{
    *store_p = NULL;
    if (!store)
        return tutti__fail(TUTTI_ERR_ARG, "no store given");
    return store->ops->clone(store, store_p);
}

int tutti_store_port(const tutti_store *store)
{
    return store ? store->port : 0;
}

void tutti_store_free(tutti_store *store)
{
    if (store)
        store->ops->free(store);
}
