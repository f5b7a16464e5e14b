/* roster.c -- which of a round's nodes may continue.   SPDX-License-Identifier: MIT */
#include "launch/decide/roster.h"
#include "launch/message/connection.h"

#include <string.h>

int tutti__roster_index(const tutti__roster *r, int id)
{
    for (int i = 0; i < r->n; i++)
        if (r->list[i].id == id)
            return i;
    return -1;
}

tutti__roster_node *tutti__roster_find(tutti__roster *r, int id)
{
    int i = tutti__roster_index(r, id);

    return i < 0 ? NULL : &r->list[i];
}

bool tutti__roster_is_newer(const tutti__roster *r, const tutti__roster *than)
{
    return r->term != than->term ? r->term > than->term : r->version > than->version;
}

bool tutti__roster_suffices(const tutti__roster *r, bool (*here)(void *context, int id),
                            void *context)
{
    int living = 0, present = 0;
    bool has_first = false;

    for (int i = 0; i < r->n; i++) {
        bool is_here = here(context, r->list[i].id);

        if (!is_here && r->list[i].dead)
            continue;
        has_first |= living++ == 0 && is_here;
        present += is_here;
    }
    return r->n == 0 || 2 * present > living || (2 * present == living && has_first);
}

bool tutti__roster_all_here(const tutti__roster *r, bool (*here)(void *context, int id),
                            void *context)
{
    for (int i = 0; i < r->n; i++)
        if (!r->list[i].dead && !here(context, r->list[i].id))
            return false;
    return true;
}

json_t *tutti__roster_write(const tutti__roster *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n; i++)
        json_array_append_new(list, json_pack("[i, o, i, i]", r->list[i].id,
                                              tutti__message_string(r->list[i].address),
                                              r->list[i].port, r->list[i].workers));
    return json_pack("{s:I, s:I, s:o}", "term", (json_int_t)r->term, "version",
                     (json_int_t)r->version, "list", list);
}

bool tutti__roster_read(tutti__roster *r, const json_t *object)
{
    const json_t *list = json_object_get(object, "list");

    *r = (tutti__roster){.term = tutti__message_number(object, "term", 0),
                         .version = tutti__message_number(object, "version", 0)};
    if (r->term < 1 || r->version < 1 || json_array_size(list) > TUTTI__ROSTER_MAX)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        tutti__roster_node *node = &r->list[r->n++];
        const char *address = json_string_value(json_array_get(entry, 1));

        node->id = (int)json_integer_value(json_array_get(entry, 0));
        node->port = (int)json_integer_value(json_array_get(entry, 2));
        node->workers = (int)json_integer_value(json_array_get(entry, 3));
        if (node->id < 1 || node->workers < 0 || node->port < 0 || node->port > 65535 || !address)
            return false;
        if (strspn(address, "0123456789abcdefghijklmnopqrstuvwxyz"
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ.:_%-") != strlen(address))
            return false;
        snprintf(node->address, sizeof node->address, "%s", address);
    }
    return r->n > 0;
}
