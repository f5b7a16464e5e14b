/* message_server.c -- accepts, authenticates, reads and keeps connections alive.   SPDX-License-Identifier: MIT */
#include "launch/message/message_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    MAX_UNPROVEN = 4096,
    FLOOD = 100 /* strangers within a second */
};

/* ---- One client --------------------------------------------------------------------------------------- */

/* Polls for writing while there are unsent bytes. */
static void watch(tutti__message_server *server, tutti__client *client)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

    if (client->connection.n_out > 0)
        event.events |= EPOLLOUT;
    if (client->connection.fd >= 0)
        epoll_ctl(server->epoll, EPOLL_CTL_MOD, client->connection.fd, &event);
}

void tutti__message_server_send(tutti__message_server *server, tutti__client *client,
                                json_t *message)
{
    tutti__connection_send(&client->connection, message);
    watch(server, client);
}

static tutti__client *add(tutti__message_server *server, int fd)
{
    tutti__client *client = calloc(1, server->opts.client_bytes);

    if (!client || epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd,
                             &(struct epoll_event){.events = EPOLLIN, .data.ptr = client}) != 0) {
        free(client);
        close(fd);
        return NULL;
    }
    tutti__connection_open(&client->connection, fd);
    client->next = server->clients;
    server->clients = client;
    return client;
}

/* Its memory stays until all events are handled. */
static void lose(tutti__message_server *server, tutti__client *client, const char *why)
{
    server->opts.on_lost(server->opts.context, client, why);
    server->has_lost = true;
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->connection.fd, NULL);
    tutti__connection_close(&client->connection);
}

static void welcome(void *context, int fd, const tutti__claim *claim)
{
    (void)claim;
    (void)add(context, fd);
}

static void serve_client(tutti__message_server *server, tutti__client *client)
{
    json_t *message;

    if (client->connection.fd < 0)
        return; /* lost since the event */
    tutti__connection_flush(&client->connection);
    tutti__connection_read(&client->connection);
    while ((message = tutti__connection_take(&client->connection)) != NULL) {
        server->opts.on_message(server->opts.context, client, message);
        json_decref(message);
    }
    if (client->connection.fault)
        lose(server, client, client->connection.fault);
    else
        watch(server, client);
}

/* ---- All of them ------------------------------------------------------------------------------------ */

/* Sends pings, and detects lost connections: of all at the same time, so that other turns need not look at them. */
static void keep_alive(tutti__message_server *server)
{
    const bool was_suspended = tutti__was_suspended(&server->turn_ms, server->opts.ping_ms);
    double limit_ms = server->opts.ping_ms * server->opts.misses, now = tutti__now_ms();
    char why[96];

    if (!was_suspended && now < server->ping_at)
        return;
    snprintf(why, sizeof why, "it has not been heard from for %g s", limit_ms * 1e-3);
    for (tutti__client *client = server->clients; client; client = client->next) {
        if (client->connection.fd < 0 || client->local)
            continue;
        if (was_suspended)
            client->connection.heard_ms = now;
        if (now - client->connection.heard_ms > limit_ms)
            lose(server, client, why);
        else if (now >= server->ping_at)
            tutti__message_server_send(server, client, tutti__message_pack(TUTTI__MESSAGE_PING));
    }
    if (now >= server->ping_at)
        server->ping_at = now + server->opts.ping_ms;
}

static void forget_lost(tutti__message_server *server)
{
    for (tutti__client **at = &server->clients; server->has_lost && *at;) {
        tutti__client *client = *at;

        if (client->connection.fd >= 0) {
            at = &client->next;
            continue;
        }
        *at = client->next;
        free(client);
    }
    server->has_lost = false;
}

bool tutti__message_server_serve(tutti__message_server *server)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(server->epoll, events, EVENTS, 0);

    for (int i = 0; i < n; i++)
        if (events[i].data.ptr != &server->acceptor)
            serve_client(server, events[i].data.ptr);
    if (server->opts.listener >= 0)
        (void)tutti__acceptor_serve(&server->acceptor);
    keep_alive(server);
    forget_lost(server);
    return n == EVENTS;
}

double tutti__message_server_deadline(const tutti__message_server *server)
{
    const bool is_alone = !server->clients || (server->clients->local && !server->clients->next);
    double next = server->opts.listener >= 0 ? tutti__acceptor_deadline(&server->acceptor) : 1e300;

    return is_alone || next < server->ping_at ? next : server->ping_at;
}

static tutti_status open_acceptor(tutti__message_server *server)
{
    TUTTI_TRY(tutti__acceptor_open(&server->acceptor,
                                   &(tutti__acceptor_opts){.listeners = {server->opts.listener, -1},
                                                           .secret = server->opts.secret,
                                                           .claim = server->opts.claim,
                                                           .name = "the rendezvous",
                                                           .max_unproven = MAX_UNPROVEN,
                                                           .flood = FLOOD,
                                                           .welcome = welcome,
                                                           .context = server}));
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->acceptor.epoll,
                  &(struct epoll_event){.events = EPOLLIN, .data.ptr = &server->acceptor}) != 0)
        return tutti__fail_errno(errno, "cannot wait for connections to the rendezvous");
    return TUTTI_OK;
}

tutti_status tutti__message_server_open(tutti__message_server *server,
                                        const tutti__message_server_opts *opts, int local)
{
    tutti__client *client;

    *server = (tutti__message_server){.opts = *opts,
                                      .epoll = epoll_create1(EPOLL_CLOEXEC),
                                      .ping_at = tutti__now_ms() + opts->ping_ms,
                                      .acceptor = {.epoll = -1, .spare = -1}};
    if (server->epoll < 0) {
        if (local >= 0)
            close(local);
        return tutti__fail_errno(errno, "no descriptor for the rendezvous (see ulimit -n)");
    }
    client = local >= 0 ? add(server, local) : NULL;
    if (local >= 0 && !client)
        return tutti__fail_errno(errno, "cannot wait for messages of this node");
    if (client)
        client->local = true;
    return opts->listener >= 0 ? open_acceptor(server) : TUTTI_OK;
}

void tutti__message_server_free(tutti__message_server *server)
{
    for (tutti__client *client = server->clients, *next; client; client = next) {
        next = client->next;
        tutti__connection_close(&client->connection);
        free(client);
    }
    tutti__acceptor_close(&server->acceptor);
    if (server->opts.listener >= 0)
        close(server->opts.listener);
    if (server->epoll >= 0)
        close(server->epoll);
    server->clients = NULL;
}
