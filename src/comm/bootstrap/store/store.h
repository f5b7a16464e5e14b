/* store.h -- private parts of stores: one table of operations, five implementations.   SPDX-License-Identifier: MIT
 *
 *     store.c       checks arguments, makes the messages
 *     memory.c      a dictionary with a lock, in this process
 *     file.c        a dictionary kept equal to a file, which other processes use too
 *     tcp.c         sends requests to a server over a few connections
 *     server.c      a dictionary with one thread that serves connections
 *     custom.c      the program's callbacks */
#ifndef TUTTI_COMM_STORE_STORE_H
#define TUTTI_COMM_STORE_STORE_H

#include "comm/bootstrap/authentication.h"
#include <tutti/group.h>

enum { TUTTI__KEY_LIMIT = 255, TUTTI__VALUE_LIMIT = 1 << 20 };

/* ---- Dictionary: keys to values ------------------------------------------------------------------------- */

typedef struct tutti__entry {
    struct tutti__entry *next;
    uint64_t hash;
    void *value;
    size_t bytes;
    char key[];
} tutti__entry;

typedef struct tutti__dictionary {
    tutti__entry **buckets;
    size_t n_buckets, count;
} tutti__dictionary;

tutti__entry *tutti__dictionary_find(const tutti__dictionary *dictionary, const char *key);
tutti_status tutti__dictionary_set(tutti__dictionary *dictionary, const char *key,
                                   const void *value, size_t bytes);
bool tutti__dictionary_delete(tutti__dictionary *dictionary, const char *key);
/* FORMAT (without message) if the value is not a number or the sum overflows. */
tutti_status tutti__dictionary_add(tutti__dictionary *dictionary, const char *key, int64_t amount,
                                   int64_t *sum_p);
/* *value_p, *bytes_p: the value afterwards, borrowed; for an absent key that did not match, `expected`. */
tutti_status tutti__dictionary_compare_set(tutti__dictionary *dictionary, const char *key,
                                           const void *expected, size_t expected_bytes,
                                           const void *desired, size_t desired_bytes,
                                           const void **value_p, size_t *bytes_p);
void tutti__dictionary_destroy(tutti__dictionary *dictionary);

/* ---- Store ------------------------------------------------------------------------------------------- */

/* A call to a store; arguments are already checked. */
typedef struct tutti__request {
    enum {
        TUTTI__SET = 1,
        TUTTI__GET,
        TUTTI__WAIT,
        TUTTI__ADD,
        TUTTI__COMPARE_SET,
        TUTTI__DELETE,
        TUTTI__COUNT, /* the number of keys; `key` is not used */
        /* TCP only: waits for all keys of `value`, each with its zero at the end; the reply is for each a uint32_t and that many
         * bytes. `key` is for messages. `expected`: a key, with its zero, with which the wait ends in ABORTED, and that key's value; empty: none */
        TUTTI__GET_ALL
    } op;
    const char *key;
    const void *value, *expected;
    size_t value_bytes, expected_bytes;
    int64_t number;  /* amount, or timeout in milliseconds */
    int patience_ms; /* for a server that does not answer; 0: default */
} tutti__request;

/* number: the sum, or whether the key existed. bytes: capacity of value on entry, length on return (value is written only
 * if it fits). */
typedef struct tutti__reply {
    int64_t number;
    void *value;
    size_t bytes;
} tutti__reply;

/* Executes the request, without waiting: an absent key is TIMEOUT, without message. */
tutti_status tutti__dictionary_ask(tutti__dictionary *dictionary, const tutti__request *request,
                                   tutti__reply *reply);

/* A key that is waited for. bytes: as in tutti__reply; a value that does not fit is not written. */
typedef struct tutti__wanted {
    const char *key;
    void *value;
    size_t bytes;
} tutti__wanted;

/* Sets `own` (NULL: none), and waits for all n > 0 keys, in one round trip where the store can. TIMEOUT without message: `own` is set,
 * and some of the keys are absent; they are asked for again with `own` NULL. ABORTED without message: likewise, but there is
 * the key `until` (NULL: none), whose value is delivered; only a store over TCP looks at it. Errors: as those of tutti_store_get. */
tutti_status tutti__store_exchange(tutti_store *store, const tutti__request *own,
                                   tutti__wanted *wanted, int n, tutti__wanted *until,
                                   int timeout_ms);

/* ask returns TIMEOUT and FORMAT without message (store.c makes it), other errors with one. */
typedef struct tutti__store_ops {
    tutti_status (*ask)(tutti_store *store, const tutti__request *request, tutti__reply *reply);
    /* tutti__store_exchange in one round trip; NULL: by single requests */
    tutti_status (*exchange)(tutti_store *store, const tutti__request *own, tutti__wanted *wanted,
                             int n, tutti__wanted *until, int timeout_ms);
    tutti_status (*clone)(tutti_store *store, tutti_store **clone_p);
    void (*free)(tutti_store *store);
} tutti__store_ops;

struct tutti_store {
    const tutti__store_ops *ops;
    bool in_process; /* pointers stored here are valid for all its users */
    /* The program's: who can read it belongs to the job, so a group without a secret leaves one there. */
    bool custom;
    int port; /* 0: none */
    /* TCP: the secret of this handle's connections, and of groups that meet there; else NULL. */
    const tutti__secret *secret;
    tutti__address address; /* this end's, as others may reach it; length 0: none */
    bool hosted;            /* by this process, for others */
    _Atomic bool lost;      /* its server has closed a connection that was in use */
    char where[96];         /* for messages: "the store at 127.0.0.1:4711" */
};

/* Like tutti_store_tcp_connect, with `at` HOST:PORT, for a process of this attempt of the job, whatever its environment
 * says, that has no rank yet. Groups that meet there belong to that attempt too. */
tutti_status tutti__store_connect(tutti_store **store_p, const char *at, int attempt,
                                  int timeout_ms);

/* ---- Server ------------------------------------------------------------------------------------------ */

typedef struct tutti__server tutti__server;
/* Listens on *address (which becomes the bound one) and serves from a thread of its own until freed. */
tutti_status tutti__server_new(tutti__server **server_p, tutti__address *address,
                               const tutti__secret *secret);
void tutti__server_free(tutti__server *server);
/* How many connections other processes have; of a store that another process hosts: 0. */
int tutti__server_n_others(const tutti__server *server);
int tutti__store_n_clients(tutti_store *store);
/* Waits until there are none. */
void tutti__store_linger(tutti_store *store, double deadline);
/* Closes this process's unused connections to it, so that who hosts it need not wait for them; the next call makes one. */
void tutti__store_hang_up(tutti_store *store);
/* Ends all attempts of the job before this one: their ranks are disconnected and rejected. */
void tutti__server_fence(tutti__server *server, uint32_t attempt);
/* The same for a store that this process hosts. */
void tutti__store_fence(tutti_store *store, int attempt);

/* The wire format, in the byte order of x86-64 and arm64. A request is followed by key, value and expected; a reply by the
 * value. */
typedef struct tutti__request_frame {
    uint8_t op, key_bytes;
    uint16_t zero;
    uint32_t value_bytes, expected_bytes, zero2;
    int64_t number;
} tutti__request_frame;

typedef struct tutti__reply_frame {
    int32_t status;
    uint32_t bytes;
    int64_t number;
} tutti__reply_frame;

#endif
