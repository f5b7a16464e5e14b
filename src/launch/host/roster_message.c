/* roster_message.c -- packs and reads the list of nodes.   SPDX-License-Identifier: MIT */
#include "launch/host/roster_message.h"

#include "launch/message/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *tutti__roster_text(const tutti__roster *r)
{
    const size_t most = (size_t)r->n * (TUTTI__ROSTER_ADDRESS + 4 * sizeof "2147483647") + 1;
    char *text = malloc(most);
    size_t used = 0;

    if (text)
        *text = '\0';
    for (int i = 0; i < r->n && text; i++) {
        const tutti__roster_node *n = &r->list[i];

        used += (size_t)snprintf(text + used, most - used, "%d %s %d %d;", n->id,
                                 *n->address ? n->address : "-", n->port, n->workers);
    }
    return text;
}

json_t *tutti__roster_write(const tutti__roster *r)
{
    char *text = tutti__roster_text(r);
    json_t *object = text ? json_pack("{s:I, s:I, s:s}", "term", (json_int_t)r->term, "version",
                                      (json_int_t)r->version, "list", text)
                          : NULL;

    free(text);
    return object;
}

/* A number at *at_p, and the character after it, which become what follows. */
static bool read_number(const char **at_p, int most, char after, int *number)
{
    int64_t value = 0;
    const char *at = *at_p;

    while (*at >= '0' && *at <= '9' && value <= most)
        value = 10 * value + (*at++ - '0');
    if (at == *at_p || value > most || *at != after)
        return false;
    *number = (int)value;
    *at_p = at + 1;
    return true;
}

/* The node at *at_p. */
static bool read_node(tutti__roster_node *node, const char **at_p)
{
    static const char of_addresses[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ.:_%-";
    size_t n;

    *node = (tutti__roster_node){0};
    if (!read_number(at_p, 1 << 30, ' ', &node->id) || node->id < 1)
        return false;
    n = strspn(*at_p, of_addresses);
    if (n == 0 || n >= sizeof node->address || (*at_p)[n] != ' ')
        return false;
    if (n > 1 || **at_p != '-')
        memcpy(node->address, *at_p, n);
    *at_p += n + 1;
    return read_number(at_p, 65535, ' ', &node->port) &&
           read_number(at_p, 1 << 16, ';', &node->workers);
}

bool tutti__roster_read(tutti__roster *r, const json_t *object)
{
    const tutti__message_nodes m = tutti__message_read_nodes(object);

    *r = (tutti__roster){.term = m.term, .version = m.version};
    if (r->term < 1 || r->version < 1)
        return false;
    for (const char *at = m.list; *at;)
        if (r->n >= TUTTI__ROSTER_MAX || !read_node(&r->list[r->n++], &at))
            return false;
    return true;
}
