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

static bool read_node(tutti__roster_node *node, const json_t *entry)
{
    static const char of_addresses[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ.:_%-";
    const json_int_t id = json_integer_value(json_array_get(entry, 0)),
                     port = json_integer_value(json_array_get(entry, 2)),
                     workers = json_integer_value(json_array_get(entry, 3));
    const char *address = json_string_value(json_array_get(entry, 1));

    if (id < 1 || id > 1 << 30 || workers < 0 || workers > 1 << 16 || port < 0 || port > 65535 ||
        !address || strlen(address) >= sizeof node->address ||
        strspn(address, of_addresses) != strlen(address))
        return false;
    *node = (tutti__roster_node){.id = (int)id, .workers = (int)workers, .port = (int)port};
    strcpy(node->address, address);
    return true;
}

bool tutti__roster_read(tutti__roster *r, const json_t *object)
{
    const tutti__message_nodes m = tutti__message_read_nodes(object);

    *r = (tutti__roster){.term = m.term, .version = m.version};
    if (r->term < 1 || r->version < 1 || !json_is_array(m.list) ||
        json_array_size(m.list) > TUTTI__ROSTER_MAX)
        return false;
    for (size_t i = 0; i < json_array_size(m.list); i++)
        if (!read_node(&r->list[r->n++], json_array_get(m.list, i)))
            return false;
    return true;
}
