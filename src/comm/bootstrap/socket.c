/* socket.c -- sockets with deadlines.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tutti__address_text(const tutti__address *address, char *text, size_t capacity)
{
    char host[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = "?", name[IF_NAMESIZE];
    uint32_t scope = tutti__address_scope(address);
    int port = tutti__address_port(address);

    if (address->at.ss_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)&address->at)->sin_addr, host,
                  sizeof host);
    else if (address->at.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)&address->at)->sin6_addr, host,
                  INET6_ADDRSTRLEN);
    if (scope > 0 && if_indextoname(scope, name))
        snprintf(host + strlen(host), sizeof host - strlen(host), "%%%s", name);
    if (address->at.ss_family == AF_UNIX)
        snprintf(text, capacity, "@unix");
    else
        snprintf(text, capacity, address->at.ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d", host,
                 port);
}

uint32_t tutti__address_scope(const tutti__address *address)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->at;

    return address->at.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)
               ? v6->sin6_scope_id
               : 0;
}

void tutti__address_set_scope(tutti__address *address, uint32_t scope)
{
    if (scope > 0 && tutti__address_scope(address) > 0)
        ((struct sockaddr_in6 *)&address->at)->sin6_scope_id = scope;
}

void tutti__address_host_text(const tutti__address *address, char *text, size_t capacity)
{
    char *port;

    tutti__address_text(address, text, capacity);
    port = strrchr(text, ':');
    if (port)
        *port = '\0';
}

bool tutti__address_is_loopback(const tutti__address *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->at;

    if (address->at.ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    if (address->at.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    return address->at.ss_family == AF_UNIX;
}

int tutti__address_port(const tutti__address *address)
{
    if (address->at.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&address->at)->sin_port);
    if (address->at.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->at)->sin6_port);
    return 0;
}

void tutti__address_set_port(tutti__address *address, int port)
{
    if (address->at.ss_family == AF_INET)
        ((struct sockaddr_in *)&address->at)->sin_port = htons((uint16_t)port);
    else if (address->at.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->at)->sin6_port = htons((uint16_t)port);
}

static tutti_status resolve(tutti__address *address, const char *host, int port, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL, *chosen;
    size_t n = strlen(host);
    char bare[256];
    int error;

    /* RFC 6761: localhost is always the loopback; a bare container may have no /etc/hosts. */
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (n > 2 && n < sizeof bare && host[0] == '[' && host[n - 1] == ']') {
        snprintf(bare, sizeof bare, "%.*s", (int)n - 2, host + 1);
        host = bare;
    }
    error = getaddrinfo(host, NULL, &hints, &list);

    if (error != 0 || !list)
        return tutti__fail(
            TUTTI_ERR_NOT_FOUND,
            "host \"%s\" has no address: %s; give a name that DNS or /etc/hosts knows", host,
            error ? gai_strerror(error) : "empty answer");
    /* Prefers IPv4: hosts order the answers differently, and all must choose the same. */
    for (chosen = list; chosen && chosen->ai_family != AF_INET;)
        chosen = chosen->ai_next;
    chosen = chosen ? chosen : list;
    *address = (tutti__address){.length = chosen->ai_addrlen};
    memcpy(&address->at, chosen->ai_addr, chosen->ai_addrlen);
    freeaddrinfo(list);
    tutti__address_set_port(address, port);
    return TUTTI_OK;
}

tutti_status tutti__resolve(tutti__address *address, const char *host, int port)
{
    return resolve(address, host, port, 0);
}

tutti_status tutti__resolve_numeric(tutti__address *address, const char *host, int port)
{
    return resolve(address, host, port, AI_NUMERICHOST);
}

