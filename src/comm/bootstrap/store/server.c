/* server.c -- serves a dictionary over TCP from one thread.   SPDX-License-Identifier: MIT
 *
 * Each authenticated connection is a small state machine: it sends requests one after another. A get of an absent
 * key leaves its connection waiting, until a set of the key or its deadline answers it; a GET_ALL also until a compare-and-set of the key
 * that is to end it. A connection that sends invalid
 * data is closed, without effect on the others. */
#include "comm/bootstrap/store/store.h"

#include "base/thread.h"
#include "comm/bootstrap/acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    HASH = 4096,
    EVENTS = 64,
    MAX_UNPROVEN = 65536, /* all ranks of a job may connect at the same moment */
    FLOOD = 1000
};

/* Lists by the hash of a key, or by rank: what concerns one does not look at all. */
typedef struct listed {
    struct listed *next, **at; /* at: what points here; NULL: in no list */
} listed;

typedef struct connection {
    struct connection *next, *previous, *next_closing;
    listed waits, ranks; /* among those that wait for a key with this hash, that claim this rank */
    int fd;
    bool waiting, closing;
    uint32_t events; /* that epoll reports */
    double deadline; /* of a waiting get */
    const char *key; /* waited for; in body */
    size_t known;    /* GET_ALL: so many bytes of the list are keys that exist */
    tutti__claim claim;
    tutti__request_frame frame;
    size_t got; /* bytes of frame, then of body */
    char *body; /* key NUL value expected */
    char *out;  /* unsent reply */
    size_t out_bytes, out_sent;
} connection;

struct tutti__server {
    int listener, epoll, stop;
    pthread_t thread;
    tutti__secret secret;
    tutti__claim claim;
    _Atomic uint32_t least_attempt;
    tutti__acceptor acceptor;
    tutti__dictionary dictionary;
    connection *connections, *closing;
    listed *waiting[HASH], *ranks[HASH];
    double next_ms;       /* no waiting get is overdue before */
    _Atomic int n_others; /* connections of other processes */
};

static bool is_others(const tutti__server *s, const connection *c)
{
    return c->claim.process != s->claim.process;
}

/* ---- Lists ------------------------------------------------------------------------------------------- */

static void join_list(listed **head, listed *l)
{
    l->next = *head;
    l->at = head;
    if (l->next)
        l->next->at = &l->next;
    *head = l;
}

static void leave_list(listed *l)
{
    if (!l->at)
        return;
    *l->at = l->next;
    if (l->next)
        l->next->at = l->at;
    *l = (listed){0};
}

static connection *waiting_of(listed *l)
{
    return l ? (connection *)((char *)l - offsetof(connection, waits)) : NULL;
}

static listed **list_of_key(tutti__server *s, const char *key)
{
    return &s->waiting[tutti__hash64(key, strlen(key)) % HASH];
}

/* ---- One connection ------------------------------------------------------------------------------------ */

/* Dropped later, since callers iterate over lists. */
static void close_later(tutti__server *s, connection *c)
{
    if (c->closing)
        return;
    c->closing = true;
    c->next_closing = s->closing;
    s->closing = c;
}

static void drop(tutti__server *s, connection *c)
{
    atomic_fetch_sub(&s->n_others, is_others(s, c));
    if (c->previous)
        c->previous->next = c->next;
    else
        s->connections = c->next;
    if (c->next)
        c->next->previous = c->previous;
    leave_list(&c->waits);
    leave_list(&c->ranks);
    /* A forked child of this process may hold the descriptor too: then close alone would leave it in the epoll set. */
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    free(c->body);
    free(c->out);
    free(c);
}

static void listen_for(tutti__server *s, connection *c, uint32_t events)
{
    if (c->events == events)
        return;
    c->events = events;
    epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd,
              &(struct epoll_event){.events = events, .data.ptr = c});
}

