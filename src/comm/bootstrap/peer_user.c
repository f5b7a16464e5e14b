/* peer_user.c -- the user of the process at the other end of a connection.   SPDX-License-Identifier: MIT
 *
 * The kernel knows it for unix sockets. For TCP within a host, the kernel's connection table has a row for the other end,
 * with its owner; ends on other hosts are not in it. */
#include "comm/bootstrap/authentication.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* As in rows of /proc/net/tcp (4 bytes) or tcp6 (16): words in memory order, then the port. */
static void row_text(const struct sockaddr_storage *at, size_t bytes, char text[48])
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at;
    uint32_t words[4] = {0, 0, htonl(0xffff), v4->sin_addr.s_addr}; /* mapped to IPv6 */
    uint16_t port = ntohs(v4->sin_port);
    size_t n = 0, first = bytes == 4 ? 3 : 0;

    if (at->ss_family == AF_INET6) {
        memcpy(words, &v6->sin6_addr, sizeof words);
        port = ntohs(v6->sin6_port);
    }
    for (size_t i = first; i < 4; i++)
        n += (size_t)snprintf(text + n, 48 - n, "%08X", words[i]);
    snprintf(text + n, 48 - n, ":%04X", port);
}

/* The owner of the connection's row; -1: none. */
static long find_owner(const char *table, const char *local, const char *remote)
{
    FILE *file = fopen(table, "re");
    char line[512], from[48], to[48];
    long owner = -1, uid;

    while (file && owner < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, " %*d: %47s %47s %*s %*s %*s %*s %ld", from, to, &uid) == 3 &&
            strcmp(from, local) == 0 && strcmp(to, remote) == 0)
            owner = uid;
    if (file)
        fclose(file);
    return owner;
}

/* -1: unknown. */
static long tcp_owner(int fd)
{
    struct sockaddr_storage ours, theirs;
    socklen_t bytes = sizeof ours, their_bytes = sizeof theirs;
    char local[48], remote[48];
    long owner = -1;

    if (getsockname(fd, (struct sockaddr *)&ours, &bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&theirs, &their_bytes) != 0)
        return -1;
    if (theirs.ss_family == AF_INET) {
        row_text(&theirs, 4, local);
        row_text(&ours, 4, remote);
        owner = find_owner("/proc/thread-self/net/tcp", local, remote);
    }
    if (owner >= 0)
        return owner;
    row_text(&theirs, 16, local);
    row_text(&ours, 16, remote);
    return find_owner("/proc/thread-self/net/tcp6", local, remote);
}

bool tutti__of_another_user(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof who;
    struct sockaddr_storage ours;
    socklen_t our_bytes = sizeof ours;
    long owner;

    if (getsockname(fd, (struct sockaddr *)&ours, &our_bytes) != 0)
        return false;
    if (ours.ss_family == AF_UNIX)
        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || who.uid != geteuid();
    owner = tcp_owner(fd);
    return owner >= 0 && owner != (long)geteuid();
}
