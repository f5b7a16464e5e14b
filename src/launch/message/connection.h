/* connection.h -- messages between a node's agent and the rendezvous: JSON objects over a socket.
 * SPDX-License-Identifier: MIT
 *
 * A message is four bytes of length (little-endian) and that many of JSON. Nothing blocks: unsent and incomplete messages wait
 * in the connection. */
#ifndef TUTTI_LAUNCH_CONNECTION_H
#define TUTTI_LAUNCH_CONNECTION_H

#include "base/base.h"
#include "launch/message/messages.h"

enum { TUTTI__MESSAGE_BYTES = 1 << 17 }; /* a longer one is an error */

typedef struct tutti__connection {
    int fd;         /* non-blocking; -1: closed */
    char *in, *out; /* received and unsent bytes */
    size_t n_in, n_out, out_capacity;
    double heard_ms;   /* time of the last received bytes (tutti__now_ms) */
    const char *fault; /* why it is unusable; NULL: it is not */
    bool ended;        /* the fault is that the other end, or its host's kernel, closed it */
} tutti__connection;

/* Takes ownership of the socket. */
void tutti__connection_open(tutti__connection *connection, int fd);
void tutti__connection_close(tutti__connection *connection);
/* Sends or queues the message, and frees it; a fault is reported by the next take. */
void tutti__connection_send(tutti__connection *connection, json_t *message);
void tutti__connection_flush(tutti__connection *connection);
/* Reads available bytes; a fault is reported after the complete messages before it. */
void tutti__connection_read(tutti__connection *connection);
/* The next complete message, owned by the caller; NULL: none now, or a fault. */
json_t *tutti__connection_take(tutti__connection *connection);

/* Of a loop that keeps peers alive and turns at least every interval_ms: whether it did not, because this process or its machine
 * was suspended. Then the peers' silence says nothing. *turn_ms: the last turn, which this sets; initially 0. */
bool tutti__was_suspended(double *turn_ms, double interval_ms);

#endif