/* False: the peer is gone. */
static bool flush(tutti__server *s, connection *c)
{
    while (c->out_sent < c->out_bytes) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_bytes - c->out_sent, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0) {
            listen_for(s, c, EPOLLOUT);
            return true;
        }
        c->out_sent += (size_t)n;
    }
    free(c->out);
    c->out = NULL;
    c->out_bytes = c->out_sent = 0;
    listen_for(s, c, EPOLLIN);
    return true;
}

/* Reports that there is no memory for a reply, unless the socket is full. */
static bool reply_no_memory(tutti__server *s, connection *c)
{
    const tutti__reply_frame frame = {.status = TUTTI_ERR_MEMORY};

    listen_for(s, c, EPOLLIN);
    return send(c->fd, &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof frame;
}

static void reply(tutti__server *s, connection *c, tutti_status status, int64_t number,
                  const void *value, size_t bytes)
{
    const tutti__reply_frame frame = {status, (uint32_t)bytes, number};

    c->waiting = false;
    leave_list(&c->waits);
    c->out = malloc(sizeof frame + bytes);
    if (c->out) {
        memcpy(c->out, &frame, sizeof frame);
        if (bytes)
            memcpy(c->out + sizeof frame, value, bytes);
        c->out_bytes = sizeof frame + bytes;
    }
    if (c->out ? !flush(s, c) : !reply_no_memory(s, c))
        close_later(s, c);
    free(c->body); /* last: `value` may point into it */
    c->body = NULL;
    c->got = 0;
}

/* ---- Values ------------------------------------------------------------------------------------------- */

static const char *keys_of(const connection *c)
{
    return c->body + c->frame.key_bytes + 1;
}

/* The first wanted key that is absent; NULL: all are there. */
static const char *absent_key(const tutti__server *s, connection *c)
{
    const char *keys = keys_of(c);

    if (c->frame.op != TUTTI__GET_ALL)
        return tutti__dictionary_find(&s->dictionary, c->body) ? NULL : c->body;
    for (; c->known < c->frame.value_bytes; c->known += strlen(keys + c->known) + 1)
        if (!tutti__dictionary_find(&s->dictionary, keys + c->known))
            return keys + c->known;
    return NULL;
}

/* The key that ends the wait; NULL: none. */
static const char *until_key(const connection *c)
{
    return c->frame.op == TUTTI__GET_ALL && c->frame.expected_bytes > 0
               ? keys_of(c) + c->frame.value_bytes
               : NULL;
}

/* One of them may have been deleted while others were waited for: it has no bytes. `to` NULL: only their number. */
static size_t put_values(const tutti__server *s, const connection *c, char *to)
{
    const char *keys = keys_of(c);
    size_t used = 0;

    for (size_t i = 0; i < c->frame.value_bytes; i += strlen(keys + i) + 1) {
        const tutti__entry *entry = tutti__dictionary_find(&s->dictionary, keys + i);
        const uint32_t bytes = entry ? (uint32_t)entry->bytes : 0;

        if (to) {
            memcpy(to + used, &bytes, sizeof bytes);
            if (bytes)
                memcpy(to + used + sizeof bytes, entry->value, bytes);
        }
        used += sizeof bytes + bytes;
    }
    return used;
}

static void reply_all(tutti__server *s, connection *c)
{
    const size_t bytes = put_values(s, c, NULL);
    char *values = bytes <= TUTTI__VALUE_LIMIT ? malloc(bytes) : NULL;

    if (values)
        (void)put_values(s, c, values);
    reply(s, c, values ? TUTTI_OK : TUTTI_ERR_MEMORY, 0, values, values ? bytes : 0);
    free(values);
}

static void reply_found(tutti__server *s, connection *c)
{
    const tutti__entry *entry =
        c->frame.op == TUTTI__GET ? tutti__dictionary_find(&s->dictionary, c->body) : NULL;

    if (c->frame.op == TUTTI__GET_ALL)
        reply_all(s, c);
    else
        reply(s, c, TUTTI_OK, 0, entry ? entry->value : NULL, entry ? entry->bytes : 0);
}

static void reply_or_wait(tutti__server *s, connection *c)
{
    const char *key = absent_key(s, c), *until = until_key(c);
    const tutti__entry *entry;

    leave_list(&c->waits);
    if (!key) {
        reply_found(s, c);
        return;
    }
    if (until && (entry = tutti__dictionary_find(&s->dictionary, until)) != NULL) {
        reply(s, c, TUTTI_ERR_ABORTED, 0, entry->value, entry->bytes);
        return;
    }
    c->waiting = true;
    c->key = key;
    join_list(list_of_key(s, key), &c->waits);
    listen_for(s, c, EPOLLRDHUP);
}

static void answer_waiting(tutti__server *s, const char *key)
{
    connection *next;

    if (!tutti__dictionary_find(&s->dictionary, key))
        return;
    for (connection *c = waiting_of(*list_of_key(s, key)); c; c = next) {
        next = waiting_of(c->waits.next);
        if (strcmp(c->key, key) == 0)
            reply_or_wait(s, c);
    }
}

/* Those whose wait ends with this key. */
static void end_waits(tutti__server *s, const char *key)
{
    for (connection *c = s->connections; c; c = c->next)
        if (c->waiting && until_key(c) && strcmp(until_key(c), key) == 0)
            reply_or_wait(s, c);
}

/* False: invalid. */
static bool begin_wait(tutti__server *s, connection *c)
{
    const tutti__request_frame *f = &c->frame;
    const size_t bytes = (size_t)f->value_bytes + f->expected_bytes;

    if (f->op == TUTTI__GET_ALL && (f->value_bytes == 0 || keys_of(c)[f->value_bytes - 1] != '\0' ||
                                    keys_of(c)[bytes - 1] != '\0'))
        return false;
    c->known = 0;
    c->deadline = tutti__now_ms() + (double)f->number;
    reply_or_wait(s, c);
    if (c->waiting && c->deadline < s->next_ms)
        s->next_ms = c->deadline;
    return true;
}

/* ---- Requests ------------------------------------------------------------------------------------------ */

static void serve(tutti__server *s, connection *c)
{
    const tutti__request_frame *f = &c->frame;
    const char *key = c->body, *value = c->body + f->key_bytes + 1,
               *expected = value + f->value_bytes;
    const void *now = NULL;
    size_t bytes = 0;
    int64_t number = 0;
    tutti_status status = TUTTI_OK;

    switch (f->op) {
    case TUTTI__GET:
    case TUTTI__WAIT:
    case TUTTI__GET_ALL:
        if (!begin_wait(s, c))
            close_later(s, c);
        return;
    case TUTTI__SET:
        status = tutti__dictionary_set(&s->dictionary, key, value, f->value_bytes);
        break;
    case TUTTI__ADD:
        status = tutti__dictionary_add(&s->dictionary, key, f->number, &number);
        break;
    case TUTTI__COMPARE_SET:
        status = tutti__dictionary_compare_set(&s->dictionary, key, expected, f->expected_bytes,
                                               value, f->value_bytes, &now, &bytes);
        end_waits(s, key);
        break;
    case TUTTI__DELETE:
        number = tutti__dictionary_delete(&s->dictionary, key);
        break;
    case TUTTI__COUNT:
        reply(s, c, TUTTI_OK, (int64_t)s->dictionary.count, NULL, 0);
        return;
    default:
        close_later(s, c);
        return;
    }
    answer_waiting(s, key);
    reply(s, c, status, number, now, status == TUTTI_OK ? bytes : 0);
}

/* Reads up to `whole` bytes in total into p. 1: complete, 0: not yet, -1: closed. */
static int fill(connection *c, void *p, size_t whole)
{
    while (c->got < whole) {
        ssize_t n = recv(c->fd, (char *)p + c->got, whole - c->got, 0);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        if (n < 0)
            return 0;
        c->got += (size_t)n;
    }
    return 1;
}

/* 1: a complete request is in frame and body; 0: not yet; -1: closed or invalid. */
static int read_request(connection *c)
{
    const tutti__request_frame *f = &c->frame;
    size_t body;
    int state;

    if (!c->body) {
        state = fill(c, &c->frame, sizeof c->frame);
        if (state <= 0)
            return state;
        if (f->key_bytes == 0 || f->value_bytes > TUTTI__VALUE_LIMIT ||
            f->expected_bytes > TUTTI__VALUE_LIMIT)
            return -1;
        body = (size_t)f->key_bytes + f->value_bytes + f->expected_bytes;
        c->body = malloc(body + 1);
        if (!c->body)
            return -1;
        c->got = 0;
    }
    body = (size_t)f->key_bytes + f->value_bytes + f->expected_bytes;
    state = fill(c, c->body, body);
    if (state <= 0)
        return state;
    memmove(c->body + f->key_bytes + 1, c->body + f->key_bytes, body - f->key_bytes);
    c->body[f->key_bytes] = '\0';
    return 1;
}

/* Keepalive: a host that vanished must not occupy its rank for ever. */
static void notice_vanishing(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){5}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){2}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){3}, sizeof(int));
}

