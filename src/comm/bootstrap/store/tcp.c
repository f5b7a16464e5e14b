/* tcp.c -- a store in another process.   SPDX-License-Identifier: MIT
 *
 * A handle keeps the connections that no call is using. A call takes one, or makes one, and returns it: a get that waits
 * for minutes occupies one connection, and other threads use others. */
#include "comm/bootstrap/store/store.h"

#include "comm/bootstrap/connector.h"
#include "comm/bootstrap/waiting.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_IDLE = 4, GRACE_MS = 10000, HANG_UP_MS = 3000, GREETING_MS = 5000, PATIENCE_MS = 60000 };

typedef struct tcp_store {
    tutti_store store; /* first: a tutti_store * is a tcp_store * */
    tutti__address server;
    tutti__secret secret;
    tutti__server *hosted; /* NULL: another process serves */
    _Atomic int users;     /* clones are this same handle */
    pthread_mutex_t lock;
    int idle[MAX_IDLE];
    int n_idle;
} tcp_store;

static tutti_status fail_connect(const tcp_store *t, int error)
{
    if (error == EACCES || error == EMFILE || error == ENFILE)
        return tutti__fail_errno(error, "cannot connect to %s", t->store.where);
    if (error == ENETUNREACH && tutti__address_is_loopback(&t->server))
        return tutti__fail(
            TUTTI_ERR_IO,
            "cannot connect to %s: %s; is the loopback interface up (ip link set lo up)?",
            t->store.where, strerror(error));
    return tutti__fail(TUTTI_ERR_TIMEOUT,
                       "%s does not answer: %s; is rank 0 (or tutti run) started, and are "
                       "MASTER_ADDR and MASTER_PORT those of rank 0's host?",
                       t->store.where, strerror(error));
}

/* One attempt; TIMEOUT, PEER and MEMORY may be tried again: descriptors become free. */
static tutti_status try_once(tcp_store *t, double deadline, int *fd_p)
{
    tutti__connector c;

    tutti__connector_begin(&c, &t->server,
                           &(tutti__connector_opts){.secret = &t->secret,
                                                    .claim = tutti__store_claim(&t->secret),
                                                    .who = t->store.where,
                                                    .deadline = deadline,
                                                    .authenticate_ms = GREETING_MS});
    (void)tutti__connector_wait(&c, deadline);
    if (c.error)
        return fail_connect(t, c.error);
    /* One that has proven that it is the store may be busy, or just ending: it is asked again as long as one that is not there yet. */
    if (c.status == TUTTI_ERR_PEER && c.handshake.next == TUTTI__AWAIT_VERDICT)
        return TUTTI_ERR_TIMEOUT;
    /* A server that accepts and does not answer is not a store, like one that hangs up. */
    if (c.status == TUTTI_ERR_TIMEOUT)
        return TUTTI_ERR_PEER;
    if (c.status == TUTTI_OK)
        *fd_p = tutti__connector_take(&c);
    return c.status;
}

/* Waits until deadline for a server that has not started yet, but only for a moment for one that hangs up: it may be the
 * server of the previous group, which was just ending, or not a store at all. */
static tutti_status connect_to(tcp_store *t, double deadline, int *fd_p)
{
    tutti__waiting waiting = tutti__waiting_begin();
    char refusal[512] = "";
    double hang_up = 0;
    int pause_ms = 2;
    tutti_status status;

    while ((status = try_once(t, deadline, fd_p)) == TUTTI_ERR_TIMEOUT ||
           status == TUTTI_ERR_PEER || status == TUTTI_ERR_MEMORY) {
        double now = tutti__now_ms();

        if (status == TUTTI_ERR_TIMEOUT && tutti__waiting_due(&waiting) && t->secret.speaks)
            tutti_log(TUTTI_LOG_WARN, "comm", "has waited %.0f s: %s",
                      tutti__waiting_seconds(&waiting), tutti_last_error());
        if (status == TUTTI_ERR_TIMEOUT)
            hang_up = 0;
        else if (hang_up <= 0) {
            hang_up = now + HANG_UP_MS;
            refusal[0] = '\0';
        }
        if (status == TUTTI_ERR_MEMORY)
            snprintf(refusal, sizeof refusal, "%s", tutti_last_error());
        if (hang_up > 0 && (now + pause_ms >= deadline || now >= hang_up)) {
            if (*refusal) /* also why it may have ended since, which closed the last connection */
                return tutti__fail(TUTTI_ERR_MEMORY, "%s", refusal);
            return status == TUTTI_ERR_PEER ? TUTTI_ERR_IO : status;
        }
        if (tutti__sockets_called_off())
            return tutti__fail(TUTTI_ERR_IO, "was told to give up connecting to %s",
                               t->store.where);
        if (now + pause_ms >= deadline)
            return tutti__fail(status, "waited %.3g s: %s", tutti__waiting_seconds(&waiting),
                               tutti_last_error());
        (void)tutti__sockets_poll((struct pollfd[1]){{0}}, 0, pause_ms);
        pause_ms = pause_ms < 100 ? 2 * pause_ms : 100;
    }
    return status;
}

