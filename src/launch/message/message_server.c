/* message_server.c -- accepts, authenticates, reads and keeps connections alive.   SPDX-License-Identifier: MIT */
#include "launch/message/message_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    PROVE_MS = 10000, /* for a connection to authenticate */
    UNPROVEN = 64     /* connections that are not authenticated yet */
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
    client->deadline = tutti__now_ms() + PROVE_MS;
    client->next = server->clients;
    server->clients = client;
    return client;
}

/* Its memory stays until all events are handled. */
static void lose(tutti__message_server *server, tutti__client *client, const char *why)
{
    server->n_unproven -= !client->proven;
    if (client->proven)
        server->opts.on_lost(server->opts.context, client, why);
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->connection.fd, NULL);
    tutti__connection_close(&client->connection);
}

/* False: authentication failed. */
static bool prove(tutti__message_server *server, tutti__client *client)
{
    int fd = client->connection.fd;
    int state =
        tutti__acceptor_step(&client->acceptor, fd, server->opts.secret, &server->opts.claim);

    if (state == 0)
        return true;
    if (state > 0 && tutti__acceptor_decide(&client->acceptor, fd, TUTTI__WELCOME)) {
        client->proven = true;
        client->deadline = tutti__now_ms() + server->opts.ping_ms;
        server->n_unproven--;
        return true;
    }
    tutti__log_refusal(&server->refusals, fd, &client->acceptor, "the rendezvous", NULL);
    return false;
}

static void serve_client(tutti__message_server *server, tutti__client *client)
{
    json_t *message;

    if (client->connection.fd < 0)
        return; /* lost since the event */
    if (!client->proven) {
        if (!prove(server, client))
            lose(server, client, "");
        return;
    }
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

/* Members of the job authenticate at once: the oldest connection that has not done so is closed, so that strangers that only
 * hold connections keep nobody out. */
static void lose_oldest_unproven(tutti__message_server *server)
{
    tutti__client *oldest = NULL;

    for (tutti__client *client = server->clients; client; client = client->next)
        if (client->connection.fd >= 0 && !client->proven)
            oldest = client; /* the list begins with the newest */
    if (oldest)
        lose(server, oldest, "");
}

static void accept_all(tutti__message_server *server)
{
    int fd;

    while ((fd = tutti__accept(server->opts.listener)) >= 0) {
        if (server->n_unproven >= UNPROVEN)
            lose_oldest_unproven(server);
        if (add(server, fd))
            server->n_unproven++;
    }
    /* else epoll would report the connection again and again */
    if (errno == EMFILE || errno == ENFILE) {
        close(server->spare);
        fd = tutti__accept(server->opts.listener);
        if (fd >= 0)
            close(fd);
        server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

/* Sends pings, and detects lost connections. */
static void keep_alive(tutti__message_server *server)
{
    const bool was_suspended = tutti__was_suspended(&server->turn_ms, server->opts.ping_ms);
    double limit_ms = server->opts.ping_ms * server->opts.misses, now = tutti__now_ms();
    char why[96];

    snprintf(why, sizeof why, "it has not been heard from for %g s", limit_ms * 1e-3);
    for (tutti__client *client = server->clients; client; client = client->next) {
        if (client->connection.fd < 0 || client->local)
            continue;
        if (was_suspended)
            client->connection.heard_ms = now;
        if (client->proven && now - client->connection.heard_ms > limit_ms) {
            lose(server, client, why);
        } else if (!client->proven && now >= client->deadline) {
            lose(server, client, "");
        } else if (now >= client->deadline) {
            tutti__message_server_send(server, client, json_pack("{s:s}", "type", "ping"));
            client->deadline = now + server->opts.ping_ms;
        }
    }
}

static void forget_lost(tutti__message_server *server)
{
    for (tutti__client **at = &server->clients; *at;) {
        tutti__client *client = *at;

        if (client->connection.fd >= 0) {
            at = &client->next;
            continue;
        }
        *at = client->next;
        free(client);
    }
}

bool tutti__message_server_serve(tutti__message_server *server)
{
    struct epoll_event events[64];
    int n = epoll_wait(server->epoll, events, 64, 0);

    for (int i = 0; i < n; i++)
        if (events[i].data.ptr)
            serve_client(server, events[i].data.ptr);
        else
            accept_all(server);
    keep_alive(server);
    forget_lost(server);
    return n == 64;
}

double tutti__message_server_deadline(const tutti__message_server *server)
{
    double next = 1e300;

    for (const tutti__client *client = server->clients; client; client = client->next)
        if (!client->local && client->deadline < next)
            next = client->deadline;
    return next;
}

tutti_status tutti__message_server_open(tutti__message_server *server,
                                        const tutti__message_server_opts *opts, int local)
{
    struct epoll_event event = {.events = EPOLLIN};
    tutti__client *client;

    *server = (tutti__message_server){
        .opts = *opts,
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .spare = opts->listener >= 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1};
    if (server->epoll < 0) {
        if (local >= 0)
            close(local);
        return tutti__fail_errno(errno, "no descriptor for the rendezvous (see ulimit -n)");
    }
    client = local >= 0 ? add(server, local) : NULL;
    if ((local >= 0 && !client) || (opts->listener >= 0 && epoll_ctl(server->epoll, EPOLL_CTL_ADD,
                                                                     opts->listener, &event) != 0))
        return tutti__fail_errno(errno, "cannot wait for connections to the rendezvous");
    if (client)
        client->local = client->proven = true;
    return TUTTI_OK;
}

void tutti__message_server_free(tutti__message_server *server)
{
    for (tutti__client *client = server->clients, *next; client; client = next) {
        next = client->next;
        tutti__connection_close(&client->connection);
        free(client);
    }
    if (server->opts.listener >= 0)
        close(server->opts.listener);
    if (server->epoll >= 0)
        close(server->epoll);
    if (server->spare >= 0)
        close(server->spare);
    server->clients = NULL;
}