/* Whether it belongs to an earlier attempt. The process that hosts the server outlives attempts. */
static bool is_stale(const tutti__server *s, const tutti__claim *claim)
{
    return claim->attempt < atomic_load(&s->least_attempt) && claim->process != s->claim.process;
}

/* Decides on an authenticated client. */
static char verdict_on(void *context, int fd, const tutti__claim *claim)
{
    const tutti__server *s = context;

    if (!s->secret.set && tutti__of_another_user(fd))
        return TUTTI__OTHER_USER;
    if (is_stale(s, claim))
        return TUTTI__STALE;
    if (claim->rank == 0 || claim->process == s->claim.process)
        return TUTTI__WELCOME;
    for (const listed *l = s->ranks[claim->rank % HASH]; l; l = l->next) {
        const connection *c = (const connection *)((const char *)l - offsetof(connection, ranks));

        if (!c->closing && c->claim.rank == claim->rank &&
            c->claim.process != s->claim.process && /* a launcher is not a rank */
            c->claim.attempt == claim->attempt && c->claim.process != claim->process)
            return TUTTI__TAKEN;
    }
    return TUTTI__WELCOME;
}

static void welcome(void *context, int fd, const tutti__claim *claim)
{
    tutti__server *s = context;
    connection *c = calloc(1, sizeof *c);

    if (!c || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd,
                        &(struct epoll_event){.events = EPOLLIN, .data.ptr = c}) != 0) {
        free(c);
        close(fd);
        return;
    }
    c->fd = fd;
    c->claim = *claim;
    atomic_fetch_add(&s->n_others, is_others(s, c));
    c->events = EPOLLIN;
    join_list(&s->ranks[claim->rank % HASH], &c->ranks);
    c->next = s->connections;
    if (c->next)
        c->next->previous = c;
    s->connections = c;
    notice_vanishing(fd);
}