static tutti_status take(tcp_store *t, double deadline, int *fd_p)
{
    *fd_p = -1;
    pthread_mutex_lock(&t->lock);
    if (t->n_idle > 0)
        *fd_p = t->idle[--t->n_idle];
    pthread_mutex_unlock(&t->lock);
    return *fd_p >= 0 ? TUTTI_OK : connect_to(t, deadline, fd_p);
}

static void give_back(tcp_store *t, int fd)
{
    pthread_mutex_lock(&t->lock);
    if (t->n_idle < MAX_IDLE) {
        t->idle[t->n_idle++] = fd;
        fd = -1;
    }
    pthread_mutex_unlock(&t->lock);
    if (fd >= 0)
        close(fd);
}

static size_t frame_bytes(const tutti__request *q)
{
    return sizeof(tutti__request_frame) + strlen(q->key) + q->value_bytes + q->expected_bytes;
}

/* Returns what follows it. */
static char *put_request(char *next, const tutti__request *q)
{
    const tutti__request_frame frame = {.op = (uint8_t)q->op,
                                        .key_bytes = (uint8_t)strlen(q->key),
                                        .value_bytes = (uint32_t)q->value_bytes,
                                        .expected_bytes = (uint32_t)q->expected_bytes,
                                        .number = q->number};

    memcpy(next, &frame, sizeof frame);
    next += sizeof frame;
    memcpy(next, q->key, frame.key_bytes);
    next += frame.key_bytes;
    if (q->value_bytes)
        memcpy(next, q->value, q->value_bytes);
    next += q->value_bytes;
    if (q->expected_bytes)
        memcpy(next, q->expected, q->expected_bytes);
    return next + q->expected_bytes;
}

/* All at once. 0 or an errno. */
static int send_requests(int fd, const tutti__request *const *requests, int n, double deadline)
{
    size_t bytes = 0;
    char *out, *next;
    int error;

    for (int i = 0; i < n; i++)
        bytes += frame_bytes(requests[i]);
    out = next = malloc(bytes);
    if (!out)
        return ENOMEM;
    for (int i = 0; i < n; i++)
        next = put_request(next, requests[i]);
    error = tutti__send_all(fd, out, bytes, deadline);
    free(out);
    return error;
}

/* Likewise. */
static int receive_reply(int fd, tutti__reply *reply, tutti__reply_frame *in, double deadline)
{
    const size_t capacity = reply->bytes;
    int error = tutti__receive_all(fd, in, sizeof *in, deadline);
    char *spill;

    reply->bytes = error ? 0 : in->bytes;
    if (error || in->bytes == 0)
        return error;
    if (in->bytes > TUTTI__VALUE_LIMIT)
        return EPROTO;
    if (reply->value && in->bytes <= capacity)
        return tutti__receive_all(fd, reply->value, in->bytes, deadline);
    spill = malloc(in->bytes); /* it does not fit: read and discard it */
    error = spill ? tutti__receive_all(fd, spill, in->bytes, deadline) : ENOMEM;
    free(spill);
    return error;
}

/* Sends all requests, and receives their replies, over one connection; `ins`: their heads. Errors with a message. */
static tutti_status converse(tcp_store *t, const tutti__request *const *requests,
                             tutti__reply *replies, tutti__reply_frame *ins, int n, double deadline)
{
    tutti_store *store = &t->store;
    int fd, error;

    TUTTI_TRY(take(t, deadline, &fd));
    error = send_requests(fd, requests, n, deadline);
    for (int i = 0; i < n && !error; i++)
        error = receive_reply(fd, &replies[i], &ins[i], deadline);
    if (error) {
        close(fd);
        if (error == ECONNRESET || error == EPIPE)
            store->lost = true;
        return tutti__fail(TUTTI_ERR_IO,
                           "%s is gone (%s) while key \"%s\" was asked for: the process that hosts "
                           "it ended or hangs",
                           store->where,
                           error == ECONNRESET || error == EPIPE ? "connection closed"
                                                                 : strerror(error),
                           requests[n - 1]->key);
    }
    give_back(t, fd);
    for (int i = 0; i < n; i++)
        if (ins[i].status == TUTTI_ERR_MEMORY)
            return tutti__fail(TUTTI_ERR_MEMORY, "%s has no memory left for key \"%s\"",
                               store->where, requests[i]->key);
    return TUTTI_OK;
}

