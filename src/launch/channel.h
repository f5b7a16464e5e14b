/* channel.h -- messages between a node's agent and the rendezvous: JSON objects over a socket.
 * SPDX-License-Identifier: MIT
 *
 * A message is four bytes of length (little-endian) and that many of JSON. Nothing blocks: what cannot be sent waits in the
 * channel, what has come in part waits for its rest. */
#ifndef TUTTI_LAUNCH_CHANNEL_H
#define TUTTI_LAUNCH_CHANNEL_H

#include "base/base.h"

#include <jansson.h>

enum { TUTTI__MESSAGE_BYTES = 1 << 16 }; /* a longer one is an error */

typedef struct tutti__channel {
    int fd;         /* non-blocking; -1: closed */
    char *in, *out; /* what has come, what waits to be sent */
    size_t n_in, n_out, out_capacity;
    double heard_ms;   /* when something came last (tutti__now_ms) */
    const char *fault; /* why it can be used no more; NULL: it can */
    bool ended;        /* the fault: the other end has closed it, or its host's kernel did for it */
} tutti__channel;

/* Takes the socket over. */
void tutti__channel_open(tutti__channel *channel, int fd);
void tutti__channel_close(tutti__channel *channel);
/* Sends what it can of the message, which it frees; a fault shows at the next receive. */
void tutti__channel_send(tutti__channel *channel, json_t *message);
void tutti__channel_flush(tutti__channel *channel);
/* Reads what there is; a fault is kept until the whole messages before it are taken. */
void tutti__channel_read(tutti__channel *channel);
/* The next whole message, the caller's; NULL: none for now, or a fault. */
json_t *tutti__channel_take(tutti__channel *channel);

/* Fields of messages, which come from outside: a missing or wrong one is the other value. */
int64_t tutti__message_number(const json_t *message, const char *name, int64_t other);
const char *tutti__message_text(const json_t *message, const char *name);
/* Text that may hold any bytes as a JSON string: what is not UTF-8 becomes '?'. */
json_t *tutti__message_string(const char *text);
bool tutti__message_is(const json_t *message, const char *type);

#endif
