/* message_server.h -- accepts authenticated connections, and exchanges messages with them.   SPDX-License-Identifier: MIT
 *
 * It sends pings, and considers a connection lost if it does not answer. */
#ifndef TUTTI_LAUNCH_MESSAGE_SERVER_H
#define TUTTI_LAUNCH_MESSAGE_SERVER_H

#include "comm/bootstrap/acceptor.h"
#include "launch/message/connection.h"

/* An authenticated connection; the first member of the user's struct. */
typedef struct tutti__client {
    struct tutti__client *next;
    tutti__connection connection;
    bool local; /* it needs no authentication and no pings */
} tutti__client;

typedef struct tutti__message_server_opts {
    size_t client_bytes; /* size of the user's struct, which is zeroed */
    int listener;        /* owned; -1: none */
    const tutti__secret *secret;
    tutti__claim claim;
    double ping_ms; /* between pings */
    int misses;     /* number of pings that may be missed */
    void (*on_message)(void *context, tutti__client *client, const json_t *message);
    void (*on_lost)(void *context, tutti__client *client, const char *why); /* freed afterwards */
    void *context;
} tutti__message_server_opts;

typedef struct tutti__message_server {
    tutti__message_server_opts opts;
    tutti__acceptor acceptor;
    tutti__client *clients;
    double turn_ms; /* last call of serve */
    double ping_at; /* when to ping all */
    bool has_lost;
    int epoll;
} tutti__message_server;

/* With a client to this process itself, or local -1: without. Free in any case. It must not be moved. */
tutti_status tutti__message_server_open(tutti__message_server *server,
                                        const tutti__message_server_opts *opts, int local);
void tutti__message_server_free(tutti__message_server *server);
/* Poll the server's epoll for reading; call serve then, and at the deadline (tutti__now_ms). True: there is more. */
bool tutti__message_server_serve(tutti__message_server *server);
double tutti__message_server_deadline(const tutti__message_server *server);
/* Takes ownership of the message. */
void tutti__message_server_send(tutti__message_server *server, tutti__client *client,
                                json_t *message);

#endif