static tutti_status tcp_ask(tutti_store *store, const tutti__request *request, tutti__reply *reply)
{
    tutti__reply_frame in = {0};
    bool waits = request->op == TUTTI__GET || request->op == TUTTI__WAIT;
    /* The server keeps the deadline of a wait; this one is for a server that hangs. */
    double deadline = tutti__now_ms() + (request->patience_ms ? request->patience_ms
                                         : waits              ? GRACE_MS + (double)request->number
                                                              : PATIENCE_MS);

    TUTTI_TRY(converse((tcp_store *)store, &request, reply, &in, 1, deadline));
    reply->number = in.number;
    return (tutti_status)in.status;
}

/* Takes the reply apart. */
static tutti_status deliver_all(const tutti_store *store, const tutti__reply *reply,
                                tutti__wanted *wanted, int n)
{
    const char *next = reply->value, *end = next + reply->bytes;
    uint32_t bytes;

    for (int i = 0; i < n; i++) {
        if (end - next < (ptrdiff_t)sizeof bytes)
            break;
        memcpy(&bytes, next, sizeof bytes);
        next += sizeof bytes;
        if (end - next < (ptrdiff_t)bytes)
            break;
        if (bytes > 0 && bytes <= wanted[i].bytes)
            memcpy(wanted[i].value, next, bytes);
        wanted[i].bytes = bytes;
        next += bytes;
        if (i == n - 1 && next == end)
            return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_IO, "%s answers with what is not the values of %d keys",
                       store->where, n);
}

static char *join_keys(const tutti__wanted *wanted, int n, size_t *bytes_p)
{
    char *keys, *next;

    *bytes_p = 0;
    for (int i = 0; i < n; i++)
        *bytes_p += strlen(wanted[i].key) + 1;
    keys = next = malloc(*bytes_p);
    for (int i = 0; i < n && keys; i++)
        next = stpcpy(next, wanted[i].key) + 1;
    return keys;
}

static tutti_status tcp_exchange(tutti_store *store, const tutti__request *own,
                                 tutti__wanted *wanted, int n, tutti__wanted *until, int timeout_ms)
{
    tutti__request get = {.op = TUTTI__GET_ALL,
                          .key = wanted[0].key,
                          .expected = until ? until->key : NULL,
                          .expected_bytes = until ? strlen(until->key) + 1 : 0,
                          .number = timeout_ms};
    const tutti__request *const requests[] = {own ? own : &get, &get};
    const int count = own ? 2 : 1;
    tutti__reply replies[2] = {0}, *all = &replies[count - 1];
    tutti__reply_frame ins[2] = {0};
    char *keys = join_keys(wanted, n, &get.value_bytes);
    tutti_status status = TUTTI_ERR_MEMORY;

    all->value = malloc(TUTTI__VALUE_LIMIT);
    all->bytes = TUTTI__VALUE_LIMIT;
    get.value = keys;
    if (keys && all->value)
        status = converse((tcp_store *)store, requests, replies, ins, count,
                          tutti__now_ms() + GRACE_MS + timeout_ms);
    else
        (void)tutti__fail(status, "no memory to ask %s for %d keys", store->where, n);
    if (status == TUTTI_OK)
        status = (tutti_status)ins[0].status;
    if (status == TUTTI_OK)
        status = (tutti_status)ins[count - 1].status;
    if (status == TUTTI_OK)
        status = deliver_all(store, all, wanted, n);
    if (status == TUTTI_ERR_ABORTED && until) {
        if (all->bytes <= until->bytes)
            memcpy(until->value, all->value, all->bytes);
        until->bytes = all->bytes;
    }
    free(keys);
    free(all->value);
    return status;
}

static void hang_up(tcp_store *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->n_idle > 0)
        close(t->idle[--t->n_idle]);
    pthread_mutex_unlock(&t->lock);
}

static void tcp_free(tutti_store *store)
{
    tcp_store *t = (tcp_store *)store;

    if (atomic_fetch_sub(&t->users, 1) > 1)
        return;
    hang_up(t);
    if (t->hosted)
        tutti__server_free(t->hosted);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Any thread may use a handle, so it is its own clone. */
static tutti_status tcp_clone(tutti_store *store, tutti_store **clone_p)
{
    atomic_fetch_add(&((tcp_store *)store)->users, 1);
    *clone_p = store;
    return TUTTI_OK;
}

static const tutti__store_ops TCP_OPS = {
    .ask = tcp_ask, .exchange = tcp_exchange, .clone = tcp_clone, .free = tcp_free};

/* Makes a connected handle for the server at `address`, owned by it if `hosted`; NULL in *store_p on failure. */
static tutti_status handle_new(tutti_store **store_p, const tutti__address *address,
                               const tutti__secret *secret, const char *where,
                               tutti__server *hosted, double deadline)
{
    tcp_store *t = tutti__alloc(sizeof *t);
    tutti_status status;
    int fd;

    *store_p = NULL;
    if (!t)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&t->lock, NULL);
    atomic_init(&t->users, 1);
    t->server = *address;
    t->secret = *secret;
    t->store =
        (tutti_store){.ops = &TCP_OPS, .port = tutti__address_port(address), .secret = &t->secret};
    snprintf(t->store.where, sizeof t->store.where, "%s", where);
    status = connect_to(t, deadline, &fd);
    if (status != TUTTI_OK) {
        tcp_free(&t->store);
        return status;
    }
    t->hosted = hosted;
    t->store.hosted = hosted != NULL;
    t->store.address.length = sizeof t->store.address.at;
    getsockname(fd, (struct sockaddr *)&t->store.address.at, &t->store.address.length);
    give_back(t, fd);
    *store_p = &t->store;
    return TUTTI_OK;
}

