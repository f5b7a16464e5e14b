/* store.h -- the small shared dictionary through which ranks find each other.
 * SPDX-License-Identifier: MIT
 *
 * Keys are text up to 255 bytes, values up to 1 MiB of bytes. Times are in milliseconds; a wait past its deadline returns
 * TIMEOUT, and the message names the key. Threads: any thread may call. */
#ifndef TUTTI_STORE_H
#define TUTTI_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_store tutti_store;

/* In one process, for ranks that are threads. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_memory_new(tutti_store **store_p);

/* In a file, for processes of one host, or of several hosts if the file system supports locks. It lives as long as a
 * process has it open: if no process has, opening it starts it empty (so nothing of a killed job remains), and the last
 * process to free it removes it. Readable only by its user. Not usable across fork.
 * Errors: ARG for a file that is not a store or belongs to another user; IO, NOT_FOUND, DISK. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_file_open(tutti_store **store_p,
                                                             const char *path);

/* Another handle on the same store (memory, custom and TCP: reference-counted; file: opened again). Free each handle. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_clone(tutti_store **store_p, tutti_store *store);

/* Hosts a TCP store in this process and connects to it. Port 0: the kernel chooses; read it with
 * tutti_store_port. Binds to `host` only, so 127.0.0.1 is never reachable from outside.
 * Errors: IO with the address, the owner's hint and the remedy when the port is taken; NOT_FOUND if DNS does not know the host. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_tcp_serve(tutti_store **store_p,
                                                             const char *host, int port);
/* Connects to a hosted store, retrying until timeout_ms. Errors: NOT_FOUND if DNS does not know the host; TIMEOUT. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_tcp_connect(tutti_store **store_p,
                                                               const char *host, int port,
                                                               int timeout_ms);
/* A store that the program supplies, such as PyTorch's or an etcd: the calls of tutti_store_set, _get, _wait, _add, _compare_set
 * and _delete below, whose arguments have been checked. A callback that fails returns its status, with its message by tutti_fail;
 * an absent key is TIMEOUT, and a counter that is no number FORMAT, for both of which the library makes the message. Threads:
 * several at once. Groups need set, get, wait and add; a call whose callback is NULL returns UNSUPPORTED. */
typedef struct tutti_store_callbacks {
    tutti_status (*set)(void *user, const char *key, const void *value, size_t bytes);
    /* Writes the value only if it fits. *bytes: capacity on entry, length on return. */
    tutti_status (*get)(void *user, const char *key, void *value, size_t *bytes, int timeout_ms);
    tutti_status (*wait)(void *user, const char *key,
                         int timeout_ms); /* timeout_ms 0: only looks */
    tutti_status (*add)(void *user, const char *key, int64_t amount, int64_t *sum_p);
    tutti_status (*compare_set)(void *user, const char *key, const void *expected,
                                size_t expected_bytes, const void *desired, size_t desired_bytes,
                                void *value, size_t *bytes);
    tutti_status (*remove)(void *user, const char *key, bool *existed_p);
    /* When the last handle is freed, on any thread: `user` is no longer used. May be NULL. */
    void (*release)(void *user);
    const char *name; /* for messages, "PyTorch's store"; copied. NULL: "the program's store" */
    /* A host that all ranks reach, such as the store's: this host's address towards it is the one that ranks on other hosts
     * connect to, unless TUTTI_SOCKET_IFNAME names an interface. This host's own name: the address of an interface that is not
     * the loopback's, if there is one. Copied. NULL: the ranks of a group are on one host. */
    const char *reaches;
    uint64_t reserved[4]; /* zero */
} tutti_store_callbacks;

/* Groups that meet in such a store authenticate by the job's secret (TUTTI_SECRET, TUTTI_SECRET_FILE), and without one by a
 * random one that rank 0 leaves in the store: only who can read the store can connect. The structure is copied.
 * Errors: ARG for a missing set, get, wait or add; NOT_FOUND if DNS does not know `reaches`; IO if there is no way to it. */
TUTTI_API TUTTI_NODISCARD tutti_status
tutti_store_custom_new(tutti_store **store_p, const tutti_store_callbacks *callbacks, void *user);

/* This host's address for programs on other hosts that reach the host `reaches`, such as the first rank's: "10.0.0.5", "[fd00::5]".
 * The one that TUTTI_SOCKET_IFNAME chooses; else the one towards `reaches`; if that is this host's own name, the address of an
 * interface that is not the loopback's, if there is one. For publishing where a store listens (tutti_store_tcp_serve).
 * Errors: ARG if it does not fit into `capacity` bytes, NOT_FOUND if DNS does not know `reaches`, IO if there is no way to it. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_host_address(const char *reaches, char *text,
                                                          size_t capacity);
/* The port of a TCP store; 0 for others. */
TUTTI_API int tutti_store_port(const tutti_store *store);
/* Frees one handle; the store ends with the last one. NULL is fine. */
TUTTI_API void tutti_store_free(tutti_store *store);

/* Errors of all of these: ARG for keys and values that are too large; IO if the store can no longer be reached. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_set(tutti_store *store, const char *key,
                                                       const void *value, size_t bytes);
/* Waits for the key, then copies its value. *bytes: capacity on entry, length on return. ARG if too small. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_get(tutti_store *store, const char *key,
                                                       void *value, size_t *bytes, int timeout_ms);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_wait(tutti_store *store, const char *key,
                                                        int timeout_ms);
/* Adds to a decimal counter (0 if absent) and returns the sum. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_add(tutti_store *store, const char *key,
                                                       int64_t amount, int64_t *sum_p);
/* Stores `desired` if the value equals `expected` (expected_bytes 0 also matches an absent key). The value
 * afterwards is copied to `value`; for an absent key that did not match, it is `expected`. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_compare_set(
    tutti_store *store, const char *key, const void *expected, size_t expected_bytes,
    const void *desired, size_t desired_bytes, void *value, size_t *bytes);
/* *existed_p (may be NULL): whether the key was there. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_delete(tutti_store *store, const char *key,
                                                          bool *existed_p);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_store_num_keys(tutti_store *store, int64_t *n_p);

#ifdef __cplusplus
}
#endif
#endif
