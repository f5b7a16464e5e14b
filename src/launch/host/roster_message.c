/* roster_message.c -- packs and reads the list of nodes.   SPDX-License-Identifier: MIT */
#include "launch/host/roster_message.h"

#include "launch/message/messages.h"

#include <string.h>

json_t *tutti__roster_list(const tutti__roster *r)
{
    json_t *list = json_array();

    for (int i = 0; i < r->n; i++)
        json_array_append_new(list, json_pack("[i, o, i, i]", r->list[i].id,
                                              tutti__message_string(r->list[i].address),
                                              r->list[i].port, r->list[i].workers));
    return list;
}

json_t *tutti__roster_write(const tutti__roster *r)
{
    return json_pack("{s:I, s:I, s:o}", "term", (json_int_t)r->term, "version",
                     (json_int_t)r->version, "list", tutti__roster_list(r));
}

bool tutti__roster_read(tutti__roster *r, const json_t *object)
{
    const tutti__message_nodes m = tutti__message_read_nodes(object);
    const json_t *list = m.list;

    *r = (tutti__roster){.term = m.term, .version = m.version};
    if (r->term < 1 || r->version < 1 || !json_is_array(list) ||
        json_array_size(list) > TUTTI__ROSTER_MAX)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        tutti__roster_node *node = &r->list[r->n++];
        const char *address = json_string_value(json_array_get(entry, 1));

        node->id = (int)json_integer_value(json_array_get(entry, 0));
        node->port = (int)json_integer_value(json_array_get(entry, 2));
        node->workers = (int)json_integer_value(json_array_get(entry, 3));
        if (node->id < 1 || node->workers < 0 || node->port < 0 || node->port > 65535 || !address ||
            strlen(address) >= sizeof node->address)
            return false;
        if (strspn(address, "0123456789abcdefghijklmnopqrstuvwxyz"
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ.:_%-") != strlen(address))
            return false;
        snprintf(node->address, sizeof node->address, "%s", address);
    }
    return true;
}