static void set_no_delay(int fd)
{
    /* Fails on a unix socket, which has no such delay. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

tutti_status tutti__listen(tutti__address *address, int *fd_p)
{
    char text[80];
    int error, fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    tutti__address_text(address, text, sizeof text);
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot make a socket for %s", text);
    if (address->at.ss_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&address->at, address->length) == 0 && listen(fd, 1024) == 0) {
        address->length = sizeof address->at;
        getsockname(fd, (struct sockaddr *)&address->at, &address->length);
        *fd_p = fd;
        return TUTTI_OK;
    }
    error = errno;
    close(fd);
    if (error == EADDRINUSE && tutti__address_port(address) == 0)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "cannot listen on %s: this host has no free port left (see ss -s, and "
                           "sysctl net.ipv4.ip_local_port_range)",
                           text);
    if (error == EADDRINUSE)
        return tutti__fail(TUTTI_ERR_IO,
                           "cannot listen on %s: another process listens there (`ss -ltnp 'sport = "
                           ":%d'` shows which); set "
                           "MASTER_PORT to a free port, or start with `tutti run`, which picks one",
                           text, tutti__address_port(address));
    if (error == EADDRNOTAVAIL)
        return tutti__fail(TUTTI_ERR_IO,
                           "cannot listen on %s: the address is not of this host; rank 0 must run "
                           "on the host that MASTER_ADDR "
                           "names",
                           text);
    return tutti__fail_errno(error, "cannot listen on %s", text);
}

int tutti__poll_ms(double deadline)
{
    double left = deadline - tutti__now_ms();

    return left <= 0 ? 0 : left > 1e9 ? 1000000000 : (int)left + 1;
}

static _Thread_local int heeded = -1, unreached = -1;

void tutti__sockets_heed(int fd)
{
    heeded = fd;
    if (fd >= 0)
        unreached = -1;
}

bool tutti__sockets_heeds(void)
{
    return heeded >= 0;
}

void tutti__sockets_note_unreached(int rank)
{
    unreached = rank;
}

int tutti__sockets_unreached(void)
{
    return unreached;
}

int tutti__sockets_poll(struct pollfd *fds, size_t n, int ms)
{
    int ready;

    fds[n] = (struct pollfd){heeded, POLLIN, 0}; /* a negative one is ignored */
    ready = poll(fds, (nfds_t)n + 1, ms);
    if (ready <= 0 || fds[n].revents == 0)
        return ready;
    errno = ECANCELED;
    return -1;
}

bool tutti__sockets_called_off(void)
{
    return tutti__sockets_poll((struct pollfd[1]){{0}}, 0, 0) < 0 && errno == ECANCELED;
}

int tutti__connect_begin(const tutti__address *address)
{
    int error = 0,
        fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&address->at, address->length) != 0)
        error = errno;
    if (!error || error == EINPROGRESS)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

int tutti__connect_end(int fd)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    set_no_delay(fd);
    return error;
}

int tutti__accept(int listener, tutti__address *from)
{
    tutti__address other = {.length = sizeof other.at};
    int fd = accept4(listener, (struct sockaddr *)&other.at, &other.length,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0)
        set_no_delay(fd);
    if (from)
        *from = other;
    return fd;
}

/* Waits for `events`; 0, or an errno. */
static int ready(int fd, short events, double deadline)
{
    int n = tutti__sockets_poll((struct pollfd[2]){{fd, events, 0}}, 1, tutti__poll_ms(deadline));

    if (n < 0 && errno != EINTR)
        return errno;
    return n == 0 && tutti__now_ms() >= deadline ? ETIMEDOUT : 0;
}

int tutti__send_all(int fd, const void *p, size_t bytes, double deadline)
{
    const char *next = p;

    while (bytes > 0) {
        ssize_t n = send(fd, next, bytes, MSG_NOSIGNAL);
        int error = n < 0 && errno != EINTR ? errno : 0;

        if (error == EAGAIN)
            error = ready(fd, POLLOUT, deadline);
        if (error)
            return error;
        if (n > 0) {
            next += n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}

int tutti__receive_all(int fd, void *p, size_t bytes, double deadline)
{
    char *next = p;

    while (bytes > 0) {
        ssize_t n = recv(fd, next, bytes, 0);
        int error = n == 0 ? ECONNRESET : n < 0 && errno != EINTR ? errno : 0;

        if (error == EAGAIN)
            error = ready(fd, POLLIN, deadline);
        if (error)
            return error;
        if (n > 0) {
            next += n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}
