/* directory.c -- where each rank of a group listens.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/directory.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

static tutti__packed_address pack(const tutti__address *address)
{
    tutti__packed_address packed = {.family = address->at.ss_family};

    if (address->length == 0)
        return (tutti__packed_address){0};
    if (packed.family == AF_UNIX) { /* a name of the kernel's: a zero and five digits */
        const struct sockaddr_un *un = (const struct sockaddr_un *)&address->at;
        size_t n = address->length - sizeof un->sun_family;

        if (n > sizeof packed.bytes)
            return (tutti__packed_address){0};
        packed.port = (uint16_t)n;
        memcpy(packed.bytes, un->sun_path, n);
        return packed;
    }
    packed.port = (uint16_t)tutti__address_port(address);
    packed.scope = tutti__address_scope(address);
    if (packed.family == AF_INET6)
        memcpy(packed.bytes, &((const struct sockaddr_in6 *)&address->at)->sin6_addr, 16);
    else
        memcpy(packed.bytes, &((const struct sockaddr_in *)&address->at)->sin_addr, 4);
    return packed;
}

tutti__address tutti__address_unpack(const tutti__packed_address *packed)
{
    tutti__address address = {0};
    struct sockaddr_un *un = (struct sockaddr_un *)&address.at;

    address.at.ss_family = packed->family;
    if (packed->family == AF_UNIX) {
        memcpy(un->sun_path, packed->bytes, packed->port);
        address.length = (socklen_t)(sizeof un->sun_family + packed->port);
        return address;
    }
    if (packed->family == AF_INET6) {
        memcpy(&((struct sockaddr_in6 *)&address.at)->sin6_addr, packed->bytes, 16);
        ((struct sockaddr_in6 *)&address.at)->sin6_scope_id = packed->scope;
        address.length = sizeof(struct sockaddr_in6);
    } else if (packed->family == AF_INET) {
        memcpy(&((struct sockaddr_in *)&address.at)->sin_addr, packed->bytes, 4);
        address.length = sizeof(struct sockaddr_in);
    }
    tutti__address_set_port(&address, packed->port);
    return address;
}

static tutti__address data_address(const tutti__peer_info *infos, int rank, int other)
{
    tutti__address address = infos[other].tcp_at;

    /* link-local: the same link, but each host numbers its interfaces itself */
    tutti__address_set_scope(&address, tutti__address_scope(&infos[rank].tcp_at));
    return address;
}

tutti__address tutti__control_address(const tutti__peer_info *infos, int rank, int other, bool tcp)
{
    return !tcp && infos[other].host_id == infos[rank].host_id ? infos[other].local_at
                                                               : data_address(infos, rank, other);
}

tutti__directory *tutti__directory_new(const tutti__bootstrap *boot, const tutti__peer_info *infos,
                                       const tutti__transport_plan *plan)
{
    int n = boot->comm->size, rank = boot->comm->rank;
    tutti__directory *d = tutti__alloc(sizeof *d + (size_t)n * sizeof d->places[0]);

    if (!d)
        return NULL;
    d->size = n;
    for (int r = 0; r < n; r++) {
        const tutti__address control = tutti__control_address(infos, rank, r, plan->tcp),
                             data = data_address(infos, rank, r);

        d->places[r] = (tutti__directory_entry){
            .control = pack(&control),
            .data = pack(&data),
            .pid = infos[r].pid,
            .here = strncmp(infos[r].host, infos[rank].host, sizeof infos[r].host) == 0};
    }
    return d;
}
