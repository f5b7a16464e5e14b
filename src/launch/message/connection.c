/* connection.c -- a message stream over a socket.   SPDX-License-Identifier: MIT */
#include "launch/message/connection.h"

#include "checkpoint/json_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 4, OUT_LIMIT = 1 << 20 };

void tutti__connection_open(tutti__connection *connection, int fd)
{
    *connection = (tutti__connection){.fd = fd, .heard_ms = tutti__now_ms()};
}

void tutti__connection_close(tutti__connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection->in);
    free(connection->out);
    *connection = (tutti__connection){.fd = -1, .fault = "it is closed"};
}

/* ---- Sending -------------------------------------------------------------------------------------- */

void tutti__connection_flush(tutti__connection *connection)
{
    while (connection->fd >= 0 && connection->n_out > 0) {
        ssize_t n = send(connection->fd, connection->out, connection->n_out, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN) {
                connection->ended = errno == ECONNRESET || errno == EPIPE;
                connection->fault = "the connection was lost";
                connection->n_out = 0;
            }
            return;
        }
        connection->n_out -= (size_t)n;
        memmove(connection->out, connection->out + n, connection->n_out);
    }
}

/* Makes room for `bytes` more in the send buffer. */
static bool reserve(tutti__connection *connection, size_t bytes)
{
    size_t wanted = connection->n_out + bytes;
    char *larger;

    if (wanted <= connection->out_capacity)
        return true;
    larger = wanted <= OUT_LIMIT ? realloc(connection->out, wanted) : NULL;
    if (!larger) {
        connection->fault = "it does not accept messages";
        return false;
    }
    connection->out = larger;
    connection->out_capacity = wanted;
    return true;
}

void tutti__connection_send(tutti__connection *connection, json_t *message)
{
    char *text = tutti__json_text(message, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;

    json_decref(message);
    if (!text || n > TUTTI__MESSAGE_BYTES) {
        connection->fault = "there is no memory for a message";
    } else if (connection->fd >= 0 && reserve(connection, HEAD + n)) {
        for (size_t i = 0; i < HEAD; i++)
            connection->out[connection->n_out + i] = (char)(n >> (8 * i));
        memcpy(connection->out + connection->n_out + HEAD, text, n);
        connection->n_out += HEAD + n;
        tutti__connection_flush(connection);
    }
    free(text);
}

/* ---- Receiving ------------------------------------------------------------------------------------ */

void tutti__connection_read(tutti__connection *connection)
{
    if (connection->fd < 0)
        return;
    if (!connection->in && !(connection->in = malloc(HEAD + TUTTI__MESSAGE_BYTES))) {
        connection->fault = "there is no memory for a message";
        return;
    }
    while (connection->n_in < HEAD + TUTTI__MESSAGE_BYTES) {
        ssize_t n = recv(connection->fd, connection->in + connection->n_in,
                         HEAD + TUTTI__MESSAGE_BYTES - connection->n_in, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            connection->ended = n == 0 || errno == ECONNRESET;
            connection->fault = "the connection was lost";
            return;
        }
        connection->n_in += (size_t)n;
        connection->heard_ms = tutti__now_ms();
    }
}

bool tutti__was_suspended(double *turn_ms, double interval_ms)
{
    double before = *turn_ms;

    *turn_ms = tutti__now_ms();
    return before > 0 && *turn_ms - before >= 2 * interval_ms;
}

/* Texts of peers may be printed on a terminal. */
static void make_printable(json_t *message)
{
    const char *name, *text;
    json_t *value;
    void *next;

    json_object_foreach_safe(message, next, name, value)
    {
        const size_t room = (text = json_string_value(value)) ? 4 * strlen(text) + 1 : 0;
        char *copy = text ? malloc(room) : NULL;

        if (copy && strcmp(tutti__printable(text, copy, room), text) != 0)
            json_string_set(value, copy);
        free(copy);
    }
}

json_t *tutti__connection_take(tutti__connection *connection)
{
    const unsigned char *head = (const unsigned char *)connection->in;
    size_t n = 0;
    json_t *message;

    if (connection->n_in < HEAD)
        return NULL;
    for (size_t i = 0; i < HEAD; i++)
        n |= (size_t)head[i] << (8 * i);
    if (n > TUTTI__MESSAGE_BYTES) {
        connection->fault = "its messages are not those of tutti run";
        connection->n_in = 0;
        return NULL;
    }
    if (connection->n_in < HEAD + n)
        return NULL;
    message = json_loadb(connection->in + HEAD, n, JSON_REJECT_DUPLICATES, NULL);
    connection->n_in -= HEAD + n;
    memmove(connection->in, connection->in + HEAD + n, connection->n_in);
    if (json_is_object(message)) {
        make_printable(message);
        return message;
    }
    json_decref(message);
    connection->fault = "its messages are not those of tutti run";
    connection->n_in = 0;
    return NULL;
}