int tutti__store_n_clients(tutti_store *store)
{
    const tcp_store *t = (tcp_store *)store;

    return store->ops == &TCP_OPS && t->hosted ? tutti__server_n_others(t->hosted) : 0;
}

void tutti__store_linger(tutti_store *store, double deadline)
{
    while (tutti__store_n_clients(store) > 0 && tutti__now_ms() < deadline)
        poll(NULL, 0, 2);
}

void tutti__store_hang_up(tutti_store *store)
{
    if (store->ops == &TCP_OPS)
        hang_up((tcp_store *)store);
}

void tutti__store_fence(tutti_store *store, int attempt)
{
    const tcp_store *t = (tcp_store *)store;

    if (store->ops == &TCP_OPS && t->hosted)
        tutti__server_fence(t->hosted, (uint32_t)attempt);
}

static tutti_status check_port(int port, int least)
{
    if (port < least || port > 65535)
        return tutti__fail(TUTTI_ERR_ARG, "store port %d, expected %d to 65535", port, least);
    return TUTTI_OK;
}

tutti_status tutti_store_tcp_serve(tutti_store **store_p, const char *host_name, int port)
{
    tutti__address address;
    tutti__secret secret;
    char text[80], where[96];
    tutti__server *server;
    tutti_status status;

    *store_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(host_name));
    TUTTI_TRY(check_port(port, 0));
    TUTTI_TRY(tutti__secret_read(&secret));
    TUTTI_TRY(tutti__resolve(&address, host_name, port));
    TUTTI_TRY(tutti__server_new(&server, &address, &secret));
    tutti__address_text(&address, text, sizeof text);
    if (!secret.set && !tutti__address_is_loopback(&address))
        tutti_log(TUTTI_LOG_WARN, "comm",
                  "the store listens on %s without a secret (%s): whoever reaches that address "
                  "can join this job; start with tutti run, or give all ranks the same "
                  "TUTTI_SECRET_FILE",
                  text, secret.where);
    snprintf(where, sizeof where, "the store at %s", text);
    status = handle_new(store_p, &address, &secret, where, server, tutti__now_ms() + GRACE_MS);
    if (status != TUTTI_OK)
        tutti__server_free(server);
    return status;
}

static tutti_status connect_as(tutti_store **store_p, const char *host_name, int port,
                               const tutti__secret *secret, int timeout_ms)
{
    tutti__address address;
    char where[96];

    TUTTI_TRY(tutti__resolve(&address, host_name, port));
    snprintf(where, sizeof where, "the store at %.64s:%d", host_name, port);
    return handle_new(store_p, &address, secret, where, NULL, tutti__now_ms() + timeout_ms);
}

tutti_status tutti_store_tcp_connect(tutti_store **store_p, const char *host_name, int port,
                                     int timeout_ms)
{
    tutti__secret secret;

    *store_p = NULL;
    TUTTI_TRY(TUTTI__NOT_NULL(host_name));
    TUTTI_TRY(check_port(port, 1));
    TUTTI_TRY(tutti__secret_read(&secret));
    return connect_as(store_p, host_name, port, &secret, timeout_ms);
}

tutti_status tutti__store_connect(tutti_store **store_p, const char *at, int attempt,
                                  int timeout_ms)
{
    const char *colon = strrchr(at, ':');
    tutti__secret secret;
    char host_name[256];
    int64_t port;

    *store_p = NULL;
    if (!colon || colon - at >= (ptrdiff_t)sizeof host_name ||
        !tutti__parse_int64(colon + 1, &port) || port < 1 || port > 65535)
        return tutti__fail(TUTTI_ERR_ARG, "a store at \"%.60s\", expected HOST:PORT", at);
    snprintf(host_name, sizeof host_name, "%.*s", (int)(colon - at), at);
    TUTTI_TRY(tutti__secret_read(&secret));
    secret.attempt = (uint32_t)attempt;
    secret.rank = 0;
    return connect_as(store_p, host_name, (int)port, &secret, timeout_ms);
}
