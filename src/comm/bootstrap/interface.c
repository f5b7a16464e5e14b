/* interface.c -- the network interface that TUTTI_SOCKET_IFNAME selects.   SPDX-License-Identifier: MIT
 *
 * A comma-separated list of names or prefixes; the first that matches wins, and a whole name before a prefix. A leading
 * "=": whole names only; a leading "^": any except those, loopback last ("^" alone: any). */
#include "comm/bootstrap/socket.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { BEGINS = 1, EQUAL = 2 };

/* How well the name matches the item of n characters. */
static int fit(const char *item, size_t n, const char *name, bool whole)
{
    if (strncmp(item, name, n) != 0 || n == 0)
        return 0;
    return name[n] == '\0' ? EQUAL : whole ? 0 : BEGINS;
}

/* Lower is better; UINT_MAX: excluded. */
static unsigned rank_of_name(const char *list, const char *name, bool loopback)
{
    bool except = *list == '^', whole = list[except] == '=';
    unsigned place = 0, best = UINT32_MAX;

    list += except + whole;
    for (const char *item = list; *item; place++) {
        size_t n = strcspn(item, ",");
        int fits = fit(item, n, name, whole);

        if (fits && except)
            return UINT32_MAX;
        if (fits && 2 * place + (fits == BEGINS) < best)
            best = 2 * place + (fits == BEGINS);
        item += n + (item[n] == ',');
    }
    return except ? loopback : best;
}

/* Prefers among the addresses of one interface. */
static unsigned rank_of_address(const struct sockaddr *address, int family)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
    bool link_local = address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
    bool other = address->sa_family != (family == AF_INET6 ? AF_INET6 : AF_INET);

    return (other ? 2u : 0u) + (link_local ? 1u : 0u);
}

static void note(char *names, size_t capacity, const char *name)
{
    size_t n = strlen(names), length = strlen(name);

    for (const char *p = names; (p = strstr(p, name)) != NULL; p += length)
        if ((p == names || p[-1] == ' ') && (p[length] == '\0' || p[length] == ','))
            return;
    if (n < capacity)
        snprintf(names + n, capacity - n, "%s%s", n ? ", " : "", name);
}

tutti_status tutti__interface_address(tutti__address *address, const char *list, int family)
{
    char names[512] = "";
    uint64_t best = UINT64_MAX;
    struct ifaddrs *all;

    if (getifaddrs(&all) != 0)
        return tutti__fail_errno(errno, "cannot list the network interfaces");
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        int kind = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        unsigned by_name;
        uint64_t rank;

        if ((kind != AF_INET && kind != AF_INET6) || !(i->ifa_flags & IFF_UP))
            continue;
        note(names, sizeof names, i->ifa_name);
        by_name = rank_of_name(list, i->ifa_name, i->ifa_flags & IFF_LOOPBACK);
        rank = (uint64_t)by_name << 8 | rank_of_address(i->ifa_addr, family);
        if (by_name == UINT32_MAX || rank >= best)
            continue;
        best = rank;
        *address = (tutti__address){.length = kind == AF_INET ? sizeof(struct sockaddr_in)
                                                              : sizeof(struct sockaddr_in6)};
        memcpy(&address->at, i->ifa_addr, address->length);
    }
    freeifaddrs(all);
    if (!*names)
        return tutti__fail(TUTTI_ERR_ARG,
                           "no network interface of this host has an address, not even lo: "
                           "`ip link set lo up`");
    if (best == UINT64_MAX)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "TUTTI_SOCKET_IFNAME is \"%.100s\", but the interfaces with an address are: %s; give "
            "the name of one, or its beginning",
            list, names);
    tutti__address_set_port(address, 0);
    return TUTTI_OK;
}