/* False: drop it. */
static bool advance(tutti__server *s, connection *c, uint32_t events)
{
    int state;

    if (is_stale(s, &c->claim))
        return false;
    if (c->waiting)
        return !(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
    if (c->out)
        return flush(s, c);
    while ((state = read_request(c)) > 0) {
        serve(s, c);
        if (c->closing)
            return false;
        if (c->waiting || c->out)
            return true;
    }
    return state == 0;
}

/* Answers those that are overdue. */
static void keep_deadlines(tutti__server *s, double now)
{
    s->next_ms = 1e300;
    for (connection *c = s->connections; c; c = c->next) {
        if (c->waiting && c->deadline <= now)
            reply(s, c, TUTTI_ERR_TIMEOUT, 0, NULL, 0);
        else if (c->waiting && c->deadline < s->next_ms)
            s->next_ms = c->deadline;
    }
}

/* Milliseconds to the next deadline; -1: none. */
static int advance_time(tutti__server *s)
{
    const double now = tutti__now_ms();
    double next;

    if (now >= s->next_ms)
        keep_deadlines(s, now);
    while (s->closing) {
        connection *c = s->closing;

        s->closing = c->next_closing;
        drop(s, c);
    }
    next = tutti__acceptor_deadline(&s->acceptor);
    next = s->next_ms < next ? s->next_ms : next;
    return next >= 1e300 ? -1 : tutti__poll_ms(next);
}

static void *server_main(void *arg)
{
    tutti__server *s = arg;
    struct epoll_event events[EVENTS];

    for (;;) {
        int n = epoll_wait(s->epoll, events, EVENTS, advance_time(s));

        for (int i = 0; i < n; i++) {
            connection *c = events[i].data.ptr;

            if (events[i].data.ptr == &s->stop)
                return NULL;
            if (events[i].data.ptr != &s->acceptor && !c->closing &&
                !advance(s, c, events[i].events))
                close_later(s, c);
        }
        (void)tutti__acceptor_serve(&s->acceptor);
    }
}

void tutti__server_free(tutti__server *s)
{
    if (!s)
        return;
    if (write(s->stop, &(uint64_t){1}, sizeof(uint64_t)) > 0)
        pthread_join(s->thread, NULL);
    while (s->connections)
        drop(s, s->connections);
    tutti__acceptor_close(&s->acceptor);
    close(s->listener);
    close(s->epoll);
    close(s->stop);
    tutti__dictionary_destroy(&s->dictionary);
    free(s);
}

int tutti__server_n_others(const tutti__server *s)
{
    return atomic_load(&s->n_others);
}

void tutti__server_fence(tutti__server *s, uint32_t attempt)
{
    atomic_store(&s->least_attempt,
                 /* existing connections are closed at their next request */
                 attempt);
}

/* False, with errno: not all descriptors could be made. */
static bool open_descriptors(tutti__server *s)
{
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->stop = eventfd(0, EFD_CLOEXEC);
    return s->epoll >= 0 && s->stop >= 0 &&
           epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->acceptor.epoll,
                     &(struct epoll_event){.events = EPOLLIN, .data.ptr = &s->acceptor}) == 0 &&
           epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->stop,
                     &(struct epoll_event){.events = EPOLLIN, .data.ptr = &s->stop}) == 0;
}

