/* rendezvous.c -- the workers' rendezvous: a port, a secret, a store.   SPDX-License-Identifier: MIT */
#include "launch/agent/rendezvous.h"
#include "launch/process/port_owner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Binds a socket to `port` (0: the kernel's choice) on all addresses, as rank 0 of a program would, and closes it.
 * Returns the port; -1: errno. */
static int probe_port(int port, bool reuse)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr *address = (struct sockaddr *)&six;
    socklen_t bytes = sizeof six;
    int on = 1, off = 0, found = -1, problem, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) { /* no IPv6 */
        address = (struct sockaddr *)&four;
        bytes = sizeof four;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return -1;
    } else {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (reuse)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address, bytes) == 0 && getsockname(fd, address, &bytes) == 0)
        found = ntohs(address->sa_family == AF_INET6 ? six.sin6_port : four.sin_port);
    problem = errno;
    close(fd);
    errno = problem;
    return found;
}

static int random_below(int n)
{
    uint32_t word = 0;

    if (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word)
        word = (uint32_t)tutti__now_ns();
    return (int)(word % (uint32_t)n);
}

/* A free port, below the kernel's range for outgoing connections, so that none of them takes it
 * before rank 0 does. Returns -1 with errno if there is none. */
static int free_port(void)
{
    const int lowest = 16384;
    int range = 0, port = -1;
    char text[64];

    if (tutti__slurp("/proc/sys/net/ipv4/ip_local_port_range", text, sizeof text))
        range = atoi(text);
    for (int i = 0; i < 64 && port < 0 && range >= lowest + 1024; i++)
        port = probe_port(lowest + random_below(range - lowest), false);
    return port > 0 ? port : probe_port(0, false);
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

tutti_status tutti__job_choose_port(const tutti__job *job, int *port_p)
{
    int port = job->opts.nodes.max > 1 ? 0 : job->opts.master_port;
    char owner[160] = "";

    *port_p = port;
    if (port == 0) {
        *port_p = free_port();
        if (*port_p < 0)
            return tutti__fail_errno(errno, "no free port for MASTER_PORT");
    } else if (is_loopback(job->opts.master_addr) && probe_port(port, true) < 0) {
        int error = errno;

        tutti__port_owner(port, owner, sizeof owner);
        return tutti__fail_errno(error,
                                 "port %d (--master-port) cannot be used%s%s; without the flag a "
                                 "free port is chosen",
                                 port, *owner ? ": it is taken by " : "", owner);
    }
    return TUTTI_OK;
}

tutti_status tutti__job_make_secret(tutti__job *job)
{
    unsigned char bytes[32];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return tutti__fail_errno(errno, "no random bytes for the job's secret");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(job->secret + 2 * i, 3, "%02x", bytes[i]);
    return TUTTI_OK;
}

tutti_status tutti__job_host_store(tutti__job *job, const char *bind_to, const char *address)
{
    bool v6 = strchr(address, ':') && address[0] != '[';

    /* The secret of the store hosted here; unset the rank, which is another job's if one of its workers started this process. */
    setenv("TUTTI_SECRET", job->secret, 1);
    setenv("TORCHELASTIC_RUN_ID", job->id, 1);
    setenv("TUTTI_ATTEMPT", "0", 1);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("LOCAL_RANK");
    TUTTI_TRY(tutti_store_tcp_serve(&job->store, bind_to, 0));
    snprintf(job->store_address, sizeof job->store_address, v6 ? "[%s]:%d" : "%s:%d", address,
             tutti_store_port(job->store));
    return TUTTI_OK;
}
