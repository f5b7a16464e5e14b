/* host_address.c -- this host's address for ranks on other hosts.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/socket.h"

#include <tutti/store.h>

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* This host's address towards `host`: that of a datagram socket connected to it, which sends nothing. */
static tutti_status address_towards(const char *host, tutti__address *address)
{
    enum { ANY_PORT = 9 };
    tutti__address theirs, mine = {.length = sizeof mine.at};
    int fd, error = 0;

    TUTTI_TRY(tutti__resolve(&theirs, host, ANY_PORT));
    fd = socket(theirs.at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&theirs.at, theirs.length) != 0 ||
        getsockname(fd, (struct sockaddr *)&mine.at, &mine.length) != 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    if (error)
        return tutti__fail_errno(error, "no way from this host to %s", host);
    tutti__address_set_port(&mine, 0);
    *address = mine;
    return TUTTI_OK;
}

/* Whether it names this host only: ranks on other hosts are not to be reached. */
static bool names_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

/* A host's own name often means a loopback address there (127.0.1.1 on Debian), which is no
 * address for others. */
tutti_status tutti__host_address(tutti__address *address, const char *host)
{
    TUTTI_TRY(address_towards(host, address));
    if (!tutti__address_is_loopback(address) || names_loopback(host))
        return TUTTI_OK;
    return tutti__interface_address(address, "^", address->at.ss_family);
}

tutti_status tutti_host_address(const char *reaches, char *text, size_t capacity)
{
    const char *interfaces = tutti__env_text(TUTTI__ENV_SOCKET_IFNAME);
    tutti__address address;
    char found[128];

    if (!reaches || !*reaches)
        return tutti__fail(TUTTI_ERR_ARG, "host_address: no host to reach given");
    if (*interfaces)
        TUTTI_TRY(tutti__interface_address(&address, interfaces, 0));
    else
        TUTTI_TRY(tutti__host_address(&address, reaches));
    tutti__address_host_text(&address, found, sizeof found);
    if (!text || strlen(found) >= capacity)
        return tutti__fail(TUTTI_ERR_ARG,
                           "host_address: %s needs %zu bytes, but only %zu are given", found,
                           strlen(found) + 1, text ? capacity : 0);
    memcpy(text, found, strlen(found) + 1);
    return TUTTI_OK;
}