tutti_status tutti__server_new(tutti__server **server_p, tutti__address *address,
                               const tutti__secret *secret)
{
    tutti__server *s = tutti__alloc(sizeof *s);
    tutti_status status;
    char text[80], where[96];
    int error;

    *server_p = NULL;
    if (!s)
        return TUTTI_ERR_MEMORY;
    status = tutti__listen(address, &s->listener);
    if (status != TUTTI_OK) {
        free(s);
        return status;
    }
    s->next_ms = 1e300;
    s->secret = *secret;
    s->claim = tutti__store_claim(secret);
    atomic_init(&s->least_attempt, secret->attempt);
    tutti__address_text(address, text, sizeof text);
    snprintf(where, sizeof where, "the store at %s", text);
    status =
        tutti__acceptor_open(&s->acceptor, &(tutti__acceptor_opts){.listeners = {s->listener, -1},
                                                                   .secret = &s->secret,
                                                                   .claim = s->claim,
                                                                   .name = where,
                                                                   .max_unproven = MAX_UNPROVEN,
                                                                   .flood = FLOOD,
                                                                   .decide = verdict_on,
                                                                   .welcome = welcome,
                                                                   .context = s});
    if (status != TUTTI_OK) {
        close(s->listener);
        free(s);
        return status;
    }
    error = open_descriptors(s) ? tutti__thread_start(&s->thread, server_main, s) : errno;
    if (error) {
        tutti__acceptor_close(&s->acceptor);
        close(s->listener);
        close(s->epoll);
        close(s->stop);
        free(s);
        return tutti__fail_errno(error, "cannot start the store's server");
    }
    *server_p = s;
    return TUTTI_OK;
}
